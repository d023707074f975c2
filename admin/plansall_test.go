package admin_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// unplanned lists acts that may affect several objects and have no plan, with the reason.
var unplanned = map[string]string{
	"enqueue":          "its plan is --preview, and what --plan is to others is --confirm-count",
	"schedules run":    "it enqueues the jobs of one schedule, as its clock would; `schedules show` and `upcoming` show them",
	"channels opt-in":  "it takes exactly one opt-out of one channel back; its answer lists those that are left",
	"channels attach":  "it brings over every row of a table and selects nothing; `channels verify --dry-run` counts what differs",
	"channels detach":  "it takes the triggers off one table and changes no channel",
	"halt":             "it has to take effect at once, on everything; nothing is lost, and `unhalt` ends it",
	"unhalt":           "it ends a halt, on everything; what continues is what `status` and `jobs list` show",
	"limits set":       "it is about one row",
	"channels opt-out": "it records one opt-out of one channel",
	"send":             "it is one message to one channel",
}

// uncounted lists acts whose plan has no count, with the reason.
var uncounted = map[string]string{
	"adopt": "it is about one database; what would leave grows while it is looked at, and the number is typed where it is large",
}

// aboutMany returns the reason why an act may affect several objects, or "" if it affects one.
func aboutMany(o operation.Operation) string {
	one := false
	for _, p := range o.Params() {
		switch {
		case p.Place == operation.Argument && p.Repeated:
			return "it takes several " + p.Label
		case p.Name == "group", p.Name == "all":
			return "it takes --" + p.Flag
		}
		one = one || p.Required
	}
	switch {
	case admintest.CountsThings(o):
		return "its receipt counts"
	case !one:
		return "nothing says what it is about: it is about everything"
	}
	return ""
}

// Every act that may affect several objects has a plan, and rejects another count. Exceptions are listed with
// a reason.
func TestPlan_IsOfEveryActOnMany(t *testing.T) {
	t.Parallel()
	left := make(map[string]bool)
	for _, o := range admin.Operations() {
		why := aboutMany(o)
		has := func(name string) bool {
			return slices.ContainsFunc(o.Params(), func(p operation.Param) bool { return p.Name == name })
		}
		if !o.Changes {
			require.False(t, has("dry_run"), "%s changes nothing", o.Name)
			continue
		}
		if !has("dry_run") {
			require.True(t, why == "" || unplanned[o.Name] != "", "%s has no --dry-run, though %s", o.Name, why)
			left[o.Name] = why != ""
			continue
		}
		require.Equal(t, uncounted[o.Name] == "", has("plan"), "%s: --plan", o.Name)
		if uncounted[o.Name] != "" {
			continue
		}
		require.True(t, slices.ContainsFunc(o.Results(), hasPlan), "%s: no result has a plan", o.Name)
	}
	for name := range unplanned {
		require.True(t, left[name], "%s needs no reason", name)
	}
}

// hasPlan reports whether a result has a plan.
func hasPlan(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		return f.Type == reflect.TypeFor[*operation.Plan]()
	})
}

// Sessions are counted by user, and a session that was opened after the plan is skipped.
func TestPlan_SessionsAreAsPlanned(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.users (name, role, identity, password_at, created_by) VALUES ('oidc:ann', 'admin', 'idp#1', NULL, 'root'), ('oidc:kim', 'viewer', 'idp#2', NULL, 'root')`)
	opened := func(id, kind, name string) {
		d.Exec(`INSERT INTO belfry.sessions (id, kind, sha256, name, role, via, created_at, expires_at) OVERRIDING SYSTEM VALUE
			SELECT ` + id + `, '` + kind + `', sha256('` + id + `'), name, role, 'password', clock_timestamp(), now() + interval '1 hour' FROM belfry.users WHERE name = '` + name + `'`)
	}
	for id, name := range map[string]string{"11": "oidc:ann", "12": "oidc:ann", "14": "oidc:kim"} {
		opened(id, "session", name)
	}
	opened("13", "link", "oidc:ann")
	there := func() string {
		return d.One(`SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') FROM belfry.sessions`)
	}

	p := d.Planned("sessions revoke", "user", "oidc:ann")
	require.Equal(t, "all of user oidc:ann", p.Selection)
	require.EqualValues(t, 3, p.Count)
	require.Equal(t, []operation.Outcome{{Of: "sessions of oidc:ann", Outcome: "ended", Count: 2}, {Of: "links of oidc:ann", Outcome: "ended", Count: 1}}, p.Outcomes)
	d.Refuses(p, "sessions revoke", "user", "oidc:ann")
	require.Equal(t, "11,12,13,14", there())
	opened("15", "session", "oidc:ann")
	require.NoError(t, d.Run("sessions revoke", append([]string{"user", "oidc:ann"}, admintest.As(p)...)...))
	require.EqualValues(t, 3, d.Receipt().Concerned)
	require.Equal(t, "14,15", there())

	p = d.Planned("sessions revoke", "id", "14", "id", "99")
	require.Equal(t, "sessions 14, 99", p.Selection)
	require.Equal(t, operation.Outcome{Of: "session 99", Outcome: "left", Detail: "it did not exist at that time"}, p.Outcomes[1])
	require.NoError(t, d.Run("sessions revoke", append([]string{"id", "14", "id", "99"}, admintest.As(p)...)...))
	require.NoError(t, d.Run("sessions revoke", "user", "oidc:ann"))
	require.Empty(t, there(), "without a time what is opened this moment is ended too")
	require.Zero(t, d.Planned("sessions revoke", "user", "oidc:ann").Count)
	require.ErrorIs(t, d.Run("sessions revoke", "user", "oidc:ann"), access.ErrNoSession)
}

// Dropping a segment requires the planned number of members. The plan names jobs and schedules that lose
// their recipients.
func TestPlan_SegmentIsDroppedAsPlanned(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.segments (name) VALUES ('beta'), ('other')`)
	d.Exec(`INSERT INTO belfry.segment_members (segment, channel_id) SELECT 'beta', n FROM generate_series(1, 3) n`)
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, audience, lane) SELECT 'push', 'operator_notice', 'Hello', jsonb_build_object('kind', 'segment', 'segment', s), 'l' || n
		FROM unnest(ARRAY['beta', 'beta', 'beta', 'other']) WITH ORDINALITY u(s, n)`)
	d.Stands(1, "RUNNING")
	d.Stands(3, "PROCESSED")
	d.Exec(`INSERT INTO belfry.schedules (name, cron, template) VALUES ('daily', '0 9 * * *', '{"type": "push", "category": "operator_notice", "title": "Hello", "audience": {"kind": "segment", "segment": "beta"}}')`)
	members := func() string { return d.One(`SELECT count(*)::text FROM belfry.segment_members`) }

	p := d.Planned("channels segment drop", "name", "beta")
	require.Equal(t, "segment beta", p.Selection)
	require.EqualValues(t, 3, p.Count)
	require.Equal(t, []operation.Outcome{
		{Of: "members", Outcome: "removed", Count: 3},
		{Of: "job 1 (push)", Outcome: "left", Detail: "finds no further members, and ends early"},
		{Of: "job 2 (push)", Outcome: "left", Detail: "finds no further members, and ends early"},
		{Of: "schedule daily", Outcome: "left", Detail: "its jobs are rejected from then on"},
	}, p.Outcomes)
	d.Refuses(p, "channels segment drop", "name", "beta")
	require.Equal(t, "3", members())
	d.Exec(`INSERT INTO belfry.segment_members (segment, channel_id) VALUES ('beta', 4)`)
	require.ErrorContains(t, d.Run("channels segment drop", append([]string{"name", "beta"}, admintest.As(p)...)...), "the plan is out of date: 4 members would be removed as of ")
	require.Equal(t, "4", members())
	require.NoError(t, d.Run("channels segment drop", append([]string{"name", "beta", "reason", "over"}, admintest.As(d.Planned("channels segment drop", "name", "beta"))...)...))
	require.EqualValues(t, 4, d.Receipt().Concerned)
	require.Equal(t, "0", members())
	require.Equal(t, "removed over", d.One(`SELECT kind || ' ' || reason FROM belfry.events WHERE subject = 'segment' AND actor = 'ann@host'`))
	require.ErrorContains(t, d.Run("channels segment drop", "name", "beta", "dry_run", "on"), "no such segment")
}

// Skipped recipients are retried as planned, unless the job has run since.
func TestPlan_SkippedAreTriedAgainAsPlanned(t *testing.T) {
	t.Parallel()
	d := admintest.Troop(t)
	skip := func(id int64, n int) {
		d.Exec(`INSERT INTO belfry.job_skips (job_id, key, after, error) SELECT ` + strconv.FormatInt(id, 10) + `, 'k' || n, '', 'poison' FROM generate_series(1, ` + strconv.Itoa(n) + `) n`)
		dbtest.Past(t, d.DB.Pool, `UPDATE belfry.jobs SET skipped = $2 WHERE id = $1`, id, n)
	}
	skip(4, 2)
	skip(5, 3)
	d.Exec(`INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('lane4', now(), 'kim') ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_by = 'kim'`)
	p := d.Planned("jobs retry-skipped", "id", "5")
	require.Equal(t, "job 5", p.Selection)
	require.EqualValues(t, 3, p.Count)
	require.Equal(t, []operation.Outcome{{Of: "job 5 (push)", Outcome: "tried again", Count: 3, Detail: "8 written, 0 sent; waits: lane lane4 is paused"}}, p.Outcomes)
	require.Contains(t, d.Planned("jobs retry-skipped", "id", "4").Outcomes[0].Detail, "; in addition to the recipients that it has not reached")
	for id, why := range map[string]string{"2": "it is RUNNING", "6": "it skipped no recipient"} {
		left := d.Planned("jobs retry-skipped", "id", id)
		require.Zero(t, left.Count)
		require.Equal(t, why, left.Outcomes[0].Detail)
	}
	d.Refuses(p, "jobs retry-skipped", "id", "5")
	require.NoError(t, d.Run("jobs retry-skipped", append([]string{"id", "5"}, admintest.As(p)...)...))
	require.EqualValues(t, 3, d.Receipt().Concerned)
	require.Equal(t, "PENDING", d.Status("5"))

	p = d.Planned("jobs retry-skipped", "id", "4")
	d.Exec(`SELECT belfry.retry(4)`)
	d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = fence + 1 WHERE id = 4`)
	d.Exec(`UPDATE belfry.jobs SET status = 'FAILED', last_error = 'disk' WHERE id = 4`) // it has run since
	before := d.Everything()
	require.ErrorContains(t, d.Run("jobs retry-skipped", append([]string{"id", "4"}, admintest.As(p)...)...), "the plan is out of date: 0 recipients would be tried again as of ")
	require.Equal(t, before, d.Everything())
	require.NoError(t, d.Run("jobs retry-skipped", append([]string{"id", "4"}, admintest.As(d.Planned("jobs retry-skipped", "id", "4"))...)...))

	var answer struct{ Version int64 }
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &answer))
	require.NotZero(t, answer.Version, "what an act on it may be held to")
}
