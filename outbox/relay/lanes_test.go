package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Lanes of jobs without a due message, such as jobs that are to be delivered next year, take nothing from the
// share of a lane with messages: it has half of the slots, as if it were alone.
func TestRelay_LanesOfLaterJobsStopBulk(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	for i := range 60 {
		b.job(t, fmt.Sprintf("later-%d", i), 1, 1)
	}
	b.past(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 year'`)
	id := b.job(t, "default", 2, 200)

	answer := make(chan struct{})
	provider := &script{answer: func(ctx context.Context, _ sender.Delivery) sender.Result {
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return sender.Result{Class: sender.Accepted}
	}}
	c := config("r")
	c.Batch, c.MaxInFlight, c.ActivityShare = 10, 40, 0
	run := b.start(t, c, []relay.Sender{push(provider)})
	b.eventually(t, `SELECT count(*) BETWEEN 10 AND 20 FROM belfry.messages WHERE job_id = $1 AND status = 'PROCESSING'`, id)
	close(answer)
	b.eventually(t, `SELECT count(*) = 199 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, id)
	run.end(t)
}

// 4,000 jobs whose messages no sender takes are claimed at most every twenty seconds. After the first claim of each they
// delay neither a retry nor the messages of a job that are due later.
func TestLong_ManyJobsWithoutASenderDelayNoOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, body, lane, route) SELECT 'push', 'operator_notice', 'told', 'all', 'a', '{sms}' FROM generate_series(1, 4000)`)
	b.past(t, `UPDATE belfry.jobs SET status = 'PROCESSED', fence = 1, started_at = now(), walked_at = now(), finished_at = now(), bound = '1', "cursor" = '1', chunks = 1,
		channels_read = 1, channels_matched = 1, rows_written = 1`)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT id, 1, now() FROM belfry.jobs`)
	var fail atomic.Bool
	fcm := push(&script{answer: func(context.Context, sender.Delivery) sender.Result {
		if fail.Swap(false) {
			return sender.Result{Class: sender.Retryable}
		}
		return sender.Result{Class: sender.Accepted}
	}})
	fcm.Retry.Initial, fcm.Retry.Max = time.Second, time.Second
	last := b.job(t, "a", 1, 1) // of the lane
	run := b.start(t, config("r"), []relay.Sender{fcm})
	const sent = `SELECT status = 'SENT' FROM belfry.messages WHERE job_id = $1`
	require.Eventually(t, func() bool { return one[bool](t, b, sent, last) }, 5*patience, 100*time.Millisecond)
	delay := func(job int64) time.Duration {
		b.eventually(t, sent, job)
		return time.Duration(one[float64](t, b, `SELECT extract(epoch FROM m.sent_at - greatest(m.next_attempt_at, (SELECT max(a.at) FROM belfry.attempts a WHERE a.job_id = m.job_id)))::float8
			FROM belfry.messages m WHERE m.job_id = $1`, job) * float64(time.Second))
	}
	fail.Store(true)
	require.Less(t, delay(b.job(t, "b", 1, 1)), 17*time.Second, "a retry")
	require.Less(t, delay(b.Job(t, "a", 1, 1, time.Second)), 17*time.Second, "a message that is due later")
	run.end(t)
}
