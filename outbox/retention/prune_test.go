package retention_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/retention"
)

const day = 24 * time.Hour

// month keeps everything for 30 days and deletes in small steps.
func month() outbox.Retention {
	r := outbox.DefaultRetention()
	r.Notifications, r.Messages, r.Jobs, r.Events = 30*day, 30*day, 30*day, 30*day
	r.StepRows = 100
	return r
}

func (b *bundle) rows(t require.TestingT, id int64) int64 {
	return one[int64](t, b, `SELECT (SELECT count(*) FROM belfry.messages WHERE job_id = $1) + (SELECT count(*) FROM belfry.job_notifications WHERE job_id = $1)`, id)
}

func (b *bundle) exists(t require.TestingT, id int64) bool {
	return one[bool](t, b, `SELECT EXISTS (SELECT FROM belfry.jobs WHERE id = $1)`, id)
}

// deletedByEvents is what the events of retention say.
func (b *bundle) deletedByEvents(t require.TestingT) (sum retention.Pruned, events int) {
	list, err := b.jobs.ControlEvents(context.Background(), "retention", "", 0, 0)
	require.NoError(t, err)
	for _, e := range list {
		var detail struct{ Deleted retention.Pruned }
		require.NoError(t, json.Unmarshal(e.Detail, &detail))
		sum.Notifications += detail.Deleted.Notifications
		sum.Messages += detail.Deleted.Messages
		sum.Jobs += detail.Deleted.Jobs
		sum.Events += detail.Deleted.Events
		sum.Samples += detail.Deleted.Samples
	}
	return sum, len(list)
}

func TestPrune_DeletesWhatIsOldAndAtRest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	oldInbox := b.Rest(t, outbox.TypeInbox, 250, job.Processed)
	oldPush := b.Rest(t, outbox.TypePush, 250, job.Processed)
	oldFailed := b.Rest(t, outbox.TypeInbox, 120, job.Failed)
	oldEmpty := b.Rest(t, outbox.TypePush, 0, job.Aborted)
	newInbox := b.Rest(t, outbox.TypeInbox, 300, job.Processed)
	newPush := b.Rest(t, outbox.TypePush, 10, job.Aborted)
	resumed := b.Rest(t, outbox.TypeInbox, 260, job.Aborted)
	b.States(t, oldPush, "SENT", "DEAD", "CANCELLED")
	b.Age(t, "31 days", oldInbox, oldPush, oldFailed, oldEmpty, resumed)
	b.Age(t, "29 days", newInbox, newPush)
	b.Exec(t, `UPDATE belfry.jobs SET abort_requested = false WHERE id = $1`, resumed)
	b.Exec(t, `INSERT INTO belfry.job_skips (job_id, key, after, error) SELECT $1, g, g, 'x' FROM generate_series(1, 230) g`, oldFailed)
	b.Exec(t, `INSERT INTO belfry.events (subject, kind, actor, at) SELECT 'lane', 'paused', 'ann', now() - make_interval(days => g) FROM generate_series(250, 0, -1) g`)

	want := retention.Pruned{Notifications: 370, Messages: 250, Jobs: 4, Events: 221}
	would, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, want, would, "a dry run tells what a prune does")
	require.EqualValues(t, 250, b.rows(t, oldInbox), "and does nothing")

	var seen []retention.Pruned
	got, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{Act: ann, Observe: func(p retention.Pruned) { seen = append(seen, p) }})
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, want, seen[len(seen)-1])
	for i := 1; i < len(seen); i++ {
		require.LessOrEqual(t, seen[i].Messages-seen[i-1].Messages, int64(100), "I13: a step is bounded")
		require.LessOrEqual(t, seen[i].Notifications-seen[i-1].Notifications, int64(100))
		require.LessOrEqual(t, seen[i].Events-seen[i-1].Events, int64(100))
	}
	for _, id := range []int64{oldInbox, oldPush, oldFailed, oldEmpty} {
		require.False(t, b.exists(t, id))
		require.Zero(t, b.rows(t, id))
	}
	for id, rows := range map[int64]int64{newInbox: 300, newPush: 10, resumed: 260} {
		require.True(t, b.exists(t, id))
		require.Equal(t, rows, b.rows(t, id))
	}
	require.Zero(t, one[int64](t, b, `SELECT count(*) FROM belfry.retention_walks`))
	sum, events := b.deletedByEvents(t)
	require.Equal(t, want, sum)
	require.Equal(t, 1, events)
	require.Equal(t, "ann wrong text", one[string](t, b, `SELECT actor || ' ' || reason FROM belfry.events WHERE subject = 'retention'`))

	got, err = retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{Act: ann})
	require.NoError(t, err)
	require.Zero(t, got)
	_, events = b.deletedByEvents(t)
	require.Equal(t, 1, events, "a prune that deletes nothing writes nothing")
}

// Samples have a retention of their own, by default too, in steps. An event counts them only beside other rows.
func TestPrune_DeletesOldSamples(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fill := func() {
		b.Exec(t, `INSERT INTO belfry.samples (kind, name, at) SELECT 'sender', 'fcm', date_bin('1 day', now(), '1970-01-01 00:00:00+00') - make_interval(hours => g)
			FROM generate_series(0, 20 * 24 - 1) g ON CONFLICT DO NOTHING`)
	}
	fill()
	r := outbox.DefaultRetention()
	r.StepRows = 100
	asOf := one[time.Time](t, b, `SELECT date_bin('1 day', now(), '1970-01-01 00:00:00+00')`)
	const old = 6*24 - 1 // of more than 14 days
	would, err := retention.Prune(t.Context(), b.DB.Pool, r, retention.Options{DryRun: true, AsOf: &asOf})
	require.NoError(t, err)
	require.Equal(t, retention.Pruned{Samples: old}, would)
	var steps []int64
	got, err := retention.Prune(t.Context(), b.DB.Pool, r, retention.Options{AsOf: &asOf, Observe: func(p retention.Pruned) { steps = append(steps, p.Samples) }})
	require.NoError(t, err)
	require.Equal(t, would, got)
	require.Equal(t, []int64{100, old}, steps)
	require.Equal(t, 14*24+1, one[int](t, b, `SELECT count(*) FROM belfry.samples`))
	_, events := b.deletedByEvents(t)
	require.Zero(t, events, "a daemon prunes samples each hour")
	r.Samples = 0
	fill()
	got, err = retention.Prune(t.Context(), b.DB.Pool, r, retention.Options{AsOf: &asOf})
	require.NoError(t, err)
	require.Zero(t, got)
	r.Samples, r.Events = 14*day, time.Hour
	b.Exec(t, `INSERT INTO belfry.events (subject, kind, actor, at) VALUES ('lane', 'paused', 'ann', now() - interval '3 days')`)
	got, err = retention.Prune(t.Context(), b.DB.Pool, r, retention.Options{AsOf: &asOf})
	require.NoError(t, err)
	require.Equal(t, retention.Pruned{Events: 1, Samples: old}, got)
	sum, events := b.deletedByEvents(t)
	require.Equal(t, 1, events)
	require.Equal(t, got, sum)
}

// I10: retention deletes no message that may still be sent, but by an abort that is
// old itself; and what it has touched does not go on.
func TestPrune_KeepsWhatIsStillToBeSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	states := []string{"PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD", "CANCELLED"}
	done := b.Rest(t, outbox.TypePush, 60, job.Processed)
	failed := b.Rest(t, outbox.TypePush, 60, job.Failed)
	aborted := b.Rest(t, outbox.TypePush, 60, job.Aborted)
	for _, id := range []int64{done, failed, aborted} {
		b.States(t, id, states...)
	}
	b.Age(t, "40 days", done, failed, aborted)
	got, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{})
	require.NoError(t, err)
	require.Equal(t, retention.Pruned{Messages: 30 + 30 + 50}, got)
	for _, id := range []int64{done, failed} {
		require.Equal(t, map[string]int{"PENDING": 10, "QUEUED": 10, "PROCESSING": 10}, b.Statuses(t, id))
		require.EqualValues(t, 30, one[int64](t, b, `SELECT count(*) FROM belfry.sendable_messages WHERE job_id = $1`, id))
	}
	require.Equal(t, map[string]int{"PROCESSING": 10}, b.Statuses(t, aborted), "a relay has them")

	for _, act := range []func() error{
		func() error { _, err := b.jobs.Resume(t.Context(), job.One(aborted), ann); return err },
		func() error { _, err := b.jobs.Retry(t.Context(), job.One(failed), ann); return err },
		func() error {
			_, err := b.DB.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET abort_requested = false WHERE id = $1`, aborted)
			return err
		},
	} {
		require.ErrorContains(t, act(), "retention deletes its rows since")
	}
	_, err = b.jobs.Resume(t.Context(), job.One(aborted), ann)
	var invalid *job.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "status", invalid.Column)

	// The relay died with them, and the others were sent.
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() - interval '1 second' WHERE job_ids[1] = $1`, aborted)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'SENT' WHERE job_id IN ($1, $2)`, done, failed)
	got, err = retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{})
	require.NoError(t, err)
	require.Equal(t, retention.Pruned{Messages: 70, Jobs: 3}, got)
}

// Each kind of row has its own time, and a job outlives its rows.
func TestPrune_KeepsForEverWhatHasNoLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inbox, push := b.Rest(t, outbox.TypeInbox, 5, job.Processed), b.Rest(t, outbox.TypePush, 5, job.Processed)
	b.States(t, push, "SENT")
	b.Age(t, "400 days", inbox, push)
	r := outbox.DefaultRetention()
	require.True(t, r.Off())
	got, err := retention.Prune(t.Context(), b.DB.Pool, r, retention.Options{})
	require.NoError(t, err)
	require.Zero(t, got)
	r.Jobs = day
	require.False(t, r.Off())
	got, err = retention.Prune(t.Context(), b.DB.Pool, r, retention.Options{})
	require.NoError(t, err)
	require.Zero(t, got, "their rows are left")
	r.Messages = day
	got, err = retention.Prune(t.Context(), b.DB.Pool, r, retention.Options{})
	require.NoError(t, err)
	require.Equal(t, retention.Pruned{Messages: 5, Jobs: 1}, got)
	require.EqualValues(t, 5, b.rows(t, inbox))
}

// A walk through the notifications takes jobs of the user's own types too, once their
// messages are gone, and rows of channels that were deleted.
func TestPrune_TakesJobsOfOtherTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(t, `INSERT INTO belfry.job_types (name) VALUES ('letter')`)
	id := b.Rest(t, "letter", 20, job.Processed)
	b.Exec(t, `INSERT INTO belfry.notifications (channel_id, arrival) SELECT g, j.arrival FROM belfry.jobs j, generate_series(-5, 5) g WHERE j.id = $1`, id)
	b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status) SELECT $1, g, now(), 'SENT' FROM generate_series(1, 5) g`, id)
	b.Age(t, "40 days", id)
	got, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{})
	require.NoError(t, err)
	require.Equal(t, retention.Pruned{Notifications: 11, Messages: 5, Jobs: 1}, got)
}

// Nodes that prune at once and are killed in the middle delete each row once, and the
// events tell of every one.
func TestPrune_AnyNumberOfNodesAnyNumberOfCrashes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []int64
	for range 3 {
		ids = append(ids, b.Rest(t, outbox.TypeInbox, 1500, job.Processed), b.Rest(t, outbox.TypePush, 1500, job.Aborted))
	}
	kept := b.Rest(t, outbox.TypeInbox, 1500, job.Processed)
	b.Age(t, "40 days", ids...)
	var wg sync.WaitGroup
	for node := range 3 {
		wg.Go(func() {
			for try := range 6 { // the last ones may end by themselves
				ctx, cancel := context.WithCancel(t.Context())
				steps := 0
				_, err := retention.Prune(ctx, b.DB.Pool, month(), retention.Options{Observe: func(retention.Pruned) {
					steps++
					switch {
					case steps == 3+2*node && try%2 == 0:
						cancel()
					case steps == 4 && try == 3 && node == 0:
						_, _ = b.DB.Pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
							WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`)
					}
				}})
				cancel()
				if err != nil && ctx.Err() == nil {
					requireLost(t, err)
				}
			}
		})
	}
	wg.Wait()
	b.DB.Pool.Reset() // a connection may have come to rest right before it was killed
	_, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{})
	require.NoError(t, err)
	for _, id := range ids {
		require.False(t, b.exists(t, id))
		require.Zero(t, b.rows(t, id))
	}
	require.EqualValues(t, 1500, b.rows(t, kept))
	require.EqualValues(t, 1, one[int64](t, b, `SELECT count(*) FROM belfry.jobs`))
	sum, _ := b.deletedByEvents(t)
	require.Equal(t, retention.Pruned{Notifications: 4500, Messages: 4500, Jobs: 6}, sum)
}

// Whatever became of the job, a message whose receipt is awaited stays.
func TestPrune_KeepsWhatAwaitsAReceipt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.Rest(t, outbox.TypePush, 4, job.Aborted)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', receipt = CASE WHEN channel_id > 2 THEN 'x' END, lease_id = CASE WHEN channel_id <= 2 THEN 99 END`)
	b.Age(t, "40 days", id)
	for _, dry := range []bool{true, false} {
		got, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{DryRun: dry})
		require.NoError(t, err)
		require.Equal(t, retention.Pruned{Messages: 2}, got)
	}
	require.Equal(t, map[string]int{"PROCESSING": 2}, b.Statuses(t, id))
}

// An activity goes with its message and its attempts when that has been final for long
// enough, whatever its own age; what is recorded of a job's messages goes with them.
func TestPrune_DeletesActivitiesAndAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	push := b.Rest(t, outbox.TypePush, 20, job.Processed)
	b.States(t, push, "SENT", "DEAD", "PENDING", "PROCESSING")
	b.Exec(t, `UPDATE belfry.message_rows SET receipt = 'x', lease_id = NULL WHERE status = 'PROCESSING'`)
	ids := b.ActivitiesFor(t, 250)
	b.Past(t, `UPDATE belfry.activities SET created_at = now() - interval '40 days' WHERE channel_id <= 240`)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '35 days', status = s.status, reason = 'x', lease_id = 1,
			sent_at = CASE WHEN s.status = 'SENT' THEN now() - CASE WHEN channel_id > 200 THEN interval '1 day' ELSE interval '34 days' END END
		  FROM (SELECT k.channel_id AS id, (ARRAY['SENT', 'DEAD', 'CANCELLED', 'PENDING', 'PROCESSING'])[1 + k.channel_id % 5] AS status FROM belfry.messages k WHERE k.job_id < 0) s
		 WHERE job_id < 0 AND channel_id = s.id`)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT m.job_id, m.channel_id, 0, g, 'push', 'retryable' FROM belfry.messages m, generate_series(1, 2) g`)
	b.Age(t, "40 days", push)
	// Of 240 old ones 144 are final, eight of which were sent yesterday.
	want := retention.Pruned{Messages: 10 + 136}
	would, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, want, would)
	got, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{Act: ann})
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, map[string]int{"PENDING": 5, "PROCESSING": 5}, b.Statuses(t, push))
	require.EqualValues(t, len(ids)-136, one[int64](t, b, `SELECT count(*) FROM belfry.activities t WHERE EXISTS (SELECT FROM belfry.messages m WHERE m.job_id = t.id AND m.channel_id = t.channel_id)`))
	require.EqualValues(t, len(ids)-136, one[int64](t, b, `SELECT count(*) FROM belfry.activities`))
	require.EqualValues(t, 2*(len(ids)-136+10), one[int64](t, b, `SELECT count(*) FROM belfry.attempts`))
	require.Zero(t, one[int64](t, b, `SELECT count(*) FROM belfry.attempts a WHERE NOT EXISTS (SELECT FROM belfry.messages m WHERE m.job_id = a.job_id AND m.channel_id = a.channel_id)`))
	sum, _ := b.deletedByEvents(t)
	require.Equal(t, want, sum)
	got, err = retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{})
	require.NoError(t, err)
	require.Zero(t, got)
}

// What a role that delivers writes about jobs without messages stops no prune, and remains only with its job.
func TestPrune_DeletesStrayAttemptsAndKeepsJobsWithStrayMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stray, empty := b.Rest(t, outbox.TypePush, 0, job.Processed), b.Rest(t, outbox.TypePush, 0, job.Processed)
	b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES ($1, 1, now())`, stray)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT k, 1, 0, 1, 'push', 'retryable' FROM unnest($1::bigint[]) k`,
		[]int64{stray, empty})
	b.Age(t, "40 days", stray, empty)
	alone := b.ActivitiesFor(t, 1)
	b.Past(t, `UPDATE belfry.activities SET created_at = now() - interval '40 days'`)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT id, channel_id, 0, 1, 'push', 'retryable' FROM belfry.activities`)
	b.Exec(t, `DELETE FROM belfry.message_rows WHERE job_id = $1`, alone[0])
	got, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{})
	require.NoError(t, err)
	require.Equal(t, retention.Pruned{Messages: 1, Jobs: 1}, got)
	require.Zero(t, one[int64](t, b, `SELECT count(*) FROM belfry.activities`))
	require.Equal(t, []int64{stray, stray}, one[[]int64](t, b, `SELECT array_agg(k) FROM (SELECT id FROM belfry.jobs UNION ALL SELECT job_id FROM belfry.attempts) t (k)`))
}

// A role that delivers may write any number of attempts of one message: a prune deletes them in steps, before the
// message or the activity. It deleted them with it, in one statement, which timed out each time.
func TestPrune_DeletesAttemptsInSteps(t *testing.T) {
	t.Parallel()
	b := setupOn(dbtest.New(t))
	id := b.Rest(t, outbox.TypePush, 3, job.Aborted)
	activity := b.ActivitiesFor(t, 1)[0]
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id IN ($1, $2)`, id, activity)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome)
		SELECT k, 1, 0, 1, 'push', 'retryable' FROM unnest($1::bigint[]) k, generate_series(1, 2100)`, []int64{id, activity})
	dbtest.Bound(t, b.DB.Pool, "DELETE", "attempts", 1000)
	old := time.Now().Add(31 * day)
	c := month()
	c.Jobs = 0 // the end of a job deletes attempts without a message
	_, err := retention.Prune(t.Context(), b.DB.Pool, c, retention.Options{AsOf: &old})
	require.NoError(t, err)
	for _, table := range []string{"attempts", "message_rows", "activities"} {
		require.Zero(t, one[int64](t, b, `SELECT count(*) FROM belfry.`+table), table)
	}
}

// Who wrote a schedule may not approve its jobs, however long ago that was.
func TestPrune_KeepsTheAuthorsOfSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(t, `SELECT belfry.act('ann', '')`+"; "+`INSERT INTO belfry.schedules (name, every, template)
		VALUES ('weekly', '1 hour', '{"type": "push", "category": "popular_content", "title": "x", "audience": {"kind": "everyone"}}')`)
	b.Exec(t, `SELECT belfry.act('bob', '')`+"; "+`UPDATE belfry.schedules SET template = template || '{"title": "y"}'`)
	b.Exec(t, `INSERT INTO belfry.jobs (type, category, title, audience, requested_by) VALUES ('push', 'popular_content', 'y', '{"kind": "everyone"}', 'schedule weekly')`)
	b.Exec(t, `UPDATE belfry.events SET at = at - interval '1 year'`)
	hands := func() []string {
		return one[[]string](t, b, `SELECT array_agg(h ORDER BY h) FROM belfry.jobs j, belfry.job_hands(j.id) h WHERE j.requested_by = 'schedule weekly'`)
	}
	prune := func() (events int64) {
		would, err := retention.Prune(t.Context(), b.DB.Pool, outbox.Retention{Events: day, Interval: time.Hour, StepRows: 100}, retention.Options{DryRun: true})
		require.NoError(t, err)
		got, err := retention.Prune(t.Context(), b.DB.Pool, outbox.Retention{Events: day, Interval: time.Hour, StepRows: 100}, retention.Options{})
		require.NoError(t, err)
		require.Equal(t, would.Events, got.Events)
		return got.Events
	}
	authors := hands()
	require.Subset(t, authors, []string{"ann", "bob"})
	prune()
	require.Equal(t, authors, hands())
	b.Exec(t, `UPDATE belfry.schedules SET paused_at = now(); DELETE FROM belfry.schedules`)
	require.EqualValues(t, 2, prune(), "of a schedule that is gone")
}

// Events and revisions may have megabytes each: a step ends after some of them, whatever their number.
func TestPrune_DeletesLargeEventsInSteps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(t, `INSERT INTO belfry.events (subject, name, kind, actor, detail)
		SELECT 'schedule', 's', 'changed', 'ann', jsonb_build_object('x', (SELECT string_agg(md5(g::text || n), '') FROM generate_series(1, 32) n)) FROM generate_series(1, 6) g`)
	var count int64
	more := true
	events := func(bytes int, seconds float64) {
		require.NoError(t, b.DB.Pool.QueryRow(t.Context(), retention.Statement("EventsPrune"),
			pgx.StrictNamedArgs{"as_of": nil, "seconds": seconds, "keys": 100, "bytes": bytes}).Scan(&count, &more))
	}
	events(1500, 0)
	require.EqualValues(t, 2, count)
	require.True(t, more)
	b.Exec(t, `UPDATE belfry.events SET at = now() + interval '1 hour' WHERE id = (SELECT max(id) FROM belfry.events)`)
	events(1500, 0)
	require.True(t, more, "an old one is left")
	events(1500, 0)
	require.EqualValues(t, 1, count)
	require.False(t, more)
	b.Exec(t, `INSERT INTO belfry.events (subject, name, kind, actor, at) VALUES ('schedule', 's', 'changed', 'ann', now() - interval '1 hour')`)
	events(500, 0)
	require.EqualValues(t, 1, count, "younger events with lower ids do not count")

	id := b.Rest(t, outbox.TypePush, 0, job.Aborted)
	b.Exec(t, `INSERT INTO belfry.job_events (job_id, kind, actor, detail)
		SELECT $1, 'changed', 'ann', jsonb_build_object('x', (SELECT string_agg(md5(g::text || n), '') FROM generate_series(1, 32) n)) FROM generate_series(1, 4) g`, id)
	b.Exec(t, `INSERT INTO belfry.job_revisions (job_id, revision, cursor, title, body, data, audience, edited_by)
		SELECT $1, g, '1', 'x', '', '{}', jsonb_build_object('x', (SELECT string_agg(md5(g::text || n), '') FROM generate_series(1, 32) n)), 'ann' FROM generate_series(1, 4) g`, id)
	left := func() [2]int64 {
		return [2]int64{one[int64](t, b, `SELECT count(*) FROM belfry.job_events WHERE pg_column_size(detail) > 1000`), one[int64](t, b, `SELECT count(*) FROM belfry.job_revisions`)}
	}
	var steps [][2]int64
	for more = true; more; steps = append(steps, left()) {
		require.NoError(t, b.DB.Pool.QueryRow(t.Context(), retention.Statement("JobEventsPrune"), pgx.StrictNamedArgs{"id": id, "keys": 100, "bytes": 1500}).Scan(&more))
	}
	require.Equal(t, [2]int64{3, 2}, steps[0])
	require.Equal(t, [2]int64{}, steps[len(steps)-1])
}

// An activity with a notification is deleted with it, when the times of both have passed, also without a message.
func TestPrune_DeletesActivitiesWithTheirNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 6) n ON CONFLICT DO NOTHING`)
	b.Exec(t, `INSERT INTO belfry.activities (channel_id, title, inbox, route) SELECT n, 'x', n <= 4, CASE WHEN n IN (3, 4) THEN '{}' ELSE '{push}'::text[] END FROM generate_series(1, 6) n`)
	b.Past(t, `UPDATE belfry.activities SET created_at = now() - CASE WHEN channel_id % 2 = 1 THEN interval '40 days' ELSE interval '100 days' END`)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'SENT', lease_id = 1, sent_at = now() - interval '38 days', next_attempt_at = now() - interval '38 days'`)
	b.Exec(t, `UPDATE belfry.message_rows SET sent_at = now() - interval '99 days', next_attempt_at = now() - interval '99 days' WHERE channel_id % 2 = 0`)
	config := month()
	prune := func(notifications time.Duration, want int64, left ...int64) {
		config.Notifications = notifications
		would, err := retention.Prune(t.Context(), b.DB.Pool, config, retention.Options{DryRun: true})
		require.NoError(t, err)
		got, err := retention.Prune(t.Context(), b.DB.Pool, config, retention.Options{Act: ann})
		require.NoError(t, err)
		require.Equal(t, retention.Pruned{Messages: want}, got)
		require.Equal(t, got, would)
		for _, of := range []string{"activities", "notifications"} {
			require.Equal(t, left, one[[]int64](t, b, `SELECT array_agg(channel_id ORDER BY channel_id) FROM belfry.`+of), of)
		}
	}
	prune(0, 2, 1, 2, 3, 4)
	prune(60*24*time.Hour, 2, 1, 3)
	prune(30*24*time.Hour, 2)
}

// What retention deletes stays counted, and the counts go with the job.
func TestProgress_OutlivesTheMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	b.States(t, id, "SENT", "SENT", "CANCELLED")
	b.Age(t, "31 days", id)
	rows := month()
	rows.Jobs = 0
	_, err := retention.Prune(t.Context(), b.DB.Pool, rows, retention.Options{Act: ann})
	require.NoError(t, err)
	require.Zero(t, b.rows(t, id))
	require.True(t, b.exists(t, id))
	got, err := outbox.ProgressOf(t.Context(), b.DB.Pool, []int64{id})
	require.NoError(t, err)
	require.Equal(t, outbox.Progress{JobID: id, Messages: 6, Sent: 4, Cancelled: 2}, got[id])
	_, err = retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{Act: ann})
	require.NoError(t, err)
	require.False(t, b.exists(t, id))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_deliveries`))
}

func TestRetention_ValidateNamesEachKey(t *testing.T) {
	t.Parallel()
	require.NoError(t, outbox.DefaultRetention().Validate())
	require.NoError(t, month().Validate())
	r := outbox.Retention{Notifications: time.Second, Messages: -1, Jobs: 2_000_000 * time.Hour, Events: time.Millisecond, Samples: time.Second, Interval: 0, StepRows: 5}
	require.EqualError(t, r.Validate(), `retention.notifications: 1s is not allowed; allowed values: 0 (permanently), 1m0s to 876000h0m0s
retention.messages: -1ns is not allowed; allowed values: 0 (permanently), 1m0s to 876000h0m0s
retention.jobs: 2000000h0m0s is not allowed; allowed values: 0 (permanently), 1m0s to 876000h0m0s
retention.events: 1ms is not allowed; allowed values: 0 (permanently), 1m0s to 876000h0m0s
retention.samples: 1s is not allowed; allowed values: 0 (permanently), 1m0s to 876000h0m0s
retention.interval: 0s is not allowed; allowed values: 1s to 24h0m0s
retention.step_rows: 5 is not allowed; allowed values: 100 to 1000000`)
	_, err := retention.Prune(t.Context(), nil, r, retention.Options{})
	require.Error(t, err)
}

// requireLost is that an error is one of a lost connection.
func requireLost(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, job.ErrUnreachable)
}

// A notification that a session keeps locked keeps only notifications from being deleted, and the error comes last.
func TestLong_PruneALockedRowStopsNoOtherPart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.Rest(t, outbox.TypeInbox, 100, job.Processed)
	b.Age(t, "400 days", id)
	b.Exec(t, `INSERT INTO belfry.samples (kind, name, at) VALUES ('sender', 'fcm', date_bin('1 day', now(), '1970-01-01 00:00:00+00') - interval '400 days')`)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.notifications WHERE channel_id = 7 FOR UPDATE`)
	require.NoError(t, err)
	did, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{Act: ann})
	require.ErrorIs(t, err, outbox.ErrRowsLocked)
	require.ErrorContains(t, err, "prune notifications: ")
	require.Equal(t, retention.Pruned{Notifications: 99, Samples: 1}, did)
	require.NoError(t, tx.Rollback(t.Context()))
	did, err = retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{Act: ann})
	require.NoError(t, err)
	require.EqualValues(t, 1, did.Notifications)
}
