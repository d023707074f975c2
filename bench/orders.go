package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox/relay"
)

const (
	clients  = 4
	arrivals = 400 // transactions a second
)

// kind is what a transaction writes.
type kind int

const (
	alone kind = iota // the order
	two               // the order and its message, a statement each
	one               // both in one statement
	kinds
)

// orders has four clients write orders, by lot with or without a message, while a relay
// delivers the messages to a provider that hangs.
func orders(ctx context.Context, e *env, r *result) {
	e.do(ctx, e.pool, queries.outboxEmpty, queries.jobsEmpty, queries.ordersCreate)
	e.checkpoint(ctx)
	sender := relay.DefaultSenderConfig()
	delivering := e.newRelay(e.connect(ctx, e.dsn, application, nil), provider{hangs: true}, sender.Concurrency)
	_, stop := e.start(ctx, delivering.Run)
	took, err := e.arrive(ctx)
	stop()
	e.check(err)
	for _, p := range []float64{50, 95, 99} {
		r.figure(fmt.Sprintf("alone_p%.0f", p), fmt.Sprintf("the order alone, p%.0f", p), percentile(took[alone], p), unitMS)
		r.figure(fmt.Sprintf("two_p%.0f", p), fmt.Sprintf("and its message, p%.0f", p), percentile(took[two], p), unitMS)
		r.figure(fmt.Sprintf("one_p%.0f", p), fmt.Sprintf("both in one statement, p%.0f", p), percentile(took[one], p), unitMS)
	}
	p99 := percentile(took[alone], 99)
	r.figure("two_p99_ratio", "p99, two statements to alone", percentile(took[two], 99)/p99, unitRatio, atMost(1.1))
	r.figure("one_p99_ratio", "p99, one statement to alone", percentile(took[one], 99)/p99, unitRatio, atMost(1.1))
	r.note("%d, %d and %d transactions, %d arrivals a second by %d clients; the relay made calls that hung for %s each and settled %d attempts as unknown.",
		len(took[alone]), len(took[two]), len(took[one]), arrivals, clients, sender.Timeout, delivering.Stats().Ambiguous)
}

// arrive runs the transactions at a steady rate and returns what each kind took, in ms.
func (e *env) arrive(ctx context.Context) (took [kinds][]float64, err error) {
	var mu sync.Mutex
	began := time.Now()
	running, ctx := errgroup.WithContext(ctx)
	for client := range int64(clients) {
		running.Go(func() error {
			lot := rand.New(rand.NewPCG(1, uint64(client)))
			conn, err := pgx.Connect(ctx, e.dsn)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			for n := client; n < int64(kinds)*e.orders; n += clients {
				if err := lifecycle.Pause(ctx, time.Until(began.Add(time.Duration(n)*time.Second/arrivals))); err != nil {
					return err
				}
				k := kind(lot.IntN(int(kinds)))
				start := time.Now()
				if err := order(ctx, conn, 1+lot.Int64N(e.messages), k); err != nil {
					return err
				}
				elapsed := milliseconds(time.Since(start))
				mu.Lock()
				took[k] = append(took[k], elapsed)
				mu.Unlock()
			}
			return nil
		})
	}
	return took, running.Wait()
}

// order is the application's transaction.
func order(ctx context.Context, conn *pgx.Conn, customer int64, k kind) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		args := pgx.StrictNamedArgs{"customer": customer, "cents": customer % 10_000, "items": `[{"sku": "A-1", "count": 1}]`}
		if k == one {
			_, err := tx.Exec(ctx, queries.orderAndActivityInsert, args)
			return err
		}
		_, err := tx.Exec(ctx, queries.orderInsert, args)
		if err == nil && k == two {
			_, err = tx.Exec(ctx, queries.activityInsert, pgx.StrictNamedArgs{"customer": customer})
		}
		return err
	})
}
