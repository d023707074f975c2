package retention_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/retention"
)

// small returns a database whose partitions of notifications are full with 500 rows.
func small(t *testing.T) *bundle {
	t.Helper()
	b := setupOn(dbtest.New(t))
	b.Exec(t, `CREATE OR REPLACE FUNCTION belfry.notifications_part_bytes() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 16384`)
	return b
}

func (b *bundle) part(t require.TestingT, id int64) int64 {
	return one[int64](t, b, `SELECT belfry.notifications_part(arrival) FROM belfry.jobs WHERE id = $1`, id)
}

func (b *bundle) parts(t require.TestingT) []int64 {
	return one[[]int64](t, b, `SELECT array_agg(substring(c.relname FROM '[0-9]+$')::bigint ORDER BY 1)
		FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid WHERE h.inhparent = 'belfry.notifications'::regclass`)
}

// The first job after a full partition writes into the next one, and a claim creates the one after that. A claim that is
// rolled back leaves a partition for the next job.
func TestPartitions_FollowWhenFull(t *testing.T) {
	t.Parallel()
	b := small(t)
	first := b.Rest(t, outbox.TypeInbox, 500, job.Processed)
	push := b.Rest(t, outbox.TypePush, 500, job.Processed)
	require.Equal(t, []int64{0, 0}, []int64{b.part(t, first), b.part(t, push)})
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT belfry.next_arrival(true)`) // moves to the partition 1
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	second := b.Rest(t, outbox.TypeInbox, 500, job.Processed)
	third := b.Rest(t, outbox.TypeInbox, 500, job.Processed)
	fourth := b.Rest(t, outbox.TypeInbox, 1, job.Processed)
	require.Equal(t, []int64{1, 2, 2}, []int64{b.part(t, second), b.part(t, third), b.part(t, fourth)})
	require.Equal(t, []int64{0, 1, 2, 3}, b.parts(t))
	require.Equal(t, []int64{fourth, third, second, first},
		one[[]int64](t, b, `SELECT array_agg(j.id ORDER BY p.ordinality) FROM belfry.inbox_page(1) WITH ORDINALITY p JOIN belfry.jobs j ON j.arrival = p.id`))
	require.Equal(t, int64(4), one[int64](t, b, `SELECT unread FROM belfry.inbox_unread(1)`))
}

// Numbers that activities or push jobs have taken pass the newest partition: the next activity or inbox job creates its own.
func TestPartitions_FollowTheNumbers(t *testing.T) {
	t.Parallel()
	b := setupOn(dbtest.New(t))
	b.Exec(t, `SELECT setval('belfry.arrivals_seq', 1999999999)`)
	require.Equal(t, int64(2), b.part(t, b.Rest(t, outbox.TypeInbox, 5, job.Processed)))
	b.Exec(t, `SELECT setval('belfry.arrivals_seq', 4999999998)`)
	b.Exec(t, `INSERT INTO belfry.activities (channel_id, title, inbox) VALUES (1, 'x', true), (1, 'y', true)`)
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6}, b.parts(t))
	require.Equal(t, int64(3), one[int64](t, b, `SELECT unread FROM belfry.inbox_unread(1)`))
}

// A claim does not fail while a session keeps the table from new partitions, or from everything.
func TestPartitions_ALockedTableStopsNoClaim(t *testing.T) {
	t.Parallel()
	b := small(t)
	b.Rest(t, outbox.TypeInbox, 500, job.Processed)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.notifications IN SHARE UPDATE EXCLUSIVE MODE`)
	require.NoError(t, err)
	second := b.Rest(t, outbox.TypeInbox, 500, job.Processed)
	require.Zero(t, b.part(t, second))
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.notifications IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	_, err = b.DB.Pool.Exec(t.Context(), `SELECT belfry.next_arrival(true)`)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, int64(1), b.part(t, b.Rest(t, outbox.TypeInbox, 1, job.Processed)))
}

// A partition is dropped when nothing in it is young. Until then its old jobs wait, up to a third of the time.
func TestPartitions_AreDroppedWhole(t *testing.T) {
	t.Parallel()
	b := small(t)
	one1 := b.Rest(t, outbox.TypeInbox, 30, job.Processed)
	two1 := b.Rest(t, outbox.TypeInbox, 500, job.Aborted)
	one2 := b.Rest(t, outbox.TypeInbox, 500, job.Processed)
	one3 := b.Rest(t, outbox.TypeInbox, 7, job.Processed)
	require.Equal(t, []int64{0, 0, 1, 1}, []int64{b.part(t, one1), b.part(t, two1), b.part(t, one2), b.part(t, one3)})
	keep := month()
	keep.Jobs = 0
	prune := func() int64 {
		would, err := retention.Prune(t.Context(), b.DB.Pool, keep, retention.Options{DryRun: true})
		require.NoError(t, err)
		did, err := retention.Prune(t.Context(), b.DB.Pool, keep, retention.Options{Act: ann})
		require.NoError(t, err)
		require.Equal(t, would.Notifications, did.Notifications)
		return did.Notifications
	}
	b.Age(t, "31 days", one1)
	b.Age(t, "25 days", two1, one2)
	dbtest.Past(t, b.DB.Pool, `UPDATE belfry.jobs SET started_at = now() - interval '2 hours' WHERE id = $1`, one2)
	require.Zero(t, prune(), "the jobs of the partition wait for each other")
	require.Equal(t, int64(30), b.rows(t, one1))
	b.Age(t, "4 days", two1)
	require.Zero(t, prune(), "30 days have not passed since the last job")
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT count(*) FROM belfry.notifications`)
	require.NoError(t, err)
	b.Age(t, "2 days", two1)
	did, err := retention.Prune(t.Context(), b.DB.Pool, keep, retention.Options{Act: ann})
	require.ErrorIs(t, err, job.ErrLocked, "a session reads it")
	require.Zero(t, did.Notifications)
	require.NoError(t, tx.Rollback(t.Context()))
	inbox := b.DB.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`)
	_, err = inbox.Pool.Exec(t.Context(), `CREATE TEMP VIEW v AS SELECT arrival FROM belfry.notifications_0`)
	require.NoError(t, err, "a view needs no right on the table, and does not keep its partition")
	dbtest.Past(t, b.DB.Pool, `UPDATE belfry.jobs SET started_at = now() - interval '50 minutes' WHERE id = $1`, one2)
	require.Empty(t, one[[]int64](t, b, `SELECT ARRAY(SELECT belfry.old_notifications(now() - interval '30 days'))`), "the next partition is new")
	dbtest.Past(t, b.DB.Pool, `UPDATE belfry.jobs SET started_at = now() - interval '2 hours' WHERE id = $1`, one2)
	require.Equal(t, int64(530), prune())
	require.Equal(t, []int64{1, 2}, b.parts(t))
	require.Equal(t, int64(2), one[int64](t, b, `SELECT count(*) FROM belfry.jobs WHERE pruned_at IS NOT NULL AND retention_at IS NOT NULL`))
	require.Equal(t, []int64{500, 7}, []int64{b.rows(t, one2), b.rows(t, one3)})
	_, err = b.DB.Pool.Exec(t.Context(), `SELECT belfry.resume($1)`, two1)
	require.ErrorContains(t, err, "retention")
	b.Age(t, "400 days", one3)
	require.Equal(t, int64(7), prune(), "the newest partition is not dropped, its rows are deleted")
	require.Equal(t, []int64{1, 2}, b.parts(t))
}

// Jobs do not wait for a partition that is not dropped soon: one with a young job, or with single notifications.
func TestPartitions_OldJobsBesideYoungOnesAreDeleted(t *testing.T) {
	t.Parallel()
	for name, young := range map[string]func(t *testing.T, b *bundle){
		"job": func(t *testing.T, b *bundle) { t.Helper(); b.Rest(t, outbox.TypeInbox, 2, job.Processed) },
		"job to retry": func(t *testing.T, b *bundle) {
			t.Helper()
			b.Age(t, "29 days", b.Rest(t, outbox.TypeInbox, 2, job.Failed))
			b.Rest(t, outbox.TypeInbox, 0, job.Failed)
		},
		"unfinished": func(t *testing.T, b *bundle) {
			t.Helper()
			b.Exec(t, `SELECT belfry.retry($1)`, b.Rest(t, outbox.TypeInbox, 2, job.Failed))
		},
		"messages left": func(t *testing.T, b *bundle) {
			t.Helper()
			id := b.Rest(t, outbox.TypeInbox, 2, job.Processed)
			b.Exec(t, `INSERT INTO belfry.job_types (name) VALUES ('own') ON CONFLICT DO NOTHING`)
			b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES ($1, 1, now())`, id)
			dbtest.Past(t, b.DB.Pool, `UPDATE belfry.jobs SET type = 'own' WHERE id = $1`, id)
			b.Age(t, "31 days", id)
		},
		"single": func(t *testing.T, b *bundle) {
			t.Helper()
			b.Exec(t, `SELECT belfry.notify(1, 'activity', 'x', route => '{}')`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := small(t)
			b.OldChannels(t, 1)
			old := b.Rest(t, outbox.TypeInbox, 40, job.Processed)
			young(t, b)
			b.Age(t, "31 days", old, b.Rest(t, outbox.TypeInbox, 500, job.Processed))
			next := b.Rest(t, outbox.TypeInbox, 1, job.Processed)
			require.Equal(t, int64(1), b.part(t, next))
			dbtest.Past(t, b.DB.Pool, `UPDATE belfry.jobs SET started_at = now() - interval '32 days' WHERE id = $1`, next)
			keep := month()
			keep.Jobs, keep.Messages = 0, 0
			did, err := retention.Prune(t.Context(), b.DB.Pool, keep, retention.Options{Act: ann})
			require.NoError(t, err)
			require.Equal(t, int64(540), did.Notifications)
			require.Contains(t, b.parts(t), int64(0))
		})
	}
}

// A statement that finds rows by their positions touches the rows of one partition: each has the same positions.
func TestPartitions_PositionsAreNotShared(t *testing.T) {
	t.Parallel()
	b := small(t)
	var ids []int64
	for range 3 {
		ids = append(ids, b.Rest(t, outbox.TypeInbox, 500, job.Processed))
	}
	require.Equal(t, []int64{0, 1, 1}, []int64{b.part(t, ids[0]), b.part(t, ids[1]), b.part(t, ids[2])})
	require.Equal(t, int64(500), one[int64](t, b, `SELECT count(*) FROM belfry.notifications a JOIN belfry.notifications b USING (channel_id) WHERE a.ctid = b.ctid AND a.arrival < 1000000000 AND b.arrival BETWEEN 1000000000 AND 1999999999`))
	b.Age(t, "31 days", ids[1])
	keep := month()
	keep.Jobs = 0
	did, err := retention.Prune(t.Context(), b.DB.Pool, keep, retention.Options{Act: ann})
	require.NoError(t, err)
	require.Equal(t, int64(500), did.Notifications)
	require.Equal(t, []int64{500, 0, 500}, []int64{b.rows(t, ids[0]), b.rows(t, ids[1]), b.rows(t, ids[2])})
}

// A walk deletes the rows of one partition: the next partition has other channels, and a walk of its own.
func TestPartitions_EachHasItsOwnWalk(t *testing.T) {
	t.Parallel()
	b := small(t)
	first := b.Rest(t, outbox.TypeInbox, 40, job.Processed)
	b.Rest(t, outbox.TypeInbox, 500, job.Processed)
	second := b.Rest(t, outbox.TypeInbox, 700, job.Processed)
	require.Equal(t, []int64{0, 1}, []int64{b.part(t, first), b.part(t, second)})
	b.Age(t, "31 days", first, second)
	keep := month()
	keep.Jobs = 0
	did, err := retention.Prune(t.Context(), b.DB.Pool, keep, retention.Options{Act: ann})
	require.NoError(t, err)
	require.Equal(t, int64(740), did.Notifications)
	require.Equal(t, []int64{0, 0}, []int64{b.rows(t, first), b.rows(t, second)})
}
