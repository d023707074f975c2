package bench

import (
	"cmp"
	"context"
	"log/slog" //nolint:depguard // River takes no other logger, and this one discards
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	// calls is the concurrency of a sender that does nothing. The relay is the limit.
	calls = 1000
	// gcRelay is the garbage collector's target of `belfry relay`. River gets the same.
	gcRelay = 400
)

// BenchmarkDelivery measures the relay. Each channel gets one message of a push job.
func BenchmarkDelivery(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(gcRelay))
	e := open(b, cmp.Or(*messageCount, size[int64](1_000_000, 2000)), true)
	e.run("river", (*env).river)
	e.run("stock", (*env).stock)
	e.run("claims", (*env).claims)
	e.run("orders", (*env).orders)
	e.run("carriers", (*env).carriers)
	e.run("due", (*env).due)
}

// provider is a client that accepts all messages at once.
type provider struct {
	hangs  bool           // never answers
	called chan time.Time // receives the time of each call; nil is not used
}

// MaxBatch implements sender.Sender.
func (provider) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (p provider) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	result := sender.Result{Class: sender.Accepted}
	if p.hangs {
		<-ctx.Done()
		result = sender.Result{Class: sender.Unknown, Code: "timeout"}
	}
	if p.called != nil {
		select {
		case p.called <- time.Now():
		case <-ctx.Done():
		}
	}
	return slices.Repeat([]sender.Result{result}, len(batch))
}

// newRelay returns a relay with one sender and default settings. Without a broker it
// uses PostgreSQL alone.
func newRelay(pool *pgxpool.Pool, store *channels.Store, client sender.Sender, calls int, broker outbox.Broker) *relay.Relay {
	config := relay.DefaultSenderConfig()
	config.Name, config.Medium, config.Concurrency = "bench", "push", calls
	var options []relay.Option
	if broker != nil {
		options = append(options, relay.WithBroker(broker, outbox.RequeueAfter))
	}
	composer := must(compose.New(pool, store, compose.DefaultConfig(), nil))
	return must(relay.New(pool, composer, relay.DefaultConfig(), []relay.Sender{{SenderConfig: config, Client: client}}, options...))
}

// deliver writes the messages of push jobs to everyone and lets a relay deliver them.
// It calls before when they are written.
func (e *env) deliver(jobs int, before func()) (speed float64, claims []float64) {
	messages := e.writeMessages(jobs)
	before()
	e.checkpoint()
	traced := &tracer{}
	pool := e.connect(e.dsn, traced)
	defer pool.Close()
	r := newRelay(pool, e.store, provider{}, calls, nil)
	began := time.Now()
	running, stop := e.start(r.Run)
	for r.Stats().Sent < messages {
		require.NoError(e, lifecycle.Pause(running, 2*time.Millisecond))
	}
	speed = perSecond(messages, time.Since(began))
	stop()
	e.requireSent(messages)
	return speed, traced.claims
}

// writeMessages writes the messages of push jobs to everyone, one at least, and returns their number.
func (e *env) writeMessages(jobs int) (messages int64) {
	e.clear()
	if !e.keeps {
		e.do(queries.jobsEmpty)
	}
	e.first = e.enqueue(everyone(outbox.TypePush))
	for range jobs - 1 {
		e.enqueue(everyone(outbox.TypePush))
	}
	e.runDue(e.Context(), ungoverned())
	e.do(queries.messagesVacuum)
	e.checkpoint()
	return int64(jobs) * e.active
}

// requireSent counts the messages of writeMessages.
func (e *env) requireSent(messages int64) {
	var sent, all int64
	e.read(queries.messagesSent, pgx.StrictNamedArgs{"first": e.first}, &sent, &all)
	require.Equal(e, []int64{messages, messages}, []int64{sent, all}, "sent messages, all messages")
}

// river compares the relay with River, in a database each.
func (e *env) river() {
	pool := e.connect(e.database(), nil)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(e, err)
	_, err = migrator.Migrate(e.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(e, err)
	speeds := sideBySide(
		func() float64 { speed, _ := e.deliver(1, func() {}); return speed },
		func() float64 { return e.riverRound(pool) })
	e.report(speeds[0], "messages/s")
	e.report(speeds[1], "river-jobs/s")
	e.report(speeds[0]/speeds[1], "to-river", atLeast(2))
}

// noArgs are the arguments of a job without work, like in River's own benchmark.
type noArgs struct {
	Num int `json:"num"`
}

// Kind implements river.JobArgs.
func (noArgs) Kind() string { return "benchmark" }

// riverRound lets River work as many jobs as a round has messages and returns jobs/s.
func (e *env) riverRound(pool *pgxpool.Pool) float64 {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[noArgs]) error { return nil }))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}}, Workers: workers,
	})
	require.NoError(e, err)
	for params := range slices.Chunk(make([]river.InsertManyParams, e.active), 5000) {
		for i := range params {
			params[i].Args = noArgs{Num: i}
		}
		_, err := client.InsertMany(e.Context(), params)
		require.NoError(e, err)
	}
	_, err = pool.Exec(e.Context(), queries.riverVacuum)
	require.NoError(e, err)
	e.checkpoint()
	done, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 75_000, Kinds: []river.EventKind{
		river.EventKindJobCancelled, river.EventKindJobCompleted, river.EventKindJobFailed,
	}})
	defer cancel()
	began := time.Now()
	require.NoError(e, client.Start(e.Context()))
	for range e.active {
		event := receive(e.Context(), e, done)
		require.Equal(e, river.EventKindJobCompleted, event.Kind)
	}
	took := time.Since(began)
	require.NoError(e, client.Stop(e.Context()))
	var completed int64
	require.NoError(e, pool.QueryRow(e.Context(), queries.riverCompleted).Scan(&completed))
	require.Equal(e, e.active, completed)
	return perSecond(e.active, took)
}

// stock compares the relay on a stock server with the relay on belfry's tuned private server.
func (e *env) stock() {
	if os.Getenv("BELFRY_DATABASE_URL") != "" {
		e.Skip("compares two private servers; unset BELFRY_DATABASE_URL")
	}
	tuned := open(e.B, e.size, false)
	speeds := sideBySide(
		func() float64 { speed, _ := e.deliver(1, func() {}); return speed },
		func() float64 { speed, _ := tuned.deliver(1, func() {}); return speed })
	e.report(speeds[0]/speeds[1], "to-tuned", atLeast(0.95))
}

// claims compares a relay's last claims with its first ones, without and with a
// transaction that holds back vacuum.
func (e *env) claims() {
	lastToFirst := func(before func()) (ratio, last99 float64) {
		_, ms := e.deliver(2, before)
		first, last := tenths(ms)
		last99 = percentile(last, 99)
		return last99 / percentile(first, 99), last99
	}
	free, freeLast := lastToFirst(func() {})
	tx, err := e.pool.BeginTx(e.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(e, err)
	defer func() { require.NoError(e, tx.Rollback(context.WithoutCancel(e.Context()))) }()
	held, heldLast := lastToFirst(func() {
		_, err := tx.Exec(e.Context(), queries.snapshotTake)
		require.NoError(e, err)
	})
	e.report(free, "p99-last-to-first", atMost(1.5))
	e.report(held, "held-p99-last-to-first", atMost(1.5))
	e.report(heldLast/freeLast, "held-to-free", atMost(1.5))
}

// orders compares an application's transaction that inserts an order with ones that
// insert its message, too, by a second statement or by the same one. Meanwhile a
// relay delivers the messages to a provider that never answers.
func (e *env) orders() {
	const clients, arrivals = 4, 400 // transactions a second
	e.do(queries.outboxEmpty, queries.jobsEmpty, queries.ordersCreate)
	e.checkpoint()
	delivering := newRelay(e.connect(e.dsn, nil), e.store, provider{hangs: true}, relay.DefaultSenderConfig().Concurrency, nil)
	_, stop := e.start(delivering.Run)
	defer stop()
	var took [4][]float64 // by kind: the order alone, two statements, one statement, two with belfry.notify
	var mu sync.Mutex
	began := time.Now()
	running, ctx := errgroup.WithContext(e.Context())
	for client := range clients {
		running.Go(func() error {
			conn, err := pgx.Connect(ctx, e.dsn)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			for n := client; n < size(60_000, 300); n += clients {
				if err := lifecycle.Pause(ctx, time.Until(began.Add(time.Duration(n)*time.Second/arrivals))); err != nil {
					return err
				}
				kind, start := rand.IntN(len(took)), time.Now()
				if err := order(ctx, conn, 1+rand.Int64N(e.size), kind); err != nil {
					return err
				}
				mu.Lock()
				took[kind] = append(took[kind], milliseconds(time.Since(start)))
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(e, running.Wait())
	alone := percentile(took[0], 99)
	e.report(alone, "alone-p99-ms")
	e.report(percentile(took[1], 99)/alone, "two-p99-to-alone", atMost(1.1))
	e.report(percentile(took[2], 99)/alone, "one-p99-to-alone", atMost(1.1))
	e.report(percentile(took[3], 50)/percentile(took[1], 50), "notify-p50-to-two", atMost(1.1))
	e.report(percentile(took[3], 99)/percentile(took[1], 99), "notify-p99-to-two", atMost(1.1))
}

// order is the application's transaction of a kind.
func order(ctx context.Context, conn *pgx.Conn, customer int64, kind int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		args := pgx.StrictNamedArgs{"customer": customer, "cents": customer % 10_000, "items": `[{"sku": "A-1", "count": 1}]`}
		if kind == 2 {
			_, err := tx.Exec(ctx, queries.orderAndActivityInsert, args)
			return err
		}
		_, err := tx.Exec(ctx, queries.orderInsert, args)
		switch {
		case err != nil || kind == 0:
		case kind == 1:
			_, err = tx.Exec(ctx, queries.activityInsert, pgx.StrictNamedArgs{"customer": customer})
		default:
			_, err = tx.Exec(ctx, queries.activityNotify, pgx.StrictNamedArgs{"customer": customer})
		}
		return err
	})
}
