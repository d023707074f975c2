package main

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
)

// An operator in a hurry types another program's word for a stop.
func TestSuggestions_LeadFromOtherWordsToTheCommand(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"stop": "abort", "pause": "abort", "cancel": "abort", "kill": "abort", "suspend": "abort",
		"freeze": "halt", "unfreeze": "unhalt", "go": "unhalt", "resume-all": "unhalt", "start": "unhalt", "undo": "recall", "revoke": "recall",
		"jobs stop": "abort", "jobs pause": "abort", "jobs cancel": "abort", "jobs kill": "abort", "jobs suspend": "abort",
		"jobs freeze": "halt", "jobs undo": "recall", "jobs revoke": "recall",
		"jobs abort": "abort", "jobs resume": "resume", "jobs edit": "jobs set", "jobs recall": "recall", "jobs retry": "retry",
		"lanes stop": "lanes pause", "senders freeze": "senders pause", "schedules suspend": "schedules pause", "schedules cancel": "schedules pause",
	} {
		args := strings.Fields(line)
		for _, rest := range [][]string{nil, {"17"}, {"17", "--reason", "wrong link"}} {
			_, stderr := answer(t, append(args, rest...)...)
			require.Contains(t, stderr, "did you mean `belfry "+want+"`?", "%s %s", line, rest)
		}
	}
	for line, want := range map[string]string{"--jsno": "unknown flag: --jsno", "tokens cancel": "there are: create,"} {
		_, stderr := answer(t, strings.Fields(line)...)
		require.Contains(t, stderr, want)
	}
}

// A slip of the fingers is never answered by a command that removes something.
func TestSuggestions_BySpellingNameNothingThatDiscards(t *testing.T) {
	t.Parallel()
	found := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		if !discards(c) {
			return
		}
		found++
		name := c.Name()
		slips := []string{name + "s", "x" + name, name[:len(name)-1], name[1:], name[:1] + name[2:], name[1:2] + name[:1] + name[2:], "q" + name[1:]}
		for _, slip := range slips {
			err := runGroup(c.Parent(), []string{slip, "17"})
			require.NotRegexp(t, "did you mean .*\\b"+regexp.QuoteMeta(name)+"\\b", err, "%s for %s", slip, c.CommandPath())
		}
	}
	visit(newRootCommand(newApp(io.Discard, io.Discard, nil)))
	require.Greater(t, found, 12)

	removes := regexp.MustCompile(`(?i)\b(delete|remove|erase|discard|drop|cancel|end|revoke|withdraw|take back|nothing any more|permanently)\b`)
	for _, o := range admin.Operations() {
		ends := o.Verb() == "set" || o.Verb() == "set-password" || o.Verb() == "disable" // and end the sessions
		if o.Changes && removes.MatchString(o.Short) && !ends {
			require.True(t, o.Discards(), "%s: %s", o.Name, o.Short)
		}
	}
}

// answer is what a command line that is not understood is answered.
func answer(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	r := command(t, nil, args...)
	require.Equal(t, codeUsage, r.code, "%s: %s", args, r.stderr)
	return r.stdout, r.stderr
}
