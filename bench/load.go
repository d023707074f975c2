package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shirou/gopsutil/v4/cpu"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	immediateStatements = 4      // the requests that are served at once where belfry is not used
	bystander           = "tpcb" // the foreground that the goals are about
	pgbenchScale        = 20     // branches; 2,000,000 accounts
	// quietPercent is how much of the CPUs others may use before figures are doubtful.
	quietPercent = 10
)

// foreground is what others do: pgbench, the way it is meant to be used.
type foreground struct {
	name, what string
	args       []string
	rounds     int64 // at most
}

func foregrounds() []foreground {
	return []foreground{
		{bystander, "tpcb-like, 1,000 transactions/s", []string{"--client", "4", "--jobs", "1", "--rate", "1000"}, 1 << 62},
		{"select", "select-only, 4,000 transactions/s", []string{"--client", "4", "--jobs", "1", "--select-only", "--rate", "4000"}, 2},
		{"saturating", "tpcb-like, 4 clients without a pause", []string{"--client", "4", "--jobs", "1"}, 2},
	}
}

// scenario is what runs beside the foreground. It returns the rows it wrote; it may stop
// early, when the time is up.
type scenario struct {
	name, what string
	run        func(ctx context.Context, e *env) (rows int64)
}

func scenarios() []scenario {
	return []scenario{
		{"alone", "nothing", nobody},
		{"immediate", fmt.Sprintf("%d INSERT … SELECT at once", immediateStatements), immediate},
		{"unthrottled", "job, health checks off", jobBeside(ungoverned())},
		{"governed", "job, health checks on", jobBeside(job.DefaultConfig())},
	}
}

// quickly is a time of a full run, or a tenth of it in a quick one.
func (e *env) quickly(d time.Duration) time.Duration {
	if e.quick {
		return d / 10
	}
	return d
}

// measured has a scenario's values beside a foreground, each over the rounds.
type measured [5][]float64

// The values: the foreground's transactions a second and its latencies in ms, and the rows a
// second that were written meanwhile.
const (
	tps = iota
	p50
	p95
	p99
	speed
)

// beside names a foreground and a scenario.
type beside struct{ foreground, scenario string }

// load measures what a bulk job does to others on the same server.
func load(ctx context.Context, e *env, r *result) {
	bench := e.newPgbench(ctx)
	if bench == nil {
		r.note("Skipped: pgbench is not there; it comes with the PostgreSQL server's packages (on some systems with postgresql-contrib).")
		return
	}
	series := make(map[beside]measured)
	var strangers float64
	for round := range e.rounds {
		share, err := cpu.PercentWithContext(ctx, time.Second, false)
		e.check(err)
		strangers = max(strangers, share[0])
		for _, f := range foregrounds() {
			if round >= f.rounds || e.quick && f.name != bystander {
				continue
			}
			for _, s := range scenarios() {
				now, all := e.beside(ctx, bench, f, s), series[beside{f.name, s.name}]
				for i, value := range now {
					all[i] = append(all[i], value)
				}
				series[beside{f.name, s.name}] = all
				e.say("  %d/%d %s, beside it %s: %s tps, p50 %s, p95 %s, p99 %s ms; %s rows/s", round+1, e.rounds,
					f.name, s.name, number(now[tps]), number(now[p50]), number(now[p95]), number(now[p99]), number(now[speed]))
			}
		}
	}
	r.loadFigures(series)
	if strangers > quietPercent {
		r.note("The machine was NOT QUIET: other programs used up to %.0f%% of its CPUs between measurements. Do not judge by these figures.", strangers)
	}
	e.idleServer(ctx, r)
}

// beside measures one scenario beside one foreground.
func (e *env) beside(ctx context.Context, bench *pgbench, f foreground, s scenario) [5]float64 {
	defer e.within(s.name + " beside " + f.name)
	e.clear(ctx)
	e.do(ctx, e.pool, queries.pgbenchVacuum)
	var rows int64
	ms, took := bench.during(ctx, f.args, e.warmUp, func(ctx context.Context) { rows = s.run(ctx, e) })
	return [...]float64{perSecond(int64(len(ms)), took), percentile(ms, 50), percentile(ms, 95), percentile(ms, 99), perSecond(rows, took)}
}

// warmUp waits until pgbench is at work, and then for a while.
func (e *env) warmUp(ctx context.Context) {
	for atWork := false; !atWork; {
		e.check(lifecycle.Pause(ctx, 20*time.Millisecond))
		e.look(ctx, e.pool, queries.pgbenchAtWork, nil, &atWork)
	}
	e.check(lifecycle.Pause(ctx, e.quickly(1500*time.Millisecond)))
}

// nobody leaves the foreground alone.
func nobody(ctx context.Context, e *env) int64 {
	e.check(lifecycle.Pause(ctx, e.quickly(6*time.Second)))
	return 0
}

// immediate serves several requests at once, each by one statement, to the end.
func immediate(ctx context.Context, e *env) int64 {
	var written atomic.Int64
	requests, ctx := errgroup.WithContext(ctx)
	for i := range int64(immediateStatements) {
		requests.Go(func() error {
			tag, err := e.pool.Exec(ctx, queries.notificationInsertAll, pgx.StrictNamedArgs{"job_id": i + 1})
			written.Add(tag.RowsAffected())
			return err
		})
	}
	e.check(requests.Wait())
	e.demand(written.Load() == e.active*immediateStatements, "wrote %d rows, not %d", written.Load(), e.active*immediateStatements)
	return written.Load()
}

// jobBeside runs one inbox job and stops it softly when the time is up.
func jobBeside(config job.Config) func(context.Context, *env) int64 {
	return func(ctx context.Context, e *env) int64 {
		store, id := job.NewStore(e.pool), e.enqueue(ctx, everyone(outbox.TypeInbox))
		short, cancel := context.WithTimeout(ctx, e.quickly(10*time.Second))
		defer cancel()
		e.runDue(short, config)
		j, err := store.Get(ctx, id)
		if err == nil && j.Status != job.Processed {
			j, err = store.Abort(ctx, id, job.Act{Actor: "bench", Reason: "the time is up"})
		}
		e.check(err)
		e.checkRows(ctx, id, j.RowsWritten)
		return j.RowsWritten
	}
}

// idleServer compares a job with health checks on an idle server with one without.
func (e *env) idleServer(ctx context.Context, r *result) {
	run := func(c job.Config) func() float64 {
		return func() float64 { return e.runEveryone(ctx, outbox.TypeInbox, c).speed() }
	}
	speeds := e.inTurns(unitSpeed, turn{"idle: health checks on", run(job.DefaultConfig())}, turn{"off", run(ungoverned())})
	r.figure("idle_speed", "idle server, health checks off", median(speeds[1]), unitSpeed)
	r.figure("idle_governed_speed", "idle server, health checks on", median(speeds[0]), unitSpeed)
	r.figure("idle_ratio", "ratio", ratio(speeds[0], speeds[1]), unitRatio, atLeast(0.95)) // of the speed without health checks
}

// loadFigures turns the rounds into a table, panels and figures; what did not run is in none.
func (r *result) loadFigures(series map[beside]measured) {
	r.Table = &table{Columns: []string{"foreground", "beside it", "tps", "p50 ms", "p95 ms", "p99 ms", "× tps", "× p95", "× p99", "krows/s"}}
	for _, f := range foregrounds() {
		alone := series[beside{f.name, "alone"}]
		if len(alone[tps]) == 0 {
			continue
		}
		drawn := panel{Title: f.what}
		for _, s := range scenarios() {
			now := series[beside{f.name, s.name}]
			b := bar{s.what, median(now[tps]), median(now[p50]), median(now[p95]), median(now[p99]), median(now[speed])}
			drawn.Bars = append(drawn.Bars, b)
			r.Table.Rows = append(r.Table.Rows, []any{f.name, s.name, b.TPS, b.P50, b.P95, b.P99,
				ratio(now[tps], alone[tps]), ratio(now[p95], alone[p95]), ratio(now[p99], alone[p99]), b.Rows / 1000})
		}
		r.Panels = append(r.Panels, drawn)
	}
	governed, alone, now := series[beside{bystander, "governed"}], series[beside{bystander, "alone"}], series[beside{bystander, "immediate"}]
	r.figure("governed_p95_ratio", "foreground p95 beside a job with health checks, to alone", ratio(governed[p95], alone[p95]), unitRatio, atMost(1.25))
	r.figure("governed_p99_to_immediate", "foreground p99 beside it, to that beside immediate INSERTs", ratio(governed[p99], now[p99]), unitRatio, atMost(1.0/50))
	r.figure("governed_speed", "the job meanwhile", median(governed[speed]), unitSpeed, atLeast(50_000))
}
