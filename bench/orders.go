package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	goalOrders = 1.1 // times the p99 of the order alone
	clients    = 4
	arrivals   = 400 // transactions a second
)

// hanging is a provider that never answers.
type hanging struct{}

// MaxBatch implements sender.Sender.
func (hanging) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (hanging) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	<-ctx.Done()
	results := make([]sender.Result, len(batch))
	for i := range results {
		results[i] = sender.Result{Class: sender.Unknown, Code: "timeout"}
	}
	return results
}

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
func orders(ctx context.Context, e *env, r *bench.Result) (err error) {
	if err := e.fill(ctx); err != nil {
		return err
	}
	if err := e.do(ctx, e.pool, "OutboxEmpty", "JobsEmpty", "OrdersCreate", "ServerCheckpoint"); err != nil {
		return err
	}
	composer, err := compose.New(e.pool, e.who, compose.DefaultConfig(), nil)
	if err != nil {
		return err
	}
	to := relay.DefaultSenderConfig()
	to.Name, to.Medium = "hanging", "push"
	pool, err := e.connect(ctx, e.dsn, nil)
	if err != nil {
		return err
	}
	delivering, err := relay.New(pool, composer, relay.DefaultConfig(), []relay.Sender{{SenderConfig: to, Client: hanging{}}})
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- delivering.Run(working) }()
	took, err := e.arrive(ctx)
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 50}, {"p95", 95}, {"p99", 99}} {
		figure(r, "alone_"+p.name, "the order alone, "+p.name, percentile(took[alone], p.p), unitMS, nil)
		figure(r, "two_"+p.name, "and its message, "+p.name, percentile(took[two], p.p), unitMS, nil)
		figure(r, "one_"+p.name, "both in one statement, "+p.name, percentile(took[one], p.p), unitMS, nil)
	}
	figure(r, "two_p99_ratio", "p99, two statements to alone", percentile(took[two], 99)/percentile(took[alone], 99), unitRatio, atMost(goalOrders))
	figure(r, "one_p99_ratio", "p99, one statement to alone", percentile(took[one], 99)/percentile(took[alone], 99), unitRatio, atMost(goalOrders))
	stats := delivering.Stats()
	r.Notes = append(r.Notes, fmt.Sprintf("%d, %d and %d transactions, %d arrivals a second by %d clients; the relay made calls that hung for %s each and settled %d attempts as unknown.",
		len(took[alone]), len(took[two]), len(took[one]), arrivals, clients, to.Timeout, stats.Ambiguous))
	return nil
}

// arrive runs the transactions at a steady rate and returns what each kind took, in ms.
func (e *env) arrive(ctx context.Context) (took [kinds][]float64, err error) {
	var mu sync.Mutex
	var clientsDone sync.WaitGroup
	began := time.Now()
	for client := range clients {
		clientsDone.Go(func() {
			lot := rand.New(rand.NewPCG(1, uint64(client))) //nolint:gosec // a lot, not a secret
			conn, errOne := pgx.Connect(ctx, e.dsn)
			if errOne == nil {
				defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			}
			for n := client; errOne == nil && n < int(kinds)*e.orders; n += clients {
				if errOne = until(ctx, began.Add(time.Duration(n)*time.Second/arrivals)); errOne != nil {
					break
				}
				k := kind(lot.IntN(int(kinds)))
				start := time.Now()
				errOne = order(ctx, conn, 1+lot.Int64N(e.messages), k)
				elapsed := milliseconds(time.Since(start))
				mu.Lock()
				took[k] = append(took[k], elapsed)
				mu.Unlock()
			}
			mu.Lock()
			err = errors.Join(err, errOne)
			mu.Unlock()
		})
	}
	clientsDone.Wait()
	return took, err
}

// until waits for a moment.
func until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// order is the application's transaction.
func order(ctx context.Context, conn *pgx.Conn, customer int64, k kind) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		args := pgx.StrictNamedArgs{"customer": customer, "cents": customer % 10_000, "items": `[{"sku": "A-1", "count": 1}]`}
		if k == one {
			_, err := tx.Exec(ctx, queries.SQL("OrderAndActivityInsert"), args)
			return err
		}
		_, err := tx.Exec(ctx, queries.SQL("OrderInsert"), args)
		if err == nil && k == two {
			_, err = tx.Exec(ctx, queries.SQL("ActivityInsert"), pgx.StrictNamedArgs{"customer": customer})
		}
		return err
	})
}
