package compose_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// manyJobs makes delivered jobs of a category, each with a SENT message to the first so
// many of the channels 100,001 on.
func (b *bundle) manyJobs(t require.TestingT, n, messages int) {
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, route, started_at, delivered_at, rows_written)
		SELECT 'push', 'operator_notice', 'x', '{sms}', now(), now(), $2 FROM generate_series(1, $1::int)`, n, messages)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, sent_at)
		SELECT j.id, 100000 + g, now(), 'SENT', now() FROM belfry.jobs j, generate_series(1, $1::int) g WHERE j.rows_written = $1::int`, messages)
}

// batchOf makes a job with messages to channels first, first + step … that are in flight.
func (b *bundle) batchOf(t require.TestingT, first, step, n int64) (list []outbox.Claimed) {
	id := b.job(t, pgx.NamedArgs{"route": []string{"sms"}})
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, addresses)
		SELECT g, 'u-' || g, 'web', '{"sms": "+82"}' FROM generate_series($1::bigint, $1 + ($3 - 1) * $2, $2::bigint) g ON CONFLICT DO NOTHING`, first, step, n)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, lease_id)
		SELECT $4, g, now(), 'PROCESSING', 1 FROM generate_series($1::bigint, $1 + ($3 - 1) * $2, $2::bigint) g`, first, step, n, id)
	for channel := first; channel < first+step*n; channel += step {
		list = append(list, outbox.Claimed{Key: outbox.Key{JobID: id, ChannelID: channel}, LeaseID: 1})
	}
	return list
}

// A batch of 500 under a cap does not look 500 times at each job of the window
// (invariant 6): once at those that have few messages, or whose recipients lie together.
func TestLong_CapManyJobsInTheWindowAreNotReadOncePerChannel(t *testing.T) {
	t.Parallel()
	const jobs = 400
	for name, c := range map[string]struct {
		messages    int
		first, step int64
	}{
		"small jobs, channels far apart":    {20, 1000, 1000},
		"large jobs, channels side by side": {9000, 1000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, dbtest.New(t))
			b.capTo(t, "operator_notice", 3)
			b.exec(t, `ALTER TABLE belfry.jobs DISABLE TRIGGER jobs_validate, ALTER id SET DEFAULT nextval('belfry.jobs_id_seq')`)
			b.manyJobs(t, jobs, 20)
			b.exec(t, `UPDATE belfry.jobs SET rows_written = $1 WHERE delivered_at IS NOT NULL`, c.messages)
			list := b.batchOf(t, c.first, c.step, 500)
			b.exec(t, `ANALYZE`)
			before := b.blocks(t)
			for _, got := range b.composed(t, list...) {
				require.Equal(t, "send", what(got))
			}
			require.Less(t, b.blocks(t)-before, int64(jobs*20), "one look at a job is three to five blocks, one per channel 1,500")
		})
	}
}

// blocks is how many blocks of tables and indexes the database has looked at.
func (b *bundle) blocks(t require.TestingT) int64 {
	conn, err := b.db.Pool.Acquire(context.Background())
	require.NoError(t, err)
	conn.Release()
	b.db.Pool.Reset() // sessions report when they end
	require.Eventually(t, func() bool {
		return one[int](t, b, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`) == 0
	}, time.Minute, time.Millisecond)
	return one[int64](t, b, `SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::bigint
		FROM pg_statio_user_tables WHERE relname IN ('jobs', 'activities', 'messages')`)
}

// Whatever way the jobs of the window are read, each channel's messages are counted, and
// no others (invariant 3).
func TestCap_CountsTheSameByAnyWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `ALTER TABLE belfry.jobs DISABLE TRIGGER jobs_validate, ALTER id SET DEFAULT nextval('belfry.jobs_id_seq')`)
	rapid.Check(t, func(rt *rapid.T) {
		b.exec(rt, `DELETE FROM belfry.message_rows`)
		b.exec(rt, `DELETE FROM belfry.jobs WHERE status <> 'RUNNING'`)
		limit := rapid.IntRange(1, 3).Draw(rt, "cap")
		b.capTo(rt, "operator_notice", limit)
		list := b.batchOf(rt, 1000, 1, 60)
		at := rapid.SliceOfNDistinct(rapid.IntRange(0, 59), 1, 12, rapid.ID[int]).Draw(rt, "channels")
		slices.Sort(at)
		var some []outbox.Claimed
		for _, i := range at {
			some = append(some, list[i])
		}
		for range rapid.IntRange(0, 5).Draw(rt, "jobs") {
			b.exec(rt, `INSERT INTO belfry.jobs (type, category, title, route, started_at, delivered_at, rows_written) VALUES ('push', $1, 'x', '{sms}', now(), now(), $2)`,
				rapid.SampledFrom([]string{"operator_notice", "popular_content"}).Draw(rt, "category"), rapid.SampledFrom([]int{1, 50, 100000}).Draw(rt, "rows"))
			b.exec(rt, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, sent_at)
				SELECT (SELECT max(id) FROM belfry.jobs), g, now(), 'SENT', now() - CASE g % 5 WHEN 0 THEN interval '2 hours' ELSE interval '1 minute' END FROM unnest($1::bigint[]) g`,
				rapid.SliceOfNDistinct(rapid.Int64Range(998, 1061), 0, 40, rapid.ID[int64]).Draw(rt, "to"))
		}
		for _, got := range b.composed(rt, some...) {
			counted := one[int](rt, b, `SELECT count(*) FROM belfry.messages m JOIN belfry.jobs j ON j.id = m.job_id
				WHERE m.channel_id = $1 AND m.status = 'SENT' AND m.sent_at > now() - interval '1 hour' AND j.category = 'operator_notice'`, got.Claimed.ChannelID)
			want := "send"
			if counted >= limit {
				want = "CANCELLED capped"
			}
			require.Equal(rt, want, what(got), "channel %d, %d sent", got.Claimed.ChannelID, counted)
		}
	})
}

// A batch whose counting does not end before the deadline goes on in parts: the first
// messages are composed and the others wait. One relay asking for too much would ask for
// the same again and again.
func TestLong_CapWhatTakesTooLongGoesOnInParts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.capTo(t, "operator_notice", 3)
	list := b.batchOf(t, 1001, 1, 16)
	b.exec(t, `ALTER TABLE belfry.message_rows RENAME TO told`)
	b.exec(t, `CREATE VIEW belfry.message_rows AS SELECT * FROM belfry.told WHERE CASE WHEN channel_id > 1004 THEN pg_sleep(60) IS NOT NULL ELSE true END`)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := b.composer.Compose(ctx, list)
	require.NoError(t, err)
	said := make(map[string]int)
	for i, c := range got {
		said[fmt.Sprint(what(c), " ", i < 4)]++
	}
	require.Equal(t, map[string]int{"send true": 4, "wait capped false": 12}, said)
	require.Equal(t, outbox.ActionDefer, got[15].Action)
	require.GreaterOrEqual(t, got[15].Wait, time.Second)
}

// A cap above whose limits of jobs or activities nothing is counted keeps the messages under it waiting, and no
// others: an enqueuer chooses how many rows there are (invariant 13).
func TestCap_CountsABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.composer.LimitCounts(5, 3)
	b.capTo(t, "operator_notice", 2)
	now := b.job(t, map[string]any{"route": []string{"sms"}})
	to := func(channel int64) string { return what(b.compose(t, now, channel)[0]) }
	activities := func(channel int64, category string, n int) {
		for range n {
			b.sent(t, b.send(t, channel, category, "x"), channel, "1 minute")
		}
	}
	activities(1, "activity", 5)
	require.Equal(t, "send", to(1), "3 and the cap of 2")
	activities(1, "activity", 1)
	require.Equal(t, "wait uncounted", to(1))
	require.Equal(t, "send", to(2), "another channel of the category")
	activities(2, "operator_notice", 9)
	require.Equal(t, "CANCELLED capped", to(2), "it is full by those that were counted")
	b.exec(t, `UPDATE belfry.message_rows SET sent_at = now() - interval '2 hours' WHERE job_id < 0`)
	require.Equal(t, "send", to(1))

	for range 4 {
		b.job(t, nil)
	}
	require.Equal(t, "send", to(1), "5 jobs")
	more := b.job(t, nil)
	other := b.claim(t, b.send(t, 1, "activity", "x"), 1)
	got := b.composed(t, other, b.claim(t, now, 1))
	require.Equal(t, []string{"send", "wait uncounted"}, []string{what(got[0]), what(got[1])})
	require.GreaterOrEqual(t, got[1].Wait, 30*time.Second)
	b.exec(t, `UPDATE belfry.jobs SET delivered_at = now() - interval '2 hours' WHERE id = $1`, more)
	require.Equal(t, "wait uncounted", to(1), "it is not counted again at once")
	b.composer.CountAgain()
	require.Equal(t, "send", to(1))
}

// The cost of a count does not grow with the number of jobs in the window, nor with the activities of a channel,
// of its category or another.
func TestLong_CapCountsOfAnyWindowCostTheSame(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t))
	b.composer.LimitCounts(100, 100)
	b.capTo(t, "operator_notice", 3)
	b.exec(t, `ALTER TABLE belfry.jobs DISABLE TRIGGER jobs_validate, ALTER id SET DEFAULT nextval('belfry.jobs_id_seq')`)
	b.exec(t, `ALTER TABLE belfry.activities DISABLE TRIGGER USER`)
	b.exec(t, `INSERT INTO belfry.activities (id, channel_id, title, route) SELECT -nextval('belfry.arrivals_seq'), 1000, 'x', '{push}' FROM generate_series(1, 20000) g`)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, sent_at) SELECT id, channel_id, now(), 'SENT', now() FROM belfry.activities`)
	list := b.batchOf(t, 1000, 1, 1)
	b.exec(t, `ANALYZE`)
	before := b.blocks(t)
	require.Equal(t, "wait uncounted", what(b.composed(t, list...)[0]))
	read := b.blocks(t) - before
	t.Logf("%d blocks with 20,000 activities to the channel", read)
	require.Less(t, read, int64(1000))
	b.manyJobs(t, 20000, 1)
	b.exec(t, `ANALYZE`)
	before = b.blocks(t)
	require.Equal(t, "wait uncounted", what(b.composed(t, list...)[0]))
	read = b.blocks(t) - before
	t.Logf("%d blocks with 20,000 jobs", read)
	require.Less(t, read, int64(1000))
}

// A category whose count does not end in time waits, and the messages of others are composed meanwhile.
func TestLong_CapThatCannotBeCountedInTimeStopsNoOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.capTo(t, "operator_notice", 3)
	b.capTo(t, "popular_content", 3)
	list := b.batchOf(t, 1001, 1, 4)
	popular, activity := b.job(t, pgx.NamedArgs{"category": "popular_content"}), b.send(t, 1, "activity", "x")
	list = append(list, b.claim(t, popular, 1), b.claim(t, activity, 1))
	b.exec(t, `ALTER TABLE belfry.message_rows RENAME TO told`)
	b.exec(t, `CREATE VIEW belfry.message_rows AS SELECT * FROM belfry.told WHERE CASE WHEN channel_id > 1000 THEN pg_sleep(60) IS NOT NULL ELSE true END`)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	got, err := b.composer.Compose(ctx, list)
	require.NoError(t, err)
	var said []string
	for _, c := range got[3:] {
		said = append(said, what(c))
	}
	require.Equal(t, []string{"wait uncounted", "send", "send"}, said)
}
