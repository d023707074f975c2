package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/outbox/relay"
)

func TestCodeOf(t *testing.T) {
	t.Parallel()
	server := func(code string) error { return fmt.Errorf("list jobs: %w", &pgconn.PgError{Code: code}) }
	wrapped := func(err error) error { return errors.Join(fmt.Errorf("doing: %w", err), nil) }
	flag := config.Problem{From: config.Source{Kind: config.FromFlag, Name: "--log-level"}}
	for _, c := range []struct {
		err  error
		want code
	}{
		{nil, codeDone},
		{errors.New("something"), codeFailure},
		{usagef("bad"), codeUsage},
		{wrapped(&exitError{codeHeld, errors.New("held")}), codeHeld},
		{wrapped(&migrations.HeldError{Err: &pgconn.PgError{Code: "55P03"}}), codeHeld},
		{&config.Error{Problems: []config.Problem{flag}}, codeUsage},
		{&config.Error{Problems: []config.Problem{flag, {}}}, codeConfiguration},
		{pgserver.ErrNotInstalled, codeUnavailable},
		{wrapped(job.ErrUnreachable), codeUnavailable},
		{wrapped(&pgconn.ConnectError{}), codeUnavailable},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, codeUnavailable},
		{server("08006"), codeUnavailable},
		{server("57P01"), codeUnavailable},
		{server("53300"), codeUnavailable},
		{server("57014"), codeFailure},
		{server("25006"), codeUnavailable},
		{(&oneRun{runOptions: &runOptions{quiet: true}, slow: relay.ErrSlowStart}).judge(), codeUnavailable},
		{server("42P01"), codeFailure},
		{&exitError{codeUnavailable, context.Canceled}, codeFailure},
		{&node.ConnectError{Err: errors.New("refused")}, codeUnavailable},
		{migrations.Schema{}.Check(), codeConfiguration},
		{migrations.Schema{Version: migrations.Latest() - 1}.Check(), codeConfiguration},
		{migrations.Schema{Version: migrations.Latest() + 1, UsableFrom: migrations.Latest() + 1}.Check(), codeConfiguration},
	} {
		require.Equal(t, c.want, codeOf(c.err), "%v", c.err)
	}
}

func TestExitCodes_AreAllDocumented(t *testing.T) {
	t.Parallel()
	documented := make(map[code]bool)
	for _, e := range exitCodes {
		require.NotEmpty(t, e.meaning)
		documented[e.code] = true
	}
	for _, c := range []code{codeDone, codeFailure, codeUsage, codeAborted, codeUnavailable, codeHeld, codeConfiguration} {
		require.True(t, documented[c], c)
	}
}

func TestExplain_ShowsTheServersHintOnce(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("list jobs: %w", &pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied", Hint: "Ask the owner."})
	require.Equal(t, "list jobs: ERROR: permission denied (SQLSTATE 42501)\n  Ask the owner.", explain(t.Context(), err))
	invalid := &job.InvalidError{Column: "title", Message: "belfry.jobs.title: is blank", Hint: "Nothing was written."}
	require.Equal(t, "belfry.jobs.title: is blank (Nothing was written.)", explain(t.Context(), invalid))
}

// deadEnd is a standard output on a full disk.
type deadEnd struct{}

func (deadEnd) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestExecute_DataThatDoesNotArriveIsAFailure(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	a := newApp(nil, &stderr, []string{"BELFRY_DATABASE_URL=" + dbtest.New(t).DSN})
	for _, args := range [][]string{
		{"version"}, {"--help"}, {"config", "show"}, {"roles", "--for", "run"}, {"jobs", "list", "--json"}, {"jobs", "list", "-o", "csv"}, {"jobs", "list"}, {"limits", "list"},
		{"doctor"}, {"migrate", "status"}, {"enqueue", "--type", "inbox", "--category", "operator_notice", "--title", "x", "--everyone"},
		{"jobs", "watch", "1", "--follow"}, {"jobs", "list", "--watch"}, {"jobs", "list", "--watch", "--json"},
	} {
		stderr.Reset()
		a.stdout = deadEnd{}
		require.Equal(t, codeFailure, a.execute(t.Context(), args), args)
		require.Regexp(t, `(?m)^belfry: .*no space left on device$`, stderr.String(), args)
	}
}

// What a signal cut short is no failure of a command that ends by one, whether a function
// returns the context's error or its cause; of any other command it is one, and said alike.
func TestUntilSignal_KnowsErrorAndCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	for _, err := range []error{ctx.Err(), context.Cause(ctx), fmt.Errorf("prune: %w", context.Cause(ctx))} {
		require.NoError(t, untilSignal(ctx, err))
		require.Equal(t, codeFailure, codeOf(err))
		require.Equal(t, "interrupted by a signal", explain(ctx, err))
	}
	require.Error(t, untilSignal(ctx, errors.New("disk full")))
	own := &exitError{codeFailure, fmt.Errorf("%w; run again to resume", errInterrupted)}
	require.Equal(t, "interrupted by a signal; run again to resume", explain(ctx, own))
}

// A service manager that tries again and again after 69 has to be told apart what
// trying again does not cure.
func TestExecute_WrongUserPasswordOrDatabaseIsNoOutage(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	at, err := url.Parse(db.DSN)
	require.NoError(t, err)
	stranger, elsewhere := *at, *at
	stranger.User, elsewhere.Path = url.UserPassword("nobody-here", "secret"), "/nothing-here"
	for _, c := range []struct{ at, says string }{
		{stranger.String(), `role "nobody-here" does not exist` + "\ncorrect user and password; the address comes from BELFRY_DATABASE_URL"},
		{elsewhere.String(), `database "nothing-here" does not exist` + "\ncreate that database, or correct its name; the address"},
	} {
		for _, line := range [][]string{{"jobs", "list"}, {"run"}, {"daemon"}, {"migrate", "up"}} {
			r := command(t, []string{"BELFRY_DATABASE_URL=" + c.at}, line...)
			require.Equal(t, codeConfiguration, r.code, "%v: %s", line, r.stderr)
			require.Contains(t, r.stderr, "PostgreSQL refuses the login at ")
			require.Contains(t, r.stderr, c.says)
			require.NotContains(t, r.stderr, "secret")
		}
	}
	refused := &pgconn.PgError{Code: "28P01", Message: "password authentication failed"}
	require.False(t, node.LoginRefused(refused), "a statement's error is no login's")
}
