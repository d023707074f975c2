package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

const idleApplication = "belfry idle bench"

// idle counts what a daemon that also delivers asks of the server while it has nothing to
// do: its runner, its schedules and its relay, with default settings, and again with names
// that are given.
func idle(ctx context.Context, e *env, r *result) {
	e.clear(ctx)
	e.idleFigures(ctx, r, "", "")
	e.idleFigures(ctx, r, "named_", "names given: ",
		lifecycle.Given{Kind: lifecycle.RunnerName, Name: idleApplication}, lifecycle.Given{Kind: lifecycle.RelayName, Name: idleApplication})
}

// idleTimes are how long is waited before statements are counted, and for how long.
func (e *env) idleTimes() (before, during time.Duration) {
	if e.quick {
		return time.Second, 2 * time.Second
	}
	return 15 * time.Second, time.Minute
}

// idleFigures measures one form.
func (e *env) idleFigures(ctx context.Context, r *result, prefix, label string, names ...lifecycle.Given) {
	before, during := e.idleTimes()
	asked := &watch{}
	pool := e.connect(ctx, e.dsn, idleApplication, asked)
	defer pool.Close()
	defer e.idleDaemon(ctx, pool, names)()
	e.check(lifecycle.Pause(ctx, before))
	cpu, began, n := e.idleCPU(ctx), time.Now(), asked.statements.Load()
	e.check(lifecycle.Pause(ctx, during))
	n, took := asked.statements.Load()-n, time.Since(began).Seconds()
	cpu = e.idleCPU(ctx) - cpu
	r.figure(prefix+"statements", label+"statements a second", float64(n)/took, "/s", atMost(2))
	if math.IsNaN(cpu) {
		r.note("The CPU of server processes can be read where they run, on Linux.")
	} else {
		r.figure(prefix+"cpu", label+"CPU of its server processes, of a core", 100*cpu/took, "%", atMost(0.2))
	}
	r.note("%s%d statements in %.0f s, BEGIN, COMMIT and settings of a transaction counted.", label, n, took)
}

// idleDaemon runs what `belfry daemon` does with a sender in its configuration.
func (e *env) idleDaemon(ctx context.Context, pool *pgxpool.Pool, names []lifecycle.Given) (stop func()) {
	ticks, hints := make(chan struct{}, 1), make(chan struct{}, 1)
	ask := func(c chan<- struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	runner, err := job.NewRunner(pool, job.DefaultConfig(), outbox.Types(e.store), job.WithHint(func() { ask(hints) }))
	e.check(err)
	delivering := e.newRelay(pool, provider{}, relay.DefaultSenderConfig().Concurrency)
	held, err := lifecycle.Take(ctx, pool, names...)
	e.check(err)
	_, end := e.start(ctx, runner.Run, delivering.Run, held.Run, func(ctx context.Context) error {
		schedule.NewFirer(pool).Run(ctx, ticks, hints, runner.Listening)
		return nil
	}, func(ctx context.Context) error {
		for lifecycle.Pause(ctx, job.DefaultConfig().PollInterval) == nil {
			ask(ticks)
		}
		return nil
	})
	return func() {
		end()
		e.check(held.Release(ctx))
	}
}

// idleCPU is the CPU time of the server's processes for the idle daemon, in seconds; NaN when
// they do not run here, or this is not Linux.
func (e *env) idleCPU(ctx context.Context) (seconds float64) {
	var pids []int
	e.look(ctx, e.pool, queries.backendsOf, pgx.StrictNamedArgs{"application": idleApplication}, &pids)
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat")
		if err != nil || e.databaseURL != "" {
			return math.NaN()
		}
		var ns float64
		_, err = fmt.Sscan(string(text), &ns)
		e.check(err)
		seconds += ns / 1e9
	}
	e.demand(len(pids) > 0, "the idle daemon is not connected")
	return seconds
}
