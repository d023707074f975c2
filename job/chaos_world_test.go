package job_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	chaosChannels = 400
	chaosStale    = 2 * time.Second // a statement may take half of it, on a busy machine and behind a pooler too
)

// chaosSQL makes rows for the channels in poisoned fail, the way a constraint would,
// and ends the backend of a run.
const chaosSQL = `
CREATE TABLE public.poisoned (id bigint PRIMARY KEY);
CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM public.poisoned p WHERE p.id = NEW.channel_id) THEN
		RAISE EXCEPTION 'channel % is poisoned', NEW.channel_id USING ERRCODE = 'check_violation';
	END IF;
	RETURN NEW;
END $$;
CREATE FUNCTION public.strike() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
	struck integer;
BEGIN
	FOR i IN 1..100 LOOP -- behind a pooler a run has a backend only now and then
		PERFORM pg_stat_clear_snapshot();
		SELECT count(pg_terminate_backend(a.pid)) INTO struck FROM pg_stat_activity a
		 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
		   AND (a.application_name LIKE 'belfry job%' OR a.pid IN (SELECT backend_pid FROM belfry.jobs));
		EXIT WHEN struck > 0 OR NOT EXISTS (SELECT FROM belfry.jobs WHERE status = 'RUNNING');
		PERFORM pg_sleep(0.001);
	END LOOP;
	RETURN struck;
END $$;
CREATE TRIGGER poison BEFORE INSERT ON belfry.message_rows FOR EACH ROW EXECUTE FUNCTION public.poison();
CREATE TRIGGER poison BEFORE INSERT ON belfry.notifications FOR EACH ROW EXECUTE FUNCTION public.poison();`

// world is a server, two daemons on it, and one schedule at a time of what happens
// to them.
type world struct {
	b      *bundle
	server *pgserver.Server
	dsn    string // of the daemons
	pooled bool
	crew   []*daemon
	born   int

	seed     uint64
	rng      *rand.Rand
	channels map[int64]recipient
	ever     map[int64]bool // ids of channels that exist or did
	poisoned map[int64]bool // ids that are poisoned or were
	jobs     []*chaosJob
	began    time.Time
	diary    []string
	tally    map[string]int // of all schedules: how often what happened
}

// recipient is a channel as the schedule made it.
type recipient struct {
	platform string
	active   bool
}

// fate is what a channel is to get from a job.
type fate int

const (
	never  fate = iota // it never matched the audience
	always             // it matched from before the job was enqueued
	maybe              // it changed
)

// chaosJob is a job as the schedule knows it.
type chaosJob struct {
	id       int64
	kind     string
	audience channels.Audience
	fates    map[int64]fate
	cursor   int64 // seen last
	fence    int64
	halted   *progressSeen // when the last abort was acknowledged; nil: it may go on
	said     []saying      // what it said before it was corrected, oldest first
	title    string        // what it says now
}

// saying is a title and the last channel that was written to under it.
type saying struct {
	title string
	upTo  int64
}

// progressSeen is what must not change any more after an abort.
type progressSeen struct {
	Cursor          int64
	Chunks, Written int64
}

func (j *chaosJob) matches(c recipient) bool {
	return c.active && (j.audience.Kind == channels.KindEveryone || slices.Contains(j.audience.Platforms, c.platform))
}

func (w *world) note(format string, args ...any) {
	word, _, _ := strings.Cut(format, " ")
	w.tally[word]++
	w.diary = append(w.diary, fmt.Sprintf("%6.3f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

// story is what a failure prints.
func (w *world) story() string {
	return fmt.Sprintf("schedule with seed %d (BELFRY_TEST_SEED=%d):\n%s", w.seed, w.seed, strings.Join(w.diary, "\n"))
}

// try repeats what a restart of the server or a lock may have come between.
func (w *world) try(t *testing.T, what string, do func(ctx context.Context) error) {
	t.Helper()
	var err error
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err = do(ctx)
		cancel()
		var pg *pgconn.PgError
		if err == nil {
			return
		}
		known := errors.As(err, &pg) && (pg.Code == "40P01" || pg.Code == "55P03" || strings.HasPrefix(pg.Code, "57P"))
		if !known && !errors.Is(err, job.ErrUnreachable) && !errors.Is(err, job.ErrLocked) && !pgconn.SafeToRetry(err) {
			break
		}
		rest(t, 20*time.Millisecond)
	}
	require.NoError(t, err, "%s\n%s", what, w.story())
}

func (w *world) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	w.try(t, sql, func(ctx context.Context) error {
		_, err := w.b.db.Pool.Exec(ctx, sql, args...)
		return err
	})
}

func (w *world) config(name string) job.Config {
	c := watchful(name, chaosStale)
	c.Listen = !w.pooled
	c.Chunk.InitialRows, c.Chunk.MinRows, c.Chunk.MaxRows = 20, 5, 40
	return c
}

// hire starts a daemon in the place of a dead one, under its name or under another.
func (w *world) hire(t *testing.T, i int) {
	t.Helper()
	w.born++
	name := fmt.Sprintf("daemon %d", w.born)
	if w.crew[i] != nil && w.rng.IntN(2) == 0 {
		name = w.crew[i].name
	}
	w.crew[i] = w.b.spawn(t, w.dsn, w.config(name))
	w.note("start %q", name)
}

// begin makes the channels and jobs of a schedule.
func (w *world) begin(t *testing.T, seed uint64) {
	t.Helper()
	w.seed, w.rng = seed, rand.New(rand.NewPCG(seed, 0))
	w.began, w.diary, w.jobs = time.Now(), nil, nil
	w.channels, w.ever, w.poisoned = map[int64]recipient{}, map[int64]bool{}, map[int64]bool{}
	w.exec(t, `TRUNCATE belfry.jobs, belfry.job_events, belfry.job_skips, belfry.job_revisions, belfry.channels, belfry.lanes, belfry.events,
		belfry.notifications, belfry.message_rows, belfry.job_claims, belfry.job_deliveries, public.ledger, public.poisoned`)
	var ids []int64
	var platforms []string
	for i := range int64(chaosChannels) {
		c := recipient{[]string{"ios", "android"}[w.rng.IntN(2)], true}
		id := (i + 1) * step
		w.channels[id], w.ever[id] = c, true
		ids, platforms = append(ids, id), append(platforms, c.platform)
	}
	w.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) SELECT i, 'u-' || i, p FROM unnest($1::bigint[], $2::text[]) AS u (i, p)`, ids, platforms)
	for i := range w.crew {
		if w.crew[i] == nil || w.crew[i].dead() {
			w.hire(t, i)
		}
	}
	for range 1 + w.rng.IntN(2) {
		w.enqueue(t, 0)
	}
	for began := time.Now(); !one[bool](t, w.b, `SELECT EXISTS (SELECT FROM belfry.jobs WHERE chunks > 0)`); rest(t, 5*time.Millisecond) {
		require.Less(t, time.Since(began), 4*patience, "no job begins\n%s", w.story())
	}
}

func (w *world) enqueue(t *testing.T, priority int) {
	t.Helper()
	j := &chaosJob{kind: []string{outbox.TypeInbox, outbox.TypePush}[w.rng.IntN(2)], audience: channels.Everyone(), fates: map[int64]fate{}, title: "chaos"}
	if w.rng.IntN(3) == 0 {
		j.audience = channels.OnPlatforms("ios")
	}
	for id, c := range w.channels {
		if j.matches(c) {
			j.fates[id] = always
		}
	}
	lane := []string{"default", "default", "other"}[w.rng.IntN(3)]
	rate := 200 + w.rng.IntN(1500)
	w.try(t, "enqueue", func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, w.b.db.Pool, func(tx pgx.Tx) error {
			var err error
			if j.id, err = job.EnqueueTx(ctx, tx, job.Spec{Type: j.kind, Category: "operator_notice", Title: j.title, Audience: j.audience, Lane: lane, Priority: priority}); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `UPDATE belfry.jobs SET max_rows_per_second = $2 WHERE id = $1`, j.id, rate)
			return err
		})
	})
	w.jobs = append(w.jobs, j)
	w.note("enqueue job %d: %s, %s, lane %s, priority %d, %d rows/s", j.id, j.kind, j.audience.Kind, lane, priority, rate)
}

// change touches one channel, or makes one.
func (w *world) change(t *testing.T) {
	t.Helper()
	id := 1 + w.rng.Int64N((chaosChannels+2)*step)
	if w.rng.IntN(3) > 0 {
		id -= id % step
	}
	c, exists := w.channels[id]
	if !exists && w.ever[id] || id == 0 {
		return // deleted ids do not come back
	}
	for _, j := range w.jobs {
		j.fates[id] = maybe
	}
	switch {
	case !exists:
		c = recipient{"ios", true}
		w.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES ($1, 'u-' || $1::bigint, 'ios') ON CONFLICT DO NOTHING`, id)
		w.note("insert channel %d", id)
	case w.rng.IntN(3) == 0:
		w.exec(t, `DELETE FROM belfry.channels WHERE id = $1`, id)
		delete(w.channels, id)
		w.note("delete channel %d", id)
		return
	default:
		c.active, c.platform = !c.active, []string{"ios", "android"}[w.rng.IntN(2)]
		w.exec(t, `UPDATE belfry.channels SET active = $2, platform = $3 WHERE id = $1`, id, c.active, c.platform)
		w.note("change channel %d", id)
	}
	w.channels[id], w.ever[id] = c, true
}

// abort is acknowledged by the row as the UPDATE left it.
func (w *world) abort(t *testing.T, j *chaosJob) {
	t.Helper()
	var status job.Status
	var seen progressSeen
	w.try(t, "abort", func(ctx context.Context) error {
		return w.b.db.Pool.QueryRow(ctx, `UPDATE belfry.jobs SET abort_requested = true WHERE id = $1
			RETURNING status, coalesce(nullif("cursor", ''), '0')::bigint, chunks, rows_written`, j.id).Scan(&status, &seen.Cursor, &seen.Chunks, &seen.Written)
	})
	w.note("abort job %d: %s at %d", j.id, status, seen.Cursor)
	if status == job.Aborted {
		j.halted = &seen
	}
}

func (w *world) resume(t *testing.T, j *chaosJob) {
	t.Helper()
	if j.halted == nil {
		return
	}
	at := j.halted.Cursor
	j.halted = nil
	act, what := w.b.jobs.Resume, "resume"
	if len(j.said) == 0 || w.rng.IntN(2) == 0 {
		title := fmt.Sprintf("chaos, %d times corrected", len(j.said)+1)
		j.said, j.title = append(j.said, saying{j.title, at}), title
		what = "edit"
		act = func(ctx context.Context, sel job.Selection, who job.Act) ([]job.Job, error) {
			return w.b.jobs.ResumeEdited(ctx, sel, job.Changes{"title": title}, who)
		}
	}
	w.try(t, what, func(ctx context.Context) error {
		_, err := act(ctx, job.One(j.id), job.Act{Actor: "chaos"})
		var wrong *job.WrongStatusError
		if errors.As(err, &wrong) && wrong.Status != job.Aborted {
			return nil // a try before this one did it
		}
		return err
	})
	w.note(what+" job %d at %d", j.id, at)
}

func (w *world) lane(t *testing.T, name string, do func(context.Context, string, job.Act) (job.Lane, error), what string) {
	t.Helper()
	w.try(t, what, func(ctx context.Context) error {
		_, err := do(ctx, name, job.Act{Actor: "chaos"})
		return err
	})
	w.note(what+" lane %s", name)
}

func (w *world) throttle(t *testing.T, j *chaosJob) {
	t.Helper()
	changes := []job.Changes{
		{"max_rows_per_second": 100 + w.rng.IntN(5000)}, {"max_rows_per_second": 0}, {"duty_cycle": 0.1 + 0.9*w.rng.Float64()},
		{"max_chunk_rows": 1 + w.rng.IntN(60)}, {"health_checks": w.rng.IntN(2) == 0}, {"chunk_target_ms": 1 + w.rng.IntN(100)},
	}[w.rng.IntN(6)]
	w.set(t, j, changes)
}

func (w *world) set(t *testing.T, j *chaosJob, changes job.Changes) {
	t.Helper()
	w.try(t, "set", func(ctx context.Context) error {
		_, err := w.b.jobs.Set(ctx, j.id, changes, job.Act{Actor: "chaos"})
		return err
	})
	w.note("set job %d: %v", j.id, changes)
}

func (w *world) poison(t *testing.T) {
	t.Helper()
	for range 1 + w.rng.IntN(3) {
		id := (1 + w.rng.Int64N(chaosChannels)) * step
		w.poisoned[id] = true
		w.exec(t, `INSERT INTO public.poisoned VALUES ($1) ON CONFLICT DO NOTHING`, id)
		w.note("poison channel %d", id)
	}
}

// terminate ends the server's side of the connections that runs use.
func (w *world) terminate(t *testing.T) {
	t.Helper()
	var n int
	w.try(t, "terminate", func(ctx context.Context) error {
		return w.b.db.Pool.QueryRow(ctx, `SELECT public.strike()`).Scan(&n)
	})
	w.note("terminate %d backends", n)
}

// restart crashes PostgreSQL and starts it again. Chunks of notifications that were
// committed asynchronously may be lost, rows and cursor together.
func (w *world) restart(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.note("crash PostgreSQL")
	require.NoError(t, w.server.Stop(ctx, pgserver.Immediate))
	rest(t, time.Duration(w.rng.IntN(100))*time.Millisecond)
	require.NoError(t, w.server.Start(ctx))
	w.b.db.Pool.Reset()
	for _, j := range w.jobs {
		if j.kind == outbox.TypeInbox {
			j.cursor = 0
		}
	}
	w.note("PostgreSQL is back")
}

// busy is the place of a daemon that runs a job, or else i.
func (w *world) busy(t *testing.T, i int) int {
	t.Helper()
	name := one[string](t, w.b, `SELECT coalesce(min(runner), '') FROM belfry.jobs`)
	for k, p := range w.crew {
		if p.name == name {
			return k
		}
	}
	return i
}

// act does one random thing.
func (w *world) act(t *testing.T) {
	t.Helper()
	i := w.rng.IntN(len(w.crew))
	if w.rng.IntN(4) > 0 {
		i = w.busy(t, i)
	}
	p := w.crew[i]
	j := w.jobs[w.rng.IntN(len(w.jobs))]
	lane := []string{"default", "other"}[w.rng.IntN(2)]
	switch n := w.rng.IntN(100); {
	case n < 12 && !p.dead():
		p.kill(t)
		w.note("kill %q", p.name)
	case n < 24 && p.dead():
		w.hire(t, i)
	case n < 24 && !p.stopped:
		p.signal(t, syscall.SIGSTOP)
		w.note("stop %q", p.name)
	case n < 34 && p.stopped && !p.dead():
		p.signal(t, syscall.SIGCONT)
		w.note("continue %q", p.name)
	case n < 42:
		w.terminate(t)
	case n < 46:
		w.restart(t)
	case n < 56:
		w.abort(t, j)
	case n < 64:
		w.resume(t, j)
	case n < 69 && len(w.jobs) < 5:
		w.enqueue(t, 10*len(w.jobs))
	case n < 73:
		w.lane(t, lane, w.b.jobs.PauseLane, "pause")
	case n < 79:
		w.lane(t, lane, w.b.jobs.ResumeLane, "open")
	case n < 86:
		w.throttle(t, j)
	case n < 90:
		w.poison(t)
	default:
		for range 1 + w.rng.IntN(4) {
			w.change(t)
		}
	}
}
