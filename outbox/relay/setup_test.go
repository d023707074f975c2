package relay_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

func TestMain(m *testing.M) { outboxtest.Main(m, equip) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

// bundle is one test's database, with n channels of the ids 1 to n.
type bundle struct {
	*outboxtest.Database
}

// setup gives relay and test four connections, where a relay alone would take nine: it waits
// for them. What is about many at once takes setupOn with a database of dbtest.New.
func setup(t testing.TB, n int) *bundle {
	t.Helper()
	return setupOn(t, dbtest.Reused(t, 4), n)
}

func setupOn(t testing.TB, db *dbtest.DB, n int) *bundle {
	t.Helper()
	return &bundle{outboxtest.NewDatabase(t, db, n)}
}

// exec executes a statement.
func (b *bundle) exec(t require.TestingT, sql string, args ...any) { b.Exec(t, sql, args...) }

// past executes a statement past the triggers.
func (b *bundle) past(t require.TestingT, sql string, args ...any) {
	dbtest.Past(t, b.DB.Pool, sql, args...)
}

// one reads a single value.
func one[T any](t require.TestingT, b *bundle, sql string, args ...any) T {
	return outboxtest.One[T](t, b.Database, sql, args...)
}

// eventually waits until the query, a condition, is true.
func (b *bundle) eventually(t require.TestingT, sql string, args ...any) {
	b.Eventually(t, sql, args...)
}

// job makes a job at rest that has written messages to the channels from to to.
func (b *bundle) job(t require.TestingT, lane string, from, to int, route ...string) int64 {
	return b.Job(t, lane, from, to, 0, route...)
}

// running makes a job that is RUNNING, as far as anybody can see, with such messages.
func (b *bundle) running(t require.TestingT, lane string, from, to int, route ...string) int64 {
	id := b.job(t, lane, from, to, route...)
	b.past(t, `UPDATE belfry.jobs SET status = 'RUNNING', finished_at = NULL, walked_at = NULL, runner = 'r', heartbeat_at = now() WHERE id = $1`, id)
	return id
}

// expire lets all leases run out.
func (b *bundle) expire(t require.TestingT) {
	b.exec(t, `UPDATE belfry.leases SET expires_at = now() - interval '1 second'`)
}

// activity makes a message to one channel.
func (b *bundle) activity(t require.TestingT, channel int) int64 { return b.Activity(t, channel, 0) }

// statuses counts messages by status and reason, as "DEAD permanent".
func (b *bundle) statuses(t require.TestingT) map[string]int {
	rows, err := b.DB.Pool.Query(context.Background(), `SELECT concat_ws(' ', status, nullif(reason, '')), count(*) FROM belfry.messages GROUP BY 1`)
	require.NoError(t, err)
	counts := make(map[string]int)
	var status string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&status, &n}, func() error {
		counts[status] = n
		return nil
	})
	require.NoError(t, err)
	return counts
}

// record lists what was tried for a job's messages, in order, as "1 push 0/1 permanent".
func (b *bundle) record(t require.TestingT, job int64) []string {
	rows, err := b.DB.Pool.Query(context.Background(), `SELECT format('%s %s %s/%s %s', channel_id, medium, step, attempt, outcome)
		FROM belfry.attempts WHERE job_id = $1 ORDER BY channel_id, id`, job)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

// config is that of a test's relay.
func config(name string) relay.Config {
	c := relay.DefaultConfig()
	c.Name = name
	c.PollInterval = 20 * time.Millisecond
	c.Lease = 3 * patience // by b.expire only
	c.StatementTimeout, c.GracePeriod = patience, patience
	c.Listen = false // tests write messages past what wakes a relay
	c.Receipts = relay.ReceiptConfig{Interval: 100 * time.Millisecond, Limit: time.Hour}
	return c
}

// settings are those of a test's sender: retries at once, no breaker, and no job that is aborted.
func settings(name, medium string) relay.SenderConfig {
	c := relay.DefaultSenderConfig()
	c.Name, c.Medium = name, medium
	c.Timeout = patience
	c.Retry = relay.RetryConfig{Attempts: 3, Policy: relay.Exponential, Initial: time.Millisecond, Max: 2 * time.Millisecond}
	c.Breaker.Failures, c.AbortAfter = 0, 0
	return c
}

// handOver records that messages are handed over.
func handOver(t testing.TB, l *outbox.Ledger, claimed []outbox.Claimed) {
	t.Helper()
	_, err := l.HandOver(t.Context(), claimed, nil)
	require.NoError(t, err)
}

// script is a sender that a test controls and that records its calls.
type script struct {
	max    int
	answer func(ctx context.Context, d sender.Delivery) sender.Result // nil: accepted

	mu    sync.Mutex
	calls []called
}

// called is one delivery of a call.
type called struct {
	sender.Delivery
	at time.Time
}

func (s *script) MaxBatch() int { return max(1, s.max) }

func (s *script) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	now := time.Now()
	s.mu.Lock()
	for _, d := range batch {
		s.calls = append(s.calls, called{d, now})
	}
	s.mu.Unlock()
	results := make([]sender.Result, len(batch))
	for i, d := range batch {
		results[i] = sender.Result{Class: sender.Accepted}
		if s.answer != nil {
			results[i] = s.answer(ctx, d)
		}
	}
	return results
}

func (s *script) all() []called {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// of are the calls for one message.
func (s *script) of(job, channel int64) (list []called) {
	for _, c := range s.all() {
		if c.JobID == job && c.ChannelID == channel {
			list = append(list, c)
		}
	}
	return list
}

// always answers every call alike.
func always(r sender.Result) func(context.Context, sender.Delivery) sender.Result {
	return func(context.Context, sender.Delivery) sender.Result { return r }
}

// running is a Run in a goroutine of its own.
type running struct {
	*relay.Relay
	stop  context.CancelFunc // the soft stop
	ended chan error
}

func (b *bundle) relay(t require.TestingT, c relay.Config, senders []relay.Sender, options ...relay.Option) *relay.Relay {
	r, err := relay.New(b.DB.Pool, b.composer(t), c, senders, options...)
	require.NoError(t, err)
	return r
}

// start runs a relay until the test ends, or stops it.
func (b *bundle) start(t *testing.T, c relay.Config, senders []relay.Sender, options ...relay.Option) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	run := &running{Relay: b.relay(t, c, senders, options...), stop: stop, ended: make(chan error, 1)}
	go func() {
		err := run.Run(ctx)
		run.ended <- err
		close(run.ended)
	}()
	t.Cleanup(func() { run.end(t) })
	return run
}

// end stops a relay softly and waits for its end.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "the relay does not end")
	}
}

// drain delivers what is due.
func (b *bundle) drain(t *testing.T, c relay.Config, senders ...relay.Sender) relay.Stats {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stats, err := b.relay(t, c, senders).Drain(ctx)
	require.NoError(t, err)
	require.NoError(t, ctx.Err(), "the drain did not end by itself")
	return stats
}

// push is a sender of medium push.
func push(s *script) relay.Sender {
	return relay.Sender{SenderConfig: settings("fcm", "push"), Client: s}
}

// sms is a sender of medium sms.
func sms(s *script) relay.Sender {
	return relay.Sender{SenderConfig: settings("sms", "sms"), Client: s}
}

func (b *bundle) composer(t require.TestingT) relay.Composer {
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	c, err := compose.New(b.DB.Pool, who, compose.DefaultConfig(), nil)
	require.NoError(t, err)
	return c
}

// gate holds a relay at its first arrival at a point, whatever its context says, like a
// process that is stopped, until the gate is opened.
type gate struct {
	point   string
	once    sync.Once
	reached chan struct{}
	opened  chan struct{}
	open    func()
}

func newGate(t *testing.T, point string) *gate {
	t.Helper()
	g := &gate{point: point, reached: make(chan struct{}), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	t.Cleanup(g.open)
	return g
}

func (g *gate) at(_ context.Context, point string) error {
	if point == g.point {
		g.once.Do(func() {
			close(g.reached)
			<-g.opened
		})
	}
	return nil
}

// stop is at, and holds every other step as well that comes after it, like a process that
// is stopped as a whole.
func (g *gate) stop(ctx context.Context, point string) error {
	select {
	case <-g.reached:
		<-g.opened
	default:
	}
	return g.at(ctx, point)
}

func (g *gate) await(t *testing.T) {
	t.Helper()
	receive(t, g.reached)
}

// receive waits for a signal.
func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
	}
	return v
}

// hang answers nothing until its context ends, and says so.
func hang(ctx context.Context, _ sender.Delivery) sender.Result {
	<-ctx.Done()
	return sender.Result{Class: sender.Unknown, Code: "timeout"}
}

// pass lets the time of a bubble pass.
func pass(d time.Duration) { <-time.After(d) }
