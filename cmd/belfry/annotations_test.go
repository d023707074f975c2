package main

import (
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

// What looks at something is named so in each group, and only reads; config asks no database.
func TestReading_IsWhatLooks(t *testing.T) {
	t.Parallel()
	looks := strings.Fields("audit check count doctor errors events health list next opt-outs plan preview recipients report revisions roles runs samples show skips status upcoming watch")
	found := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		if cmd.HasSubCommands() || strings.HasPrefix(cmd.CommandPath(), "belfry config ") {
			return
		}
		reads := slices.Contains(looks, cmd.Name())
		require.Equal(t, reads, onlyReads(cmd), cmd.CommandPath())
		if readOnlyCommands[cmd.CommandPath()] {
			require.Empty(t, cmd.Annotations[readsAnnotation], "%s: the operation says so", cmd.CommandPath())
			found++
		}
	}
	walk(newRootCommand(newApp(io.Discard, io.Discard, nil)))
	require.Len(t, readOnlyCommands, found, "each is a command")
}

// Which server is looked for is the URL's to say, for what writes too.
func TestDatabase_URLNamesTheServerThatIsMeant(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(dbtest.New(t).DSN)
	require.NoError(t, err)
	query := u.Query()
	query.Set("target_session_attrs", "standby")
	u.RawQuery = query.Encode()
	for _, args := range [][]string{{"lanes", "pause", "other"}, {"lanes", "list"}} {
		r := command(t, []string{"BELFRY_DATABASE_URL=" + u.String()}, args...)
		require.Equal(t, codeUnavailable, r.code, "%v: %s", args, r.stderr)
		require.Contains(t, r.stderr, "server is not in hot standby mode")
	}
	_, err = migrations.Up(t.Context(), u.String())
	require.ErrorContains(t, err, "server is not in hot standby mode")
}
