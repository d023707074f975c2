package api_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where one person is cannot be found out by who reads no contents: not by a small radius, nor by a
// count of few, nor by a sample.
func TestMask_NobodyIsFoundByWhereTheyAre(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, location, addresses) VALUES ('one', 'ios', point(120.23587, 22.96186), '{"push": "t"}')`)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, location, addresses) SELECT 'many-' || i, CASE WHEN i < 3 THEN 'web' ELSE 'ios' END, point(10, 50), '{"push": "t"}' FROM generate_series(1, 20) i`)
	b.exec(t, `INSERT INTO belfry.opt_outs (channel_id, category, medium) SELECT id, 'popular_content', 'push' FROM belfry.channels WHERE external_id IN ('one', 'many-1', 'many-4', 'many-5')`)
	ask := func(role, near, radius string) answer {
		return b.call(t, role, "POST", "/enqueue", `{"type": ["push"], "category": "popular_content", "title": "x", "near": "`+near+`", "radius": "`+radius+`", "preview": true}`)
	}
	const home, none, crowd = "22.961889,120.235939", "1,1", "50,10"
	small := ask("author", home, "1m")
	require.Equal(t, http.StatusUnprocessableEntity, small.status, small.text)
	require.Contains(t, small.text, `"location":"body.radius"`)
	require.Contains(t, small.text, "allowed values for viewers and authors: 500m or more")
	require.Equal(t, http.StatusUnprocessableEntity, b.call(t, "viewer", "GET", "/channels/count?near="+home+"&radius=499m", "").status)
	require.Equal(t, http.StatusUnprocessableEntity, b.call(t, "author", "POST", "/jobs/enqueue",
		`{"dry_run": true, "jobs": [{"type": ["push"], "category": "popular_content", "title": "x", "near": "`+home+`", "radius": "1m"}]}`).status)
	require.Contains(t, ask("operator", home, "100m").text, `"channels":1,`)

	for _, role := range []string{"viewer", "author"} {
		count := func(near string) string {
			return strings.ReplaceAll(b.call(t, role, "GET", "/channels/count?near="+near+"&radius=500m", "").text, near, "")
		}
		require.Contains(t, count(home), `"channels":9,"at_most":9`)
		require.Contains(t, count(none), `"channels":9,"at_most":9`)
		require.Contains(t, count(crowd), `"channels":20,"at_most":9`)
	}
	told := func(near string) string { // but for the lane, which has the time in it
		text, _, _ := strings.Cut(ask("author", near, "500m").text, `,"lane":`)
		return text
	}
	where := strings.NewReplacer("22.961889", "", "120.235939", "", `"latitude":1,`, `"latitude":,`, `"longitude":1,`, `"longitude":,`)
	require.Equal(t, where.Replace(told(none)), where.Replace(told(home)), "nobody and one are told alike")
	many := ask("author", crowd, "500m").text
	require.NotContains(t, many, "channel_id")
	require.NotContains(t, many, "many-")
	require.Contains(t, many, `"platforms":{"ios":10},`, "a circle without the two on the web, or with one person more, is told alike")
	require.Contains(t, many, `"opted_out":0,`)
	require.Contains(t, ask("operator", crowd, "500m").text, `"opted_out":3,`)
	require.Contains(t, ask("operator", crowd, "500m").text, `"channel_id":`)

	// A person more in the crowd changes nothing that they read.
	seen := func() string {
		return told(crowd) + b.call(t, "viewer", "GET", "/channels/count?near="+crowd+"&radius=500m", "").text
	}
	before, operators := seen(), ask("operator", crowd, "500m").text
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, location, addresses) VALUES ('one more', 'ios', point(10, 50), '{"push": "t"}')`)
	require.Equal(t, before, seen())
	require.NotEqual(t, operators, ask("operator", crowd, "500m").text)

	confirmed := func(n string) answer {
		return b.call(t, "author", "POST", "/enqueue", `{"type": ["push"], "category": "popular_content", "title": "x", "near": "`+home+`", "radius": "500m", "confirm_count": `+n+`}`)
	}
	require.Equal(t, http.StatusOK, confirmed("9").status)
	require.Equal(t, http.StatusOK, confirmed("0").status)
	refused := confirmed("77")
	require.Equal(t, http.StatusConflict, refused.status)
	require.Contains(t, refused.text, "the audience has fewer than 10 channels now")
}

// clock matches times and bounds.
var clock = regexp.MustCompile(`"[0-9T:.+Z-]{20,35}"|"bound":"27"`)

// Delivered, a job to a radius changes what is shown about each person inside: the one of an author waits
// for approval, also in a batch.
func TestEnqueue_AuthorsJobToARadiusWaitsForApproval(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const near = `{"type": ["push"], "category": "popular_content", "title": "x", "near": "50,10", "radius": "5km"}`
	const all = `{"type": ["push"], "category": "popular_content", "title": "x", "everyone": true}`
	for role, want := range map[string][]bool{"author": {true, true, false}, "operator": {false, false, false}} {
		b.exec(t, `DELETE FROM belfry.jobs`)
		require.Equal(t, http.StatusOK, b.call(t, role, "POST", "/enqueue", near).status)
		require.Equal(t, http.StatusOK, b.call(t, role, "POST", "/jobs/enqueue", `{"jobs": [`+near+`, `+all+`]}`).status)
		var needs []bool
		require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT array_agg(needs_approval ORDER BY id) FROM belfry.jobs`).Scan(&needs))
		require.Equal(t, want, needs, role)
	}
}

// A text is taken as it is, or refused: half of a character is none.
func TestInput_HalfACharacterIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	one := func(title string) string {
		return `{"type": ["push"], "category": "popular_content", "title": ` + title + `, "everyone": true}`
	}
	for _, title := range []string{`"a\ud83d b"`, `"a\ude00"`, `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, `"\\\ud83d"`} {
		got := b.call(t, "author", "POST", "/enqueue", one(title))
		require.Equal(t, http.StatusUnprocessableEntity, got.status, "%s: %s", title, got.text)
		require.Contains(t, got.text, `"location":"body.title","message":"has half of a character`)
		got = b.call(t, "author", "POST", "/jobs/enqueue", `{"jobs": [`+one(title)+`]}`)
		require.Equal(t, http.StatusUnprocessableEntity, got.status, "%s: %s", title, got.text)
	}
	for title, said := range map[string]string{`"a\ud83d\ude00"`: "a😀", `"a\\ud83d"`: `a\\ud83d`, `"a\uFFFD"`: "a\ufffd"} {
		got := b.call(t, "author", "POST", "/enqueue", one(title))
		require.Equal(t, http.StatusOK, got.status, "%s: %s", title, got.text)
		require.Contains(t, got.text, `"title":"`+said+`"`)
	}
	for _, title := range []string{`"\u200b"`, `"\u3164\u2060"`, `"\ufeff\u00ad"`, `"\u2800\ufe0f"`} {
		got := b.call(t, "author", "POST", "/enqueue", one(title))
		require.Equal(t, http.StatusUnprocessableEntity, got.status, "%s: %s", title, got.text)
		require.Contains(t, got.text, "is blank")
	}
	require.Equal(t, http.StatusOK, b.call(t, "author", "POST", "/enqueue", one(`"한"`)).status)
}

// Many jobs to circles around a person, of which none ever runs, would tell where the person is.
func TestMask_JobsToARadiusTellNobodyWhoIsInside(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, location) VALUES ('one', 'ios', point(10, 50))`)
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, audience, schedule_at) VALUES ('inbox', 'popular_content', 'near', belfry.audience_radius(50, 10, 500), now() + interval '1 year'), ('inbox', 'popular_content', 'all', belfry.audience_everyone(), now() + interval '1 year'), ('inbox', 'popular_content', 'near', belfry.audience_radius(50, 10, 500), now() + interval '1 year'); SELECT belfry.abort(3)`)
	for _, role := range []string{"viewer", "author"} {
		for _, path := range []string{"/jobs/1/audit", "/jobs/1/recipients", "/jobs/1/recipients?external_id=one", "/jobs/1/report"} {
			a := b.call(t, role, "GET", path, "")
			require.Equal(t, http.StatusForbidden, a.status, "%s %s: %s", role, path, a.text)
			require.Contains(t, a.text, "needs the role operator")
			require.Equal(t, http.StatusOK, b.call(t, role, "GET", strings.Replace(path, "/1/", "/2/", 1), "").status, path)
		}
		person := b.call(t, role, "GET", "/channels/show?channel=1", "").text
		require.NotContains(t, person, `"job_id":1,`)
		require.NotContains(t, person, `"job_id":3,`, "one that does not wait")
		require.Contains(t, person, `"job_id":2,`)
	}
	require.Contains(t, b.call(t, "operator", "GET", "/jobs/1/recipients?external_id=one", "").text, "not_reached")

	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, audience, route) VALUES ('push', 'popular_content', 'ran', belfry.audience_radius(50, 10, 500), '{push}');
		UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = fence + 1, started_at = now(), bound = '1' WHERE id = 4;
		UPDATE belfry.jobs SET cursor = '1', chunks = 1, channels_total = 1, channels_read = 1, channels_matched = 1, rows_written = 1 WHERE id = 4;
		UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = 4;
		INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES (4, 1, now() - interval '1 hour');
		INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES (4, '', 1);
		INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('default', now(), 'kim')`)
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, audience, route) VALUES ('push', 'popular_content', 'ran', belfry.audience_radius(50, 12, 500), '{push}');
		UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = fence + 1, started_at = now(), bound = '1' WHERE id = 5;
		UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = 5`)
	for _, role := range []string{"viewer", "author"} {
		for _, path := range []string{"/dead-letters/show?job=4&channel=1", "/dead-letters", "/dead-letters/errors", "/jobs/4/skips", "/jobs/watch?id=4"} {
			require.Equal(t, http.StatusForbidden, b.call(t, role, "GET", path, "").status, "%s %s", role, path)
		}
		require.NotContains(t, b.call(t, role, "GET", "/jobs/watch", "").text, `"id":4`)
		differing := regexp.MustCompile(`"id":\d+|"fence":\d+|"arrival":\d+|"version":\d+|"longitude":\d+|"job_id":\d+|"20[^"]*"|"bound":"1"`)
		for _, path := range []string{"/jobs/4", "/jobs/4/events", "/jobs/4/runs", "/jobs/4/revisions"} {
			inside, outside := b.call(t, role, "GET", path, ""), b.call(t, role, "GET", strings.Replace(path, "/4", "/5", 1), "")
			require.Equal(t, http.StatusOK, inside.status, path)
			require.Equal(t, differing.ReplaceAllString(outside.text, ""), differing.ReplaceAllString(inside.text, ""), "%s %s: with a person inside it reads as without", role, path)
		}
	}
	b.exec(t, `INSERT INTO belfry.job_events (job_id, kind, actor, detail) VALUES (4, 'recalled', 'kim', '{"after": {"recalled": 1}}'), (2, 'recalled', 'kim', '{"after": {"recalled": 77}}');
		INSERT INTO belfry.events (subject, name, kind, actor, detail) VALUES ('dead_letter', '4', 'redriven', 'kim', '{"filter": {"channel_id": 30043}}')`)
	for _, role := range []string{"viewer", "author", "operator"} {
		all := b.call(t, role, "GET", "/events", "").text + b.call(t, role, "GET", "/dead-letters/events", "").text
		require.Contains(t, all, `"recalled":77`)
		for _, detail := range []string{`"recalled":1}`, "30043"} {
			require.Equal(t, role == "operator", strings.Contains(all, detail), "%s %s: %s", role, detail, all)
		}
	}
	require.Contains(t, b.call(t, "operator", "GET", "/jobs/4", "").text, `"cursor":"1"`)
	person := b.call(t, "operator", "GET", "/channels/show?channel=1", "").text
	require.Contains(t, person, `"job_id":1,`)
	require.Contains(t, person, `"job_id":3,`)
}

// A job that was to a radius, and was corrected, tells no more than before. Neither do its runs, nor the reason of an abort
// at its ceiling.
func TestMask_ACorrectedJobTellsNobodyWhoWasInside(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, location) SELECT 'u' || n, 'ios', point(10, 50) FROM generate_series(1, 27) n`)
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, audience) SELECT 'inbox', 'popular_content', 'x', a FROM unnest(ARRAY[belfry.audience_radius(50, 10, 500), belfry.audience_everyone()]) a;
		UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = fence + 1, started_at = now(), bound = '27' WHERE id = 1;
		UPDATE belfry.jobs SET cursor = '27', chunks = 1, channels_total = 27, channels_read = 27, channels_matched = 27, rows_written = 27 WHERE id = 1`)
	require.Contains(t, b.call(t, "operator", "GET", "/jobs/1/runs", "").text, `"rows":27`)
	require.Contains(t, b.call(t, "viewer", "GET", "/jobs/1/runs", "").text, `"rows":20`)
	b.exec(t, `SELECT belfry.abort(1, 'ann', 'x'); SELECT belfry.resume_edited(1, '{"audience": {"kind": "everyone"}}', 'ann', 'all of them')`)
	for _, role := range []string{"viewer", "author"} {
		for _, path := range []string{"/jobs/1/audit", "/jobs/1/recipients", "/jobs/1/report"} {
			require.Equal(t, http.StatusForbidden, b.call(t, role, "GET", path, "").status, path)
			require.Equal(t, http.StatusOK, b.call(t, role, "GET", strings.Replace(path, "/1/", "/2/", 1), "").status, path)
		}
		for _, path := range []string{"/jobs/1", "/jobs", "/jobs/1/runs", "/jobs/1/events", "/jobs/1/revisions", "/events"} {
			require.NotRegexp(t, `\b27\b`, clock.ReplaceAllString(b.call(t, role, "GET", path, "").text, ""), "%s %s", role, path)
		}
		require.NotContains(t, b.call(t, role, "GET", "/channels/show?channel=1", "").text, `"job_id":1,`)
	}
}
