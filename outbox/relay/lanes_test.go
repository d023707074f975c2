package relay_test

import (
	"context"
	"fmt"
	"testing"

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
