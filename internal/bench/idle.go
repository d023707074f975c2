package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	goalIdleStatements = 2.0 // a second
	goalIdleCPU        = 0.2 // per cent of a core
	idleApplication    = "belfry idle bench"
)

// counter counts the statements of a pool and of the connections made like its.
type counter struct{ n atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (*counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { c.n.Add(1) }

// TraceBatchEnd implements pgx.BatchTracer.
func (*counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// nowhere is a sender that accepts everything.
type nowhere struct{}

// MaxBatch implements sender.Sender.
func (nowhere) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (nowhere) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	for i := range results {
		results[i].Class = sender.Accepted
	}
	return results
}

// idle counts what a daemon that also delivers asks of the server while it has nothing to
// do: its runner, its schedules and its relay, with default settings, and again with names
// that are given.
func idle(ctx context.Context, e *env, r *Result) error {
	if err := e.clear(ctx); err != nil {
		return err
	}
	if err := e.idleFigures(ctx, r, "", ""); err != nil {
		return err
	}
	return e.idleFigures(ctx, r, "named_", "names given: ",
		lifecycle.Given{Kind: lifecycle.RunnerName, Name: idleApplication}, lifecycle.Given{Kind: lifecycle.RelayName, Name: idleApplication})
}

// idleFigures measures one form.
func (e *env) idleFigures(ctx context.Context, r *Result, prefix, label string, names ...lifecycle.Given) (err error) {
	before, during := 15*time.Second, time.Minute
	if e.Quick {
		before, during = time.Second, 2*time.Second
	}
	count := &counter{}
	pool, err := e.idlePool(ctx, count)
	if err != nil {
		return err
	}
	defer pool.Close()
	stop, err := e.idleDaemon(ctx, pool, names)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := pause(ctx, before); err != nil {
		return err
	}
	cpu, measurable, err := e.idleCPU(ctx)
	if err != nil {
		return err
	}
	n, began := count.n.Load(), time.Now()
	if err := pause(ctx, during); err != nil {
		return err
	}
	asked, took := count.n.Load()-n, time.Since(began)
	later, _, err := e.idleCPU(ctx)
	if err != nil {
		return err
	}
	r.figure(prefix+"statements", label+"statements a second", float64(asked)/took.Seconds(), unitPerSecond, atMost(goalIdleStatements))
	if measurable {
		r.figure(prefix+"cpu", label+"CPU of its server processes, of a core", 100*(later-cpu).Seconds()/took.Seconds(), unitPercent, atMost(goalIdleCPU))
	} else {
		r.Notes = append(r.Notes, "The CPU of server processes can be read where they run, on Linux.")
	}
	r.Notes = append(r.Notes, fmt.Sprintf("%s%d statements in %.0f s, BEGIN, COMMIT and settings of a transaction counted.", label, asked, took.Seconds()))
	return nil
}

func (e *env) idlePool(ctx context.Context, count *counter) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(e.dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = relay.Connections + poolSize
	config.ConnConfig.Tracer = count
	config.ConnConfig.RuntimeParams["application_name"] = idleApplication
	return pgxpool.NewWithConfig(ctx, config)
}

// idleDaemon runs what `belfry daemon` does with a sender in its configuration.
func (e *env) idleDaemon(ctx context.Context, pool *pgxpool.Pool, names []lifecycle.Given) (stop func() error, err error) {
	ticks, hints := make(chan struct{}, 1), make(chan struct{}, 1)
	ask := func(c chan<- struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	runner, err := job.NewRunner(pool, job.DefaultConfig(), outbox.Types(e.store), job.WithHint(func() { ask(hints) }))
	if err != nil {
		return nil, err
	}
	composer, err := compose.New(pool, e.store, compose.DefaultConfig(), nil)
	if err != nil {
		return nil, err
	}
	to := relay.DefaultSenderConfig()
	to.Name, to.Medium = "nowhere", "push"
	delivering, err := relay.New(pool, composer, relay.DefaultConfig(), []relay.Sender{{SenderConfig: to, Client: nowhere{}}})
	if err != nil {
		return nil, err
	}
	held, err := lifecycle.Take(ctx, pool, names...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	errs := make([]error, 4)
	var running sync.WaitGroup
	running.Go(func() { errs[0] = runner.Run(ctx) })
	running.Go(func() { errs[1] = delivering.Run(ctx) })
	running.Go(func() { errs[2] = held.Run(ctx) })
	running.Go(func() { schedule.NewFirer(pool).Run(ctx, ticks, hints, runner.Listening) })
	running.Go(func() {
		ticker := time.NewTicker(job.DefaultConfig().PollInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				ask(ticks)
			}
		}
	})
	return func() error {
		cancel()
		running.Wait()
		errs[3] = held.Release(ctx)
		return errors.Join(errs...)
	}, nil
}

// idleCPU sums the CPU time of the server's processes for the idle daemon. false: they do
// not run here, or this is not Linux.
func (e *env) idleCPU(ctx context.Context) (sum time.Duration, measurable bool, err error) {
	rows, err := e.pool.Query(ctx, queries.SQL("BackendsOf"), pgx.StrictNamedArgs{"application": idleApplication})
	if err != nil {
		return 0, false, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return 0, false, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat")
		if err != nil || e.DatabaseURL != "" {
			return 0, false, nil //nolint:nilerr // not measurable, as the doc says
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return 0, false, err
		}
		sum += time.Duration(ns)
	}
	return sum, len(pids) > 0, nil
}

// pause waits, or returns why not.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
