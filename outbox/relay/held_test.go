package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// I6: what a relay has composed and queued when its job is aborted is not sent: the look
// before the call holds it, and a resume has it sent, each message once, without a runner.
func TestRelay_AbortInMidDeliveryHoldsWhatIsQueued(t *testing.T) {
	t.Parallel()
	b := setup(t, 40)
	id := b.job(t, "default", 1, 40)
	s := &script{}
	g := newGate(t, relay.PointRecheck)
	run := b.start(t, config("r"), []relay.Sender{push(s)}, relay.WithFailpoint(g.stop))
	g.await(t)
	jobs := job.NewStore(b.DB.Pool)
	j, err := jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, job.Aborted, j[0].Status)
	before := len(s.all())
	g.open()
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status = 'PROCESSING')`)
	require.Len(t, s.all(), before, "nothing is sent after the abort returned")
	require.Empty(t, dbtest.Miscounted(t, b.DB.Pool))
	j, err = jobs.Resume(t.Context(), job.One(id), job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, job.Processed, j[0].Status)
	b.eventually(t, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, id)
	run.end(t)
	require.Equal(t, map[string]int{"SENT": 40}, b.statuses(t))
	require.Len(t, s.all(), 40)
	require.Empty(t, b.record(t, id), "no attempt was counted")
}

// What was composed before an abort, an edit and a resume does not leave with the old
// text, although it was in flight all the time.
func TestRelay_EditInMidDeliveryChangesWhatIsQueued(t *testing.T) {
	t.Parallel()
	b := setup(t, 20)
	id := b.job(t, "default", 1, 20)
	b.exec(t, `UPDATE belfry.message_rows SET status = 'SENT', sent_at = now() WHERE channel_id = 1`) // before
	dbtest.Recount(t, b.DB.Pool)
	s := &script{}
	g := newGate(t, relay.PointRecheck)
	run := b.start(t, config("r"), []relay.Sender{push(s)}, relay.WithFailpoint(g.stop))
	g.await(t)
	jobs := job.NewStore(b.DB.Pool)
	_, err := jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "ann"})
	require.NoError(t, err)
	for _, title := range []string{"wrong again", "corrected"} { // twice at one cursor
		_, err = jobs.Set(t.Context(), id, job.Changes{"title": title}, job.Act{Actor: "ann"})
		require.NoError(t, err)
	}
	_, err = jobs.Resume(t.Context(), job.One(id), job.Act{Actor: "ann"})
	require.NoError(t, err)
	g.open()
	b.eventually(t, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, id)
	run.end(t)
	require.Len(t, s.all(), 19)
	for _, c := range s.all() {
		require.Equal(t, "corrected", c.Title)
		require.Equal(t, 1, c.Attempt)
	}
	title := func(channel int64) string {
		return one[string](t, b, `SELECT title FROM belfry.job_content($1, $2)`, id, channel)
	}
	require.Equal(t, "told", title(1))
	require.Equal(t, "corrected", title(2))
	require.Equal(t, 19, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE revision = 2 AND sender = 'fcm'`))
	_, err = b.DB.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET revision = 3 WHERE id = $1`, id) // one more, after all was sent
	require.NoError(t, err)
	b.exec(t, `INSERT INTO belfry.job_revisions (job_id, revision, "cursor", title, body, data, audience, edited_by) SELECT id, 3, "cursor", title, body, data, audience, 'ann' FROM belfry.jobs WHERE id = $1`, id)
	b.past(t, `UPDATE belfry.jobs SET title = 'later' WHERE id = $1`, id)
	require.Equal(t, "corrected", title(2))
	require.Equal(t, "told", title(1))
}

// A paused lane holds its delivery: nothing of it is claimed or called, what is queued goes
// back, other lanes go on, and opened it goes on at once.
func TestRelay_PausedLaneHoldsItsDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t, 30)
	held, other := b.job(t, "slow", 1, 30), b.job(t, "fast", 1, 30)
	s := &script{}
	g := newGate(t, relay.PointRecheck)
	run := b.start(t, config("r"), []relay.Sender{push(s)}, relay.WithFailpoint(g.stop))
	g.await(t)
	jobs := job.NewStore(b.DB.Pool)
	_, err := jobs.PauseLane(t.Context(), "slow", job.Act{Actor: "ann"})
	require.NoError(t, err)
	g.open()
	b.eventually(t, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, other)
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status <> 'PENDING' AND job_id = $1)`, held)
	require.Len(t, s.all(), 30)
	run.end(t)
	b.drain(t, config("d"), push(s))
	require.Len(t, s.all(), 30, "a drain has nothing to send")
	counts, err := delivery.Deliveries(t.Context(), b.DB.Pool, held)
	require.NoError(t, err)
	require.True(t, counts.LanePaused)
	require.EqualValues(t, 30, counts.Held)
	_, err = jobs.ResumeLane(t.Context(), "slow", job.Act{Actor: "ann"})
	require.NoError(t, err)
	b.drain(t, config("d"), push(s))
	require.Len(t, s.all(), 60)
}

// Each message that becomes a dead letter is one line, with what finds it and no address;
// a message that went out with its first call keeps its sender.
func TestRelay_DeadLettersAreLogLines(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	id := b.job(t, "default", 1, 3)
	b.exec(t, `UPDATE belfry.channels SET addresses = '{}' WHERE id = 3`)
	s := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		if d.ChannelID == 2 {
			return sender.Result{Class: sender.Permanent, Code: "400", Detail: "token-2 is bad"}
		}
		return sender.Result{Class: sender.Accepted}
	}}
	var out dbtest.Buffer
	r := b.relay(t, config("r"), []relay.Sender{push(s)}, relay.WithLogger(zerolog.New(&out)))
	_, err := r.Drain(t.Context())
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "dead letter") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	require.Equal(t, []string{
		fmt.Sprintf(`{"level":"warn","job_id":%d,"channel_id":2,"medium":"push","sender":"fcm","reason":"permanent","message":"dead letter"}`+"\n", id),
		fmt.Sprintf(`{"level":"warn","job_id":%d,"channel_id":3,"reason":"no_address","message":"dead letter"}`+"\n", id),
	}, lines)
	require.Equal(t, "fcm", one[string](t, b, `SELECT sender FROM belfry.messages WHERE channel_id = 1`))
	require.Equal(t, 2, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE sender IS NULL`))
}

// A linear policy without jitter is really linear, and no pause is shorter than min_delay.
func TestRetry_PausesAreDrawnAsTheJitterWants(t *testing.T) {
	t.Parallel()
	linear := relay.RetryConfig{Attempts: 9, Policy: relay.Linear, Initial: 10 * time.Second, Max: 35 * time.Second}
	for attempts, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 3: 30 * time.Second, 4: 35 * time.Second} {
		require.Equal(t, want, relay.Wait(linear, attempts, 0, 0))
		require.Equal(t, want, relay.Wait(linear, attempts, 0, 0.99))
	}
	full := relay.RetryConfig{Attempts: 9, Policy: relay.Exponential, Initial: time.Second, Max: time.Minute, Jitter: 1}
	require.Zero(t, relay.Wait(full, 3, 0, 0))
	require.Equal(t, 2*time.Second, relay.Wait(full, 3, 0, 0.5))
	full.MinDelay = 3 * time.Second
	require.Equal(t, 3*time.Second, relay.Wait(full, 3, 0, 0.5))
	require.Equal(t, 63*time.Second, relay.Wait(full, 3, time.Minute, 0.5), "a Retry-After comes on top")
	full.MinDelay, full.Jitter = 0, 0.5
	require.Equal(t, 2*time.Second, relay.Wait(full, 3, 0, 0))
	require.Equal(t, 3*time.Second, relay.Wait(full, 3, 0, 0.5))
	full.MinDelay, full.Jitter = 2*time.Minute, 1.5
	s := relay.DefaultSenderConfig()
	s.Name, s.Medium, s.Retry = "fcm", "push", full
	err := relay.ValidateSenders("senders", []relay.SenderConfig{s})
	require.ErrorContains(t, err, "retry.min_delay: 2m0s is not allowed; allowed values: 0 to max (1m0s)")
	require.ErrorContains(t, err, "retry.jitter: 1.5 is not allowed; allowed values: 0 (none) to 1")
}
