package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// The goals of a governed job, see issue and design: what the foreground may lose to
// it, and how fast it has to be nevertheless.
const (
	goalGovernedP95       = 1.25     // of p95 alone
	goalGovernedImmediate = 1.0 / 50 // of p99 beside four immediate INSERTs
	goalGovernedSpeed     = 50_000   // rows/s
	goalIdle              = 0.95     // of the speed without health checks, on an idle server
	immediateStatements   = 4        // the requests that are served at once where belfry is not used
	bystander             = "tpcb"   // the foreground that the goals are about
)

// load is measured beside a foreground: pgbench, the way it is meant to be used.
type foregroundKind struct {
	name, what string
	args       []string
	rounds     int // 0: as many as the configuration says
}

func foregrounds() []foregroundKind {
	return []foregroundKind{
		{"tpcb", "tpcb-like, 1,000 transactions/s", []string{"--client", "4", "--jobs", "1", "--rate", "1000"}, 0},
		{"select", "select-only, 4,000 transactions/s", []string{"--client", "4", "--jobs", "1", "--select-only", "--rate", "4000"}, 2},
		{"saturating", "tpcb-like, 4 clients without a pause", []string{"--client", "4", "--jobs", "1"}, 2},
	}
}

// scenario is what runs beside the foreground. It returns the rows it wrote; it may
// stop early, when the time is up.
type scenario struct {
	name, what string
	run        func(ctx context.Context, e *env, limit time.Duration) (rows int64, took time.Duration, err error)
}

func scenarios() []scenario {
	return []scenario{
		{"alone", "nothing", nothing},
		{"immediate", fmt.Sprintf("%d INSERT … SELECT at once", immediateStatements), immediate},
		{"unthrottled", "job, health checks off", jobBeside(false)},
		{"governed", "job, health checks on", jobBeside(true)},
	}
}

const pgbenchScale = 20 // branches; 2,000,000 accounts

// The times of one measurement: full, and quick.
// warmUp waits until pgbench is at work, and then for a while.
func (e *env) warmUp(ctx context.Context, running *foreground) error {
	for atWork := false; !atWork; {
		select {
		case <-running.ended:
			return nil // stop says why
		default:
		}
		if err := e.pool.QueryRow(ctx, queries.SQL("PgbenchAtWork")).Scan(&atWork); err != nil {
			return fmt.Errorf("look for pgbench: %w", err)
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	if e.Quick {
		return wait(ctx, 200*time.Millisecond)
	}
	return wait(ctx, 1500*time.Millisecond)
}

func (e *env) aloneTime() time.Duration {
	if e.Quick {
		return 500 * time.Millisecond
	}
	return 6 * time.Second
}

func (e *env) loadLimit() time.Duration {
	if e.Quick {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// measured is one scenario beside one foreground in one round.
type measured struct {
	tps, p50, p95, p99, rows float64
}

// load measures what a bulk job does to others on the same server.
func load(ctx context.Context, e *env, r *Result) error {
	program, err := findPgbench(ctx)
	if errors.Is(err, errNoPgbench) {
		r.skipLoad(err)
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(e.Dir, "belfry-pgbench-")
	if err != nil {
		return err
	}
	e.onClose(func(context.Context) error { return os.RemoveAll(dir) })
	bench := pgbench{program: program, conn: e.pool.Config().ConnConfig, dir: dir}
	scale := pgbenchScale
	if e.Quick {
		scale = 1
	}
	e.progress("  pgbench: %d accounts", scale*100_000)
	if err := bench.initialize(ctx, scale); err != nil {
		return err
	}
	series := make(map[[2]string][]measured)
	var strangers float64
	for round := range e.Rounds {
		share, err := strangersShare(ctx)
		if err != nil {
			return err
		}
		strangers = max(strangers, share)
		for _, f := range foregrounds() {
			if f.rounds > 0 && round >= f.rounds || e.Quick && f.name != bystander {
				continue
			}
			for _, s := range scenarios() {
				m, err := e.beside(ctx, bench, f, s)
				if err != nil {
					return fmt.Errorf("%s beside %s: %w", s.name, f.name, err)
				}
				key := [2]string{f.name, s.name}
				series[key] = append(series[key], m)
				e.progress("  %d/%d %s, beside it %s: %s tps, p50 %s, p95 %s, p99 %s ms; %s rows/s", round+1, e.Rounds,
					f.name, s.name, number(m.tps), number(m.p50), number(m.p95), number(m.p99), number(m.rows))
			}
		}
	}
	r.reportLoad(series)
	if strangers > quietShare {
		r.Notes = append(r.Notes, fmt.Sprintf("The machine was NOT QUIET: other programs used up to %.0f%% of its CPUs between measurements. Do not judge by these figures.", strangers*100))
	}
	return e.idle(ctx, r)
}

func (r *Result) skipLoad(why error) { r.Notes = append(r.Notes, "Skipped: "+why.Error()+".") }

// beside measures one scenario beside one foreground.
func (e *env) beside(ctx context.Context, bench pgbench, f foregroundKind, s scenario) (m measured, err error) {
	if err := e.clear(ctx); err != nil {
		return m, err
	}
	if _, err := e.pool.Exec(ctx, queries.SQL("PgbenchVacuum")); err != nil {
		return m, fmt.Errorf("vacuum pgbench's tables: %w", err)
	}
	running, err := bench.start(ctx, f.args)
	if err != nil {
		return m, err
	}
	if err := e.warmUp(ctx, running); err != nil {
		running.kill()
		return m, err
	}
	from := time.Now()
	limit := e.loadLimit()
	if s.name == "alone" {
		limit = e.aloneTime()
	}
	rows, took, errRun := s.run(ctx, e, limit)
	t, err := running.stop(ctx, from, from.Add(took))
	if err := errors.Join(errRun, err); err != nil {
		return m, err
	}
	return measured{
		tps: t.perSecond(), p50: percentile(t.ms, 50), p95: percentile(t.ms, 95), p99: percentile(t.ms, 99),
		rows: perSecond(rows, took),
	}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func nothing(ctx context.Context, _ *env, limit time.Duration) (int64, time.Duration, error) {
	return 0, limit, wait(ctx, limit)
}

// immediate serves several requests at once, each by one statement, to the end.
func immediate(ctx context.Context, e *env, _ time.Duration) (rows int64, took time.Duration, err error) {
	var running sync.WaitGroup
	written, problems := make([]int64, immediateStatements), make([]error, immediateStatements)
	began := time.Now()
	for i := range immediateStatements {
		running.Go(func() {
			tag, err := e.pool.Exec(ctx, queries.SQL("NotificationInsertAll"), pgx.StrictNamedArgs{"job_id": int64(i + 1)})
			written[i], problems[i] = tag.RowsAffected(), err
		})
	}
	running.Wait()
	took = time.Since(began)
	for _, n := range written {
		rows += n
	}
	if err := errors.Join(problems...); err != nil {
		return 0, 0, err
	}
	if want := e.active * immediateStatements; rows != want {
		return 0, 0, fmt.Errorf("wrote %d rows, not %d", rows, want)
	}
	return rows, took, nil
}

// jobBeside runs one inbox job with the default configuration, with health checks or
// without, and stops it softly when the time is up.
func jobBeside(governed bool) func(context.Context, *env, time.Duration) (int64, time.Duration, error) {
	config := job.DefaultConfig()
	config.Load.Health.Enabled = governed
	return func(ctx context.Context, e *env, limit time.Duration) (int64, time.Duration, error) {
		id, err := job.NewStore(e.pool).Enqueue(ctx, everyone(outbox.TypeInbox))
		if err != nil {
			return 0, 0, err
		}
		runner, err := job.NewRunner(e.pool, config, outbox.Types(e.store))
		if err != nil {
			return 0, 0, err
		}
		began := time.Now()
		short, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if _, err := runner.RunDue(short); err != nil {
			return 0, 0, err
		}
		took := time.Since(began)
		j, err := job.NewStore(e.pool).Get(ctx, id)
		if err == nil && j.Status != job.Processed {
			j, err = job.NewStore(e.pool).Abort(ctx, id, job.Act{Actor: "bench", Reason: "the time is up"})
		}
		if err != nil {
			return 0, 0, err
		}
		return j.RowsWritten, took, e.checkRows(ctx, j, j.RowsWritten)
	}
}

// idle compares a job with health checks on an idle server with one without.
func (e *env) idle(ctx context.Context, r *Result) error {
	var free, governed, ratio []float64
	config := job.DefaultConfig()
	unthrottled := config
	unthrottled.Load.Health.Enabled = false
	for round := range e.Rounds {
		speeds := make(map[bool]float64)
		for _, checks := range []bool{round%2 == 0, round%2 == 1} {
			c := config
			if !checks {
				c = unthrottled
			}
			t, err := e.runEveryone(ctx, outbox.TypeInbox, c)
			if err != nil {
				return err
			}
			speeds[checks] = t.speed()
		}
		free, governed = append(free, speeds[false]), append(governed, speeds[true])
		ratio = append(ratio, speeds[true]/speeds[false])
		e.progress("  %d/%d idle: health checks off %s rows/s, on %s", round+1, e.Rounds, number(speeds[false]), number(speeds[true]))
	}
	r.figure("idle_speed", "idle server, health checks off", median(free), unitSpeed, nil)
	r.figure("idle_governed_speed", "idle server, health checks on", median(governed), unitSpeed, nil)
	r.figure("idle_ratio", "ratio", median(ratio), unitRatio, atLeast(goalIdle))
	return nil
}
