package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox"
)

const idleApplication = "belfry idle bench"

// idle counts what a daemon that also delivers asks of the server while it has nothing to
// do: its runner, its schedules and its relay, with default settings, and again with names
// that are given.
func idle(ctx context.Context, e *env, r *result) error {
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
func (e *env) idleFigures(ctx context.Context, r *result, prefix, label string, names ...lifecycle.Given) (err error) {
	before, during := 15*time.Second, time.Minute
	if e.quick {
		before, during = time.Second, 2*time.Second
	}
	asked := &watch{}
	pool, err := e.connect(ctx, e.dsn, idleApplication, asked)
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
	n, began := asked.count(), time.Now()
	if err := pause(ctx, during); err != nil {
		return err
	}
	n, took := asked.count()-n, time.Since(began).Seconds()
	later, _, err := e.idleCPU(ctx)
	if err != nil {
		return err
	}
	r.figure(prefix+"statements", label+"statements a second", float64(n)/took, "/s")
	if measurable {
		r.figure(prefix+"cpu", label+"CPU of its server processes, of a core", 100*(later-cpu).Seconds()/took, "%")
	} else {
		r.note("The CPU of server processes can be read where they run, on Linux.")
	}
	r.note("%s%d statements in %.0f s, BEGIN, COMMIT and settings of a transaction counted.", label, n, took)
	return nil
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
	delivering, err := e.newRelay(pool, provider{}, 0)
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
		for pause(ctx, job.DefaultConfig().PollInterval) == nil {
			ask(ticks)
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
	rows, err := e.pool.Query(ctx, queries.backendsOf, pgx.StrictNamedArgs{"application": idleApplication})
	if err != nil {
		return 0, false, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return 0, false, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat")
		if err != nil || e.databaseURL != "" {
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
