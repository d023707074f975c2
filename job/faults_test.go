package job_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

// noting is a job type that writes notifications, one INSERT a chunk, and lets a
// test interfere with each chunk before that.
func (b *bundle) noting(interfere func(ctx context.Context, tx pgx.Tx, ids []int64) error) job.Type {
	return job.NewType("noting", "of a test", job.RecipientIDs(b.who), job.WriterFunc[int64](
		func(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
			if err := interfere(ctx, tx, ids); err != nil {
				return 0, err
			}
			tag, err := tx.Exec(ctx, `INSERT INTO belfry.notifications (arrival, channel_id) SELECT $1, unnest($2::bigint[])`, j.Arrival, ids)
			return tag.RowsAffected(), err
		}))
}

func (b *bundle) register(t *testing.T) {
	t.Helper()
	b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('noting')`)
}

// A COMMIT error is an unknown outcome. Here the COMMIT counted and its
// acknowledgement was lost, for the freeze of the bound and for every chunk: the run
// adopts what is there and writes nothing twice.
func TestRunner_LostAcknowledgementsOfCommitsThatCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, 550)
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		id := b.enqueue(t, job.Spec{Type: kind})
		lost, pending := 0, true
		b.runDue(t, b.runner(t, "r", job.WithFailpoint(func(_ context.Context, point string) error {
			switch {
			case point == job.PointMoved:
				pending = true
			case point == job.PointCommitLost && pending:
				lost++
				pending = false
				return context.DeadlineExceeded
			}
			return nil
		})))
		b.requireDone(t, id, everyone(550))
		require.EqualValues(t, 6, b.state(t, id).Chunks)
		require.Equal(t, 1+6, lost)
	}
}

// I3: a COMMIT of this very run that was given up for lost may still count late,
// while the chunk is run again. Then the chunk's own move matches nothing, and the
// cursor does not go back. No row is there to collide: nobody matches.
func TestRunner_LateCommitOfItsOwnIsNotUndone(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	b.exec(t, `UPDATE belfry.channels SET active = false`)
	id := b.enqueue(t, job.Spec{})
	var cursors []string
	written := 0
	b.runDue(t, b.runner(t, "r",
		job.WithObserver(func(p job.Progress) {
			if p.Event == "chunk" {
				cursors = append(cursors, p.Job.Cursor)
			}
		}),
		job.WithFailpoint(func(ctx context.Context, point string) error {
			if point == job.PointWritten {
				if written++; written == 3 {
					_, err := b.db.Pool.Exec(ctx, `UPDATE belfry.jobs SET "cursor" = '4000', chunks = chunks + 1 WHERE id = $1`, id)
					return err
				}
			}
			return nil
		})))
	b.requireDone(t, id, []int64{})
	require.Equal(t, []string{"1000", "2000", "5000"}, cursors)
	require.EqualValues(t, 4, b.state(t, id).Chunks)
}

// The other outcome of a COMMIT error: the server ended the connection before it
// committed. The chunk is run again. The same for a connection ended at any other
// point of the chunk.
func TestRunner_FaultOfTerminatedBackendIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t, 550)
	for _, point := range []string{job.PointBegun, job.PointWritten, job.PointMoved} {
		inOrder(t, point, func(t *testing.T) {
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			nth := 0
			b.runDue(t, b.runner(t, "r", job.WithFailpoint(func(ctx context.Context, at string) error {
				if at != point {
					return nil
				}
				if nth++; nth != 3 {
					return nil
				}
				_, err := b.db.Pool.Exec(ctx, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
					WHERE datname = current_database() AND application_name LIKE 'belfry job%'`)
				return err
			})))
			b.requireDone(t, id, everyone(550))
			s := b.state(t, id)
			require.EqualValues(t, 6, s.Chunks)
			require.Equal(t, []string{"enqueued", "claimed", "finished"}, b.kinds(t, id))
			require.Greater(t, nth, 6, "one chunk ran twice")
		})
	}
}

// The statement that makes the job PROCESSED may lose its acknowledgement, too.
func TestRunner_FaultAfterItsLastStatementFindsTheJobDone(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	id := b.enqueue(t, job.Spec{})
	nth := 0
	out := b.runDue(t, b.runner(t, "r", job.WithFailpoint(func(ctx context.Context, point string) error {
		if point != job.PointBegun {
			return nil
		}
		if nth++; nth != 2 { // the look that finds no more key
			return nil
		}
		_, err := b.db.Pool.Exec(ctx, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`, id)
		return errors.Join(err, context.DeadlineExceeded)
	})))
	require.Equal(t, job.Processed, out.Jobs[0].Status)
	b.requireDone(t, id, everyone(100))
}

// A chunk that runs into the statement timeout is rolled back and tried again at
// half its size, until it fits.
func TestRunner_StatementTimeoutShrinksTheChunk(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	b.register(t)
	id := b.enqueue(t, job.Spec{Type: "noting"})
	var sizes []int
	fits, limits := false, map[string]bool{}
	kind := b.noting(func(ctx context.Context, tx pgx.Tx, ids []int64) error {
		sizes = append(sizes, len(ids))
		if fits = fits || len(ids) <= 30; fits {
			return nil
		}
		var limit string
		if err := tx.QueryRow(ctx, `SELECT current_setting('statement_timeout')`).Scan(&limit); err != nil {
			return err
		}
		limits[limit] = true
		_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 1; SELECT pg_sleep(600)`)
		return err
	})
	c := config("r")
	c.Chunk = governor.ChunkConfig{InitialRows: 100, MinRows: 25, MaxRows: 100, Target: time.Millisecond}
	b.runDue(t, b.runnerWith(t, b.db.Pool, c, []job.Type{kind}))
	require.Equal(t, []int{100, 50, 25}, sizes[:3])
	require.Equal(t, map[string]bool{"1min": true}, limits, "the runner's, which is shortened above for the test's sake")
	b.requireDone(t, id, everyone(500))
}

// A runner that hangs inside a transaction loses it to the server, not its job.
func TestRunner_FaultOfAWriterThatHangsIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	id := b.enqueue(t, job.Spec{})
	c := config("r")
	c.StatementTimeout = 1500 * time.Millisecond
	nth := 0
	b.insist(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(func(_ context.Context, point string) error {
		if point == job.PointWritten {
			if nth++; nth == 2 {
				b.eventually(t, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'belfry job ' || $1::bigint || ' fence 1')`, id)
			}
		}
		return nil
	})))
	require.Greater(t, nth, 3)
	b.requireDone(t, id, everyone(300))
}

// What a retry cannot fix and no recipient is to blame for makes the job FAILED at
// once, with the error, its cursor where it was. What a recipient is to blame for does
// so when nobody may be skipped, with the cursor right before that recipient. Retry
// goes on from there.
func TestRunner_PermanentErrorFailsTheJobWhereItStands(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	b.register(t)
	for name, c := range map[string]struct {
		fault func(ctx context.Context, tx pgx.Tx) error
		wants []string // in last_error
	}{
		"missing table": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT FROM missing`)
			return err
		}, []string{"write rows: ", "42P01"}},
		"SQL error": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1 / 0`)
			return err
		}, []string{"write rows: ", "22012", "division by zero"}},
		"Go error": {func(context.Context, pgx.Tx) error {
			return errors.New("template has no locale ko")
		}, []string{"write rows: template has no locale ko"}},
		"panic": {func(context.Context, pgx.Tx) error {
			var none []int
			none[len(none)]++
			return nil
		}, []string{"panic: runtime error: index out of range [0] with length 0 at ", "faults_test.go:"}},
		"panic in a query": {func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `SELECT generate_series(1, 100000)`)
			if err == nil && rows.Next() {
				panic("rows are open") // the connection is busy: it has to go
			}
			return err
		}, []string{"panic: rows are open at "}},
	} {
		inOrder(t, name, func(t *testing.T) {
			id, other := b.enqueue(t, job.Spec{Type: "noting"}), b.enqueue(t, job.Spec{})
			faults, broken := 0, true
			kind := b.noting(func(ctx context.Context, tx pgx.Tx, ids []int64) error {
				if broken && slices.Contains(ids, 2500) {
					faults++
					return c.fault(ctx, tx)
				}
				return nil
			})
			noSkips := config("r")
			noSkips.MaxSkips = 0
			r := b.runnerWith(t, b.db.Pool, noSkips, append(outbox.Types(b.who), kind))
			out := b.runDue(t, r)
			require.Len(t, out.Jobs, 2, "the runner goes on with the next job")
			s := b.state(t, id)
			require.Equal(t, job.Failed, s.Status)
			if name == "missing table" {
				require.Equal(t, "2000", s.Cursor)
				require.Equal(t, 1, faults, "not retried")
			} else {
				require.Equal(t, "2490", s.Cursor)
				require.LessOrEqual(t, faults, 8, "halved, not retried")
			}
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_skips`))
			s.requireAtomic(t, everyone(500))
			for _, want := range c.wants {
				require.Contains(t, s.LastError, want)
			}
			b.requireDone(t, other, everyone(500))
			events, err := b.jobs.Events(t.Context(), id, 0, 0)
			require.NoError(t, err)
			require.Equal(t, s.LastError, events[len(events)-1].Reason)

			broken = false
			_, err = b.jobs.Retry(t.Context(), job.One(id), job.Act{Actor: "ann"})
			require.NoError(t, err)
			b.runDue(t, r)
			b.requireDone(t, id, everyone(500))
			require.Empty(t, b.state(t, id).LastError)
		})
	}
}

// What a retry can fix is tried Retry.Limit times, visibly, and then fails the job.
func TestRunner_GivesUpAfterTheRetryLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	b.register(t)
	id := b.enqueue(t, job.Spec{Type: "noting"})
	tries := 0
	var noted string
	kind := b.noting(func(ctx context.Context, tx pgx.Tx, _ []int64) error {
		if tries++; tries == 3 {
			noted = b.state(t, id).LastError
		}
		_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE EXCEPTION 'busy' USING ERRCODE = 'serialization_failure'; END $$`)
		return err
	})
	c := config("r")
	c.Retry.Limit = 4
	b.runDue(t, b.runnerWith(t, b.db.Pool, c, []job.Type{kind}))
	s := b.state(t, id)
	require.Equal(t, job.Failed, s.Status)
	require.Equal(t, 5, tries)
	require.Contains(t, s.LastError, "gave up after 5 tries")
	require.Contains(t, s.LastError, "40001")
	require.Contains(t, noted, "40001", "the error is on the row while it is being retried")
	require.Empty(t, s.Rows)
}

// A full disk that somebody clears, or a lock, is no reason to fail a job, however many tries that
// takes; one that stays full is, when Retry.For is over. Other errors between do not
// count the tries of the shortage.
func TestRunner_ShortagesAreWaitedOut(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	b.register(t)
	for _, c := range []struct {
		name   string
		code   string
		full   int // tries that find the disk full
		limit  time.Duration
		status job.Status
	}{
		{"cleared", "disk_full", 20, patience, job.Processed},
		{"never cleared", "disk_full", 1 << 30, 20 * time.Millisecond, job.Failed},
		{"unlocked", "lock_not_available", 20, patience, job.Processed},
	} {
		inOrder(t, c.name, func(t *testing.T) {
			id := b.enqueue(t, job.Spec{Type: "noting"})
			tries := 0
			kind := b.noting(func(ctx context.Context, tx pgx.Tx, _ []int64) error {
				if tries++; tries > c.full+1 {
					return nil
				}
				sql := `DO $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '` + c.code + `'; END $$`
				if tries == c.full+1 {
					sql = `DO $$ BEGIN RAISE EXCEPTION 'busy' USING ERRCODE = 'serialization_failure'; END $$`
				}
				_, err := tx.Exec(ctx, sql)
				return err
			})
			config := config("r")
			config.Retry = job.RetryConfig{Limit: 2, For: c.limit, Initial: time.Millisecond, Max: time.Millisecond}
			b.runDue(t, b.runnerWith(t, b.db.Pool, config, []job.Type{kind}))
			s := b.state(t, id)
			require.Equal(t, c.status, s.Status, s.LastError)
			if c.status == job.Failed {
				require.Regexp(t, "gave up after [0-9]+ tries in .*53100", s.LastError)
			}
		})
	}
}

// A job whose row is aborted and deleted under its run ends the run, nothing else.
func TestRunner_JobDeletedUnderItsRun(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	b.enqueue(t, job.Spec{})
	events := map[string]int{}
	nth := 0
	b.runDue(t, b.runner(t, "r", job.WithObserver(func(p job.Progress) { events[p.Event]++ }),
		job.WithFailpoint(func(ctx context.Context, point string) error {
			if point == job.PointWritten {
				if nth++; nth == 2 {
					_, err := b.db.Pool.Exec(ctx, `UPDATE belfry.jobs SET abort_requested = true`)
					_, errDelete := b.db.Pool.Exec(ctx, `DELETE FROM belfry.jobs`)
					return errors.Join(err, errDelete)
				}
			}
			return nil
		})))
	require.Equal(t, map[string]int{"claimed": 1, "chunk": 1, "lost": 1}, events)
	require.EqualValues(t, 100, one[int64](t, b, `SELECT count(*) FROM belfry.notifications`), "the first chunk's; the second rolled back")
}

// A runner without a schema, or without a database, says so and ends.
func TestRunner_FaultOfAMissingSchemaIsAnError(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.exec(t, `DROP SCHEMA belfry CASCADE`)
	_, err := b.runner(t, "r").RunDue(t.Context())
	require.ErrorContains(t, err, "belfry")
	require.True(t, strings.Contains(err.Error(), "42P01") || strings.Contains(err.Error(), "3F000"), err)
}
