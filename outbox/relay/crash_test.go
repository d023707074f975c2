package relay_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// A relay that dies while it calls by a later step, because the first was bypassed,
// has used up one attempt of that step, not of the first: no medium is called more often
// than its policy says.
func TestLong_RelayCrashAfterABypassedStepCountsForTheMediumThatWasCalled(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.job(t, "default", 1, 1, "push", "sms")
	b.exec(t, `SELECT belfry.opt_out(1, '*', 'push')`)
	var calls atomic.Int64
	second := &script{answer: func(ctx context.Context, d sender.Delivery) sender.Result {
		if calls.Add(1) == 1 {
			return hang(ctx, d)
		}
		return sender.Result{Class: sender.Retryable, Code: "500"}
	}}
	run := b.start(t, config("a"), []relay.Sender{push(&script{}), sms(second)})
	second.reached(t, 1)
	b.expire(t)
	b.eventually(t, `SELECT status = 'DEAD' FROM belfry.messages WHERE job_id = $1`, id)
	run.StopNow(context.Canceled)
	run.end(t)
	require.Equal(t, []string{"1 push 0/0 refused", "1 sms 1/1 crashed", "1 sms 1/2 retryable", "1 sms 1/3 retryable"}, b.record(t, id))
	require.Len(t, second.all(), 3)
	require.Equal(t, map[string]int{"DEAD unknown": 1}, b.statuses(t))
}

// A message's record has each step that was bypassed, and has it once, wherever its relay
// stopped with it, and when the answer to the COMMIT that recorded it was lost. The relay
// goes on after its lease has run out and adds nothing.
func TestLong_RelayRecordHasTheBypassedStepsWhereverItsRelayStopped(t *testing.T) {
	t.Parallel()
	for point, want := range map[string][]string{
		relay.PointHandOver: {"1 push 0/0 refused", "1 sms 1/1 retryable"}, // it comes back as it was
		relay.PointRecheck:  {"1 push 0/0 refused", "1 sms 1/1 crashed", "1 sms 1/2 retryable"},
		relay.PointSettle:   {"1 push 0/0 refused", "1 sms 1/1 crashed", "1 sms 1/2 retryable"},
		relay.PointSettled:  {"1 push 0/0 refused", "1 sms 1/1 retryable", "1 sms 1/2 retryable"},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			id := b.job(t, "default", 1, 1, "push", "sms")
			b.exec(t, `SELECT belfry.opt_out(1, '*', 'push')`)
			first, second, g := &script{answer: always(sender.Result{Class: sender.Retryable, Code: "500"})}, &script{}, newGate(t, point)
			second.answer = func(context.Context, sender.Delivery) sender.Result {
				if len(second.all()) == 1 {
					return sender.Result{Class: sender.Retryable, Code: "500"}
				}
				return sender.Result{Class: sender.Accepted}
			}
			var lost atomic.Bool
			stopped := b.start(t, config("stopped"), []relay.Sender{push(&script{}), sms(first)}, relay.WithFailpoint(func(ctx context.Context, at string) error {
				err := g.stop(ctx, at)
				if at == point && lost.CompareAndSwap(false, true) {
					return context.DeadlineExceeded
				}
				return err
			}))
			g.await(t)
			other := b.start(t, config("other"), []relay.Sender{push(&script{}), sms(second)})
			// Its last statement may claim the message again.
			b.eventually(t, `WITH expired AS (UPDATE belfry.leases SET expires_at = now() - interval '1 second' WHERE relay = 'stopped')
				SELECT status = 'SENT' FROM belfry.messages`)
			g.open()
			stopped.StopNow(context.Canceled)
			stopped.end(t)
			other.end(t)
			require.Equal(t, want, b.record(t, id))
		})
	}
}

// What a provider says may be what the database cannot keep. The outcome is recorded
// without it: the message is not called for again.
func TestRelay_OutcomeWithATextThatIsRefusedIsRecordedWithoutIt(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.job(t, "default", 1, 3)
	b.exec(t, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'character has no equivalent in the encoding of the database' USING ERRCODE = 'untranslatable_character'; END $$`)
	b.exec(t, `CREATE TRIGGER refuse BEFORE INSERT ON belfry.attempts FOR EACH ROW WHEN (NEW.error ~ '☃') EXECUTE FUNCTION public.refuse()`)
	s := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		if d.ChannelID == 2 {
			return sender.Result{Class: sender.Permanent, Code: "400", Detail: "☃"}
		}
		return sender.Result{Class: sender.Permanent, Code: "400", Detail: "no"}
	}}
	b.drain(t, config("r"), push(s))
	require.Equal(t, map[string]int{"DEAD permanent": 3}, b.statuses(t))
	require.Equal(t, []string{"1 push 0/1 permanent", "2 push 0/1 permanent", "3 push 0/1 permanent"}, b.record(t, id))
	require.Equal(t, []string{"no", "", "no"}, one[[]string](t, b, `SELECT array_agg(error ORDER BY channel_id) FROM belfry.attempts`))
}
