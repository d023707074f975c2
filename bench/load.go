package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shirou/gopsutil/v4/cpu"

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
	run        func(ctx context.Context, e *env) (rows int64, err error)
}

func scenarios() []scenario {
	return []scenario{
		{"alone", "nothing", func(ctx context.Context, e *env) (int64, error) { return 0, pause(ctx, e.quickly(6*time.Second)) }},
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

// measured is a scenario beside a foreground in one round: the foreground's transactions a
// second and latencies in ms, and the rows a second that were written meanwhile.
type measured struct{ tps, p50, p95, p99, rows float64 }

// beside names a foreground and a scenario.
type beside struct{ foreground, scenario string }

// load measures what a bulk job does to others on the same server.
func load(ctx context.Context, e *env, r *result) error {
	bench, err := e.newPgbench(ctx)
	if errors.Is(err, errNoPgbench) {
		r.note("Skipped: %v.", err)
		return nil
	}
	if err != nil {
		return err
	}
	series := make(map[beside][]measured)
	var strangers float64
	for round := range e.rounds {
		share, err := cpu.PercentWithContext(ctx, time.Second, false)
		if err != nil {
			return err
		}
		strangers = max(strangers, share[0])
		for _, f := range foregrounds() {
			if round >= f.rounds || e.quick && f.name != bystander {
				continue
			}
			for _, s := range scenarios() {
				m, err := e.beside(ctx, bench, f, s)
				if err != nil {
					return fmt.Errorf("%s beside %s: %w", s.name, f.name, err)
				}
				key := beside{f.name, s.name}
				series[key] = append(series[key], m)
				e.say("  %d/%d %s, beside it %s: %s tps, p50 %s, p95 %s, p99 %s ms; %s rows/s", round+1, e.rounds,
					f.name, s.name, number(m.tps), number(m.p50), number(m.p95), number(m.p99), number(m.rows))
			}
		}
	}
	r.loadFigures(series)
	if strangers > quietPercent {
		r.note("The machine was NOT QUIET: other programs used up to %.0f%% of its CPUs between measurements. Do not judge by these figures.", strangers)
	}
	return e.idleServer(ctx, r)
}

// beside measures one scenario beside one foreground.
func (e *env) beside(ctx context.Context, bench pgbench, f foreground, s scenario) (m measured, err error) {
	if err := e.clear(ctx); err != nil {
		return m, err
	}
	if err := do(ctx, e.pool, queries.pgbenchVacuum, nil); err != nil {
		return m, err
	}
	var rows int64
	var took time.Duration
	ms, err := bench.during(ctx, f.args, e.warmUp, func(ctx context.Context) (err error) {
		began := time.Now()
		rows, err = s.run(ctx, e)
		took = time.Since(began)
		return err
	})
	return measured{
		tps: perSecond(int64(len(ms)), took), p50: percentile(ms, 50), p95: percentile(ms, 95), p99: percentile(ms, 99),
		rows: perSecond(rows, took),
	}, err
}

// warmUp waits until pgbench is at work, and then for a while.
func (e *env) warmUp(ctx context.Context) error {
	for atWork := false; !atWork; {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		if err := look(ctx, e.pool, queries.pgbenchAtWork, nil, &atWork); err != nil {
			return err
		}
	}
	return pause(ctx, e.quickly(1500*time.Millisecond))
}

// immediate serves several requests at once, each by one statement, to the end.
func immediate(ctx context.Context, e *env) (rows int64, err error) {
	var running sync.WaitGroup
	written, problems := [immediateStatements]int64{}, [immediateStatements]error{}
	for i := range immediateStatements {
		running.Go(func() {
			tag, err := e.pool.Exec(ctx, queries.notificationInsertAll, pgx.StrictNamedArgs{"job_id": int64(i + 1)})
			written[i], problems[i] = tag.RowsAffected(), err
		})
	}
	running.Wait()
	for _, n := range written {
		rows += n
	}
	err = errors.Join(problems[:]...)
	if want := e.active * immediateStatements; err == nil && rows != want {
		err = fmt.Errorf("wrote %d rows, not %d", rows, want)
	}
	return rows, err
}

// jobBeside runs one inbox job and stops it softly when the time is up.
func jobBeside(config job.Config) func(context.Context, *env) (int64, error) {
	return func(ctx context.Context, e *env) (int64, error) {
		store := job.NewStore(e.pool)
		id, err := store.Enqueue(ctx, everyone(outbox.TypeInbox))
		if err != nil {
			return 0, err
		}
		runner, err := job.NewRunner(e.pool, config, outbox.Types(e.store))
		if err != nil {
			return 0, err
		}
		short, cancel := context.WithTimeout(ctx, e.quickly(10*time.Second))
		defer cancel()
		if _, err := runner.RunDue(short); err != nil {
			return 0, err
		}
		j, err := store.Get(ctx, id)
		if err == nil && j.Status != job.Processed {
			j, err = store.Abort(ctx, id, job.Act{Actor: "bench", Reason: "the time is up"})
		}
		if err != nil {
			return 0, err
		}
		return j.RowsWritten, e.checkRows(ctx, id, j.RowsWritten)
	}
}

// idleServer compares a job with health checks on an idle server with one without.
func (e *env) idleServer(ctx context.Context, r *result) error {
	speed := func(c job.Config) func() (float64, error) {
		return func() (float64, error) {
			t, err := e.runEveryone(ctx, outbox.TypeInbox, c)
			return t.speed(), err
		}
	}
	p, err := e.inTurns("idle: health checks on", speed(job.DefaultConfig()), "off", speed(ungoverned()))
	if err != nil {
		return err
	}
	r.figure("idle_speed", "idle server, health checks off", median(p.b), unitSpeed)
	r.figure("idle_governed_speed", "idle server, health checks on", median(p.a), unitSpeed)
	r.figure("idle_ratio", "ratio", median(p.ratio), unitRatio)
	return nil
}

// The values of a measured.
func tps(m measured) float64  { return m.tps }
func p50(m measured) float64  { return m.p50 }
func p95(m measured) float64  { return m.p95 }
func p99(m measured) float64  { return m.p99 }
func rows(m measured) float64 { return m.rows }

// over is the median of one value over the rounds.
func over(ms []measured, value func(measured) float64) float64 {
	values := make([]float64, len(ms))
	for i, m := range ms {
		values[i] = value(m)
	}
	return median(values)
}

// against is the median of the ratio of two scenarios, each within its round.
func against(ms, other []measured, value func(measured) float64) float64 {
	var ratios []float64
	for i := range min(len(ms), len(other)) {
		ratios = append(ratios, value(ms[i])/value(other[i]))
	}
	return median(ratios)
}

// loadFigures turns the rounds into a table, panels and figures; what did not run is in none.
func (r *result) loadFigures(series map[beside][]measured) {
	r.Table = &table{Columns: []string{"foreground", "beside it", "tps", "p50 ms", "p95 ms", "p99 ms", "× tps", "× p95", "× p99", "krows/s"}}
	for _, f := range foregrounds() {
		alone := series[beside{f.name, "alone"}]
		if len(alone) == 0 {
			continue
		}
		drawn := panel{Title: f.what}
		for _, s := range scenarios() {
			ms := series[beside{f.name, s.name}]
			b := bar{s.what, measured{over(ms, tps), over(ms, p50), over(ms, p95), over(ms, p99), over(ms, rows)}}
			drawn.Bars = append(drawn.Bars, b)
			r.Table.Rows = append(r.Table.Rows, []any{
				f.name, s.name, b.tps, b.p50, b.p95, b.p99, against(ms, alone, tps), against(ms, alone, p95), against(ms, alone, p99), b.rows / 1000,
			})
		}
		r.Panels = append(r.Panels, drawn)
	}
	governed, alone, now := series[beside{bystander, "governed"}], series[beside{bystander, "alone"}], series[beside{bystander, "immediate"}]
	r.figure("governed_p95_ratio", "foreground p95 beside a job with health checks, to alone", against(governed, alone, p95), unitRatio)
	r.figure("governed_p99_to_immediate", "foreground p99 beside it, to that beside immediate INSERTs", against(governed, now, p99), unitRatio)
	r.figure("governed_speed", "the job meanwhile", over(governed, rows), unitSpeed)
}
