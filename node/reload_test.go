package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
)

// A reload reads the keys of links again and reports the key that names their file. An invalid file is
// rejected with its name.
func TestNode_ReloadReadsKeysOfLinks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(strings.Repeat("a", 32))
	s, err := settings.Load(config.Input{Environ: []string{
		"BELFRY_API_PUBLIC_URL=https://example.com", "BELFRY_API_UNSUBSCRIBE_KEYS_FILE=" + file,
		`BELFRY_SENDERS=[{"name": "mail", "kind": "smtp", "smtp": {"host": "127.0.0.1", "port": 25, "tls": "none", "from": "a@example.com", "list_unsubscribe": "{unsubscribe_url}"}}]`,
	}}, nil)
	require.NoError(t, err)
	parts, err := s.Open(false, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, parts.Close()) })
	n, err := node.Open(t.Context(), node.Options{
		Config: s.Node(), Keys: s.Config, Pool: dbtest.New(t).Pool, Log: zerolog.Nop(), Deliver: true, Senders: parts.Senders, Links: parts.Links,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	reload := func(next settings.Config) (changed, waiting []string, err error) {
		return n.Reload(t.Context(), s.Update(next))
	}

	changed, waiting, err := reload(s.Config)
	require.NoError(t, err)
	require.Empty(t, changed)
	require.Empty(t, waiting)

	write("short")
	_, _, err = reload(s.Config)
	require.ErrorContains(t, err, "api.unsubscribe_keys_file: "+file)

	write(strings.Repeat("b", 32))
	changed, waiting, err = reload(s.Config)
	require.NoError(t, err)
	require.Equal(t, []string{"api.unsubscribe_keys_file"}, changed)
	require.Empty(t, waiting)

	next := s.Config
	next.API.UnsubscribeKeysFile = file + ".other"
	write(strings.Repeat("c", 32))
	changed, waiting, err = reload(next)
	require.NoError(t, err)
	require.Empty(t, changed)
	require.Equal(t, []string{"api.unsubscribe_keys_file"}, waiting, "another file waits for a restart")
}
