package schedule_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// A schedule waits for its hour, fires once, and waits for the next.
func TestFire_OncePerOccurrence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.TimeZone = "Asia/Seoul" // 09:00 there is 00:00 UTC
	d.Template = schedule.Template{
		Types: []string{"inbox", "push"}, Category: "popular_content", Title: "Today", Body: "Ten things", Data: map[string]any{"postId": 7},
		Audience: map[string]any{"kind": "platforms", "platforms": []string{"ios"}}, Lane: "bulk", Priority: -3, DeliverAfter: "15m", ExpiresAfter: "2h",
	}
	b.put(t, d, "05-01 12:00:00")

	require.Empty(t, b.fire(t, "05-01 12:00:01").Occurrences)
	require.Equal(t, "2026-05-02T00:00:00Z", b.get(t, "popular").NextAt.Format(time.RFC3339))
	require.Empty(t, b.fire(t, "05-01 23:59:59").Occurrences)
	fired := b.fire(t, "05-02 00:00:03")
	require.Equal(t, []string{"05-02 00:00:00"}, occurrences(fired))
	require.Empty(t, b.fire(t, "05-02 00:00:03").Occurrences)
	require.Empty(t, b.fire(t, "05-02 23:00:00").Occurrences)

	ids := fired.Occurrences[0].Jobs
	require.Len(t, ids, 2)
	inbox, err := b.jobs.Get(context.Background(), ids[0])
	require.NoError(t, err)
	push, err := b.jobs.Get(context.Background(), ids[1])
	require.NoError(t, err)
	require.Equal(t, []string{"inbox", "push"}, []string{inbox.Type, push.Type})
	require.Equal(t, inbox.GroupID, push.GroupID)
	require.NotNil(t, push.GroupID)
	require.Equal(t, "schedule:popular:2026-05-02T00:00:00Z", *push.IdempotencyKey)
	require.Equal(t, "schedule popular", push.RequestedBy)
	require.Equal(t, "Today", push.Title)
	require.Equal(t, "Ten things", push.Body)
	require.JSONEq(t, `{"postId": 7}`, string(push.Data))
	require.Equal(t, channels.OnPlatforms("ios"), push.Audience)
	require.Equal(t, "bulk", push.Lane)
	require.Equal(t, -3, push.Priority)
	require.Equal(t, "00:00", push.ScheduleAt.UTC().Format("15:04"))
	require.Equal(t, "00:15", push.DeliverAt.UTC().Format("15:04"))
	require.Equal(t, "02:00", one[time.Time](t, b, `SELECT expires_at FROM belfry.jobs WHERE id = $1`, ids[1]).UTC().Format("15:04"))

	s := b.get(t, "popular")
	require.EqualValues(t, 1, s.Fired)
	require.Equal(t, ids, s.LastJobs)
	require.Equal(t, "2026-05-02T00:00:00Z", s.LastAt.Format(time.RFC3339))
	require.Equal(t, "2026-05-03T00:00:00Z", s.NextAt.Format(time.RFC3339))
	require.Equal(t, []string{"created", "fired"}, b.kinds(t, "popular"))
}

// An interval's grid does not move with late ticks.
func TestFire_IntervalsStayOnTheirGrid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Cron, d.Every = "", "1h30m"
	b.put(t, d, "05-01 12:00:00")
	require.Empty(t, b.fire(t, "05-01 13:29:59").Occurrences)
	require.Equal(t, []string{"05-01 13:30:00"}, occurrences(b.fire(t, "05-01 13:37:11")))
	require.Equal(t, []string{"05-01 15:00:00"}, occurrences(b.fire(t, "05-01 15:00:00")))
	require.Equal(t, "1h30m", b.get(t, "popular").Every)
}

// The policies after a night without any node.
func TestFire_MissedOccurrencesFollowThePolicy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		name    string
		missed  schedule.Policy
		moment  string
		fired   []string
		skipped int
	}{
		{"skip, nothing on time", schedule.Skip, "05-01 15:30:00", []string{}, 3},
		{"skip, one on time", schedule.Skip, "05-01 15:05:00", []string{"05-01 15:00:00"}, 2},
		{"once, nothing on time", schedule.Once, "05-01 15:30:00", []string{"05-01 15:00:00"}, 2},
		{"once, one on time stands for all", schedule.Once, "05-01 15:05:00", []string{"05-01 15:00:00"}, 2},
		{"once, at the very limit", schedule.Once, "05-01 15:10:00", []string{"05-01 15:00:00"}, 2},
		{"all", schedule.All, "05-01 15:30:00", []string{"05-01 13:00:00", "05-01 14:00:00", "05-01 15:00:00"}, 0},
	} {
		b.inOrder(t, c.name, func(t *testing.T) {
			d := popular()
			d.Cron, d.Missed = "0 * * * *", c.missed
			b.put(t, d, "05-01 12:30:00")
			fired := b.fire(t, c.moment)
			require.Equal(t, c.fired, occurrences(fired))
			require.Equal(t, c.skipped, fired.Skipped)
			s := b.get(t, "popular")
			require.EqualValues(t, c.skipped, s.Skipped)
			require.EqualValues(t, len(c.fired), s.Fired)
			require.Equal(t, "2026-05-01T16:00:00Z", s.NextAt.Format(time.RFC3339))
			require.Len(t, b.keys(t), len(c.fired))
			require.Empty(t, b.fire(t, c.moment).Occurrences)
			if c.skipped > 0 {
				require.EqualValues(t, c.skipped, one[int64](t, b, `SELECT sum((detail ->> 'count')::bigint)::bigint FROM belfry.events WHERE kind = 'skipped' AND reason = 'missed'`))
			}
		})
	}
}

// A flood of missed occurrences comes in portions of a hundred.
func TestFire_AllGoesOnAtTheNextTick(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Cron, d.Every, d.Missed = "", "1m", schedule.All
	b.put(t, d, "05-01 12:00:00")
	total := 0
	for range 20 { // a slow machine's second may end a portion earlier
		n := len(b.fire(t, "05-01 14:10:00").Occurrences)
		require.LessOrEqual(t, n, 100)
		total += n
	}
	require.Equal(t, 130, total)
	require.Len(t, b.keys(t), 130)
}

// What has outlived the template's expires_after is dropped, whatever the policy.
func TestFire_ExpiredOccurrencesAreDropped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Cron, d.Missed, d.Template.ExpiresAfter = "0 * * * *", schedule.All, "90m"
	b.put(t, d, "05-01 08:30:00")
	fired := b.fire(t, "05-01 12:20:00")
	require.Equal(t, []string{"05-01 11:00:00", "05-01 12:00:00"}, occurrences(fired))
	require.Equal(t, 2, fired.Skipped)
	require.Equal(t, "older than template.expires_after", one[string](t, b, `SELECT reason FROM belfry.events WHERE kind = 'skipped'`))
}

// Both edges through the whole path: the hour that is left out and the one that
// comes twice each make one job of a wall-clock schedule.
func TestFire_AcrossChangesOfTheClocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Cron, d.TimeZone = "30 2 * * *", "America/New_York"
	b.put(t, d, "03-07 12:00:00")
	require.Empty(t, b.fire(t, "03-08 06:59:59").Occurrences)
	require.Equal(t, []string{"03-08 07:00:00"}, occurrences(b.fire(t, "03-08 07:00:01"))) // 03:00 EDT
	require.Equal(t, []string{"03-09 06:30:00"}, occurrences(b.fire(t, "03-09 06:30:01")))
	b.exec(t, `UPDATE belfry.schedules SET cron = '30 1 * * *'`)
	b.exec(t, `UPDATE belfry.schedules SET armed_at = '2026-10-31 12:00Z'`)
	require.Equal(t, []string{"11-01 05:30:00"}, occurrences(b.fire(t, "11-01 05:30:01")))
	require.Empty(t, b.fire(t, "11-01 06:30:01").Occurrences, "the second 01:30")
	require.Equal(t, []string{"11-02 06:30:00"}, occurrences(b.fire(t, "11-02 06:30:01")))
	require.Len(t, b.keys(t), 4)
}

// A pause drops what falls into it; a new recurrence counts from its change.
func TestFire_PausesAndChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	d := popular()
	d.Cron = "0 * * * *"
	b.put(t, d, "05-01 12:30:00")
	require.Empty(t, b.fire(t, "05-01 12:31:00").Occurrences)
	s, err := b.store.Pause(ctx, "popular", job.Act{Actor: "kim", Reason: "holiday"})
	require.NoError(t, err)
	require.Equal(t, []string{"kim", "holiday"}, []string{s.PausedBy, s.PauseReason})
	require.Nil(t, s.NextAt)
	again, err := b.store.Pause(ctx, "popular", job.Act{Actor: "lee"})
	require.NoError(t, err)
	require.Equal(t, "kim", again.PausedBy)
	require.Empty(t, b.fire(t, "05-01 13:00:01").Occurrences)
	s, err = b.store.Resume(ctx, "popular", job.Act{Actor: "lee", Reason: "back"})
	require.NoError(t, err)
	require.Nil(t, s.PausedAt)
	require.Empty(t, s.PausedBy)
	require.WithinDuration(t, time.Now(), s.ArmedAt, time.Hour)
	b.exec(t, `UPDATE belfry.schedules SET armed_at = '2026-05-01 15:30Z'`)
	require.Equal(t, []string{"05-01 16:00:00"}, occurrences(b.fire(t, "05-01 16:00:01")))

	d.Template.Title = "Tonight"
	change, err := b.store.Put(ctx, d, schedule.FromDatabase, operator)
	require.NoError(t, err)
	require.Equal(t, schedule.Changed, change)
	require.NotNil(t, b.get(t, "popular").NextAt, "another title is the same recurrence")
	d.Cron = "30 * * * *"
	_, err = b.store.Put(ctx, d, schedule.FromDatabase, operator)
	require.NoError(t, err)
	require.Nil(t, b.get(t, "popular").NextAt)
	require.Equal(t, []string{"created", "paused", "resumed", "fired", "changed", "changed"}, b.kinds(t, "popular"))
	require.JSONEq(t, `{"cron": "0 * * * *"}`, one[string](t, b, `SELECT detail -> 'before' FROM belfry.events ORDER BY id DESC LIMIT 1`))
	require.JSONEq(t, `{"cron": "30 * * * *"}`, one[string](t, b, `SELECT detail -> 'after' FROM belfry.events ORDER BY id DESC LIMIT 1`))
	require.Equal(t, "lee: back", one[string](t, b, `SELECT actor || ': ' || reason FROM belfry.events WHERE kind = 'resumed'`))
}

// RunNow is one firing more. It moves no occurrence, and a pause does not prevent it.
func TestRunNow_IsOneMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	b.put(t, popular(), "05-01 08:00:00")
	require.Empty(t, b.fire(t, "05-01 08:00:01").Occurrences)
	first, err := b.store.RunNow(ctx, "popular", job.Act{Actor: "kim", Reason: "breaking"})
	require.NoError(t, err)
	require.Len(t, first, 1)
	require.Equal(t, "2026-05-01T09:00:00Z", b.get(t, "popular").NextAt.Format(time.RFC3339))
	require.Equal(t, []string{"05-01 09:00:00"}, occurrences(b.fire(t, "05-01 09:00:01")))
	_, err = b.store.Pause(ctx, "popular", operator)
	require.NoError(t, err)
	second, err := b.store.RunNow(ctx, "popular", operator)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.Len(t, b.keys(t), 3)
	require.Equal(t, []string{"created", "fired", "fired", "paused", "fired"}, b.kinds(t, "popular"))
	require.Equal(t, "kim: breaking", one[string](t, b, `SELECT actor || ': ' || reason FROM belfry.events WHERE kind = 'fired' ORDER BY id LIMIT 1`))

	_, err = b.store.RunNow(ctx, "nobody", operator)
	require.ErrorIs(t, err, schedule.ErrNotFound)
}

// A due schedule whose row another session locks does not fire. The log says so, once, when the lock is older than any
// firing.
func TestFire_SaysWhoLocksADueSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, popular(), "03-01 12:00:00")
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.schedules FOR UPDATE`)
	require.NoError(t, err)
	b.now = at(t, "03-02 10:00:00")
	logged := func(age time.Duration) string {
		log := new(bytes.Buffer)
		f := b.firer(schedule.WithLogger(zerolog.New(log)), schedule.WithAge(age))
		for range 2 {
			fired, err := f.FireDue(t.Context())
			require.NoError(t, err)
			require.Empty(t, fired.Occurrences)
		}
		return log.String()
	}
	require.Empty(t, logged(10*time.Second))
	line := logged(time.Hour)
	require.Equal(t, 1, strings.Count(line, "a due schedule does not fire: its row is locked by session "), line)
	require.Contains(t, line, fmt.Sprintf("SELECT pg_terminate_backend(%d)", tx.Conn().PgConn().PID()))
}

// A firing that waits for another session's row, such as the sum of a category with approval_above, names the session.
func TestFault_NamesWhoKeepsAFiringWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `UPDATE belfry.categories SET approval_above = 100 WHERE name = 'popular_content'`)
	most, d := 10, popular()
	d.Template.MaxRecipients = &most
	b.put(t, d, "03-01 12:00:00")
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(t.Context(), `SELECT belfry.approval_exceeded('popular_content', 1, 'schedule x')`)
	require.NoError(t, err)
	b.now = at(t, "03-02 10:00:00")
	_, err = b.firer().FireDue(t.Context())
	require.ErrorIs(t, err, schedule.ErrLocked)
	require.ErrorContains(t, err, fmt.Sprintf("rows of belfry.activity_counts by session %d of ", tx.Conn().PgConn().PID()))
}
