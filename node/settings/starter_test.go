package settings

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
)

// The starter has the defaults and serves the console, and its example of a sender is valid.
func TestStarter_ServesTheConsoleAndShowsASender(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), config.DefaultFile)
	require.NoError(t, WriteStarter(name))
	require.ErrorIs(t, WriteStarter(name), os.ErrExist)
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.InDelta(t, 20, strings.Count(starter, "\n"), 3)

	s, err := Load(config.Input{Files: []string{name}}, Always)
	require.NoError(t, err)
	want := Default()
	want.API.Listen = "127.0.0.1:8470"
	wanted := keys.Of(want)
	for i, k := range keys.Of(s.Config) {
		require.EqualValues(t, wanted[i].Value, k.Value, k.Name)
	}

	example := regexp.MustCompile(`(?m)^#( +)`).ReplaceAllString(strings.Replace(starter, "senders: []", "senders:", 1), "$1")
	example = example[strings.Index(example, "\ndatabase:"):]
	require.NoError(t, os.WriteFile(name, []byte(example), 0o600))
	s, err = Load(config.Input{Files: []string{name}}, nil)
	require.NoError(t, err)
	require.Len(t, s.Senders, 1)
	require.InDelta(t, 100, s.Senders[0].RatePerSecond, 0)
}
