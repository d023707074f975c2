package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// retrying makes a job, due for an hour, and activities that somebody has tried to send before,
// and a job and activities that are new.
func (b *bundle) retrying(t *testing.T) {
	t.Helper()
	b.Job(t, "default", 1, 60, -time.Hour, "push", "sms")
	for i := range 10 {
		b.Activity(t, i+1, -time.Hour)
	}
	b.exec(t, `UPDATE belfry.message_rows SET lease_id = 0, step = CASE WHEN job_id > 0 AND channel_id % 2 = 0 THEN 1 ELSE 0 END, attempts = CASE WHEN job_id > 0 AND channel_id % 2 = 0 THEN 0 ELSE 1 END`)
	b.Job(t, "default", 1, 60, 0)
	for i := range 10 {
		b.Activity(t, i+1, 0)
	}
}

// in receives n messages from the PostgreSQL transport and returns the tries of each.
func (b *bundle) in(t *testing.T, retries relay.Retries, n int) (again []bool) {
	t.Helper()
	c := config("r")
	c.Batch, c.Retries = 10, retries
	transport := relay.Postgres(b.relay(t, c, []relay.Sender{push(&script{}), {SenderConfig: settings("second", "sms"), Client: &script{}}}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(again) < n {
		claimed, err := transport.Receive(ctx, &room{1000})
		require.NoError(t, err)
		for _, m := range claimed {
			again = append(again, m.Step+m.Attempts+m.Crashes > 0)
		}
	}
	return again
}

// Retries that are due for long are taken when nothing else is left, activities and jobs alike,
// and all of them; mixed with the others, they are first.
func TestRetries_ComeLastIfAskedTo(t *testing.T) {
	t.Parallel()
	b := setup(t, 60)
	b.retrying(t)
	again := b.in(t, relay.RetriesLast, 140)
	require.NotContains(t, again[:70], true)
	require.NotContains(t, again[70:], false)

	b = setup(t, 60)
	b.retrying(t)
	require.Contains(t, b.in(t, relay.RetriesMixed, 140)[:70], true)
}

// New messages that come while retries are taken go first from then on.
func TestRetries_GiveWayToWhatComes(t *testing.T) {
	t.Parallel()
	b := setup(t, 60)
	b.Job(t, "default", 1, 60, -time.Hour)
	b.exec(t, `UPDATE belfry.message_rows SET lease_id = 0, attempts = 1`)
	c := config("r")
	c.Batch, c.Retries = 10, relay.RetriesLast
	transport := relay.Postgres(b.relay(t, c, []relay.Sender{push(&script{})}))
	first, err := transport.Receive(t.Context(), &room{1000})
	require.NoError(t, err)
	require.Len(t, first, 10)
	b.Job(t, "default", 1, 60, 0)
	var again []bool
	for len(again) < 110 {
		pass(2 * c.PollInterval) // in which the list of jobs is read anew
		claimed, err := transport.Receive(t.Context(), &room{1000})
		require.NoError(t, err)
		for _, m := range claimed {
			again = append(again, m.Attempts > 0)
		}
	}
	require.NotContains(t, again[:60], true)
}

// On a carrier they are pushed when nothing else is left to push. Nobody takes what is pushed: a
// message that a relay defers is pushed again, by a later push.
func TestRetries_ComeLastOnACarrier(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 60), outboxtest.NewMemory(140)
	b.retrying(t)
	c := carrying("r1")
	c.Retries = relay.RetriesLast
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		relay.Dispatch(ctx, relay.DispatchOptions{
			Ledger: outbox.NewLedger(b.DB.Pool, c.Name, time.Hour), To: b.Carrier(t, memory, c.Name), RequeueAfter: time.Hour,
			Config: func() relay.Config { return c },
		})
	}()
	defer func() {
		stop()
		<-ended
	}()
	b.eventually(t, `SELECT bool_and(status = 'QUEUED') FROM belfry.messages`)
	require.Less(t, one[int64](t, b, `SELECT max(push) FROM belfry.messages WHERE job_id = (SELECT max(id) FROM belfry.jobs)`),
		one[int64](t, b, `SELECT min(push) FROM belfry.messages WHERE job_id = (SELECT min(id) FROM belfry.jobs WHERE id > 0)`))
	require.Less(t, one[int64](t, b, `SELECT max(push) FROM belfry.messages WHERE job_id < 0 AND attempts = 0`),
		one[int64](t, b, `SELECT min(push) FROM belfry.messages WHERE job_id < 0 AND attempts > 0`))
}

// What has failed leaves the carrier: its turn is decided when it is due.
func TestRetries_DoNotWaitInACarrier(t *testing.T) {
	t.Parallel()
	for retries, copies := range map[relay.Retries]int{relay.RetriesLast: 0, relay.RetriesMixed: 1} {
		b, memory := setup(t, 1), outboxtest.NewMemory(capacity)
		b.job(t, "default", 1, 1)
		c, slow := carrying("r1"), settings("fcm", "push")
		c.Retries = retries
		slow.Retry.Initial, slow.Retry.Max, slow.Retry.MinDelay = time.Hour, time.Hour, time.Hour
		fails := &script{answer: always(sender.Result{Class: sender.Retryable})}
		run := b.start(t, c, []relay.Sender{{SenderConfig: slow, Client: fails}}, on(memory, time.Hour))
		b.eventually(t, `SELECT bool_and(status = 'PENDING' AND attempts = 1) FROM belfry.messages`)
		run.end(t) // which is after the carrier was told
		require.Equal(t, copies, memory.Copies(), retries)
	}
}
