package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/outbox"
)

// Every act returns a receipt: the time by the process's clock, since when its effect holds by the database's
// clock, and the number of objects.
func TestReceipt_AnswersEveryAct(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	before := d.DBNow()
	d.Enqueue("inbox,push")
	require.EqualValues(t, 2, d.Receipt().Concerned)
	require.Regexp(t, `(?m)^done at \d\d:\d\d:\d\d, 2 jobs$`, d.Notes)
	require.NotContains(t, d.Out, "asked", "what a script reads is the result alone")

	require.NoError(t, d.Run("abort", "group", "1"))
	r := d.Receipt()
	require.EqualValues(t, 2, r.Concerned)
	require.Equal(t, admintest.Noon().UTC(), r.AskedAt)
	require.False(t, r.InForceSince.Before(before))
	require.False(t, r.InForceSince.After(d.DBNow()))

	for _, act := range [][]string{
		{"lanes pause", "lane", "night"},
		{"senders pause", "sender", "fcm"},
		{"categories set", "category", "operator_notice", "cap", "3/24h"},
		{"limits set", "priority", "5"},
		{"tokens create", "name", "ci", "role", "viewer"},
		{"tokens revoke", "name", "ci"},
		{"channels segment create", "name", "beta"},
	} {
		require.NoError(t, d.Run(act[0], act[1:]...), act)
		require.EqualValues(t, 1, d.Receipt().Concerned, act)
		require.NotNil(t, d.Receipt().InForceSince, act)
	}
	require.NoError(t, d.Run("dead-letters redrive", "all", "on"))
	require.Zero(t, d.Receipt().Concerned)
}

// An object that was resumed without a pause has been in force since its last resumption, or without a time.
// A halt counts the jobs that it stopped, and its end the jobs that resume.
func TestReceipt_SaysSinceWhenThingsGoOn(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("inbox")
	require.NoError(t, d.Run("schedules add", "name", "daily", "cron", "0 9 * * *", "type", "inbox", "category", "popular_content", "title", "Hello", "everyone", "on"))
	for _, c := range [][]string{{"lanes", "lane", "night"}, {"senders", "sender", "fcm"}, {"schedules", "name", "daily"}} {
		noun, thing := c[0], c[1:]
		require.NoError(t, d.Run(noun+" resume", thing...))
		require.Nil(t, d.Receipt().InForceSince, "%s were never paused", noun)
		require.NoError(t, d.Run(noun+" pause", thing...))
		paused := *d.Receipt().InForceSince
		require.NoError(t, d.Run(noun+" resume", thing...))
		resumed := *d.Receipt().InForceSince
		require.True(t, resumed.After(paused), noun)
		require.NoError(t, d.Run(noun+" resume", thing...))
		require.Equal(t, resumed, *d.Receipt().InForceSince, noun)
	}

	require.NoError(t, d.Run("unhalt"))
	require.Nil(t, d.Receipt().InForceSince, "it was never halted")
	require.Zero(t, d.Receipt().Concerned)
	require.Contains(t, d.Notes, ", 0 jobs")
	d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = 1`)
	require.NoError(t, d.Run("halt"))
	halted := *d.Receipt().InForceSince
	require.EqualValues(t, 1, d.Receipt().Concerned)
	require.Contains(t, d.Notes, ", 1 job\n")
	require.NoError(t, d.Run("halt"))
	require.Equal(t, halted, *d.Receipt().InForceSince)
	require.Zero(t, d.Receipt().Concerned)
	require.NoError(t, d.Run("unhalt"))
	lifted := *d.Receipt().InForceSince
	require.True(t, lifted.After(halted))
	require.EqualValues(t, 1, d.Receipt().Concerned)
	require.NoError(t, d.Run("unhalt"))
	require.Equal(t, lifted, *d.Receipt().InForceSince)
	require.Zero(t, d.Receipt().Concerned)
}

// A user who was already enabled has been enabled since the last act that enabled them, if any; their other
// changes do not matter.
func TestReceipt_SaysSinceWhenAUserMaySignIn(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	add := func() {
		require.NoError(t, d.Run("users add", "name", "kim", "role", "viewer", "password", "a long new password"))
		require.NoError(t, d.Run("users enable", "name", "kim"))
		require.Nil(t, d.Receipt().InForceSince, "nobody disabled them")
		require.EqualValues(t, 1, d.Receipt().Concerned)
	}
	add()
	require.NoError(t, d.Run("users disable", "name", "kim"))
	disabled := *d.Receipt().InForceSince
	require.NoError(t, d.Run("users disable", "name", "kim"))
	require.Equal(t, disabled, *d.Receipt().InForceSince)
	require.NoError(t, d.Run("users enable", "name", "kim"))
	enabled := *d.Receipt().InForceSince
	require.True(t, enabled.After(disabled))
	require.NoError(t, d.Run("users set", "name", "kim", "role", "operator"))
	require.NoError(t, d.Run("users enable", "name", "kim"))
	require.Equal(t, enabled, *d.Receipt().InForceSince)
	require.NoError(t, d.Run("users remove", "name", "kim"))
	add()
}

// A result from JSON keeps its receipt.
func TestReceipt_IsReadFromTheJSON(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	require.NoError(t, d.Run("lanes pause", "lane", "night"))
	out, err := admintest.Operation(t, "lanes pause").ReadResult([]byte(d.JSON), "")
	require.NoError(t, err)
	acted, is := out.(operation.Acted)
	require.True(t, is)
	require.Equal(t, d.Receipt(), acted.Receipt)
	plan, err := admintest.Operation(t, "prune").ReadResult([]byte(`{"plan": {}}`), "")
	require.NoError(t, err)
	require.IsType(t, &delivery.PruneReport{}, plan)
}

// A state that already holds has been in force since before the act.
func TestReceipt_SaysSinceWhenItHolds(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	require.NoError(t, d.Run("lanes pause", "lane", "night"))
	first := *d.Receipt().InForceSince
	require.NoError(t, d.Run("lanes pause", "lane", "night"))
	require.Equal(t, first, *d.Receipt().InForceSince)
	require.NoError(t, d.Run("lanes resume", "lane", "night"))
	require.True(t, d.Receipt().InForceSince.After(first))
	require.NoError(t, d.Run("senders pause", "sender", "fcm"))
	first = *d.Receipt().InForceSince
	require.NoError(t, d.Run("senders set", "sender", "fcm", "concurrency", "3"))
	require.True(t, d.Receipt().InForceSince.After(first), "it is the limit that holds since now")
}

// Reads and plans have no receipt.
func TestReceipt_IsOfActsAlone(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Retention = outbox.DefaultRetention()
	for _, given := range [][]string{
		{"prune", "dry_run", "on"},
		{"dead-letters discard", "all", "on", "dry_run", "on"},
		{"enqueue", "everyone", "on", "preview", "on"},
		{"lanes list"},
	} {
		require.NoError(t, d.Run(given[0], given[1:]...))
		require.NotContains(t, d.JSON, "receipt", given)
		require.NotContains(t, d.Notes, "asked", given)
	}
}
