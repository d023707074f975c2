package console_test

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/admin/console"
	"github.com/belfryhq/belfry/internal/text"
)

// words are the texts and the labels of the page itself, without its layout.
func (p page) words() (all []string) {
	p.each(func(n *html.Node) {
		for up := n; up != nil; up = up.Parent {
			if up.Data == "main" {
				all = append(all, strings.Join(strings.Fields(n.Data), " "), attr(n, "aria-label"), attr(n, "title"), attr(n, "placeholder"))
				return
			}
		}
	})
	return all
}

// Designed pages have the words of operators: no command line, no flag, no bar of characters.
func TestRoutes_DesignedPagesHaveNoCommands(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	command := regexp.MustCompile(`belfry |--[a-z]|\[-+\]`)
	for _, furnish := range []func(){func() {}, func() { h.furnish(t) }} {
		furnish()
		for _, path := range console.Designed() {
			for _, role := range []string{"viewer", "admin"} {
				for _, at := range pagesAt(path) {
					p := h.as(t, role).get(t, at)
					if strings.Contains(path, "{") && slices.Contains([]int{http.StatusNotFound, http.StatusForbidden}, p.status) || path == "/enqueue" && role == "viewer" {
						continue
					}
					require.Equal(t, http.StatusOK, p.status, "%s: %s", at, p.text)
					for _, words := range p.words() {
						require.False(t, command.MatchString(words), "%s: %q", at, words)
					}
				}
			}
		}
	}
}

// pagesAt returns the pages of a designed path: of a job each tab, and each act of the first jobs.
func pagesAt(path string) (all []string) {
	for id := 1; strings.Contains(path, "{id}") && id < 6; id++ {
		at := strings.ReplaceAll(path, "{id}", text.Int(int64(id)))
		if !strings.Contains(at, "{act}") {
			all = append(all, at, at+"?tab=delivery", at+"?tab=recipients", at+"?tab=recipients&external_id=kim-7", at+"?tab=timeline", at+"?tab=settings", at+"?tab=report")
			continue
		}
		for _, act := range []string{"stop", "resume", "retry", "correct", "recall"} {
			all = append(all, strings.ReplaceAll(at, "{act}", act))
		}
	}
	if len(all) > 0 {
		return all
	}
	return []string{path}
}

// furnish adds jobs in each status, senders of every kind, a schedule, and a paused lane.
func (h *house) furnish(t *testing.T) {
	t.Helper()
	h.deliveredPercent(t)
	h.relays(t)
	h.exec(t, `INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('night', now(), 'ann') ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_by = 'ann'`)
	h.exec(t, `INSERT INTO belfry.schedules (name, cron, time_zone, template) VALUES ('daily', '0 9 * * *', 'Asia/Seoul', '{"type": "inbox", "category": "operator_notice", "title": "Popular today"}')`)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane, schedule_at) VALUES ('inbox', 'operator_notice', 'Held', 'night', now()), ('push', 'operator_notice', 'Later', 'default', now() + interval '3 hours')`)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, needs_approval, requested_by) VALUES ('inbox', 'operator_notice', 'Waits', true, 'kim')`)
	h.exec(t, `SELECT belfry.abort(belfry.enqueue('inbox', 'operator_notice', 'Wrong'), 'ann', 'it is Tuesday')`)
}

func TestRoutes_NavigationHasThePagesOfTheRole(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for role, want := range map[string]string{
		"viewer": "Overview Jobs Schedule Delivery Person Activity Settings All operations",
		"admin":  "Overview Jobs Schedule Delivery Person Activity Settings All operations",
	} {
		var names, here []string
		p := h.as(t, role).get(t, "/jobs")
		p.each(func(n *html.Node) {
			if n.Data == "a" && attr(n.Parent, "aria-label") == "Pages" {
				names = append(names, n.FirstChild.Data)
				if attr(n, "aria-current") != "" {
					here = append(here, n.FirstChild.Data)
				}
				require.Equal(t, http.StatusOK, h.as(t, role).get(t, attr(n, "href")).status, n.FirstChild.Data)
			}
		})
		require.Equal(t, want, strings.Join(names, " "), role)
		require.Equal(t, []string{"Jobs"}, here)
		require.Equal(t, role == "admin", strings.Contains(p.text, "New notification"), role)
	}
}

func TestOperations_AreGroupedAndSearched(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := text.Int(h.enqueue(t, "Hello"))
	boss := h.as(t, "admin")
	p := boss.get(t, "/operations")
	require.Equal(t, http.StatusOK, p.status)
	for _, to := range []string{"/lanes", "/new/lanes/pause", "/new/tokens/create", "/doctor", "/dead-letters/errors", "/jobs"} {
		require.Contains(t, p.links(), to)
	}
	require.Subset(t, p.headings(), []string{"General", "Jobs", "Failed messages", "Channels segment"})
	require.NotContains(t, h.as(t, "viewer").get(t, "/operations").links(), "/new/lanes/pause")
	found := boss.get(t, "/operations?q=PAUSE+lane")
	require.Contains(t, found.headings(), "Lanes")
	require.NotContains(t, found.headings(), "Jobs")
	none := boss.get(t, "/operations?q=%3Cb%3E")
	require.Contains(t, none.text, "No operation matches “<b>”.")
	require.Equal(t, []string{"Approvals", "Categories", "Lanes", "Limits", "Segments", "Sessions", "Tokens", "Users"}, sorted(boss.get(t, "/settings").headings()))
	require.Equal(t, http.StatusOK, boss.get(t, "/jobs/"+id+"/events").status, "the pages of operations stay")
}

// Generated pages have the words of designed ones, except in the names of values and columns.
func TestOperations_HaveTheWordsOfPages(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.deliveredPercent(t)
	b := h.as(t, "admin")
	for path, has := range map[string]string{
		"/operations": "Send again", "/operations?q=dead": "Failed messages", "/dead-letters": "Failed messages", "/dead-letters/errors": "messages",
		"/dead-letters/redrive?job=" + id: "would be sent again: 10 messages", "/dead-letters/discard?job=" + id: "Discard failed messages",
		"/dead-letters/show?channel=31&job=" + id: "failed since", "/abort?id=" + id: "would be stopped",
	} {
		p := b.get(t, path)
		require.Equal(t, http.StatusOK, p.status, path)
		require.Contains(t, p.text, has, path)
		require.NotRegexp(t, `(?i)dead letter|redriv|\babort`, p.text, path)
	}
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}

// Pages are compressed, but not the response to a form, which may contain a secret.
func TestRoutes_PagesAreCompressed(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.furnish(t)
	b := h.as(t, "admin")
	encoding := func(method, path, accepts string) (string, int) {
		req, err := http.NewRequestWithContext(t.Context(), method, h.url+path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer admin")
		req.Header.Set("Accept-Encoding", accepts)
		res, err := b.client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close() //nolint:errcheck // it was only read
		content, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Contains(t, res.Header.Values("Vary"), "Accept-Encoding")
		return res.Header.Get("Content-Encoding"), len(content)
	}
	plain, size := encoding(http.MethodGet, "/senders", "identity")
	require.Empty(t, plain)
	zipped, small := encoding(http.MethodGet, "/senders", "br, gzip")
	require.Equal(t, "gzip", zipped)
	require.Less(t, small, size/2)
	secret, _ := encoding(http.MethodPost, "/new/tokens/create", "gzip")
	require.Empty(t, secret)
}
