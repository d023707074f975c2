package admin_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/delivery"
)

// receipt is that of the last operation.
func (d *desk) receipt() admin.Receipt {
	d.t.Helper()
	var answer struct{ Receipt *admin.Receipt }
	require.NoError(d.t, json.Unmarshal([]byte(d.json), &answer))
	require.NotNil(d.t, answer.Receipt, d.json)
	return *answer.Receipt
}

// dbNow is the database's clock.
func (d *desk) dbNow() time.Time {
	d.t.Helper()
	now, err := d.env.Jobs.Now(d.t.Context())
	require.NoError(d.t, err)
	return now
}

// Every act is answered by a receipt: the clock of who was asked, the database's clock for
// since when it holds, and how many things it was about.
func TestReceipt_AnswersEveryAct(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	before := d.dbNow()
	d.enqueue("inbox,push")
	require.EqualValues(t, 2, d.receipt().Concerned)
	require.Regexp(t, `(?m)^done at \d\d:\d\d:\d\d, 2 jobs$`, d.notes)
	require.NotContains(t, d.out, "asked", "what a script reads is the result alone")

	require.NoError(t, d.run("abort", "group", "1"))
	r := d.receipt()
	require.EqualValues(t, 2, r.Concerned)
	require.Equal(t, noon().UTC(), r.AskedAt)
	require.False(t, r.InForceSince.Before(before))
	require.False(t, r.InForceSince.After(d.dbNow()))

	for _, act := range [][]string{
		{"lanes pause", "lane", "night"},
		{"senders pause", "sender", "fcm"},
		{"categories set", "category", "operator_notice", "cap", "3/24h"},
		{"limits set", "priority", "5"},
		{"tokens create", "name", "ci", "role", "viewer"},
		{"tokens revoke", "name", "ci"},
		{"channels segment create", "name", "beta"},
	} {
		require.NoError(t, d.run(act[0], act[1:]...), act)
		require.EqualValues(t, 1, d.receipt().Concerned, act)
		require.NotNil(t, d.receipt().InForceSince, act)
	}
	require.NoError(t, d.run("dead-letters redrive", "all", "on"))
	require.Zero(t, d.receipt().Concerned)
}

// What is resumed that was not paused has been in force since it was resumed last, or has never been
// otherwise; a halt counts the jobs that it stopped, and its end those that go on.
func TestReceipt_SaysSinceWhenThingsGoOn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.enqueue("inbox")
	require.NoError(t, d.run("schedules add", "name", "daily", "cron", "0 9 * * *", "type", "inbox", "category", "popular_content", "title", "Hello", "everyone", "on"))
	for _, c := range [][]string{{"lanes", "lane", "night"}, {"senders", "sender", "fcm"}, {"schedules", "name", "daily"}} {
		noun, thing := c[0], c[1:]
		require.NoError(t, d.run(noun+" resume", thing...))
		require.Nil(t, d.receipt().InForceSince, "%s were never paused", noun)
		require.NoError(t, d.run(noun+" pause", thing...))
		paused := *d.receipt().InForceSince
		require.NoError(t, d.run(noun+" resume", thing...))
		resumed := *d.receipt().InForceSince
		require.True(t, resumed.After(paused), noun)
		require.NoError(t, d.run(noun+" resume", thing...))
		require.Equal(t, resumed, *d.receipt().InForceSince, noun)
	}

	require.NoError(t, d.run("unhalt"))
	require.Nil(t, d.receipt().InForceSince, "it was never halted")
	require.Zero(t, d.receipt().Concerned)
	require.Contains(t, d.notes, ", 0 jobs")
	d.exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = 1`)
	require.NoError(t, d.run("halt"))
	halted := *d.receipt().InForceSince
	require.EqualValues(t, 1, d.receipt().Concerned)
	require.Contains(t, d.notes, ", 1 job\n")
	require.NoError(t, d.run("halt"))
	require.Equal(t, halted, *d.receipt().InForceSince)
	require.Zero(t, d.receipt().Concerned)
	require.NoError(t, d.run("unhalt"))
	lifted := *d.receipt().InForceSince
	require.True(t, lifted.After(halted))
	require.EqualValues(t, 1, d.receipt().Concerned)
	require.NoError(t, d.run("unhalt"))
	require.Equal(t, lifted, *d.receipt().InForceSince)
	require.Zero(t, d.receipt().Concerned)
}

// Who is enabled already is so since somebody enabled them last, or has never been otherwise since they
// were added; other changes of theirs are no matter.
func TestReceipt_SaysSinceWhenAUserMaySignIn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	add := func() {
		require.NoError(t, d.run("users add", "name", "kim", "role", "viewer", "password", "a long new password"))
		require.NoError(t, d.run("users enable", "name", "kim"))
		require.Nil(t, d.receipt().InForceSince, "nobody disabled them")
		require.EqualValues(t, 1, d.receipt().Concerned)
	}
	add()
	require.NoError(t, d.run("users disable", "name", "kim"))
	disabled := *d.receipt().InForceSince
	require.NoError(t, d.run("users disable", "name", "kim"))
	require.Equal(t, disabled, *d.receipt().InForceSince)
	require.NoError(t, d.run("users enable", "name", "kim"))
	enabled := *d.receipt().InForceSince
	require.True(t, enabled.After(disabled))
	require.NoError(t, d.run("users set", "name", "kim", "role", "operator"))
	require.NoError(t, d.run("users enable", "name", "kim"))
	require.Equal(t, enabled, *d.receipt().InForceSince)
	require.NoError(t, d.run("users remove", "name", "kim"))
	add()
}

// What comes over HTTP is told with its receipt, too.
func TestReceipt_IsReadFromTheJSON(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.NoError(t, d.run("lanes pause", "lane", "night"))
	out, err := operation(t, "lanes pause").ReadResult([]byte(d.json), "")
	require.NoError(t, err)
	acted, is := out.(admin.Acted)
	require.True(t, is)
	require.Equal(t, d.receipt(), acted.Receipt)
	plan, err := operation(t, "prune").ReadResult([]byte(`{"plan": {}}`), "")
	require.NoError(t, err)
	require.IsType(t, &admin.PruneReport{}, plan)
}

// What holds already has been in force for longer than it was asked for.
func TestReceipt_SaysSinceWhenItHolds(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.NoError(t, d.run("lanes pause", "lane", "night"))
	first := *d.receipt().InForceSince
	require.NoError(t, d.run("lanes pause", "lane", "night"))
	require.Equal(t, first, *d.receipt().InForceSince)
	require.NoError(t, d.run("lanes resume", "lane", "night"))
	require.True(t, d.receipt().InForceSince.After(first))
	require.NoError(t, d.run("senders pause", "sender", "fcm"))
	first = *d.receipt().InForceSince
	require.NoError(t, d.run("senders set", "sender", "fcm", "concurrency", "3"))
	require.True(t, d.receipt().InForceSince.After(first), "it is the limit that holds since now")
}

// What only looks, or only says what it would do, has none.
func TestReceipt_IsOfActsAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.env.Retention = delivery.DefaultRetention()
	for _, given := range [][]string{
		{"prune", "dry_run", "on"},
		{"dead-letters discard", "all", "on", "dry_run", "on"},
		{"enqueue", "everyone", "on", "preview", "on"},
		{"lanes list"},
	} {
		require.NoError(t, d.run(given[0], given[1:]...))
		require.NotContains(t, d.json, "receipt", given)
		require.NotContains(t, d.notes, "asked", given)
	}
}
