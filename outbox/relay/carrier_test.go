package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

var errAway = errors.New("the carrier is away")

// capacity is what a queue of a test's carrier holds.
const capacity = 100

// A carrier in memory, with the claim by key and the dispatcher that all carriers have.
func TestLong_CarrierIsATransport(t *testing.T) {
	t.Parallel()
	outboxtest.Exercise(t, inMemory)
}

func TestCarrier_IsATransport(t *testing.T) {
	t.Parallel()
	outboxtest.Sample(t, inMemory)
}

func inMemory(t testing.TB) *outboxtest.Subject {
	t.Helper()
	memory := outboxtest.NewMemory(capacity)
	return setup(t, 200).Carried(t, memory, outboxtest.CarrierSubject{
		Copies: func(testing.TB) int { return memory.Copies() }, Capacity: capacity,
		Forget: func(testing.TB) { memory.Forget() },
		Lose:   func(_ testing.TB, keys []outbox.Key) { memory.Lose(keys) },
	})
}

// carrying is a relay's config on a carrier.
func carrying(name string) relay.Config {
	c := config(name)
	c.Batch, c.MaxInFlight = capacity/4, capacity
	return c
}

// emptied waits until a carrier has no copy left: what is delivered leaves it right after.
func emptied(t *testing.T, memory *outboxtest.Memory) {
	t.Helper()
	require.Eventually(t, func() bool { return memory.Copies() == 0 }, patience, time.Millisecond)
}

// on has a relay receive from a carrier.
func on(memory *outboxtest.Memory, requeueAfter time.Duration) relay.Option {
	return relay.WithBroker(memory, requeueAfter)
}

// I8, I10: relays on a carrier deliver every message with one call, jobs of all lanes and
// activities, those that are tried again and those that are pushed while the carrier is full.
func TestLong_CarrierDeliversThroughRealRelays(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 500), outboxtest.NewMemory(capacity)
	for _, lane := range []string{"a", "b", "a"} {
		b.job(t, lane, 1, 400)
	}
	s := &script{}
	var tried sync.Map
	s.answer = func(_ context.Context, d sender.Delivery) sender.Result {
		if _, again := tried.LoadOrStore(fmt.Sprint(d.JobID, "/", d.ChannelID), true); !again && d.ChannelID%50 == 0 {
			return sender.Result{Class: sender.Retryable, Code: "503"}
		}
		return sender.Result{Class: sender.Accepted}
	}
	for _, name := range []string{"r1", "r2"} {
		b.start(t, carrying(name), []relay.Sender{push(s)}, on(memory, time.Minute))
	}
	for i := range 30 {
		b.activity(t, i+1)
	}
	b.Delivered(t)
	require.Len(t, s.all(), 3*400+30+3*8)
	emptied(t, memory)
	require.Equal(t, 3*400+30, memory.Pushed(), "all went through the carrier")
}

// A relay that dies between the COMMIT of a push and the hand-over leaves it to the next one.
func TestLong_CarrierDispatcherDiesBeforeItHandsOver(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 100), outboxtest.NewMemory(capacity)
	b.job(t, "default", 1, 100)
	g, s := newGate(t, relay.PointPush), &script{}
	b.start(t, carrying("r1"), []relay.Sender{push(s)}, on(memory, time.Hour), relay.WithFailpoint(g.at))
	defer g.open() // it wakes up, and pushes what has long been pushed
	g.await(t)
	require.Equal(t, map[string]int{"PENDING": 75, "QUEUED": 25}, b.statuses(t))
	require.Zero(t, memory.Copies())
	b.exec(t, `UPDATE belfry.queues SET leads_until = now() - interval '1 second'`)
	b.start(t, carrying("r2"), []relay.Sender{push(s)}, on(memory, time.Hour))
	b.Delivered(t)
	require.Len(t, s.all(), 100)
}

// I10: what a crash of the server has made QUEUED again while a relay had it in flight is found by
// the copy that the relay has, and does not wait for the sweep.
func TestCarrier_PutsBackWhatIsNotItsRelaysAnyMore(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 20), outboxtest.NewMemory(capacity)
	id := b.job(t, "default", 1, 20)
	g, s := newGate(t, relay.PointHandOver), &script{}
	b.start(t, carrying("r1"), []relay.Sender{push(s)}, on(memory, time.Hour), relay.WithFailpoint(g.stop))
	g.await(t)
	b.exec(t, `WITH ended AS (DELETE FROM belfry.leases), keys AS (SELECT array_agg(channel_id) AS channels, array_agg(ctid) AS tids FROM belfry.message_rows WHERE job_id = $1)
		UPDATE belfry.pushes SET channel_ids = keys.channels, tids = keys.tids FROM keys`, id)
	g.open()
	b.Delivered(t)
	require.Len(t, s.all(), 20)
	emptied(t, memory)
}

// A relay on a carrier rests while nothing comes out of it, and works when something does.
func TestLong_CarrierRelayRestsOnOne(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	c := carrying("r1")
	c.Listen = true
	s := &script{}
	run := b.start(t, c, []relay.Sender{push(s)}, on(outboxtest.NewMemory(capacity), time.Hour))
	rests(t, run)
	b.job(t, "default", 1, 1)
	b.exec(t, `NOTIFY belfry_messages`)
	b.Delivered(t)
	rests(t, run)
}

// A relay with a short lease that dies keeps the others from pushing for no longer.
func TestCarrier_LeadIsNoLongerThanTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	c := carrying("r1")
	c.Lease, c.StatementTimeout = 20*time.Second, 5*time.Second
	b.start(t, c, []relay.Sender{push(&script{})}, on(outboxtest.NewMemory(capacity), time.Hour))
	b.eventually(t, `SELECT count(*) = 2 FROM belfry.queues`)
	require.LessOrEqual(t, one[float64](t, b, `SELECT extract(epoch FROM max(leads_until - clock_timestamp()))::float8 FROM belfry.queues`), 20.0)
}

// I10: whatever of its memory a carrier loses while relays work, and whatever the database
// loses of what the carrier knows: every message is called for once.
func TestLong_CarrierForgetsInTheMiddle(t *testing.T) {
	t.Parallel()
	const n = 300
	for how, forget := range map[string]func(t *testing.T, b *bundle, m *outboxtest.Memory){
		"all of it": func(_ *testing.T, _ *bundle, m *outboxtest.Memory) { m.Forget() },
		"the last pushes": func(_ *testing.T, _ *bundle, m *outboxtest.Memory) {
			m.Rewind(outbox.Bulk, 2)
		},
		"the database its last pushes": func(t *testing.T, b *bundle, _ *outboxtest.Memory) {
			t.Helper()
			b.exec(t, `UPDATE belfry.message_rows SET status = 'PENDING', push = NULL, lease_id = NULL WHERE status = 'QUEUED' AND push > 2`)
			b.exec(t, `UPDATE belfry.job_claims c SET claimed_to = (SELECT max(m.channel_id) FROM belfry.message_rows m WHERE m.job_id = c.job_id AND m.push <= 2)`)
			b.exec(t, `DELETE FROM belfry.pushes WHERE queue = 'bulk' AND number > 2`)
			b.exec(t, `ALTER TABLE belfry.queues DISABLE TRIGGER queues_number`)
			b.exec(t, `UPDATE belfry.queues SET last_push = 2 WHERE name = 'bulk'`)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b, memory := setup(t, n), outboxtest.NewMemory(n)
			b.job(t, "default", 1, n)
			stop := b.Dispatch("r1", b.Carrier(t, memory, "r1"), capacity/4, time.Hour)
			b.eventually(t, `SELECT count(*) = $1 FROM belfry.messages WHERE status = 'QUEUED'`, n)
			require.Eventually(t, func() bool { return memory.Copies() == n }, patience, time.Millisecond)
			stop()
			forget(t, b, memory)
			s, w := &script{}, newWatcher()
			b.start(t, carrying("r1"), []relay.Sender{push(s)}, on(memory, time.Hour), relay.WithObserver(w))
			b.Delivered(t)
			require.Len(t, s.all(), n)
			_, _, rebuilt := w.said()
			require.Equal(t, how != "the last pushes", rebuilt[outbox.Bulk] > 0, "a new epoch is a rebuild")
		})
	}
}

// I13: of a queue that is full one push is QUEUED and waits, and the rest stays PENDING.
func TestCarrier_FullStopsItsQueue(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 400), outboxtest.NewMemory(capacity)
	b.job(t, "default", 1, 400)
	stop := b.Dispatch("r1", b.Carrier(t, memory, "r1"), capacity/4, time.Hour)
	defer func() { stop() }()
	b.eventually(t, `SELECT count(*) > $1 FROM belfry.messages WHERE status = 'QUEUED'`, capacity)
	for channel := range 5 { // the dispatcher goes on
		id := b.activity(t, channel+1)
		b.eventually(t, `SELECT status = 'QUEUED' FROM belfry.messages WHERE job_id = $1`, id)
	}
	require.Equal(t, capacity+capacity/4, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'QUEUED' AND job_id > 0`))
}

// A long backlog is not pushed again, however old it is; what is lost of it is.
func TestCarrier_SweepsWhatIsLostAndNoBacklog(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 100), outboxtest.NewMemory(capacity)
	id := b.job(t, "default", 1, 100)
	lost := b.job(t, "default", 1, 0)
	carrier := &swept{Carrier: b.Carrier(t, memory, "r1")}
	stop := b.Dispatch("r1", carrier, capacity/4, 50*time.Millisecond)
	defer func() { stop() }()
	b.eventually(t, `SELECT count(*) = 100 FROM belfry.messages WHERE status = 'QUEUED'`)
	b.eventually(t, `SELECT bool_and(made_at < now() - interval '50 milliseconds') FROM belfry.pushes`) // old enough
	carrier.sweeps(t, 4)
	require.Equal(t, 4, one[int](t, b, `SELECT max(push) FROM belfry.messages`), "none was pushed again")

	// The first push has left the carrier but for two copies that it has lost.
	first := b.Carrier(t, memory, "r1")
	claimed, err := first.Receive(t.Context(), &room{25})
	require.NoError(t, err)
	require.Len(t, claimed, 25)
	ledger := outbox.NewLedger(b.DB.Pool, "r1", time.Hour)
	var record []outbox.Settlement
	for _, c := range claimed {
		record = append(record, outbox.Settlement{Claimed: c, To: outbox.Sent, NextAttempts: 1, Sender: "fcm"})
	}
	_, err = ledger.Settle(t.Context(), record, nil)
	require.NoError(t, err)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, push) VALUES ($1, 1, now(), 'QUEUED', 1), ($1, 2, now(), 'QUEUED', 1)`, lost)
	b.past(t, `UPDATE belfry.jobs SET delivered_at = NULL WHERE id = $1`, lost)
	carrier.sweeps(t, 4)
	require.Equal(t, 2, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE push = 1 AND status = 'QUEUED'`), "what is claimed and not settled is inside")
	var outcomes []outbox.Settled
	for _, r := range record {
		outcomes = append(outcomes, outbox.Settled{Key: r.Key, Status: outbox.Sent})
	}
	require.NoError(t, first.Settled(t.Context(), outcomes))
	b.eventually(t, `SELECT count(*) = 2 FROM belfry.messages WHERE job_id = $1 AND (status = 'PENDING' OR push = 5)`, lost)
	require.Equal(t, 75, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE job_id = $1 AND push BETWEEN 2 AND 4 AND status = 'QUEUED'`, id))
}

// swept counts how often a dispatcher asks for what is inside: at first, and with each sweep.
type swept struct {
	outbox.Carrier

	asked atomic.Int64
}

func (s *swept) Inside(ctx context.Context, q outbox.Queue) (outbox.Inside, error) {
	s.asked.Add(1)
	return s.Carrier.Inside(ctx, q)
}

// sweeps waits until both queues were swept n times more, whole.
func (s *swept) sweeps(t *testing.T, n int64) {
	t.Helper()
	from := s.asked.Load()
	require.Eventually(t, func() bool { return s.asked.Load() > from+2*(n+1) }, patience, time.Millisecond)
}

// room are fixed credits.
type room struct{ n int }

func (r *room) Activities() int            { return r.n }
func (r *room) Bulk() int                  { return r.n }
func (r *room) Job(int64, string, int) int { return r.n }
func (*room) Idle() bool                   { return true }
func (*room) Changed() <-chan struct{}     { return nil }

// While a carrier is down nothing is called, which is said once; when it is back, all goes on.
func TestCarrier_PausesWhileItIsDown(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 100), outboxtest.NewMemory(capacity)
	s, log := &script{}, &dbtest.Buffer{}
	memory.Fail(errAway)
	b.start(t, carrying("r1"), []relay.Sender{push(s)}, on(memory, time.Hour), relay.WithLogger(zerolog.New(log)))
	b.job(t, "default", 1, 100)
	const pushes, claims = "messages are not handed to the carrier", "messages are not taken out of the carrier"
	require.Eventually(t, func() bool { return strings.Contains(log.String(), pushes) && strings.Contains(log.String(), claims) }, patience, time.Millisecond)
	require.Empty(t, s.all())
	memory.Fail(nil)
	b.Delivered(t)
	require.Len(t, s.all(), 100)
	require.Equal(t, 1, strings.Count(log.String(), pushes))
	require.Equal(t, 1, strings.Count(log.String(), claims))
}

// deaf is a carrier that accepts no recorded outcome.
type deaf struct {
	*outboxtest.Memory
	settled *atomic.Int32
}

func (d deaf) Carrier(name string, claim outbox.Claim) outbox.Carrier {
	return deafCarrier{d.Memory.Carrier(name, claim), d.settled}
}

type deafCarrier struct {
	outbox.Carrier
	settled *atomic.Int32
}

func (c deafCarrier) Settled(ctx context.Context, outcomes []outbox.Settled) error {
	c.settled.Add(1)
	return errors.Join(errAway, c.Carrier.Settled(ctx, outcomes))
}

// What a carrier does not accept is recorded all the same, and is logged once a minute.
func TestCarrier_OutcomesThatItDoesNotAcceptAreLoggedOnce(t *testing.T) {
	t.Parallel()
	b, log := setup(t, 100), &dbtest.Buffer{}
	carrier := deaf{outboxtest.NewMemory(capacity), new(atomic.Int32)}
	b.start(t, carrying("r1"), []relay.Sender{push(&script{})}, relay.WithBroker(carrier, time.Hour), relay.WithLogger(zerolog.New(log)))
	for carrier.settled.Load() < 3 {
		b.job(t, "default", 1, 100)
		b.Delivered(t)
	}
	require.Equal(t, 1, strings.Count(log.String(), "the transport did not accept recorded outcomes"))
}

// A job that is corrected while its ids are in the carrier says what it was corrected to.
func TestCarrier_DeliversWhatAQueuedJobWasCorrectedTo(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 50), outboxtest.NewMemory(capacity)
	id := b.job(t, "default", 1, 50)
	stop := b.Dispatch("r1", b.Carrier(t, memory, "r1"), capacity/4, time.Hour)
	b.eventually(t, `SELECT count(*) = 50 FROM belfry.messages WHERE status = 'QUEUED'`)
	stop()
	b.exec(t, `SELECT belfry.abort($1)`, id)
	s := &script{}
	b.start(t, carrying("r2"), []relay.Sender{push(s)}, on(memory, time.Hour))
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status = 'QUEUED')`)
	require.Empty(t, s.all())
	b.exec(t, `SELECT belfry.resume_edited($1, '{"title": "corrected"}')`, id)
	b.Delivered(t)
	require.Len(t, s.all(), 50)
	for _, c := range s.all() {
		require.Equal(t, "corrected", c.Title)
	}
}
