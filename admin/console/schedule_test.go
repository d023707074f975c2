package console_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// headers are the texts of the headings of a kind.
func (p page) headers(kind string) (list []string) {
	p.each(func(n *html.Node) {
		if n.Data == kind && n.FirstChild != nil {
			list = append(list, strings.TrimSpace(n.FirstChild.Data))
		}
	})
	return list
}

// The calendar links to jobs and schedules, has its times in the reader's zone, and continues on further pages.
func TestSchedule_ListsWhatComesByDay(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "viewer")
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, schedule_at) SELECT 'push', 'operator_notice', 'First "><b>', now() + g * interval '6 hours' FROM generate_series(1, 51) g`)
	h.exec(t, `INSERT INTO belfry.schedules (name, every, template) VALUES ('digest', '5 hours', '{"type": "push", "category": "operator_notice", "title": "Digest"}')`)
	b.post(t, "/time-zone", url.Values{"zone": {"Asia/Kathmandu"}})
	p := b.get(t, "/upcoming?limit=50&until=%2B744h&occurrences=5")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.links(), "/jobs/1")
	require.Contains(t, p.links(), "/schedules/digest")
	require.Regexp(t, `<time datetime="20[-0-9]+T[0-9:]+\+05:45"`, p.source)
	require.NotRegexp(t, `[0-9]{2}:[0-9]{2}[+-]0[0-46-9]:[0-9]{2}`, p.source, "no time is in another zone")
	require.Contains(t, p.text, "Range: Next 31 days")
	next := slices.IndexFunc(p.links(), func(link string) bool {
		return strings.HasPrefix(link, "/upcoming?") && strings.Contains(link, "after=")
	})
	require.GreaterOrEqual(t, next, 0)
	p = b.get(t, p.links()[next])
	require.Contains(t, p.links(), "/jobs/51")
	require.NotContains(t, p.links(), "/jobs/1")
	require.NotContains(t, b.get(t, "/upcoming").links(), "/jobs/51", "it comes in more than a week")
	require.Contains(t, b.get(t, "/upcoming?_form=csv").source, "at,name,lane,job_id")
}

// A day has its lanes, occurrences of a schedule are one entry, and overlaps and holds are marked.
func TestSchedule_GroupsByLaneAndMarksOverlaps(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "operator")
	b.post(t, "/time-zone", url.Values{"zone": {"UTC"}})
	h.exec(t, `INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('night', now(), 'ann') ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_by = 'ann'`)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane, schedule_at) VALUES ('inbox', 'operator_notice', 'Held', 'night', date_trunc('day', now(), 'UTC') + interval '25 hours'),
		('inbox', 'operator_notice', 'Long', 'default', date_trunc('day', now(), 'UTC') + interval '26 hours'), ('inbox', 'operator_notice', 'Overlapping', 'default', date_trunc('day', now(), 'UTC') + interval '26 hours 1 second'),
		('inbox', 'operator_notice', 'Overdue', 'default', now() - interval '1 hour')`)
	h.exec(t, `INSERT INTO belfry.schedules (name, cron, time_zone, template) VALUES ('daily', '0 9 * * *', 'Asia/Seoul', '{"type": "inbox", "category": "operator_notice", "title": "Popular today"}'),
		('often', '*/30 * * * *', 'UTC', '{"type": "inbox", "category": "operator_notice", "title": "Often", "lane": "often"}')`)
	h.exec(t, `INSERT INTO belfry.schedules (name, cron, time_zone, template, paused_at, paused_by) VALUES ('off', '0 3 * * *', 'UTC', '{"type": "inbox", "category": "operator_notice", "title": "Off"}', now(), 'ann')`)
	id := h.enqueue(t, "Before")
	h.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() - interval '1 minute' WHERE id = $1`, id)
	h.exec(t, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`, id)
	p := b.get(t, "/upcoming")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Equal(t, "Due", p.headers("h2")[0])
	require.Contains(t, p.headers("h2"), "Tomorrow")
	require.Subset(t, p.headers("h3"), []string{"Lane default", "Lane night", "Lane often"})
	tomorrow := p.part("Tomorrow")
	require.Contains(t, tomorrow, "Lane night is paused")
	require.Regexp(t, `Overlapping Job [0-9]+ · inbox · operator_notice · takes about 1 min Overlaps job`, tomorrow)
	require.Contains(t, tomorrow, "Every day at 09:00, Asia/Seoul")
	require.Regexp(t, `Every 30 min, 48 times until 23:30 · inbox · operator_notice`, tomorrow)
	require.Equal(t, 1, strings.Count(tomorrow, " Often Every"), "it is one entry")
	behind := p.part("Schedules")
	require.Contains(t, behind, "Paused by ann")
	require.Contains(t, p.links(), "/schedules/daily/pause")
	require.Contains(t, p.links(), "/lanes/night/resume")
	require.Contains(t, p.links(), "/schedules/off/resume")
	require.NotContains(t, p.links(), "/schedules/off/pause")
	require.NotContains(t, h.as(t, "viewer").get(t, "/upcoming").links(), "/schedules/daily/pause")

	p = b.get(t, "/upcoming?lane=often&skip_held=on")
	require.NotContains(t, p.text, "Overlapping")
	require.Contains(t, p.text, "Lane: often")
	require.Contains(t, p.text, "Held jobs: Hidden")
	require.NotContains(t, p.part("Schedules"), "Popular today")
}

func TestSchedule_OfAnEmptyInstallationNamesTheFirstSteps(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	p := h.as(t, "operator").get(t, "/upcoming")
	require.Contains(t, p.text, "Nothing is planned for the next 7 days.")
	require.Subset(t, p.links(), []string{"/enqueue", "/new/schedules/add"})
	p = h.as(t, "viewer").get(t, "/upcoming?until=nonsense")
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.NotContains(t, p.links(), "/enqueue")
}
