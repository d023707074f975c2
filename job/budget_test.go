package job_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// The limits of what a role that may only INSERT enqueues: 100 jobs in a group, 100 lanes, and in the category
// 'sum' 100 recipients an hour without approval.
const (
	budgetGroup  = `'0b7a3b42-96a4-4a5b-9d5e-6a1b5f6f7c11'`
	budgetInsert = `INSERT INTO belfry.jobs (type, category, title, schedule_at, idempotency_key, max_recipients, lane, group_id) `
	inGroup      = `SELECT 'inbox', 'operator_notice', 'x', '2099-01-01'::timestamptz, $1 || n, 1, 'default', ` + budgetGroup + `::uuid FROM generate_series(1, $2::int) n`
	inLanes      = `SELECT 'inbox', 'operator_notice', 'x', '2099-01-01'::timestamptz, $1 || n, 1, 'lane' || $1 || n, NULL::uuid FROM generate_series(1, $2::int) n`
	inSum        = `SELECT 'inbox', 'sum', 'x', '2099-01-01'::timestamptz, $1 || n, 10, 'default', NULL::uuid FROM generate_series(1, $2::int) n`
	unapproved   = `SELECT coalesce(sum(max_recipients), 0) FROM belfry.jobs WHERE category = 'sum' AND NOT needs_approval`
)

func budgets(t *testing.T) (*bundle, *dbtest.DB) {
	t.Helper()
	b := setup(t, 0)
	b.exec(t, `INSERT INTO belfry.categories (name, approval_above) VALUES ('sum', 100)`)
	return b, b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT, SELECT (id, type, group_id, idempotency_key) ON belfry.jobs TO :role`)
}

// A transaction of an isolation level, with a snapshot.
func begin(t *testing.T, db *dbtest.DB, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	_, err = tx.Exec(t.Context(), `SELECT count(*) FROM belfry.limits`)
	require.NoError(t, err)
	return tx
}

func refusedColumn(t *testing.T, err error) string {
	t.Helper()
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "23514", refused.Code, refused.Message)
	return refused.ColumnName
}

// A job was not counted if the snapshot contained a job of its key, although that job was deleted.
func TestBudget_CountsAJobWhoseKeyIsOfADeletedJob(t *testing.T) {
	t.Parallel()
	b, enqueuer := budgets(t)
	for i, of := range []string{inGroup, inLanes} {
		b.exec(t, budgetInsert+of, fmt.Sprint("full", i), 100)
	}
	_, err := enqueuer.Pool.Exec(t.Context(), budgetInsert+inSum, "full", 10)
	require.NoError(t, err)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for column, of := range map[string]string{"group_id": inGroup, "lane": inLanes, "needs_approval": inSum} {
			key := fmt.Sprint(string(level[:4]), " ", column, " ")
			b.exec(t, `INSERT INTO belfry.jobs (type, category, title, idempotency_key) VALUES ('inbox', 'operator_notice', 'first', $1)`, key+"1")
			tx := begin(t, enqueuer, level)
			deleting := begin(t, b.db, pgx.ReadCommitted)
			_, err = deleting.Exec(t.Context(), `DELETE FROM belfry.jobs WHERE idempotency_key = $1`, key+"1")
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() {
				_, err := tx.Exec(t.Context(), budgetInsert+strings.Replace(of, "'lane' || $1", "'deleted' || length($1)", 1), key, 1)
				done <- err
			}()
			b.blocked(t)
			require.NoError(t, deleting.Commit(t.Context()))
			if err = <-done; column != "needs_approval" {
				require.Equal(t, column, refusedColumn(t, err), level)
				require.NoError(t, tx.Rollback(t.Context()))
				continue
			}
			require.NoError(t, err)
			require.NoError(t, tx.Commit(t.Context()))
			require.True(t, one[bool](t, b, `SELECT needs_approval FROM belfry.jobs WHERE idempotency_key = $1`, key+"1"), level)
			require.Equal(t, "changed", one[string](t, b, `SELECT e.kind FROM belfry.job_events e JOIN belfry.jobs j ON j.id = e.job_id
				WHERE j.idempotency_key = $1 ORDER BY e.id DESC LIMIT 1`, key+"1"), "the demand is recorded")
		}
	}
}

// A job that was not inserted, because another open transaction had its key, was counted.
func TestBudget_DoesNotCountAJobThatIsNotInserted(t *testing.T) {
	t.Parallel()
	b, enqueuer := budgets(t)
	first := begin(t, b.db, pgx.ReadCommitted)
	_, err := first.Exec(t.Context(), budgetInsert+inSum, "key", 10)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := enqueuer.Pool.Exec(t.Context(), budgetInsert+inSum+` ON CONFLICT DO NOTHING`, "key", 10)
		done <- err
	}()
	b.blocked(t)
	require.NoError(t, first.Commit(t.Context()))
	require.NoError(t, <-done)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.activity_counts WHERE requester = 'jobs of ' || $1`, enqueuer.User))
}

// Transactions that are open at once: the sum without approval is exact, and each opens at most 100 lanes and
// fills a group to 100 jobs, of which the next transaction sees all.
func TestBudget_OfTransactionsSideBySide(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		inOrder(t, string(level), func(t *testing.T) {
			b, enqueuer := budgets(t)
			first, second := begin(t, enqueuer, level), begin(t, enqueuer, level)
			_, err := first.Exec(t.Context(), budgetInsert+inSum, "a", 7)
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() {
				_, err := second.Exec(t.Context(), budgetInsert+inSum, "b", 7)
				done <- err
			}()
			b.blocked(t)
			require.NoError(t, first.Commit(t.Context()))
			if err := <-done; level == pgx.ReadCommitted {
				require.NoError(t, err)
				require.NoError(t, second.Commit(t.Context()))
			} else {
				var failed *pgconn.PgError
				require.ErrorAs(t, err, &failed)
				require.Equal(t, "40001", failed.Code)
			}
			if n := one[int](t, b, unapproved); n != 70 && n != 100 && n != 140 { // 140: another clock hour began
				t.Fatalf("%d recipients without approval", n)
			}

			for column, of := range map[string]string{"group_id": inGroup, "lane": inLanes} {
				most := map[string]int{"group_id": 100, "lane": 99}[column] // a job waits in the lane default
				var open []pgx.Tx
				for i := range 2 {
					tx := begin(t, enqueuer, level)
					_, err := tx.Exec(t.Context(), budgetInsert+of, fmt.Sprint(column[:2], "tx", i, "x"), most)
					require.NoError(t, err)
					_, err = tx.Exec(t.Context(), `SAVEPOINT s`)
					require.NoError(t, err)
					_, err = tx.Exec(t.Context(), budgetInsert+of, fmt.Sprint(column[:2], "more", i, "x"), 2)
					require.Equal(t, column, refusedColumn(t, err))
					_, err = tx.Exec(t.Context(), `ROLLBACK TO s`)
					require.NoError(t, err)
					open = append(open, tx)
				}
				for _, tx := range open {
					if err := tx.Commit(t.Context()); err != nil {
						require.Equal(t, pgx.Serializable, level)
					}
				}
				_, err := enqueuer.Pool.Exec(t.Context(), budgetInsert+of, column[:2]+"next", 1)
				require.Equal(t, column, refusedColumn(t, err))
			}
		})
	}
}

// Two rows of one statement, or one that waits for approval, open no lane for each other.
func TestBudget_RowsOfOneStatementOpenNoLane(t *testing.T) {
	t.Parallel()
	b, enqueuer := budgets(t)
	b.exec(t, budgetInsert+inLanes, "full", 100)
	for _, more := range []string{"false", "true"} {
		_, err := enqueuer.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, lane, needs_approval)
			SELECT 'inbox', 'operator_notice', 'x', 'new', `+more+` FROM generate_series(1, 2)`)
		require.Equal(t, "lane", refusedColumn(t, err), more)
	}
}
