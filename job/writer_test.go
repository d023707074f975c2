package job_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

// custom enqueues a job of a type of the test's own and runs it with the writer.
func (b *bundle) custom(t *testing.T, c job.Config, write job.WriterFunc[int64]) (int64, error) {
	t.Helper()
	b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('custom') ON CONFLICT DO NOTHING`)
	id := b.enqueue(t, job.Spec{Type: "custom"})
	kind := job.NewType[int64]("custom", "", job.RecipientIDs(b.who), write)
	_, err := b.runnerWith(t, b.db.Pool, c, []job.Type{kind}).RunDue(t.Context())
	return id, err
}

// A Writer's own errors are not retried, whatever they wrap: a deadline of another
// service is no lost database, and neither is ErrUnreachable of another one. The first
// recipient is found to blame, and the job fails when nobody may be skipped.
func TestWriter_OwnErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	for name, cause := range map[string]error{
		"deadline":    fmt.Errorf("ask the template service: %w", context.DeadlineExceeded),
		"unreachable": fmt.Errorf("enqueue elsewhere: %w", job.ErrUnreachable),
		"NUL":         fmt.Errorf("bad \x00 and \xff bytes"),
	} {
		inOrder(t, name, func(t *testing.T) {
			calls := 0
			c := config("r")
			c.MaxSkips = 0
			id, err := b.custom(t, c, func(context.Context, pgx.Tx, job.Job, []int64) (int64, error) {
				calls++
				return 0, cause
			})
			require.NoError(t, err)
			require.Equal(t, 8, calls, "halved from 100 recipients to one, and no call twice")
			require.Equal(t, job.Failed, b.state(t, id).Status)
			require.NotEmpty(t, b.state(t, id).LastError)
		})
	}
}

// I3: a Writer cannot end the chunk's transaction.
func TestWriter_CannotEndTheChunksTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	for name, end := range map[string]func(context.Context, pgx.Tx) error{"commit": func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, "rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }} {
		inOrder(t, name, func(t *testing.T) {
			id, err := b.custom(t, config("r"), func(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
				n, err := outbox.Inbox{}.Write(ctx, tx, j, ids)
				if err != nil {
					return 0, err
				}
				return n, end(ctx, tx)
			})
			require.NoError(t, err)
			require.Equal(t, job.Failed, b.state(t, id).Status)
			require.Contains(t, b.state(t, id).LastError, "must not end")
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.notifications`))
		})
	}
}

// A chunk that runs out of time in the Writer's Go code is tried again smaller.
func TestLong_WriterFaultOfASlowWriterShrinksTheChunk(t *testing.T) {
	t.Parallel()
	b := setup(t, 400)
	c := config("r")
	c.StatementTimeout, c.StaleAfter = time.Second, 2*time.Second
	c.Chunk = governor.ChunkConfig{InitialRows: 400, MinRows: 10, MaxRows: 400, Target: 50 * time.Millisecond}
	c.Retry = job.RetryConfig{Limit: 10, Initial: time.Millisecond, Max: time.Millisecond}
	b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('custom')`)
	id := b.enqueue(t, job.Spec{Type: "custom"})
	b.insist(t, b.runnerWith(t, b.db.Pool, c, []job.Type{job.NewType("custom", "", job.RecipientIDs(b.who), job.WriterFunc[int64](func(ctx context.Context, _ pgx.Tx, _ job.Job, ids []int64) (int64, error) {
		if len(ids) > 60 { // would take too long
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return int64(len(ids)), nil
	}))}))
	require.Equal(t, job.Processed, b.state(t, id).Status, b.state(t, id).LastError)
	require.EqualValues(t, 400, b.state(t, id).Written)
}

// A server that is read-only for a moment, as in a failover, is waited for.
func TestRunner_FaultOfAReadOnlyServerIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	n := 0
	id, err := b.custom(t, config("r"), func(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
		if n++; n == 2 {
			if _, err := tx.Exec(ctx, `SET LOCAL transaction_read_only = on`); err != nil {
				return 0, err
			}
		}
		return outbox.Inbox{}.Write(ctx, tx, j, ids)
	})
	require.NoError(t, err)
	require.Equal(t, job.Processed, b.state(t, id).Status, b.state(t, id).LastError)
}

// A Source that does not advance, or goes past the bound, fails the job instead of
// writing the same recipients again and again.
func TestSource_MustAdvanceUpToTheBound(t *testing.T) {
	t.Parallel()
	b := setup(t, 250)
	b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('stuck')`)
	type recipient struct{ ID int64 }
	for name, key := range map[string]func(recipient) any{
		"stuck":          func(recipient) any { return int64(500) },
		"past the bound": func(r recipient) any { return r.ID + 1_000_000 },
		"another type":   func(recipient) any { return "x" },
	} {
		inOrder(t, name, func(t *testing.T) {
			id := b.enqueue(t, job.Spec{Type: "stuck"})
			source := job.Table[recipient]{
				Relation: pgx.Identifier{"belfry", "channels"}, Key: cursor.MustKeyset(cursor.Column{Name: "id", Type: cursor.Bigint}),
				KeyOf: func(r recipient) []any { return []any{key(r)} },
			}
			nothing := job.WriterFunc[recipient](func(_ context.Context, _ pgx.Tx, _ job.Job, rows []recipient) (int64, error) {
				return int64(len(rows)), nil
			})
			_, err := b.runnerWith(t, b.db.Pool, config("r"), []job.Type{job.NewType[recipient]("stuck", "", source, nothing)}).RunDue(t.Context())
			require.NoError(t, err)
			s := b.state(t, id)
			require.Equal(t, job.Failed, s.Status)
			require.LessOrEqual(t, s.Chunks, int64(1))
		})
	}
}

// What was asked for cannot change between the claim and the frozen bound.
func TestJobs_ClaimedJobKeepsWhatWasAsked(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() WHERE id = $1`, id)
	for _, set := range []string{`type = 'inbox'`, `audience = belfry.audience_platforms('android')`, `deliver_at = schedule_at`} {
		_, err := b.db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET `+set+` WHERE id = $1`, id)
		require.ErrorContains(t, err, "allowed changes: none", set)
	}
}

// A runner cannot be stopped by a row that it cannot read: the job fails, others run.
func TestRunner_FaultOfAnUnreadableRowFailsThatJobOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	dbtest.Past(t, b.db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, audience, priority) VALUES (nextval('belfry.jobs_id_seq'), 'inbox', 'operator_notice', 'x', '{push}', '{"kind": "nobody"}', 9)`)
	good := b.enqueue(t, job.Spec{})
	_, err := b.runner(t, "r").RunDue(t.Context())
	require.NoError(t, err)
	require.Equal(t, "FAILED", one[string](t, b, `SELECT status FROM belfry.jobs WHERE priority = 9`))
	b.requireDone(t, good, everyone(100))
}

// A pool that an embedding program gives is the program's to open: what a pooler loses is
// explained, with the remedy.
func TestStore_NamesTheRemedyWhereAPoolerLosesPreparedStatements(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	pool, err := pgxpool.New(t.Context(), b.db.DSN+"&pool_max_conns=1")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store := job.NewStore(pool)
	_, err = store.Lanes(t.Context())
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "DEALLOCATE ALL") // as another's transaction on another server connection
	require.NoError(t, err)
	_, err = store.Lanes(t.Context())
	require.ErrorIs(t, err, db.ErrLost)
	require.ErrorContains(t, err, "default_query_exec_mode=cache_describe")
}

// The Store works in every way pgx can talk, poolers included, and whatever the
// role's defaults for transactions are.
func TestLong_StoreWorksInEveryExecModeAndUnderAnyDefaults(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	for name, change := range map[string]func(*pgx.ConnConfig){
		"simple protocol": func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
		"exec":            func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeExec },
		"cache describe":  func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe },
		"describe exec":   func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec },
		"read only":       func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_read_only"] = "on" },
		"serializable":    func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = "serializable" },
	} {
		inOrder(t, name, func(t *testing.T) {
			c, err := pgxpool.ParseConfig(b.db.DSN)
			require.NoError(t, err)
			change(c.ConnConfig)
			pool, err := pgxpool.NewWithConfig(t.Context(), c)
			require.NoError(t, err)
			defer pool.Close()
			store := job.NewStore(pool)
			group := uuid.New()
			id, err := store.Enqueue(t.Context(), job.Spec{
				Type: "push", Category: "operator_notice", Title: "x", Audience: channels.OnPlatforms("ios"),
				Data: json.RawMessage(`{"a": 1}`), GroupID: &group, IdempotencyKey: name,
			})
			require.NoError(t, err)
			ids, err := store.EnqueueGroup(t.Context(), []string{"push", "inbox"}, job.Spec{Category: "operator_notice", Title: "y"})
			require.NoError(t, err)
			require.Len(t, ids, 2)
			_, err = store.Abort(t.Context(), job.Selection{Group: &group}, job.Act{Actor: "ann"})
			require.NoError(t, err)
			_, err = store.Resume(t.Context(), job.One(id), job.Act{Actor: "ann"})
			require.NoError(t, err)
			out, err := b.runnerWith(t, pool, config("r"), outbox.Types(b.who)).RunDue(t.Context())
			require.NoError(t, err)
			require.Len(t, out.Jobs, 3)
			list, err := store.List(t.Context(), job.Filter{Statuses: []job.Status{job.Processed}})
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(list), 3)
		})
	}
}

// A row that somebody keeps locked is not a database that is away.
func TestStore_ActOnALockedJobSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{})
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	_, err = b.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "ann"})
	require.ErrorIs(t, err, job.ErrLocked)
	require.NotErrorIs(t, err, job.ErrUnreachable)
	require.ErrorContains(t, err, fmt.Sprintf("session %d of %s", tx.Conn().PgConn().PID(), b.db.Pool.Config().ConnConfig.User), "it names the session")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, job.Pending, b.state(t, id).Status)
}

// Repeated group keys join the first group, in any order of types, at once.
func TestEnqueueGroup_RacingWithOneKeyMakesOneGroup(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	for i := range 20 {
		var both sync.WaitGroup
		errs := make([]error, 2)
		for k, types := range [][]string{{"inbox", "push"}, {"push", "inbox"}} {
			both.Go(func() {
				_, errs[k] = b.jobs.EnqueueGroup(t.Context(), types, job.Spec{Category: "operator_notice", Title: "x", IdempotencyKey: fmt.Sprint(i)})
			})
		}
		both.Wait()
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
	}
	require.EqualValues(t, 20, one[int64](t, b, `SELECT count(DISTINCT group_id) FROM belfry.jobs`))
	require.EqualValues(t, 40, one[int64](t, b, `SELECT count(*) FROM belfry.jobs`))

	first, err := b.jobs.EnqueueGroup(t.Context(), []string{"inbox"}, job.Spec{Category: "operator_notice", Title: "x", IdempotencyKey: "grows"})
	require.NoError(t, err)
	whole, err := b.jobs.EnqueueGroup(t.Context(), []string{"push", "inbox"}, job.Spec{Category: "operator_notice", Title: "x", IdempotencyKey: "grows"})
	require.NoError(t, err)
	require.Equal(t, first[0], whole[1])
	require.EqualValues(t, 1, one[int64](t, b, `SELECT count(DISTINCT group_id) FROM belfry.jobs WHERE idempotency_key = 'grows'`))
}

// A role that may only INSERT can enqueue; it cannot forge the timeline (I14).
func TestJobs_InsertIsEnoughToEnqueueAndNotToForge(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	role := pgx.Identifier{"belfry_app_" + uuid.NewString()[:8]}.Sanitize()
	b.exec(t, `CREATE ROLE `+role)
	b.last = append(b.last, func() {
		_, _ = b.db.Pool.Exec(context.Background(), `DROP OWNED BY `+role)
		_, _ = b.db.Pool.Exec(context.Background(), `DROP ROLE `+role)
	})
	b.exec(t, `GRANT USAGE ON SCHEMA belfry TO `+role)
	b.exec(t, `GRANT INSERT ON belfry.jobs TO `+role)
	as := func(sql string) error {
		return pgx.BeginFunc(t.Context(), b.db.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE `+role); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
	}
	require.NoError(t, as(`INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x')`))
	require.EqualValues(t, 1, one[int64](t, b, `SELECT count(*) FROM belfry.job_events`))
	for _, function := range []string{"jobs_record", "jobs_validate"} {
		require.ErrorContains(t, as(`CREATE TEMP TABLE mine (id bigint); CREATE TRIGGER forge AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION belfry.`+function+`()`),
			"permission denied for function belfry."+function)
	}
	require.ErrorContains(t, as(`UPDATE belfry.jobs SET abort_requested = true`), "permission denied")
}
