package keys

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	keys := []string{"runner.stale_after", "runner.chunk.target", "log.level", "database.url"}
	for name, want := range map[string]string{
		"runner.stale_aftr":  "runner.stale_after",
		"runner.satle_after": "runner.stale_after",
		"LOG.LEVEL":          "log.level",
		"target":             "runner.chunk.target",
		"databse.url":        "database.url",
		"something.else":     "",
		"":                   "",
	} {
		require.Equal(t, want, nearest(name, keys), name)
	}
}

func TestEditDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"é", "e", 1}} {
		require.Equal(t, c.want, editDistance(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, editDistance(c.b, c.a), "%s %s", c.b, c.a)
	}
}
