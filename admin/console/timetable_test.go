package console_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

// later enqueues a job of a lane that is due so much later.
func (h *house) later(t *testing.T, title, lane string, by time.Duration) int64 {
	t.Helper()
	at := time.Now().Add(by)
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "push", Category: "operator_notice", Title: title, Lane: lane, ScheduleAt: &at})
	require.NoError(t, err)
	return id
}

// share is an attribute in percent.
func share(t *testing.T, n *html.Node, name string) float64 {
	t.Helper()
	text, is := strings.CutSuffix(attr(n, name), "%")
	require.True(t, is, "%s of %s is %q", name, n.Data, attr(n, name))
	value, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return value
}

// Entries stand where they are in time, each in the row of its lane; a collision has a shape of its
// own and is said in words, and the times are of the reader's zone.
func TestConsole_ATimetableIsDrawn(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "viewer")
	p := b.get(t, "/timetable")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "nothing is due until")
	require.Empty(t, p.drawn("axis"))
	require.Contains(t, p.links(), "/timetable", "among the pages")

	dbtest.Past(t, h.db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, status, fence, started_at, finished_at)
		VALUES (nextval('belfry.jobs_id_seq'), 'push', 'operator_notice', 'x', '{}', 'PROCESSED', 1, now() - interval '2 hours', now())`)
	first := h.later(t, `First "><b>`, "", 6*time.Hour)
	second := h.later(t, "Second", "", 7*time.Hour)
	h.later(t, "Night", "night", 12*time.Hour)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane, schedule_at) VALUES ('push', 'popular_content', 'New', 'night', now() + interval '18 hours')`)
	h.exec(t, `INSERT INTO belfry.schedules (name, every, template, query) VALUES ('asked', '5 hours', '{"type": "push", "category": "operator_notice", "title": "Asked"}', 'SELECT 1 AS priority')`)
	h.exec(t, `INSERT INTO belfry.schedules (name, every, template) VALUES ('held', '5 hours', '{"type": "push", "category": "operator_notice", "title": "Held"}')`)
	h.exec(t, `SELECT belfry.pause_schedule('held', 'ann', 'x')`)
	b.post(t, "/time-zone", url.Values{"zone": {"Asia/Kathmandu"}})
	p = b.get(t, "/timetable?lane=&for=24h")
	require.Equal(t, http.StatusOK, p.status, p.text)
	strips := p.drawn("strip")
	require.Len(t, strips, 3, "default, night, and what is known when it fires")
	require.Equal(t, "lane default", attr(strips[0], "aria-label"))
	in := func(strip *html.Node, class string) (found []*html.Node) {
		page{root: strip}.each(func(n *html.Node) {
			if n.Type == html.ElementNode && attr(n, "class") == class {
				found = append(found, n)
			}
		})
		return found
	}
	bars, late := in(strips[0], "due"), in(strips[0], "late")
	require.Len(t, bars, 1)
	require.Len(t, late, 1)
	require.InDelta(t, 25, share(t, bars[0], "x"), 0.2, "six hours of a day")
	require.InDelta(t, 100.0/12, share(t, bars[0], "width"), 0.2, "two hours of a day")
	require.InDelta(t, 100.0/3, share(t, late[0], "x"), 0.2, "when the first one ends")
	mark := in(strips[0], "mark")
	require.Len(t, mark, 1)
	require.InDelta(t, 100.0*7/24, share(t, mark[0].Parent, "x"), 0.2, "when it is due")
	require.Len(t, in(strips[0], "held"), 1)
	require.Len(t, in(strips[1], "due"), 2)
	require.Equal(t, "path", in(strips[1], "due")[1].Data, "of what takes nobody knows how long")
	var load float64
	for _, class := range []string{"load1", "load2", "load3", "load4"} {
		load += float64(len(in(strips[0], class)))
	}
	require.InDelta(t, 5, load, 1, "four hours are of five, or of four")
	require.GreaterOrEqual(t, len(in(strips[2], "due")), 4)

	noon := 0
	page{root: p.drawn("times")[0]}.each(func(n *html.Node) {
		if n.Data == "text" && n.FirstChild.Data == "12:00" {
			noon++
			at := time.Now().Add(time.Duration(share(t, n, "x") / 100 * float64(24*time.Hour))).In(time.FixedZone("", 5*3600+45*60))
			require.WithinDuration(t, time.Date(at.Year(), at.Month(), at.Day(), 12, 0, 0, 0, at.Location()), at, 5*time.Minute, "of the reader's zone")
		}
	})
	require.Equal(t, 1, noon)
	require.Contains(t, p.text, "collides with job "+printer.Int(first)+": starts ")
	require.Contains(t, p.text, "; 1 collides with another")
	require.Contains(t, p.text, "Load per hour")
	require.Contains(t, p.links(), "/jobs/"+printer.Int(second))
	require.Contains(t, p.links(), "/schedules/asked")
	require.Regexp(t, `<time datetime="20[-0-9]+T[0-9:]+\+05:45">`, p.source)
	require.NotRegexp(t, `[0-9]{2}:[0-9]{2}[+-]0[0-46-9]:[0-9]{2}`, p.source, "no time is in another zone")
	p.each(func(n *html.Node) {
		require.NotEqual(t, "b", n.Data)
		require.Empty(t, attr(n, "style"), n.Data)
	})

	p = b.get(t, "/timetable?lane=night&free=1h&for=2d")
	require.Contains(t, p.text, "lane night is expected to be free for 1h00m from ")
	require.Len(t, p.drawn("free"), 1)
	p = b.get(t, "/timetable?free=1h")
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.text, "is needed with free")
	require.Contains(t, b.get(t, "/timetable?_form=csv").source, "at,lane,job_id")
}

// A month is drawn in as few cells as a day, and a thousand lanes fill no page.
func TestConsole_ATimetableStaysReadable(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	dbtest.Past(t, h.db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, status, fence, started_at, finished_at)
		VALUES (nextval('belfry.jobs_id_seq'), 'push', 'operator_notice', 'x', '{}', 'PROCESSED', 1, now() - interval '1 hour', now())`)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane, schedule_at) SELECT 'push', 'operator_notice', 'x', 'lane-' || g % 70, now() + g * interval '90 minutes' FROM generate_series(1, 480) g`)
	p := h.as(t, "viewer").get(t, "/timetable?for=31d")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Len(t, p.drawn("strip"), 60)
	require.Contains(t, p.text, "10 more lanes are in the table only.")
	require.Contains(t, p.text, "and all of 8 hours")
	require.LessOrEqual(t, len(p.drawn("times")[0].Attr), 6)
	ticks := 0
	p.each(func(n *html.Node) {
		if n.Type == html.ElementNode && n.Data == "text" {
			ticks++
		}
	})
	require.LessOrEqual(t, ticks, 7)
	require.GreaterOrEqual(t, ticks, 3)
}
