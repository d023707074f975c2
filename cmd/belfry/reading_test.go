package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReading_NamesCommands(t *testing.T) {
	t.Parallel()
	for path := range reading {
		cmd, _, err := newRootCommand(&app{stdout: io.Discard, stderr: io.Discard, now: time.Now}).Find(strings.Fields(path)[1:])
		require.NoError(t, err, path)
		require.Equal(t, path, cmd.CommandPath())
		require.True(t, onlyReads(cmd))
	}
}
