package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Claims that take longer than their share of the time: of thousands of jobs without a
// due message, those of high ids are looked at as often as the others, and a job that
// has messages goes on beside them, whatever its id.
func TestLong_FeedHighIDsOfThousandsOfIdleJobsStarve(t *testing.T) {
	t.Parallel()
	const jobs = 1000
	list := make([]outbox.Candidate, jobs)
	for i := range list {
		list[i] = outbox.Candidate{JobID: int64(i + 1), Lane: "default"}
	}
	r, err := relay.New(nil, nil, config("r"), nil)
	require.NoError(t, err)
	for _, busy := range []int64{1, jobs} {
		turns := make(map[int64]int)
		for _, id := range relay.Turns(r, list, map[int64]bool{busy: true}, 8*time.Millisecond, 6*jobs) {
			turns[id]++
		}
		require.InDelta(t, 3*jobs, turns[busy], jobs, "half the turns")
		for id := range int64(jobs) {
			require.GreaterOrEqual(t, turns[id+1], 2, "job %d beside job %d", id+1, busy)
		}
	}
}

// A sweep over activities that this relay cannot take ends after one claim for each two thousand, without
// finding any, and after each of them recent activities have a claim.
func TestSweep_AlternatesWithRecentActivities(t *testing.T) {
	t.Parallel()
	const steps = 800
	r, err := relay.New(nil, nil, config("r"), nil)
	require.NoError(t, err)
	recent := relay.Swept(r, steps)
	require.Len(t, recent, 2*steps-1)
	for i, is := range recent {
		require.Equal(t, i%2 == 1, is, "claim %d", i)
	}
}

// A relay that bulk keeps busy looks for activities four times per PollInterval, and soon after a hint.
func TestRelay_HintsEndThePauseBetweenClaimsOfActivities(t *testing.T) {
	t.Parallel()
	r, err := relay.New(nil, nil, config("r"), nil)
	require.NoError(t, err)
	unhinted, hinted, again := relay.Looks(r)
	require.Equal(t, []bool{false, true, false}, []bool{unhinted, hinted, again})
}

// The pause after a sweep, and between two claims of a job from the beginning, grows with its cost, up to half a minute:
// messages that a relay cannot take delay an activity that became due during a halt by a bounded time.
func TestSweep_PausesForHalfAMinuteAtMost(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 19*time.Second, relay.SweepPause(time.Second, false), float64(time.Second))
	require.InDelta(t, 30*time.Second, relay.SweepPause(time.Minute, false), float64(time.Second))
	require.InDelta(t, 60*time.Second, relay.SweepPause(time.Minute, true), float64(time.Second), "it uses half of the time")
	require.Equal(t, 20*time.Second, relay.JobPause(time.Second))
	require.Equal(t, 30*time.Second, relay.JobPause(time.Minute))
}

// Of the jobs of a lane that have messages, one goes on until it has no more: the first.
func TestFeed_JobsOfALaneGoInOrder(t *testing.T) {
	t.Parallel()
	r, err := relay.New(nil, nil, config("r"), nil)
	require.NoError(t, err)
	list := []outbox.Candidate{{JobID: 7, Lane: "a", Priority: 5}, {JobID: 2, Lane: "a"}, {JobID: 3, Lane: "a"}}
	require.Equal(t, []int64{7, 7, 7, 7}, relay.Turns(r, list, map[int64]bool{7: true, 2: true, 3: true}, time.Millisecond, 4))
	require.Equal(t, []int64{7, 2, 2, 2}, relay.Turns(r, list, map[int64]bool{2: true, 3: true}, time.Millisecond, 4))
}

// Activities that never end leave bulk its part of the claims and of the sender.
func TestRelay_ActivityFloodStarvesBulk(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	b.job(t, "default", 1, 200)
	b.exec(t, `INSERT INTO belfry.activities (channel_id, title) SELECT 1 + g % 200, 'a like' FROM generate_series(1, 10000) g`)
	provider := &script{}
	s := push(provider)
	s.RatePerSecond = 400
	c := config("r")
	c.Batch = 10
	run := b.start(t, c, []relay.Sender{s})
	calls := 0 // up to the twentieth of the bulk job, however late this test looks
	bulk := func() (n int) {
		for i, c := range provider.all() {
			if c.JobID > 0 {
				if n++; n == 20 {
					calls = i + 1
				}
			}
		}
		return n
	}
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); bulk() < 20; <-tick.C {
		require.Less(t, time.Since(began), patience)
	}
	require.Less(t, calls, 400, "calls, of which 20 were for bulk messages")
	run.end(t)
}

// Activities that are deferred do not wait for the turns of a bulk job that is.
func TestRelay_ActivitiesWaitBehindBulkBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	b.exec(t, `INSERT INTO belfry.senders (name, paused_at, paused_by) VALUES ('fcm', now(), 'somebody')`)
	b.job(t, "default", 1, 1000)
	s := push(&script{})
	s.RatePerSecond = 10
	b.start(t, config("r"), []relay.Sender{s})
	b.eventually(t, `SELECT count(*) >= 200 FROM belfry.messages WHERE status = 'PENDING' AND reason = 'sender_paused'`)
	require.True(t, one[bool](t, b, `SELECT max(next_attempt_at) > min(next_attempt_at) + interval '12 s' FROM belfry.messages WHERE reason = 'sender_paused'`))
	id := b.activity(t, 7)
	b.eventually(t, `SELECT coalesce(reason, '') = 'sender_paused' FROM belfry.messages WHERE job_id = $1`, id)
	require.True(t, one[bool](t, b, `SELECT next_attempt_at < now() + interval '6500 ms' FROM belfry.messages WHERE job_id = $1`, id))
}

// A claim of activities that fails, or takes too long, does not stop bulk.
func TestRelay_DeliversBulkWhileActivitiesCannotBeClaimed(t *testing.T) {
	t.Parallel()
	b := setup(t, 20)
	b.job(t, "default", 1, 20)
	id := b.activity(t, 7)
	b.exec(t, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '57014'; END$$`)
	b.exec(t, `CREATE TRIGGER refuse BEFORE UPDATE ON belfry.message_rows FOR EACH ROW WHEN (OLD.job_id < 0 AND NEW.status = 'PROCESSING') EXECUTE FUNCTION public.refuse()`)
	run := b.start(t, config("r"), []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT count(*) = 20 FROM belfry.messages WHERE job_id > 0 AND status = 'SENT'`)
	b.exec(t, `DROP TRIGGER refuse ON belfry.message_rows`)
	b.eventually(t, `SELECT status = 'SENT' FROM belfry.messages WHERE job_id = $1`, id)
	run.end(t)
}

// Due activities that this relay cannot take, for a medium that it does not serve, do not keep it from
// delivering others: one behind them that waits already, and one that is sent now.
func TestRelay_ActivitiesOfAnotherMediumStarveOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	b.past(t, `INSERT INTO belfry.activities (id, channel_id, title, route) SELECT -1000000 - g, g, 'like', '{sms}' FROM generate_series(1, 50000) g`)
	b.past(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT id, channel_id, now() - interval '1 hour' FROM belfry.activities`)
	waits := b.activity(t, 1)
	b.past(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '1 minute' WHERE job_id = $1`, waits)
	run := b.start(t, config("r"), []relay.Sender{push(&script{})})
	now := b.activity(t, 2)
	sent := `SELECT status = 'SENT' FROM belfry.messages WHERE job_id = $1`
	b.eventually(t, sent, now)
	b.eventually(t, sent, waits)
	b.job(t, "default", 3, 5)
	b.eventually(t, `SELECT count(*) = 3 FROM belfry.messages WHERE job_id > 0 AND status = 'SENT'`)
	run.end(t)
	require.Equal(t, 50_000, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'PENDING'`))
}
