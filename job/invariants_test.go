package job_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// requireExact compares a job's rows with a set of channels by SQL alone.
func (b *bundle) requireExact(t *testing.T, id int64, set string) {
	t.Helper()
	const rows = `(SELECT channel_id FROM belfry.job_notifications WHERE job_id = $1 UNION ALL SELECT channel_id FROM belfry.messages WHERE job_id = $1)`
	require.Empty(t, one[[]int64](t, b, `SELECT ARRAY((`+set+`) EXCEPT `+rows+`) FROM belfry.jobs WHERE id = $1`, id), "missing")
	require.Empty(t, one[[]int64](t, b, `SELECT ARRAY(`+rows+` EXCEPT (`+set+`)) FROM belfry.jobs WHERE id = $1`, id), "too many")
	require.Equal(t, one[int64](t, b, `SELECT count(*) FROM (`+set+`) s`), one[int64](t, b, `SELECT count(*) FROM `+rows+` r`, id), "twice")
}

// audiences are one of each kind, with the channels they select said again in SQL.
func audiences(t *testing.T, b *bundle) []struct {
	name, set string
	audience  channels.Audience
} {
	t.Helper()
	b.exec(t, `UPDATE belfry.channels SET active = false WHERE id % 70 = 0`)
	b.exec(t, `UPDATE belfry.channels SET location = point(126 + id / 10000.0, 37.5) WHERE id % 20 = 0`)
	b.exec(t, `INSERT INTO belfry.segments (name) VALUES ('vip')`)
	b.exec(t, `INSERT INTO belfry.segment_members SELECT 'vip', id FROM belfry.channels WHERE id % 50 = 0 UNION SELECT 'vip', 7`)
	return []struct {
		name, set string
		audience  channels.Audience
	}{
		{"everyone", `SELECT id FROM belfry.channels WHERE active`, channels.Everyone()},
		{"platforms", `SELECT id FROM belfry.channels WHERE active AND platform = 'android'`, channels.OnPlatforms("android")},
		{"radius", `SELECT id FROM belfry.channels WHERE active AND belfry.distance_m(location, point(126.5, 37.5)) <= 20000`, channels.Within(37.5, 126.5, 20000)},
		{"ids", `SELECT id FROM belfry.channels WHERE active AND id IN (30, 10, 700, 11, 5550)`, channels.WithIDs(5550, 30, 10, 700, 11, 30)},
		{"external ids", `SELECT id FROM belfry.channels WHERE active AND external_id IN ('u-1', 'u-999')`, channels.WithExternalIDs("u-999", "u-1", "nobody")},
		{"segment", `SELECT c.id FROM belfry.channels c JOIN belfry.segment_members m ON m.channel_id = c.id WHERE active`, channels.InSegment("vip")},
	}
}

// I1, I2: each matching channel gets exactly one row, whatever the audience.
func TestRunner_GivesEveryMatchingChannelExactlyOneRow(t *testing.T) {
	t.Parallel()
	b := setup(t, 1050)
	list := audiences(t, b)
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		for _, a := range list {
			id := b.enqueue(t, job.Spec{Type: kind, Audience: a.audience})
			out := b.runDue(t, b.runner(t, "r"))
			require.Len(t, out.Jobs, 1)
			require.Equal(t, job.Processed, out.Jobs[0].Status, "%s: %s", a.name, out.Jobs[0].LastError)
			require.NotZero(t, out.Jobs[0].RowsWritten, a.name)
			b.requireExact(t, id, a.set)
		}
	}
}

// I1: the bound is frozen at the first claim. Channels that come and go under the
// walk, ahead of the cursor, behind it and above the bound, change nothing for the
// others, also when the run is interrupted and the job goes on later.
func TestRunner_FreezesItsBoundAtTheFirstClaim(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	for _, a := range audiences(t, b) {
		if a.audience.Kind != channels.KindChannels { // which is a single chunk
			b.requireFrozenBound(t, a.name, a.set, a.audience)
		}
	}
}

// requireFrozenBound runs a job while the channels change.
func (b *bundle) requireFrozenBound(t *testing.T, name, set string, audience channels.Audience) {
	t.Helper()
	b.exec(t, `DROP TABLE IF EXISTS was`)
	b.exec(t, `CREATE TABLE was AS `+set)
	top := one[int64](t, b, `SELECT max(id) FROM belfry.channels`)
	id := b.enqueue(t, job.Spec{Audience: audience})
	g := b.gate(job.PointCommitted, 1)
	first := b.start(t, b.runnerWith(t, b.db.Pool, small("r1", 50), outbox.Types(b.who), job.WithFailpoint(g.at)))
	g.await(t)
	at := b.state(t, id).position(t)
	require.NotZero(t, at)
	churn(t, b, at)
	first.stop()
	g.release(nil)
	require.True(t, first.wait(t).Interrupted)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, location) SELECT $1::bigint + 100 + g, 'later-' || $1::bigint + g, 'android', point(126.5, 37.5) FROM generate_series(1, 100) g`, top)
	b.exec(t, `INSERT INTO belfry.segment_members SELECT 'vip', id FROM belfry.channels WHERE id > $1 ON CONFLICT DO NOTHING`, top)
	b.runDue(t, b.runner(t, "r2"))

	s := b.state(t, id)
	require.Equal(t, job.Processed, s.Status, s.LastError)
	require.Equal(t, fmt.Sprint(top), one[string](t, b, `SELECT bound FROM belfry.jobs WHERE id = $1`, id))
	must := one[[]int64](t, b, `SELECT ARRAY(SELECT id FROM was WHERE id <= $1 OR id IN (`+set+`) ORDER BY id)`, at)
	may := one[[]int64](t, b, `SELECT ARRAY(`+set+` INTERSECT SELECT id FROM belfry.channels WHERE id > $1 AND id <= $2)`, at, top)
	require.Subset(t, s.Rows, must, name)
	require.Subset(t, append(must, may...), s.Rows, "%s: cursor was %d, bound %d", name, at, top)
}

func small(name string, rows int) job.Config {
	c := config(name)
	c.Chunk.InitialRows, c.Chunk.MinRows, c.Chunk.MaxRows = rows, rows, rows
	return c
}

// churn has channels appear, vanish, be deactivated and activated on both sides
// of a cursor.
func churn(t *testing.T, b *bundle, at int64) {
	t.Helper()
	for _, side := range []string{`id <= $1`, `id > $1`} {
		pick := ` WHERE id IN (SELECT id FROM belfry.channels WHERE ` + side + ` AND active AND id % $2 = 0 ORDER BY abs(id - $1) LIMIT 5)`
		b.exec(t, `DELETE FROM belfry.channels`+pick, at, 100)
		b.exec(t, `UPDATE belfry.channels SET active = false`+pick, at, 20)
		b.exec(t, `UPDATE belfry.channels SET platform = CASE platform WHEN 'ios' THEN 'android' ELSE 'ios' END`+pick, at, 30)
		b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, location)
			SELECT id + 3, 'gap-' || id + 3, 'android', location FROM belfry.channels WHERE `+side+` AND id % $2 = 0 ORDER BY abs(id - $1) LIMIT 5 ON CONFLICT DO NOTHING`, at, 40)
	}
	b.exec(t, `UPDATE belfry.channels SET active = true WHERE NOT active AND id % 210 = 0`)
	b.exec(t, `INSERT INTO belfry.segment_members SELECT 'vip', id FROM belfry.channels WHERE external_id LIKE 'gap-%' ON CONFLICT DO NOTHING`)
}

// I1: a channel whose INSERT commits after the freeze, below the bound, gets at
// most one row and holds nobody up.
func TestRunner_LateCommitBelowTheBoundGetsAtMostOneRow(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO belfry.channels (id, external_id, platform) VALUES (15, 'late-1', 'ios'), (4995, 'late-2', 'ios')`)
	require.NoError(t, err)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointCommitted, 2)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
	g.await(t)
	require.NoError(t, tx.Commit(t.Context()))
	g.release(nil)
	s.wait(t)
	want := everyone(500)
	want = slices.Insert(want, len(want)-1, 4995)
	b.requireDone(t, id, want)
}

// I1: a job enqueued for nobody is done at once, and channels that come later are
// above its bound.
func TestRunner_EmptyRelationIsDoneAndStaysEmpty(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointBegun, 1)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
	g.await(t)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) VALUES ('new', 'ios')`)
	g.release(nil)
	s.wait(t)
	b.requireDone(t, id, []int64{})
	require.Empty(t, one[string](t, b, `SELECT bound FROM belfry.jobs WHERE id = $1`, id))
}

// I2: for somebody else's row the recipient is skipped and recorded, and nobody has
// two; when the row is gone, it can be tried again.
func TestRunner_DuplicateRowIsSkippedAndRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	for kind, insert := range map[string]string{
		outbox.TypeInbox: `INSERT INTO belfry.notifications (arrival, channel_id) SELECT last_value + is_called::integer, 2500 FROM belfry.arrivals_seq WHERE $1::bigint > 0`,
		outbox.TypePush:  `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES ($1, 2500, now())`,
	} {
		inOrder(t, kind, func(t *testing.T) {
			id := b.enqueue(t, job.Spec{Type: kind})
			b.exec(t, insert, id)
			out := b.runDue(t, b.runner(t, "r"))
			require.Equal(t, job.Processed, out.Jobs[0].Status)
			require.Equal(t, int64(1), out.Jobs[0].Skipped)
			require.Equal(t, int64(499), out.Jobs[0].RowsWritten)
			skips, err := b.jobs.Skips(t.Context(), id, "", 0)
			require.NoError(t, err)
			require.Len(t, skips, 1)
			require.Equal(t, "2500", skips[0].Key)
			require.Equal(t, "23505", skips[0].SQLState)
			require.Contains(t, skips[0].Error, "_pkey")

			b.exec(t, `DELETE FROM belfry.notifications WHERE channel_id = 2500`)
			b.exec(t, `DELETE FROM belfry.message_rows WHERE channel_id = 2500`)
			_, err = b.jobs.RetrySkipped(t.Context(), id, job.Act{}, nil)
			require.NoError(t, err)
			b.runDue(t, b.runner(t, "r"))
			b.requireDone(t, id, everyone(500))
		})
	}
}

// I3: whoever looks while a job runs sees rows for exactly the matching channels
// up to the cursor, and the cursor only grows.
func TestRunner_EveryObserverSeesRowsAndCursorTogether(t *testing.T) {
	t.Parallel()
	const n = 1_000
	b := setup(t, n)
	b.exec(t, `UPDATE belfry.channels SET active = false WHERE id % 70 = 0`)
	matching := one[[]int64](t, b, `SELECT array_agg(id ORDER BY id) FROM belfry.channels WHERE active AND platform = 'ios'`)
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		id := b.enqueue(t, job.Spec{Type: kind, Audience: channels.OnPlatforms("ios")})
		s := b.start(t, b.runner(t, "r"))
		var last int64
		positions := map[int64]bool{}
		for over := false; !over; {
			select {
			case <-s.ended:
				over = true // and look once more
			default:
			}
			seen := b.observe(t, id)
			seen.requireAtomic(t, matching)
			at := seen.position(t)
			require.GreaterOrEqual(t, at, last)
			last = at
			positions[at] = true
		}
		s.wait(t)
		require.EqualValues(t, n*step, last)
		t.Logf("%s: %d different cursors seen", kind, len(positions))
		b.requireDone(t, id, matching)
	}
}

// observe reads cursor and rows by two statements in one REPEATABLE READ snapshot.
func (b *bundle) observe(t *testing.T, id int64) (s state) {
	t.Helper()
	err := pgx.BeginTxFunc(t.Context(), b.db.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return errors.Join(
			tx.QueryRow(t.Context(), `SELECT coalesce("cursor", ''), rows_written FROM belfry.jobs WHERE id = $1`, id).Scan(&s.Cursor, &s.Written),
			tx.QueryRow(t.Context(), `SELECT ARRAY(SELECT channel_id FROM belfry.job_notifications WHERE job_id = $1
				UNION ALL SELECT channel_id FROM belfry.messages WHERE job_id = $1 ORDER BY 1)`, id).Scan(&s.Rows))
	})
	require.NoError(t, err)
	return s
}

// I3: whatever fails at whichever point of a chunk, rows and cursor stay together;
// what a retry can fix is fixed, the rest fails the job, which retry continues.
func TestRunner_FaultAtEveryPointLeavesRowsAndCursorTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, 550)
	permanent, passing := errors.New("out of luck"), fmt.Errorf("connection: %w", io.ErrUnexpectedEOF)
	for _, c := range []struct {
		point  string
		fault  error
		cursor string // where the job FAILED; empty: it did not
	}{
		{job.PointBegun, permanent, "2000"},
		{job.PointWritten, permanent, "2000"},
		{job.PointMoved, permanent, "2000"},
		{job.PointCommitLost, permanent, ""}, // the COMMIT counts, not what came after
		{job.PointCommitted, permanent, "3000"},
		{job.PointBegun, passing, ""},
		{job.PointWritten, passing, ""},
		{job.PointMoved, passing, ""},
		{job.PointCommitLost, passing, ""},
		{job.PointCommitted, passing, ""},
	} {
		inOrder(t, fmt.Sprintf("%s %v", c.point, c.fault), func(t *testing.T) {
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			nth := 3
			if c.point == job.PointCommitLost {
				nth++ // the first is the freeze of the bound
			}
			seen := 0
			out := b.runDue(t, b.runner(t, "r", job.WithFailpoint(func(_ context.Context, point string) error {
				if point == c.point {
					if seen++; seen == nth {
						return c.fault
					}
				}
				return nil
			})))
			s := b.state(t, id)
			s.requireAtomic(t, everyone(550))
			if c.cursor != "" {
				require.Equal(t, job.Failed, s.Status)
				require.Equal(t, c.cursor, s.Cursor)
				require.Equal(t, c.fault.Error(), out.Jobs[0].LastError)
				_, err := b.jobs.Retry(t.Context(), job.One(id), job.Act{})
				require.NoError(t, err)
				b.runDue(t, b.runner(t, "r"))
			}
			b.requireDone(t, id, everyone(550))
			require.EqualValues(t, 6, b.state(t, id).Chunks, "each chunk once")
		})
	}
}
