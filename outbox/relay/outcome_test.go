package relay_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// deliverAll runs a relay until no message is PENDING or in flight.
func (b *bundle) deliverAll(t *testing.T, c relay.Config, senders ...relay.Sender) relay.Stats {
	t.Helper()
	run := b.start(t, c, senders)
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`)
	run.end(t)
	return run.Stats()
}

// I12: the next medium is called only after the recorded permanent failure, or the last
// attempt, of the one before; what may have been accepted is never called failed.
func TestRelay_FailsOverInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, 7)
	id := b.job(t, "default", 1, 7, "push", "sms")
	answers := map[string]sender.Class{
		"1 push": sender.Permanent,
		"2 push": sender.Retryable,
		"3 push": sender.Unknown,
		"4 push": sender.Permanent, "4 sms": sender.Permanent,
		"5 push": sender.Unknown, "5 sms": sender.Permanent,
		"6 push": sender.InvalidAddress, "6 sms": sender.Retryable,
	}
	say := func(_ context.Context, d sender.Delivery) sender.Result {
		if d.Medium == "sms" && one[int](t, b, `SELECT count(*) FROM belfry.attempts WHERE job_id = $1 AND channel_id = $2 AND medium = 'push'`, d.JobID, d.ChannelID) == 0 {
			return sender.Result{Class: sender.Permanent, Code: "sms before push had failed"}
		}
		class := answers[fmt.Sprintf("%d %s", d.ChannelID, d.Medium)]
		if class == "" {
			class = sender.Accepted
		}
		return sender.Result{Class: class, Code: "c"}
	}
	first, second := &script{answer: say}, &script{answer: say}
	stats := b.deliverAll(t, config("r"), push(first), sms(second))
	require.Equal(t, []string{
		"1 push 0/1 permanent",
		"2 push 0/1 retryable", "2 push 0/2 retryable", "2 push 0/3 retryable",
		"3 push 0/1 unknown", "3 push 0/2 unknown", "3 push 0/3 unknown",
		"4 push 0/1 permanent", "4 sms 1/1 permanent",
		"5 push 0/1 unknown", "5 push 0/2 unknown", "5 push 0/3 unknown", "5 sms 1/1 permanent",
		"6 push 0/1 invalid_address", "6 sms 1/1 retryable", "6 sms 1/2 retryable", "6 sms 1/3 retryable",
	}, b.record(t, id))
	require.Equal(t, map[string]int{"SENT": 4, "DEAD permanent": 1, "DEAD unknown": 1, "DEAD exhausted": 1}, b.statuses(t))
	require.EqualValues(t, 6, stats.FailedOver)
	require.EqualValues(t, 6, stats.Ambiguous)
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.invalid_addresses WHERE channel_id = 6 AND medium = 'push'`))
	keys := map[string]bool{}
	for _, c := range append(first.all(), second.all()...) {
		keys[c.Key] = true
	}
	require.Len(t, keys, 7+6, "one idempotency key per message and medium, whatever the attempt")
}

// I11: after a 429 with Retry-After the next call is never early, in the database's clock
// and in the provider's, however short the policy's own pauses are.
func TestRelay_RetryAfterIsNeverEarly(t *testing.T) {
	t.Parallel()
	const after = 400 * time.Millisecond
	b := setup(t, 40)
	// An attempt is recorded later than its statement begins, from which the wait counts.
	b.exec(t, `CREATE TABLE public.moves (channel_id bigint, reason text, at timestamptz DEFAULT statement_timestamp(), id bigserial)`)
	b.exec(t, `CREATE FUNCTION public.move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.moves (channel_id, reason) VALUES (NEW.channel_id, CASE NEW.status WHEN 'PENDING' THEN NEW.reason END); RETURN NULL; END $$`)
	b.exec(t, `CREATE TRIGGER move AFTER UPDATE ON belfry.message_rows FOR EACH ROW WHEN (NEW.status IN ('PENDING', 'PROCESSING')) EXECUTE FUNCTION public.move()`)
	id := b.job(t, "default", 1, 40)
	provider := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		if d.Attempt < 3 {
			return sender.Result{Class: sender.Retryable, Code: "429", RetryAfter: after}
		}
		return sender.Result{Class: sender.Accepted}
	}}
	b.deliverAll(t, config("r"), push(provider))
	require.Equal(t, map[string]int{"SENT": 40}, b.statuses(t))
	for channel := range int64(40) {
		calls := provider.of(id, channel+1)
		require.Len(t, calls, 3)
		for i := range 2 {
			require.GreaterOrEqual(t, calls[i+1].at.Sub(calls[i].at), after)
		}
	}
	require.Equal(t, 80, one[int](t, b, `SELECT count(*) FROM public.moves WHERE reason = 'retry'`))
	require.True(t, one[bool](t, b, `SELECT bool_and(next - at >= interval '400 ms') FROM (
		SELECT reason, at, lead(at) OVER (PARTITION BY channel_id ORDER BY id) AS next FROM public.moves) m WHERE reason = 'retry'`))
}

// patient is a sender whose results come later.
type patient struct {
	script
	results func(receipt string) sender.Result
	asked   sync.Map
}

func (p *patient) Receipts(_ context.Context, receipts []string) []sender.Result {
	list := make([]sender.Result, len(receipts))
	for i, r := range receipts {
		p.asked.Store(r, true)
		list[i] = p.results(r)
	}
	return list
}

// A step whose result comes later waits for it, or its limit; it fails over only when the
// receipt says failed.
func TestRelay_WaitsForReceipts(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	b.exec(t, `UPDATE belfry.channels SET addresses = addresses || '{"alimtalk": "+821"}'`)
	id := b.job(t, "default", 1, 4, "alimtalk", "sms")
	var looks sync.Map
	provider := &patient{results: func(receipt string) sender.Result {
		_, again := looks.LoadOrStore(receipt, true)
		switch {
		case !again:
			return sender.Result{Class: sender.Pending}
		case receipt == "r-1":
			return sender.Result{Class: sender.Accepted}
		case receipt == "r-2":
			return sender.Result{Class: sender.Permanent, Code: "3018"}
		case receipt == "r-3":
			panic("the client has a bug")
		}
		return sender.Result{Class: sender.Pending}
	}}
	provider.answer = func(_ context.Context, d sender.Delivery) sender.Result {
		return sender.Result{Class: sender.Pending, Receipt: fmt.Sprintf("r-%d", d.ChannelID)}
	}
	text := &script{}
	c := config("r")
	run := b.start(t, c, []relay.Sender{{SenderConfig: settings("kakao", "alimtalk"), Client: provider}, sms(text)})
	b.eventually(t, `SELECT count(*) = 2 FROM belfry.messages WHERE status = 'SENT'`)
	require.Equal(t, 2, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING' AND receipt IS NOT NULL AND lease_id IS NULL`))
	require.Len(t, text.all(), 1)
	require.Len(t, text.of(id, 2), 1)
	c.Receipts.Limit = time.Second // shorter than they have waited, soon
	require.NoError(t, run.Reload(c, []relay.SenderConfig{settings("kakao", "alimtalk"), settings("sms", "sms")}))
	b.eventually(t, `SELECT count(*) = 4 FROM belfry.messages WHERE status = 'SENT'`)
	run.end(t)
	require.Equal(t, []string{
		"1 alimtalk 0/1 accepted",
		"2 alimtalk 0/1 accepted", "2 alimtalk 0/1 permanent",
		"3 alimtalk 0/1 accepted", "3 alimtalk 0/1 unconfirmed",
		"4 alimtalk 0/1 accepted", "4 alimtalk 0/1 unconfirmed",
	}, b.record(t, id))
	require.EqualValues(t, 2, run.Stats().Unconfirmed)
	require.EqualValues(t, 4, run.Stats().Awaiting)
	require.Len(t, provider.all(), 4)
}

// One message makes its client panic: its outcome is unknown, and nobody else's.
func TestRelay_PanicOfASenderIsOneUnknownOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t, 30)
	id := b.job(t, "default", 1, 30)
	provider := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		if d.ChannelID == 3 {
			panic("the client has a bug")
		}
		return sender.Result{Class: sender.Accepted}
	}}
	b.deliverAll(t, config("r"), push(provider))
	require.Equal(t, map[string]int{"SENT": 29, "DEAD unknown": 1}, b.statuses(t))
	require.Equal(t, []string{"3 push 0/1 unknown", "3 push 0/2 unknown", "3 push 0/3 unknown"}, b.record(t, id))
}

// few answers for fewer messages than it was given.
type few struct{ script }

func (f *few) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	return f.script.Send(ctx, batch)[:(len(batch)+1)/2]
}

// A client that takes many messages at once gets no more than it takes, and what it does
// not answer for is unknown.
func TestRelay_BatchesForThoseWhoTakeThem(t *testing.T) {
	t.Parallel()
	b := setup(t, 250)
	b.job(t, "default", 1, 250)
	provider := &few{script{max: 100}}
	c := settings("fcm", "push")
	c.Retry.Attempts = 1000
	b.deliverAll(t, config("r"), relay.Sender{SenderConfig: c, Client: provider})
	require.Equal(t, map[string]int{"SENT": 250 - one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status <> 'SENT'`)}, b.statuses(t))
	require.Equal(t, len(provider.all())-250, one[int](t, b, `SELECT count(*) FROM belfry.attempts WHERE outcome = 'unknown'`))
}

// A medium or platform without a sender here waits for a relay that has one.
func TestRelay_NoSenderDefers(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.job(t, "default", 1, 10)
	ios := settings("apns", "push")
	ios.Platforms = []string{"ios"}
	provider, began := &script{}, one[time.Time](t, b, `SELECT now()`)
	stats := b.drain(t, config("r"), relay.Sender{SenderConfig: ios, Client: provider})
	require.Equal(t, map[string]int{"SENT": 5, "PENDING no_sender": 5}, b.statuses(t))
	require.EqualValues(t, 5, stats.Deferred)
	for _, c := range provider.all() {
		require.Equal(t, "ios", c.Platform)
	}
	require.True(t, one[bool](t, b, `SELECT bool_and(attempts = 0 AND next_attempt_at > $1::timestamptz + interval '8 s') FROM belfry.messages WHERE status = 'PENDING'`, began))
}

// What the composer refuses and defers is settled with its reason, and not sent.
func TestRelay_RefusedAndDeferredAreNotSent(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	id := b.job(t, "default", 1, 4, "push", "sms")
	b.exec(t, `INSERT INTO belfry.opt_outs (channel_id) VALUES (1)`)
	b.exec(t, `INSERT INTO belfry.opt_outs (channel_id, medium) VALUES (2, 'push')`)
	b.exec(t, `UPDATE belfry.channels SET addresses = '{}' WHERE id = 3`)
	first, second := &script{}, &script{}
	stats := b.drain(t, config("r"), push(first), sms(second))
	require.Equal(t, map[string]int{"CANCELLED opted_out": 1, "DEAD no_address": 1, "SENT": 2}, b.statuses(t))
	require.Len(t, first.all(), 1)
	require.Len(t, first.of(id, 4), 1)
	require.Len(t, second.all(), 1)
	require.Len(t, second.of(id, 2), 1)
	require.EqualValues(t, 1, stats.Refused)
	require.EqualValues(t, 1, stats.Dead)
	require.Len(t, stats.DeadBy, 1)
}

// A receipt that is due again before its result is recorded is recorded, and counted, once.
func TestRelay_CountsAReceiptOnce(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{1, 1, 0, 1}, relay.Learned(outbox.Settlement{Claimed: outbox.Claimed{Key: outbox.Key{JobID: 1, ChannelID: 2}}, To: outbox.Sent}))
}

// poison is a composer that PostgreSQL refuses one channel to.
type poison struct{ relay.Composer }

func (p poison) Compose(ctx context.Context, claimed []outbox.Claimed) ([]outbox.Composed, error) {
	for _, c := range claimed {
		if c.ChannelID == 77 {
			return nil, fmt.Errorf("compose: %w", &pgconn.PgError{Code: "22P02"})
		}
	}
	return p.Composer.Compose(ctx, claimed)
}

// A message that makes its whole batch fail to be composed is found, and ends alone.
func TestRelay_MessageThatCannotBeComposedEndsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	b.job(t, "default", 1, 200)
	r, err := relay.New(b.DB.Pool, poison{b.composer(t)}, config("r"), []relay.Sender{push(&script{})})
	require.NoError(t, err)
	_, err = r.Drain(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int{"SENT": 199, "DEAD bad_content": 1}, b.statuses(t))
}

// Hundreds of jobs without a due message cost little, and hold up neither activities nor
// a job that has some.
func TestLong_RelayManyJobsWithoutDueMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	first := b.job(t, "default", 1, 1)
	b.past(t, `INSERT INTO belfry.jobs (id, type, category, title, lane, route, status, started_at, finished_at, fence, requested_by, bound, "cursor")
		SELECT nextval('belfry.jobs_id_seq'), type, category, title, lane, route, status, started_at, finished_at, fence, requested_by, bound, "cursor" FROM belfry.jobs, generate_series(1, 300) WHERE id = $1`, first)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT id, 1, now() + interval '1 day' FROM belfry.jobs WHERE id <> $1`, first)
	run := b.start(t, config("r"), []relay.Sender{push(&script{})})
	activity, last := b.activity(t, 2), b.job(t, "default", 1, 100)
	b.eventually(t, `SELECT status = 'SENT' FROM belfry.messages WHERE job_id = $1`, activity)
	b.eventually(t, `SELECT count(*) = 100 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, last)
	run.end(t)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING'`))
}

// Two relays that have different senders share a job: each message is sent by the one
// that can, wherever its route or its channel's preferences take it, and neither gets in the
// other's way.
func TestRelay_TwoWithDifferentSenders(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	b.exec(t, `INSERT INTO belfry.opt_outs (channel_id, medium) SELECT g, 'push' FROM generate_series(1, 20) g`)
	id := b.job(t, "default", 1, 300, "push", "sms")
	b.job(t, "other", 1, 300, "sms")
	b.exec(t, `INSERT INTO belfry.activities (channel_id, title, route) SELECT g, 'a like', '{sms}' FROM generate_series(21, 30) g`)
	pushes, texts := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		return sender.Result{Class: map[bool]sender.Class{true: sender.Permanent, false: sender.Accepted}[d.ChannelID > 290]}
	}}, &script{}
	a := b.start(t, config("a"), []relay.Sender{push(pushes)})
	b.eventually(t, `SELECT count(*) = 30 FROM belfry.messages WHERE job_id = $1 AND status = 'PENDING' AND step = 1`, id)
	require.Len(t, pushes.all(), 280)
	require.Empty(t, texts.all())
	z := b.start(t, config("z"), []relay.Sender{sms(texts)})
	b.eventually(t, `SELECT bool_and(status = 'SENT') FROM belfry.messages`)
	first, second := a.Stats(), z.Stats()
	a.end(t)
	z.end(t)
	require.Len(t, texts.all(), 340)
	require.EqualValues(t, 300, first.Claimed)
	require.EqualValues(t, 340, second.Claimed)
	require.Equal(t, 20, one[int](t, b, `SELECT count(*) FROM belfry.attempts WHERE job_id = $1 AND medium = 'push' AND outcome = 'refused' AND reason = 'opted_out'`, id))
}
