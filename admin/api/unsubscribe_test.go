package api_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/channels/unsubscribe"
)

// mail is how a recipient of mail reaches the API: below the path of its public URL.
type mail struct {
	*bundle

	links *unsubscribe.Links
}

const oneClick = "List-Unsubscribe=One-Click"

func mailSetup(t *testing.T, change func(*api.Options)) *mail {
	t.Helper()
	links, err := unsubscribe.New(strings.Repeat("k", 32))
	require.NoError(t, err)
	b := setup(t, func(c *api.Options) {
		c.PublicURL, c.Unsubscribe = "https://example.com/belfry", links
		if change != nil {
			change(c)
		}
	})
	b.url = strings.TrimSuffix(b.url, api.Prefix)
	return &mail{b, links}
}

// path is that of a link about a channel.
func (m *mail) path(channel int64, category string) string {
	at := api.Config{PublicURL: "https://example.com/belfry"}.UnsubscribeURL(m.links, unsubscribe.Link{ChannelID: channel, Category: category, Medium: "email"})
	return strings.TrimPrefix(at, "https://example.com")
}

func (m *mail) post(t *testing.T, path, body string, headers ...string) answer {
	t.Helper()
	return m.call(t, "", "POST", path, body, append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
}

// optOuts are those of a channel, by category and medium.
func (m *mail) optOuts(t *testing.T, channel int64) (list []string) {
	t.Helper()
	found, err := channels.OptOuts(t.Context(), m.db.Pool, []int64{channel})
	require.NoError(t, err)
	for _, o := range found {
		list = append(list, o.Category+" "+o.Medium+" "+o.Reason)
	}
	return list
}

const byLink = "popular_content email by the recipient, through the link in a message"

// RFC 8058: one POST without a token opts out of the category by the medium; both forms of a
// body are understood, and a repetition changes nothing.
func TestUnsubscribe_APostOptsOut(t *testing.T) {
	t.Parallel()
	m := mailSetup(t, nil)
	parts := "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n"
	for range 2 {
		require.Equal(t, 200, m.post(t, m.path(1, "popular_content"), oneClick).status)
		require.Equal(t, 200, m.post(t, m.path(2, "popular_content"), parts, "Content-Type", "multipart/form-data; boundary=b").status)
	}
	// A page of another site, or none that is known, has no more than the link either.
	require.Equal(t, 200, m.post(t, m.path(3, "popular_content"), oneClick, "Origin", "null", "Sec-Fetch-Site", "cross-site").status)
	for channel := range int64(3) {
		require.Equal(t, []string{byLink}, m.optOuts(t, channel+1))
	}
}

// Scanners follow links: nothing but a whole POST changes anything.
func TestUnsubscribe_NothingElseOptsOut(t *testing.T) {
	t.Parallel()
	m := mailSetup(t, nil)
	path := m.path(1, "popular_content")
	a := m.call(t, "", "GET", path, "")
	require.Equal(t, 200, a.status)
	require.Contains(t, a.text, `<form method="post"><input type="hidden" name="List-Unsubscribe" value="One-Click">`)
	require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	require.Equal(t, "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'", a.header.Get("Content-Security-Policy"))
	require.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"))
	require.Equal(t, 200, m.call(t, "", "HEAD", path, "").status)
	require.Equal(t, 200, m.call(t, "", "GET", path+"?"+oneClick, "").status)
	for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS"} {
		a := m.call(t, "", method, path, "")
		require.Equal(t, 405, a.status)
		require.Equal(t, "GET, HEAD, POST", a.header.Get("Allow"))
	}
	for _, body := range []string{"", "List-Unsubscribe=Two-Clicks", "x=" + strings.Repeat("y", 4<<10) + "&" + oneClick} {
		require.Equal(t, 400, m.post(t, path+"?"+oneClick, body).status)
	}
	require.Empty(t, m.optOuts(t, 1))
}

// No answer tells whether there is such a channel, and the link of a category that is gone
// records nothing.
func TestUnsubscribe_TellsNothingOfPeople(t *testing.T) {
	t.Parallel()
	m := mailSetup(t, nil)
	var id int64
	require.NoError(t, m.db.Pool.QueryRow(t.Context(), `INSERT INTO belfry.channels (external_id, platform) VALUES ('kim', 'ios') RETURNING id`).Scan(&id))
	there, not := m.post(t, m.path(id, "popular_content"), oneClick), m.post(t, m.path(-9, "popular_content"), oneClick)
	require.Equal(t, there.text, not.text)
	require.Equal(t, 200, not.status)
	require.Equal(t, 404, m.post(t, m.path(id, "gone"), oneClick).status)
	require.Equal(t, []string{byLink}, m.optOuts(t, id))
}

// Who tries links is locked out by address, and a good link works from there all the same; one
// channel's link does not take the connections of others.
func TestUnsubscribe_TriesAreCounted(t *testing.T) {
	t.Parallel()
	m := mailSetup(t, nil)
	limited := func(path string) {
		t.Helper()
		for i := 0; ; i++ {
			a := m.post(t, path, oneClick)
			if a.status == http.StatusTooManyRequests {
				require.NotEmpty(t, a.header.Get("Retry-After"))
				return
			}
			require.Less(t, i, 1000)
		}
	}
	limited("/unsubscribe/AAAA")
	limited(m.path(1, "popular_content"))
	require.Equal(t, 200, m.post(t, m.path(2, "popular_content"), oneClick).status)
	require.NotContains(t, m.log.String(), "unsubscribe/")
}

// What was not recorded is not said to be.
func TestUnsubscribe_WithoutADatabaseItIsToBeTriedAgain(t *testing.T) {
	t.Parallel()
	m := mailSetup(t, func(c *api.Options) { c.ReadOnly = true })
	a := m.post(t, m.path(1, "popular_content"), oneClick)
	require.Equal(t, 503, a.status)
	require.Equal(t, "60", a.header.Get("Retry-After"))
	require.Empty(t, m.optOuts(t, 1))
	m = mailSetup(t, nil)
	m.db.Pool.Close()
	require.Equal(t, 503, m.post(t, m.path(1, "popular_content"), oneClick).status)
	require.Equal(t, 200, m.call(t, "", "GET", m.path(1, "popular_content"), "").status)
}

// Without keys there is nothing at the path for who has no token, and a file is named.
func TestUnsubscribe_WithoutKeysThereIsNone(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	api.New(api.Options{Authenticate: tokens, Log: zerolog.Nop()}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/unsubscribe/AAAA", nil))
	require.Equal(t, 401, w.Code)

	links, err := api.Config{}.UnsubscribeLinks()
	require.NoError(t, err)
	require.Nil(t, links)
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte("short"), 0o600))
	_, err = api.Config{UnsubscribeKeysFile: file}.UnsubscribeLinks()
	require.ErrorContains(t, err, "api.unsubscribe_keys_file: "+file+": key 1 has 5 bytes")
}
