package console_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// delivered makes a push job with so many messages of each kind, sent second by second.
func (h *house) deliveredPercent(t *testing.T) string {
	t.Helper()
	h.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) SELECT g, 'kim-' || g, 'ios' FROM generate_series(1, 40) g`)
	var id int64
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `INSERT INTO belfry.jobs (type, category, title, body, route) VALUES ('push', 'operator_notice', 'Hello', 'Dear Kim', '{push,sms}') RETURNING id`).Scan(&id))
	h.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = $1`, id)
	h.exec(t, `UPDATE belfry.jobs SET "cursor" = '40', bound = '40', chunks = 2, channels_read = 40, channels_matched = 40, rows_written = 40 WHERE id = $1`, id)
	h.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, reason, last_error, sent_at, step)
		SELECT $1, g, '2026-11-26 03:00Z'::timestamptz + make_interval(secs => g / 4), CASE WHEN g <= 30 THEN 'SENT' ELSE 'DEAD' END, CASE WHEN g > 30 THEN 'permanent' END,
			CASE WHEN g > 30 THEN 'kim-' || g || ' is unknown' END, CASE WHEN g <= 30 THEN '2026-11-26 03:00Z'::timestamptz + make_interval(secs => g / 4) END, CASE WHEN g > 35 THEN 1 ELSE 0 END
		FROM generate_series(1, 40) g`, id)
	return text.Int(id)
}

// section is the one of a page under a heading.
func (p page) section(t *testing.T, heading string) *html.Node {
	t.Helper()
	var found *html.Node
	p.each(func(n *html.Node) {
		if n.Data == "section" && n.FirstChild != nil && n.FirstChild.Data == "h2" && n.FirstChild.FirstChild.Data == heading {
			found = n
		}
	})
	require.NotNil(t, found, "%s: %v", heading, p.headings())
	return found
}

// within is what a part of a page says, and its elements by name.
func within(n *html.Node) (text string, elements map[string][]*html.Node) {
	elements = make(map[string][]*html.Node)
	var b strings.Builder
	page{root: n}.each(func(n *html.Node) {
		if n.Type == html.TextNode {
			b.WriteString(n.Data + " ")
		} else if n.Type == html.ElementNode {
			elements[n.Data] = append(elements[n.Data], n)
		}
	})
	return strings.Join(strings.Fields(b.String()), " "), elements
}

// What became of a job's messages is drawn by medium and reason, and over time, in the zone that
// was chosen; each drawing has a text and a table.
func TestConsole_AJobIsDrawn(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.deliveredPercent(t)
	b := h.as(t, "viewer")
	require.Equal(t, http.StatusSeeOther, b.post(t, "/time-zone", url.Values{"zone": {"Asia/Kathmandu"}}).status)
	p := b.get(t, "/jobs/"+id+"?tab=delivery")
	require.Equal(t, http.StatusOK, p.status, p.text)

	text, parts := within(p.section(t, "Results"))
	for _, words := range []string{"push: sent 30", "push: failed, permanent 5", "sms: failed, permanent 5", "75 %", "the provider refused it permanently"} {
		require.Contains(t, text, words)
	}
	var widths []string
	for _, n := range parts["rect"] {
		if attr(n, "class") != "ground" {
			widths = append(widths, attr(n, "class")+" "+attr(n, "width"))
		}
	}
	require.Equal(t, []string{"done 100%", "bad 16.667%", "bad 16.667%"}, widths)
	require.Len(t, parts["table"], 1)
	require.Len(t, parts["details"], 1)

	text, parts = within(p.section(t, "Delivery over time"))
	require.Contains(t, text, "30 sent and 10 failed in all; the highest is 4.")
	require.Contains(t, text, "2026-11-26 08:45:00+05:45", "in the zone of its reader")
	require.NotContains(t, text, "03:00:0")
	require.Len(t, parts["rect"], 2+2*11, "the key, and eleven seconds")
	require.Len(t, parts["tr"], 1+11)
	require.Equal(t, "img", attr(parts["svg"][2], "role"), "after the key of two series")

	for _, n := range append(p.drawn("map"), parts["rect"]...) {
		require.Empty(t, attr(n, "style"), "which the policy of pages does not let through")
	}
}

// transferred is how many bytes a browser, which understands gzip, is sent of a page or a script.
func (h *house) transferred(t *testing.T, path string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+path, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer viewer")
	req.Header.Set("Accept-Encoding", "gzip") // by itself the client would unpack it
	res, err := h.as(t, "viewer").client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // it was only read
	require.Equal(t, http.StatusOK, res.StatusCode, path)
	sent, err := io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	return int(sent)
}

// What draws is loaded where there is something to draw, and a first look at the page stays small.
// What a job says is shown as each locale reads it; who may not read bodies sees none.
func TestConsole_AJobIsShownInItsLocales(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{
		Type: "push", Category: "operator_notice", Title: "Closed", Body: "All day.", Route: []string{"push"}, ScheduleAt: new(time.Now().Add(time.Hour)),
		Variants: json.RawMessage(`{"ko": {"title": "<b>휴무</b>"}, "de": {"title": "Zu", "body": "Den ganzen Tag."}}`),
	})
	require.NoError(t, err)
	cards := func(role string) (texts []string) {
		h.as(t, role).get(t, "/jobs/"+text.Int(id)).each(func(n *html.Node) {
			if attr(n, "class") == "phone" {
				text, _ := within(n)
				texts = append(texts, strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "Notification · now "))
			}
		})
		return texts
	}
	require.Equal(t, []string{"Closed All day.", "Zu Den ganzen Tag.", "<b>휴무</b> All day."}, cards("operator"))
	require.Equal(t, []string{"Closed [masked]"}, cards("viewer"))
}

func TestConsole_APageOfAJobIsSmall(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.deliveredPercent(t)
	p := h.as(t, "viewer").get(t, "/jobs/"+id)
	bytes := h.transferred(t, "/jobs/"+id)
	for _, to := range p.links() {
		if strings.HasPrefix(to, "/assets/") {
			bytes += h.transferred(t, to)
		}
	}
	require.Less(t, bytes, 40_000, "transferred until the first paint")
}
