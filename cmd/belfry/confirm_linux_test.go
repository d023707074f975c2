package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/belfryhq/belfry/outbox/relay"
)

// openTerminal opens a terminal: its person's end and its program's.
func openTerminal(t *testing.T) (person, tty *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return person, tty
}

// startAtTerminal is start with a person at a terminal: what belfry shows there is its
// stderr, and what is written to the file is typed.
func startAtTerminal(t *testing.T, environ []string, args ...string) (*process, *os.File) {
	t.Helper()
	person, tty := openTerminal(t)
	p := startOn(t, tty, environ, args...)
	require.NoError(t, tty.Close())
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&p.stderr, person) // until the process has closed the terminal
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // usually gone already
		<-p.ended
		<-read
		require.NoError(t, person.Close())
	})
	return p, person
}

// A person at a terminal sees what would leave and is asked; whatever is no yes is a no.
func TestAdopt_AsksAtATerminal(t *testing.T) {
	t.Parallel()
	d := deliverable(t, newKept(t), 20)
	_, err := d.db.Pool.Exec(t.Context(), `UPDATE belfry.installation SET database_oid = NULL`)
	require.NoError(t, err)
	adopted := func() string { return textOf(t, d.db, `SELECT belfry.delivers()::text`) }
	for _, answer := range []string{"", "n", "yep"} {
		p, person := startAtTerminal(t, d.environ(), "adopt")
		p.says(t, "Adopt it? [y/N] ")
		p.prints(t, "adopted, relays send:\n  20 messages of 1 job enqueued in the last hour\n")
		_, err := person.WriteString(answer + "\n")
		require.NoError(t, err)
		require.Equal(t, codeUsage, p.exit(t), p.stderr.String())
		p.says(t, "belfry: nothing was changed; say --yes")
		require.Equal(t, "false", adopted(), "%q", answer)
	}

	p, _ := startAtTerminal(t, d.environ(), "adopt")
	p.says(t, "Adopt it? [y/N] ")
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.Equal(t, codeFailure, p.exit(t), "a signal ends the question")
	p.says(t, "belfry: interrupted by a signal")
	p, _ = startAtTerminal(t, d.environ(), "adopt", "--json")
	require.Equal(t, codeUsage, p.exit(t), "what it would do is not shown as a person reads it")
	require.NotContains(t, p.stderr.String(), "Adopt it?")
	require.Equal(t, "false", adopted())

	p, person := startAtTerminal(t, d.environ(), "adopt")
	p.says(t, "Adopt it? [y/N] ")
	_, err = person.WriteString("Yes\n")
	require.NoError(t, err)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Contains(t, p.stdout.String(), "adopted: relays deliver from database ")
	require.Equal(t, "true", adopted())
}

// An act that reaches many people is confirmed by their number; a yes does not confirm it.
func TestLong_AskToManyTheirNumberIsTyped(t *testing.T) {
	t.Parallel()
	d := deliverable(t, newKept(t), 1001)
	adopted := func() string { return textOf(t, d.db, `SELECT belfry.delivers()::text`) }
	_, err := d.db.Pool.Exec(t.Context(), `UPDATE belfry.installation SET database_oid = NULL`)
	require.NoError(t, err)
	for _, answer := range []string{"y", "yes", "", "100", "1001"} {
		p, person := startAtTerminal(t, d.environ(), "adopt")
		p.says(t, "Adopt it? Type 1,001, to how many it goes: ")
		_, err := person.WriteString(answer + "\n")
		require.NoError(t, err)
		if answer == "1001" {
			require.Equal(t, codeDone, p.exit(t), p.stderr.String())
			require.Equal(t, "true", adopted())
			continue
		}
		require.Equal(t, codeUsage, p.exit(t), p.stderr.String())
		require.Equal(t, "false", adopted(), "%q", answer)
	}
	p, person := startAtTerminal(t, d.environ(), "enqueue", "--type", "inbox", "--category", "operator_notice", "--title", "Hello", "--everyone", "--at", "2020-01-02 03:04")
	p.says(t, "Enqueue it? Type 1,001, to how many it goes: ")
	_, err = person.WriteString("1,001\n")
	require.NoError(t, err)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}

// A script at a terminal is not asked: what would be is refused, with the flag that says it.
func TestAsk_NoInput(t *testing.T) {
	t.Parallel()
	d := deliverable(t, newKept(t), 20)
	_, err := d.db.Pool.Exec(t.Context(), `UPDATE belfry.installation SET database_oid = NULL`)
	require.NoError(t, err)
	for _, c := range []struct {
		environ []string
		args    []string
		says    string
	}{
		{nil, []string{"adopt", "--no-input"}, "belfry: nothing was changed; say --yes if relays are to deliver messages from here"},
		{[]string{"BELFRY_NO_INPUT=true"}, []string{"adopt"}, "belfry: nothing was changed; say --yes if relays are to deliver messages from here"},
		{nil, []string{"transport", "rebuild", "--no-input"}, "say --yes if all that is queued is to be pushed again"},
		{nil, []string{"enqueue", "--type", "inbox", "--category", "operator_notice", "--title", "Hello", "--everyone", "--at", "2020-01-02 03:04", "--no-input"}, "say --yes if that is meant"},
		{nil, []string{"users", "add", "kim", "--role", "viewer", "--no-input"}, "--password-file: is required"},
		{[]string{"BELFRY_NO_INPUT=perhaps"}, []string{"adopt"}, "BELFRY_NO_INPUT"},
	} {
		p, _ := startAtTerminal(t, d.environ(c.environ...), c.args...)
		code := p.exit(t)
		p.says(t, c.says)
		require.NotContains(t, p.stderr.String(), "[y/N]", c.args)
		require.NotContains(t, p.stderr.String(), "again: ", c.args)
		if c.environ == nil || c.environ[0] == "BELFRY_NO_INPUT=true" {
			require.Equal(t, codeUsage, code, p.stderr.String())
		}
	}
	require.Equal(t, "false", textOf(t, d.db, `SELECT belfry.delivers()::text`))
	p, _ := startAtTerminal(t, d.environ(), "adopt", "--no-input", "--yes")
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}

// The same of a job whose time has passed.
func TestEnqueue_AsksAtATerminalWhetherAPastTimeIsMeant(t *testing.T) {
	t.Parallel()
	db := newKept(t)
	for _, answer := range []string{"n", "y"} {
		p, person := startAtTerminal(t, []string{"BELFRY_DATABASE_URL=" + db.DSN},
			"enqueue", "--type", "inbox", "--category", "operator_notice", "--title", "Hello", "--everyone", "--at", "2020-01-02 03:04")
		p.says(t, " ago: the job would start at once. Enqueue it? [y/N] ")
		require.Zero(t, count(t, db, "belfry.jobs"))
		_, err := person.WriteString(answer + "\n")
		require.NoError(t, err)
		if answer == "n" {
			require.Equal(t, codeUsage, p.exit(t), p.stderr.String())
			p.says(t, "say --yes if that is meant")
			continue
		}
		require.Equal(t, codeDone, p.exit(t), p.stderr.String())
		require.EqualValues(t, 1, count(t, db, "belfry.jobs"))
	}
}

// Dead letters do not flood a person's terminal, which counts them. Elsewhere, as in the
// mail of cron, each is a line of the log, and where a level is asked for.
func TestLong_DeadLettersAreCountedAtATerminal(t *testing.T) {
	t.Parallel()
	d := deliverable(t, newKept(t), 6)
	d.exec(`UPDATE belfry.channels SET addresses = '{}' WHERE id <= 4`)
	p, _ := startAtTerminal(t, d.environ(), "run", "--deliver")
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	p.says(t, "2 sent, 4 dead (")
	require.NotContains(t, p.stderr.String(), relay.DeadLetter)

	d.enqueue()
	p, _ = startAtTerminal(t, d.environ("BELFRY_LOG_LEVEL=warn"), "run", "--deliver")
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	p.says(t, "2 sent, 4 dead (")
	require.Equal(t, 4, strings.Count(p.stderr.String(), relay.DeadLetter), p.stderr.String())

	d.enqueue()
	r := command(t, d.environ(), "run", "--deliver")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Equal(t, 4, strings.Count(r.stderr, relay.DeadLetter), r.stderr)
}
