package dbtest

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/pgserver"
)

// NewBackup returns a server on a base backup of a running durable server: an independent server, or
// with standby a standby of the first until it is promoted.
func NewBackup(t testing.TB, of *pgserver.Server, standby bool) *pgserver.Server {
	t.Helper()
	program := Program(t, "pg_basebackup")
	return newServer(t, true, func(ctx context.Context, dir string) {
		home := filepath.Join(dir, "pg"+strconv.Itoa(of.Install().Major))
		require.NoError(t, os.Mkdir(home, 0o755))
		args := []string{"--dbname", of.DSN("postgres"), "--pgdata", filepath.Join(home, "data"), "--checkpoint", "fast", "--no-sync"}
		if standby {
			args = append(args, "--write-recovery-conf")
		}
		out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		// To the account that runs the server for root.
		info, err := os.Stat(of.DataDir())
		require.NoError(t, err)
		owner, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		require.NoError(t, filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, int(owner.Uid), int(owner.Gid))
		}))
	})
}
