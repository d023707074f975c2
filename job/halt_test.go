package job_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

func (b *bundle) halt(t tester) {
	t.Helper()
	_, changed, err := b.jobs.Halt(t.Context(), job.Act{Actor: "ann", Reason: "wrong link"})
	require.NoError(t, err)
	require.True(t, changed)
}

func (b *bundle) lift(t tester) {
	t.Helper()
	changed, err := b.jobs.Unhalt(t.Context(), job.Act{Actor: "ben", Reason: "corrected"})
	require.NoError(t, err)
	require.True(t, changed)
}

// I6, of everything: when the halt has returned, walks in every lane have committed their last
// row, whatever they were doing; each job is PENDING with its cursor, nothing starts, also in
// a process that is new, and lifted each goes on to the end.
func TestHalt_StopsEveryWalkAtOnce(t *testing.T) {
	t.Parallel()
	const n = 350
	for _, point := range []string{job.PointBegun, job.PointWritten, job.PointMoved, job.PointCommitted} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setup(t, n)
			var ids []int64
			var gates, nexts []*gate // nexts: while the halt waits for one walk, the other must not come to its end
			var runs []*started
			for _, lane := range []string{"a", "b"} {
				ids = append(ids, b.enqueue(t, job.Spec{Lane: lane}))
				c := config("r-" + lane)
				c.Lanes = []string{lane}
				g, next := b.gate(point, 2), b.gate(job.PointBegun, 3)
				gates, nexts = append(gates, g), append(nexts, next)
				runs = append(runs, b.start(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(func(ctx context.Context, at string) error {
					return errors.Join(g.at(ctx, at), next.at(ctx, at))
				}))))
				g.await(t)
			}
			waiting := b.enqueue(t, job.Spec{Lane: "c"})
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _, err := b.jobs.Halt(context.WithoutCancel(t.Context()), job.Act{Actor: "ann", Reason: "wrong link"})
				if err != nil {
					t.Error(err)
				}
			}()
			if point == job.PointMoved { // the chunk has its job's row: the halt waits for its COMMIT
				b.halting(t)
				for _, g := range gates {
					g.release(nil)
				}
			}
			<-done
			after := []state{b.state(t, ids[0]), b.state(t, ids[1])}
			for _, g := range slices.Concat(gates, nexts) {
				g.release(nil)
			}
			for i, run := range runs {
				require.Equal(t, "ann", run.wait(t).Halt.By)
				require.Equal(t, after[i], b.state(t, ids[i]), "nothing was committed after the halt returned")
				require.Equal(t, job.Pending, after[i].Status)
				after[i].requireAtomic(t, everyone(n))
				require.Equal(t, []string{"enqueued", "claimed", "halted"}, b.kinds(t, ids[i]))
				require.Zero(t, b.get(t, ids[i]).Attempts, "a halt is no attempt")
			}
			require.Equal(t, "ann wrong link", one[string](t, b, `SELECT actor || ' ' || reason FROM belfry.job_events WHERE kind = 'halted' ORDER BY id LIMIT 1`))
			out := b.runDue(t, b.runner(t, "restarted"))
			require.Empty(t, out.Jobs)
			require.Equal(t, "wrong link", out.Halt.Reason)
			require.ErrorIs(t, out.Halt.Err(), job.ErrHalted)
			require.Equal(t, after[0], b.state(t, ids[0]))
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.jobs WHERE status = 'RUNNING'`))

			b.lift(t)
			require.Nil(t, b.runDue(t, b.runner(t, "r")).Halt.At)
			for _, id := range append(ids, waiting) {
				b.requireDone(t, id, everyone(n))
			}
		})
	}
}

// A halt races with claims and with chunks, many times: when it has returned no job is
// RUNNING, and what was committed then is all, until it is lifted.
func TestLong_HaltRacesWithClaimsAndChunks(t *testing.T) {
	t.Parallel()
	const times, n = 40, 2_000
	b := setup(t, n)
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
	c := config("r")
	c.Chunk = governor.ChunkConfig{InitialRows: 5, MinRows: 5, MaxRows: 5, Target: c.Chunk.Target}
	pool := b.db.Pool
	for range times {
		if b.state(t, id).Status != job.Pending {
			break
		}
		run := b.start(t, b.runnerWith(t, pool, c, outbox.Types(b.who)))
		wait := time.NewTimer(time.Duration(rand.Int64N(int64(30 * time.Millisecond))))
		<-wait.C
		b.halt(t)
		after := b.state(t, id)
		require.NotEqual(t, job.Running, after.Status)
		run.wait(t)
		require.Equal(t, after, b.state(t, id), "nothing was committed after the halt returned")
		after.requireAtomic(t, everyone(n))
		b.lift(t)
	}
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, everyone(n))
}

// halting waits until a halt asks again and again for a lock.
func (b *bundle) halting(t *testing.T) {
	t.Helper()
	b.eventually(t, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`)
}

// A claim whose COMMIT is on its way is found by the halt, which waits for it; one that comes
// while a halt is being committed changes nothing and waits for nobody.
func TestHalt_AndAClaimFindEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{})
	claim := `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'other', heartbeat_at = now() WHERE id = $1`
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), claim, id)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, _, err := b.jobs.Halt(context.WithoutCancel(t.Context()), job.Act{Actor: "ann"}); err != nil {
			t.Error(err)
		}
	}()
	b.halting(t)
	require.NoError(t, tx.Commit(t.Context()))
	<-done
	require.Equal(t, job.Pending, b.state(t, id).Status)
	tag, err := b.db.Pool.Exec(t.Context(), claim, id)
	require.NoError(t, err)
	require.Zero(t, tag.RowsAffected(), "no job is RUNNING while everything is halted, whoever writes")
	b.lift(t)

	tx, err = b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT belfry.halt('ann')`)
	require.NoError(t, err)
	tag, err = b.db.Pool.Exec(t.Context(), claim, id)
	require.NoError(t, err)
	require.Zero(t, tag.RowsAffected())
	require.NoError(t, tx.Rollback(t.Context()))
	tag, err = b.db.Pool.Exec(t.Context(), claim, id)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
}

// Halting twice changes nothing, and each act is recorded once, with actor and reason (I14).
func TestHalt_IsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	now, err := b.jobs.Halted(t.Context())
	require.NoError(t, err)
	require.NoError(t, now.Err())
	changed, err := b.jobs.Unhalt(t.Context(), job.Act{})
	require.NoError(t, err)
	require.False(t, changed, "it was not halted")
	b.halt(t)
	again, changed, err := b.jobs.Halt(t.Context(), job.Act{Actor: "eve", Reason: "me too"})
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, "ann", again.By, "who halted first")
	require.Equal(t, "it was halted already", one[string](t, b, `SELECT note FROM belfry.halt()`))
	now, err = b.jobs.Halted(t.Context())
	require.NoError(t, err)
	require.Equal(t, again, now)
	require.Contains(t, now.Err().Error(), " by ann: wrong link")
	b.lift(t)
	require.Equal(t, "it was not halted", one[string](t, b, `SELECT note FROM belfry.unhalt()`))
	rows, err := b.db.Pool.Query(t.Context(), `SELECT kind || ' ' || actor || ' ' || reason || ' ' || (detail -> 'after' ->> 'halted_at' IS NOT NULL) FROM belfry.events WHERE subject = 'installation' AND kind IN ('halted', 'lifted') ORDER BY id`)
	require.NoError(t, err)
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"halted ann wrong link true", "lifted ben corrected false"}, events)
}

// Who may only enqueue can neither halt nor lift nor see it; a plain UPDATE by who may is a
// halt as well; and a transaction that cannot see what runs is refused.
func TestHalt_ByPlainSQL(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	enqueuer := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`)
	for _, statement := range []string{
		`SELECT belfry.halt()`, `SELECT belfry.unhalt()`, `UPDATE belfry.installation SET halted_at = now(), halted_by = 'x'`,
		`SELECT FROM belfry.installation FOR UPDATE`, `SELECT belfry.installation_halt()`,
	} {
		_, err := enqueuer.Pool.Exec(t.Context(), statement)
		require.ErrorContains(t, err, "permission denied", statement)
	}
	operator := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE (halted_at, halted_by, halt_reason) ON belfry.installation TO :role`)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointWritten, 1)
	run := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
	g.await(t)
	_, err := operator.Pool.Exec(t.Context(), `UPDATE belfry.installation SET halted_at = now(), halted_by = 'ann'`)
	require.NoError(t, err)
	require.Equal(t, job.Pending, b.state(t, id).Status)
	g.release(nil)
	run.wait(t)
	require.Empty(t, b.state(t, id).Rows)
	_, err = enqueuer.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x')`)
	require.NoError(t, err, "what is enqueued waits")
	_, err = operator.Pool.Exec(t.Context(), `SELECT belfry.unhalt('ann')`)
	require.NoError(t, err)
	_, err = operator.Pool.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT belfry.halt('ann'); COMMIT`)
	require.ErrorContains(t, err, "belfry.installation.halted_at: cannot be set in a transaction that is REPEATABLE READ; allowed values: in one that is READ COMMITTED")
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, everyone(10))
}

// A due job whose row a session locks is not claimed; the runner says so, with the session, and claims it afterwards.
func TestRunDue_SaysWhoLocksDueJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{})
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs FOR UPDATE`)
	require.NoError(t, err)
	log := new(dbtest.Buffer)
	r := b.runner(t, "r", job.WithLogger(zerolog.New(log)))
	require.Empty(t, b.runDue(t, r).Jobs)
	require.Empty(t, b.runDue(t, r).Jobs)
	said := fmt.Sprintf(`"detail":"job %d by session %d of `, id, tx.Conn().PgConn().PID())
	require.Equal(t, 1, strings.Count(log.String(), said), "once a minute: %s", log)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Len(t, b.runDue(t, r).Jobs, 1)
	require.Equal(t, 1, strings.Count(log.String(), "due jobs are not claimed"))
}

// A runner that waits says once that everything is halted, and goes on when it is lifted,
// without a restart, whether it hears hints or not.
func TestHalt_ARunnerGoesOnByItself(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]bool{"listening": true, "polling": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 50)
			b.halt(t)
			id := b.enqueue(t, job.Spec{})
			log := new(dbtest.Buffer)
			c := config("r")
			c.Listen = listen
			r := b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithLogger(zerolog.New(log)))
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			defer func() { stop(); require.NoError(t, <-ended) }()
			for began := time.Now(); !strings.Contains(log.String(), "no job runs before `belfry unhalt`"); {
				require.Less(t, time.Since(began), patience)
				b.eventually(t, `SELECT true`)
			}
			require.Equal(t, job.Pending, b.state(t, id).Status)
			b.lift(t)
			b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, id)
			require.Equal(t, 1, strings.Count(log.String(), "no job runs before `belfry unhalt`"))
			require.Contains(t, log.String(), "belfry is halted since ")
			require.Equal(t, 1, strings.Count(log.String(), "belfry is no longer halted; jobs run again"))
		})
	}
}

// Once a session that kept the row of a job that ran locked kept the halt waiting, for as long as
// its transaction was open, and the receipt's time was earlier than the effect. The roles are those
// that may UPDATE jobs.
func TestHalt_WaitsForNoLockOfARow(t *testing.T) {
	t.Parallel()
	const n = 50
	for name, lock := range map[string]string{
		"run":     `UPDATE belfry.jobs SET heartbeat_at = now() WHERE id = $1`,
		"deliver": `UPDATE belfry.jobs SET delivered_at = delivered_at WHERE id = $1`,
		"operate": `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`,
		"claim":   `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'x', heartbeat_at = now() WHERE id = $1 + 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, n)
			id := b.enqueue(t, job.Spec{})
			b.enqueue(t, job.Spec{Lane: "other"})
			c := config("r")
			c.Lanes = []string{"default"}
			g := b.gate(job.PointWritten, 1)
			run := b.start(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(g.at)))
			g.await(t)
			holder := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE ON belfry.jobs TO :role`)
			tx, err := holder.Pool.Begin(t.Context())
			require.NoError(t, err)
			tag, err := tx.Exec(t.Context(), lock, id)
			require.NoError(t, err)
			require.EqualValues(t, 1, tag.RowsAffected())

			h, changed, err := b.jobs.Halt(t.Context(), job.Act{Actor: "ann"})
			require.NoError(t, err, "the transaction is still open")
			require.True(t, changed)
			require.Equal(t, h.At.UTC(), one[time.Time](t, b, `SELECT halted_at FROM belfry.installation`).UTC())
			if name == "claim" {
				require.Empty(t, b.jobs.Holders(t.Context()))
				require.NoError(t, tx.Rollback(t.Context()))
				g.release(nil)
				run.wait(t)
			} else {
				require.Contains(t, b.jobs.Holders(t.Context()), fmt.Sprintf("job %d by session %d of %s", id, tx.Conn().PgConn().PID(), holder.User))
				require.Equal(t, "["+strconv.FormatInt(id, 10)+"]", one[string](t, b, `SELECT detail ->> 'locked' FROM belfry.events WHERE kind = 'halted'`))
				g.release(nil)
				b.blocked(t) // the chunk waits for the row, with a snapshot that is older than the halt
				require.NoError(t, tx.Rollback(t.Context()))
				run.wait(t)
			}
			after := b.state(t, id)
			require.Equal(t, job.Pending, after.Status, "its run has handed it back")
			require.Empty(t, after.Rows, "the chunk was refused")
			require.Zero(t, b.get(t, id).Attempts)
			require.Equal(t, []string{"enqueued", "claimed", "halted"}, b.kinds(t, id))
			b.lift(t)
			b.runDue(t, b.runner(t, "r"))
			b.requireDone(t, id, everyone(n))
		})
	}
}

// Sessions share the lock of a job that nobody runs, each for half a second and one before the other ends. A halt takes its
// two seconds, and an abort says who they are.
func TestHalt_WaitsForNoSharedLocks(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{})
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'gone', heartbeat_at = now() WHERE id = $1`, id)
	holder := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE ON belfry.jobs TO :role`)
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	shared := make(chan struct{}, 1)
	for n := range 3 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = pgx.BeginFunc(ctx, holder.Pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, `SELECT FROM belfry.jobs WHERE id = $1 FOR SHARE`, id); err != nil {
						return err
					}
					select {
					case shared <- struct{}{}:
					default:
					}
					_, err := tx.Exec(ctx, `SELECT pg_sleep(0.5 + 0.1 * $1)`, n)
					return err
				})
			}
		})
	}
	<-shared
	began := time.Now()
	_, changed, err := b.jobs.Halt(t.Context(), job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.True(t, changed)
	require.Less(t, time.Since(began), 9*time.Second)
	require.Equal(t, "["+strconv.FormatInt(id, 10)+"]", one[string](t, b, `SELECT detail ->> 'locked' FROM belfry.events WHERE kind = 'halted'`))
	_, err = b.jobs.Abort(t.Context(), job.Selection{IDs: []int64{id}}, job.Act{Actor: "ann"})
	require.ErrorIs(t, err, job.ErrLocked)
	require.ErrorContains(t, db.NameHolders(t.Context(), b.db.Pool, err), "open transactions hold rows of belfry.jobs by session ")
}

// A claim that was open while belfry was halted, and commits later, writes nothing.
func TestHalt_AClaimThatCommitsLaterWritesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointBegun, 1)
	run := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
	g.await(t)
	fence := one[int64](t, b, `SELECT fence FROM belfry.jobs WHERE id = $1`, id)
	b.halt(t)
	g.release(nil)
	run.wait(t)
	b.exec(t, `ALTER TABLE belfry.jobs DISABLE TRIGGER jobs_transition; UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r', heartbeat_at = now();
		ALTER TABLE belfry.jobs ENABLE TRIGGER jobs_transition`)
	tag, err := b.db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET "cursor" = '5', rows_written = 5 WHERE id = $1 AND status = 'RUNNING' AND fence = $2`, id, fence+1)
	require.NoError(t, err)
	require.Zero(t, tag.RowsAffected(), "no chunk moves while belfry is halted")
}

// queue lets a login without rights lock out all others from a table: it keeps a weak lock, and waits for a strong one. It
// returns both sessions, and what ends them.
func (b *bundle) queue(t *testing.T, table string) (text string, end func()) {
	t.Helper()
	login := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`)
	weak, err := login.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = weak.Exec(t.Context(), `PREPARE p AS SELECT FROM belfry.`+table)
	require.NoError(t, err)
	strong, err := login.Pool.Acquire(t.Context())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := strong.Exec(t.Context(), `CREATE RULE r AS ON INSERT TO belfry.`+table+` DO NOTHING`)
		done <- err
	}()
	b.eventually(t, `SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)`, strong.Conn().PgConn().PID())
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = weak.Rollback(context.WithoutCancel(t.Context()))
			require.ErrorContains(t, <-done, "must be owner")
			strong.Release()
		})
	}
	t.Cleanup(end)
	const session = "session %d of %s"
	return fmt.Sprintf("belfry.%s is locked by "+session+", in", table, weak.Conn().PgConn().PID(), login.User) + "|" +
		fmt.Sprintf(session+", in", strong.Conn().PgConn().PID(), login.User), end
}

// PostgreSQL takes the lock of a table before it checks rights, so that a login with USAGE on the schema can stop everything.
// The errors say who it is, and a run waits for its end.
func TestHalt_NamesWhoWaitsForALockOfTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	id := b.enqueue(t, job.Spec{})
	who, end := b.queue(t, "installation")
	_, _, err := b.jobs.Halt(t.Context(), job.Act{Actor: "ann"})
	require.ErrorIs(t, err, job.ErrLocked)
	weak, strong, _ := strings.Cut(who, "|")
	require.ErrorContains(t, err, strings.TrimPrefix(weak, "belfry.installation is "))
	require.ErrorContains(t, err, strong)
	require.ErrorContains(t, err, "which waits for its lock before all others")
	end()

	c := config("r")
	c.StatementTimeout, c.Retry.Limit = time.Second, 1
	g := b.gate(job.PointCommitted, 1)
	run := b.start(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(g.at)))
	g.await(t)
	who, end = b.queue(t, "notifications")
	weak, strong, _ = strings.Cut(who, "|")
	g.release(nil)
	b.eventually(t, `SELECT strpos(coalesce(last_error, ''), $2) > 0 AND strpos(last_error, $3) > 0 FROM belfry.jobs WHERE id = $1`, id, weak, strong)
	b.eventually(t, `SELECT clock_timestamp() > $1::timestamptz + interval '4 seconds'`, one[time.Time](t, b, `SELECT clock_timestamp()`))
	require.Equal(t, "RUNNING", one[string](t, b, `SELECT status FROM belfry.jobs WHERE id = $1`, id), "it is not given up")
	end()
	run.wait(t)
	b.requireDone(t, id, everyone(300))
}

// A login that locks the row of an act kept it waiting for 5 seconds, and the error spoke of "the
// job" and named no session.
func TestStore_NamesTheSessionThatLocksTheObjectOfAnAct(t *testing.T) {
	t.Parallel()
	for object, c := range map[string]struct {
		lock string
		act  func(context.Context, *job.Store) error
	}{
		"the row of belfry.installation": {`SELECT FROM belfry.installation FOR UPDATE`, func(ctx context.Context, s *job.Store) error {
			_, _, err := s.Halt(ctx, job.Act{Actor: "ann"})
			return err
		}},
		"lane default": {`SELECT FROM belfry.lanes WHERE name = 'default' FOR UPDATE`, func(ctx context.Context, s *job.Store) error {
			_, err := s.PauseLane(ctx, "default", job.Act{Actor: "ann"})
			return err
		}},
		"the row of belfry.limits": {`UPDATE belfry.limits SET max_skips = max_skips`, func(ctx context.Context, s *job.Store) error {
			_, err := s.SetLimits(ctx, job.Changes{"max_skips": 7}, job.Act{Actor: "ann"})
			return err
		}},
	} {
		t.Run(object, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 0)
			b.exec(t, `INSERT INTO belfry.lanes (name) VALUES ('default'), ('other')`)
			holder := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE ON belfry.installation, belfry.lanes, belfry.limits TO :role`)
			tx, err := holder.Pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), c.lock)
			require.NoError(t, err)
			pid := tx.Conn().PgConn().PID()

			err = c.act(t.Context(), b.jobs)
			require.ErrorIs(t, err, job.ErrLocked)
			require.Equal(t, 1, strings.Count(err.Error(), "locked"), err)
			require.Equal(t, db.KindConflict, db.KindOf(err))
			require.ErrorContains(t, err, fmt.Sprintf("%s is locked by session %d of %s", object, pid, holder.User))
			require.ErrorContains(t, err, "in a transaction since "+one[time.Time](t, b, `SELECT xact_start FROM pg_stat_activity WHERE pid = $1`, pid).UTC().Format(time.DateTime))
			require.ErrorContains(t, err, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
			require.NoError(t, tx.Rollback(t.Context()))
			require.NoError(t, c.act(t.Context(), b.jobs))
		})
	}
}

// A role that may UPDATE jobs may lock the table, and a halt failed for as long as it did.
func TestHalt_WaitsForNoLockOfTheTable(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"SHARE", "EXCLUSIVE", "ACCESS EXCLUSIVE"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 10)
			id := b.enqueue(t, job.Spec{})
			g := b.gate(job.PointCommitted, 1) // in a transaction, the run would hold off the lock of the table
			run := b.start(t, b.runnerWith(t, b.db.Pool, small("r", 5), outbox.Types(b.who), job.WithFailpoint(g.at)))
			g.await(t)
			holder := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE ON belfry.jobs TO :role`)
			tx, err := holder.Pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.jobs IN `+mode+` MODE`)
			require.NoError(t, err)

			_, changed, err := b.jobs.Halt(t.Context(), job.Act{Actor: "ann"})
			require.NoError(t, err, "the table is still locked")
			require.True(t, changed)
			require.NotNil(t, one[*time.Time](t, b, `SELECT halted_at FROM belfry.installation`))
			require.Equal(t, "[0]", one[string](t, b, `SELECT detail ->> 'locked' FROM belfry.events WHERE kind = 'halted'`))
			require.Contains(t, b.jobs.Holders(t.Context()), fmt.Sprintf("belfry.jobs by session %d of %s", tx.Conn().PgConn().PID(), holder.User))
			require.NoError(t, tx.Rollback(t.Context()))
			g.release(nil)
			run.wait(t)
			after := b.state(t, id)
			require.Equal(t, job.Pending, after.Status, "its run has handed it back")
			require.Equal(t, everyone(5), after.Rows)
			b.lift(t)
			b.runDue(t, b.runner(t, "r"))
			b.requireDone(t, id, everyone(10))
		})
	}
}
