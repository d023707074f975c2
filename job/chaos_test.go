package job_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// I1–I7 under random schedules of kill -9, SIGSTOP and SIGCONT, terminated backends,
// crashes of PostgreSQL, aborts (of jobs whose messages wait as well), resumes, corrections,
// more urgent jobs, paused lanes, changed limits, poisoned rows and changing channels,
// against two daemons in processes of their own, on a stock server. A separate session looks at random moments and at the end. Each
// schedule's seed is logged; BELFRY_TEST_SEED repeats one, BELFRY_TEST_SCHEDULES=100
// runs so many (make chaos).
func TestChaos_NoScheduleBreaksAnInvariant(t *testing.T) {
	t.Parallel()
	chaos(t, false)
}

// The same behind a pooler in transaction mode that gives each transaction another
// backend.
func TestChaos_NoScheduleBreaksAnInvariantBehindAPooler(t *testing.T) {
	t.Parallel()
	chaos(t, true)
}

func chaos(t *testing.T, pooled bool) {
	t.Helper()
	server := dbtest.NewServer(t, true)
	db := dbtest.NewOn(t, server)
	dbtest.RequireStock(t, db.Pool)
	w := &world{b: setupOn(t, db, 0), server: server, dsn: db.DSN, pooled: pooled, crew: make([]*daemon, 2), tally: map[string]int{}}
	w.b.keepLedger(t)
	w.b.exec(t, chaosSQL)
	if pooled {
		w.dsn = dbtest.StartPgBouncer(t, db.DSN, dbtest.Churn()).DSN(db.Name) + "&default_query_exec_mode=exec"
	}
	few := 2
	if pooled { // it takes ten times as long: each transaction waits for a new backend
		few = 1
	}
	seed, n := uint64(time.Now().UnixNano()/1000), count(t, "BELFRY_TEST_SCHEDULES", few)
	if text := os.Getenv("BELFRY_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "BELFRY_TEST_SEED")
		n = 1
	}
	var acts, looks, takeovers int
	for i := range n {
		began := time.Now()
		w.begin(t, seed+uint64(i))
		a, l := w.schedule(t)
		w.heal(t)
		w.settle(t)
		acts, looks = acts+a, looks+l
		resumed := one[int](t, w.b, `SELECT count(*) FROM belfry.job_events WHERE kind = 'resumed'`)
		takeovers += resumed
		t.Logf("seed %d: %d acts, %d jobs, %d take-overs, %s", w.seed, a, len(w.jobs), resumed, time.Since(began).Round(time.Millisecond))
		if n == 1 {
			t.Log(w.story())
		}
	}
	t.Logf("%d schedules, %d acts, %d looks, %d take-overs: no invariant broken", n, acts, looks, takeovers)
	t.Logf("what happened: %v", w.tally)
}

// schedule lets things happen, and looks in between.
func (w *world) schedule(t *testing.T) (acts, looks int) {
	t.Helper()
	for n := range 6 + w.rng.IntN(14) {
		if n == 0 { // every schedule has one in mid-walk; its first resume corrects it
			w.abort(t, w.jobs[w.rng.IntN(len(w.jobs))])
		} else {
			w.act(t)
		}
		acts++
		looking, pause := w.rng.IntN(5), 25
		if w.rng.IntN(8) == 0 { // long enough for a silent run to become stale
			looking, pause = 20, 300
		}
		for range looking {
			rest(t, time.Duration(w.rng.IntN(pause))*time.Millisecond)
			w.look(t)
			looks++
		}
	}
	return acts, looks
}

// heal ends all faults.
func (w *world) heal(t *testing.T) {
	t.Helper()
	w.note("heal")
	for i, p := range w.crew {
		switch {
		case p.dead():
			w.hire(t, i)
		case p.stopped:
			p.signal(t, syscall.SIGCONT)
		}
	}
	for _, lane := range []string{"default", "other"} {
		w.lane(t, lane, w.b.jobs.ResumeLane, "open")
	}
	for _, j := range w.jobs {
		w.resume(t, j)
		w.set(t, j, job.Changes{"max_rows_per_second": 0, "duty_cycle": nil, "health_checks": nil, "max_chunk_rows": nil, "chunk_target_ms": nil})
	}
}

// settle waits until all jobs are done, has the skipped recipients tried again, and
// compares everything.
func (w *world) settle(t *testing.T) {
	t.Helper()
	w.done(t)
	for _, j := range w.jobs {
		s := w.seen(t, j)
		w.requireFates(t, j, s)
		w.requireTold(t, j)
	}
	w.exec(t, `TRUNCATE public.poisoned`)
	w.note("retry what was skipped")
	for _, j := range w.jobs {
		w.try(t, "retry skipped", func(ctx context.Context) error {
			_, err := w.b.jobs.RetrySkipped(ctx, j.id, job.Act{Actor: "chaos"}, nil)
			if errors.Is(err, job.ErrNoSkips) {
				return nil
			}
			return err
		})
	}
	w.done(t)
	for _, j := range w.jobs {
		s := w.seen(t, j)
		require.Empty(t, s.Skips, "job %d: skipped again\n%s", j.id, w.story())
		w.requireFates(t, j, s)
	}
	require.Empty(t, w.b.breaches(t), w.story())
}

func (w *world) done(t *testing.T) {
	t.Helper()
	for began := time.Now(); ; rest(t, 10*time.Millisecond) {
		w.look(t)
		if one[bool](t, w.b, `SELECT bool_and(status = 'PROCESSED') FROM belfry.jobs`) {
			return
		}
		if time.Since(began) > 4*patience { // beside busy processes a schedule took two minutes
			require.FailNow(t, "the jobs are never done", "%s\n%s", w.story(),
				one[string](t, w.b, `SELECT string_agg(to_jsonb(j)::text, e'\n') FROM belfry.jobs j`))
		}
	}
}

// look checks every job and the lanes.
func (w *world) look(t *testing.T) {
	t.Helper()
	require.Empty(t, one[[]string](t, w.b, `SELECT ARRAY(SELECT lane FROM belfry.jobs WHERE status = 'RUNNING' GROUP BY lane HAVING count(*) > 1)`),
		"I4: two jobs run in a lane\n%s", w.story())
	for _, j := range w.jobs {
		w.requireSound(t, j, w.seen(t, j))
	}
	w.try(t, "count", func(ctx context.Context) error {
		list, err := dbtest.Miscount(ctx, w.b.db.Pool)
		if err == nil {
			require.Empty(t, list, "%s", w.story())
		}
		return err
	})
}

// requireTold is what a correction means: what was written before it says what the job
// said then, what was written after it what it says now, and no message is sent yet, so
// that all of them say what it says now.
func (w *world) requireTold(t *testing.T, j *chaosJob) {
	t.Helper()
	rows, err := w.b.db.Pool.Query(t.Context(), `SELECT r.channel_id, c.title
		  FROM (SELECT job_id, channel_id FROM belfry.job_notifications UNION ALL SELECT job_id, channel_id FROM belfry.messages) r
		 CROSS JOIN LATERAL belfry.job_content(r.job_id, r.channel_id) c WHERE r.job_id = $1`, j.id)
	require.NoError(t, err)
	var channel int64
	var title string
	_, err = pgx.ForEachRow(rows, []any{&channel, &title}, func() error {
		want := j.title
		for _, s := range slices.Backward(j.said) {
			if j.kind == outbox.TypeInbox && channel <= s.upTo {
				want = s.title
			}
		}
		require.Equal(t, want, title, "job %d, channel %d\n%s", j.id, channel, w.story())
		return nil
	})
	require.NoError(t, err)
}

// chaosState is a job, its rows and its skips in one snapshot.
type chaosState struct {
	Status                           job.Status
	Cursor, Fence, Chunks            int64
	Bound                            *int64
	Read, Matched, Written, Declined int64
	Skipped                          int64
	LastError                        string
	Rows                             []int64
	Skips                            []int64
}

func (w *world) seen(t *testing.T, j *chaosJob) (s chaosState) {
	t.Helper()
	w.try(t, "look", func(ctx context.Context) error {
		rows, err := w.b.db.Pool.Query(ctx, `SELECT status, coalesce(nullif("cursor", ''), '0')::bigint AS "cursor", fence, chunks,
			nullif(bound, '')::bigint AS bound, channels_read AS read, channels_matched AS matched, rows_written AS written, declined, skipped,
			coalesce(last_error, '') AS last_error,
			ARRAY(SELECT channel_id FROM belfry.job_notifications WHERE job_id = j.id
			      UNION ALL SELECT channel_id FROM belfry.messages WHERE job_id = j.id ORDER BY 1) AS rows,
			ARRAY(SELECT key::bigint FROM belfry.job_skips WHERE job_id = j.id ORDER BY 1) AS skips
			FROM belfry.jobs j WHERE id = $1`, j.id)
		if err != nil {
			return err
		}
		s, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[chaosState])
		return err
	})
	return s
}

// requireSound is what holds in every committed state: I2, I3, I5, I6 and the
// accounts.
func (w *world) requireSound(t *testing.T, j *chaosJob, s chaosState) {
	t.Helper()
	require.Empty(t, j.unsound(w, s), "%s", w.story())
	j.cursor, j.fence = s.Cursor, s.Fence
	w.requireFates(t, j, s)
}

func (j *chaosJob) unsound(w *world, s chaosState) string {
	switch {
	case s.Status == job.Failed:
		return fmt.Sprintf("job %d gave up: %s", j.id, s.LastError)
	case s.Cursor < j.cursor:
		return fmt.Sprintf("I3: the cursor of job %d went back from %d to %d", j.id, j.cursor, s.Cursor)
	case s.Fence < j.fence:
		return fmt.Sprintf("I5: the fence of job %d fell from %d to %d", j.id, j.fence, s.Fence)
	case j.halted != nil && (s.Status != job.Aborted || *j.halted != progressSeen{s.Cursor, s.Chunks, s.Written}):
		return fmt.Sprintf("I6: job %d is %s at %d with %d chunks, %d rows; its abort was acknowledged at %+v", j.id, s.Status, s.Cursor, s.Chunks, s.Written, *j.halted)
	case len(s.Rows) > 0 && s.Rows[len(s.Rows)-1] > s.Cursor:
		return fmt.Sprintf("I3: job %d has a row for channel %d above its cursor %d", j.id, s.Rows[len(s.Rows)-1], s.Cursor)
	case s.Bound != nil && s.Cursor > *s.Bound:
		return fmt.Sprintf("I1: the cursor %d of job %d passed its bound %d", s.Cursor, j.id, *s.Bound)
	case len(slices.Compact(slices.Clone(s.Rows))) != len(s.Rows):
		return fmt.Sprintf("I2: job %d has two rows for one channel", j.id)
	case s.Written != int64(len(s.Rows)) || s.Skipped != int64(len(s.Skips)) || s.Matched != s.Written+s.Declined+s.Skipped || s.Read < s.Matched:
		return fmt.Sprintf("the accounts of job %d do not agree: read %d, matched %d, written %d of %d, declined %d, skipped %d of %d",
			j.id, s.Read, s.Matched, s.Written, len(s.Rows), s.Declined, s.Skipped, len(s.Skips))
	}
	for _, id := range s.Skips {
		if !w.poisoned[id] {
			return fmt.Sprintf("job %d skipped channel %d, which was never poisoned", j.id, id)
		}
		if _, both := slices.BinarySearch(s.Rows, id); both {
			return fmt.Sprintf("job %d has a row for channel %d and skipped it", j.id, id)
		}
	}
	return ""
}

// requireFates is I1 and I3: up to the cursor, or everywhere when the job is done,
// each channel that always matched has its row or was skipped, and no other has one
// but those that changed.
func (w *world) requireFates(t *testing.T, j *chaosJob, s chaosState) {
	t.Helper()
	reached := s.Cursor
	if s.Status == job.Processed {
		reached = (chaosChannels + 10) * step
	}
	for id := range w.ever {
		_, has := slices.BinarySearch(s.Rows, id)
		_, skipped := slices.BinarySearch(s.Skips, id)
		if f := j.fates[id]; f == always && (has || skipped) != (id <= reached) || f == never && has {
			require.FailNow(t, "I1, I3", "job %d, cursor %d, %s: channel %d has a row: %t, is skipped: %t, fate %d\n%s",
				j.id, s.Cursor, s.Status, id, has, skipped, f, w.story())
		}
	}
	for _, id := range s.Rows {
		require.True(t, w.ever[id], "job %d has a row for %d, which is no channel\n%s", j.id, id, w.story())
	}
}
