package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/config"
)

// A file of keys has any size on a database at hand. A server takes so many bytes at once, which
// the client says before it sends them; what it refuses changes nothing.
func TestLong_SegmentTakesFilesOfAnySizeAtHand(t *testing.T) {
	t.Parallel()
	db := stage(t)
	atHand := []string{"BELFRY_DATABASE_URL=" + db.DSN}
	server := []string{"BELFRY_SERVER=" + serveHere(t, nil, db, "ann"), config.TokenVariable + "=any"}
	name := filepath.Join(t.TempDir(), "keys.txt")
	require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("nobody\n", 200_000)+"u1\n"), 0o600))
	r := command(t, atHand, "channels", "segment", "create", "beta")
	require.Equal(t, codeDone, r.code, r.stderr)
	r = command(t, server, "channels", "segment", "add", "beta", name)
	require.NotEqual(t, codeDone, r.code)
	require.Contains(t, r.stderr, "keys: there are more than 1,000,000 bytes, a line end counted as two, and a server takes no more at once")
	require.Zero(t, count(t, db, "belfry.segment_members"))
	r = command(t, atHand, "channels", "segment", "add", "beta", name)
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "200,001 keys given: 1 added, 0 removed")
	require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("nobody\n", 124_000)), 0o600))
	r = command(t, server, "channels", "segment", "set", "beta", name)
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "124,000 keys given: 0 added, 1 removed", "what the client lets pass the server takes")
}
