package unsubscribe_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels/unsubscribe"
)

var (
	older = strings.Repeat("a", 32)
	newer = strings.Repeat("b", 32)
)

func links(t testing.TB, keys ...string) *unsubscribe.Links {
	t.Helper()
	l, err := unsubscribe.New(keys...)
	require.NoError(t, err)
	return l
}

// Invariant 1: what was signed is read, whatever it is.
func TestLinks_ReadsWhatItSigned(t *testing.T) {
	t.Parallel()
	l := links(t, newer)
	for _, link := range []unsubscribe.Link{
		{ChannelID: 4711, Category: "popular_content", Medium: "email"},
		{ChannelID: math.MinInt64, Category: strings.Repeat("c", 255), Medium: strings.Repeat("m", 255)},
		{},
	} {
		signed := l.Sign(link)
		require.Regexp(t, `^[A-Za-z0-9_-]+$`, signed)
		got, err := l.Read(signed)
		require.NoError(t, err)
		require.Equal(t, link, got)
	}
}

// Invariant 1: a link that is changed anywhere is none, and so is one of another key.
func TestLinks_RefusesWhatItDidNotSign(t *testing.T) {
	t.Parallel()
	l := links(t, newer)
	signed := l.Sign(unsubscribe.Link{ChannelID: 4711, Category: "popular_content", Medium: "email"})
	for i := range len(signed) {
		for _, c := range []string{"A", "z", "=", "\n"} {
			if changed := signed[:i] + c + signed[i+1:]; changed != signed {
				_, err := l.Read(changed)
				require.ErrorIs(t, err, unsubscribe.ErrLink, "at %d", i)
			}
		}
		_, err := l.Read(signed[:i])
		require.ErrorIs(t, err, unsubscribe.ErrLink, "cut at %d", i)
	}
	for _, text := range []string{signed + "A", signed + "\n", "\n" + signed, links(t, older).Sign(unsubscribe.Link{ChannelID: 4711, Medium: "email"}), strings.Repeat("A", 1<<20)} {
		_, err := l.Read(text)
		require.ErrorIs(t, err, unsubscribe.ErrLink)
	}
}

// Invariant 1: what moves between category and medium has another signature.
func TestLinks_CategoryAndMediumDoNotRunTogether(t *testing.T) {
	t.Parallel()
	l := links(t, newer)
	require.NotEqual(t, l.Sign(unsubscribe.Link{Category: "ab", Medium: "c"}), l.Sign(unsubscribe.Link{Category: "a", Medium: "bc"}))
}

// Invariant 2: a key signs from the first place, reads from any, and is gone with its line.
func TestLinks_KeysRotate(t *testing.T) {
	t.Parallel()
	link := unsubscribe.Link{ChannelID: 1, Category: "c", Medium: "email"}
	old := links(t, older).Sign(link)
	both := links(t, newer, older)
	got, err := both.Read(old)
	require.NoError(t, err)
	require.Equal(t, link, got)
	require.Equal(t, links(t, newer).Sign(link), both.Sign(link))
	_, err = links(t, newer).Read(old)
	require.ErrorIs(t, err, unsubscribe.ErrLink)
}

func TestOpen_NamesWhatIsWrongAndNoKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	for want, content := range map[string]string{
		"0 keys are not allowed; allowed values: 1 to 16 keys":  "\n \n",
		"17 keys are not allowed; allowed values: 1 to 16 keys": strings.Repeat(older+"\n", 17),
		"key 2 has 6 bytes; allowed values: 32 or more bytes":   older + "\nsecret\n",
		"is not a regular file of up to 65536 bytes":            strings.Repeat("x", 1<<17),
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := unsubscribe.Open(file)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, file)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := unsubscribe.Open(file + ".none")
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(file, []byte(newer+"\r\n\n"+older), 0o600))
	l, err := unsubscribe.Open(file)
	require.NoError(t, err)
	link := unsubscribe.Link{ChannelID: 1, Category: "c", Medium: "email"}
	require.Equal(t, links(t, newer).Sign(link), l.Sign(link))
	_, err = l.Read(links(t, older).Sign(link))
	require.NoError(t, err)
}

// Invariant 4: keys that are read again sign and read from then on; a file that cannot be used changes
// nothing.
func TestLinks_ReloadTheirFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(older)
	l, err := unsubscribe.Open(file)
	require.NoError(t, err)
	link := unsubscribe.Link{ChannelID: 1, Category: "c", Medium: "email"}
	old := l.Sign(link)
	changed, err := l.Reload()
	require.NoError(t, err)
	require.False(t, changed)

	for _, bad := range []string{"", newer + "\nsecret\n"} {
		write(bad)
		changed, err = l.Reload()
		require.ErrorContains(t, err, file)
		require.False(t, changed)
		require.Equal(t, old, l.Sign(link), "those before stay")
	}

	write(newer + "\n" + older)
	changed, err = l.Reload()
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, links(t, newer).Sign(link), l.Sign(link))
	_, err = l.Read(old)
	require.NoError(t, err)

	write(newer)
	_, err = l.Reload()
	require.NoError(t, err)
	_, err = l.Read(old)
	require.ErrorIs(t, err, unsubscribe.ErrLink)
	changed, err = links(t, newer).Reload()
	require.NoError(t, err, "keys that are from no file")
	require.False(t, changed)
}

// Whatever is read was signed, to the letter, and nothing makes Read panic.
func FuzzLinks_Read(f *testing.F) {
	l := links(f, newer)
	f.Add(l.Sign(unsubscribe.Link{ChannelID: 1, Category: "c", Medium: "email"}))
	f.Add("")
	f.Add(strings.Repeat("A", 60))
	f.Fuzz(func(t *testing.T, text string) {
		if link, err := l.Read(text); err == nil {
			require.Equal(t, text, l.Sign(link))
		}
	})
}
