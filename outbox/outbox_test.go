package outbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// write runs a writer in a transaction of its own.
func write(db *dbtest.DB, w job.Writer[int64], j job.Job, ids []int64) (n int64, err error) {
	err = pgx.BeginFunc(context.Background(), db.Pool, func(tx pgx.Tx) error {
		n, err = w.Write(context.Background(), tx, j, ids)
		return err
	})
	return n, err
}

func stored(t require.TestingT, db *dbtest.DB, sql string, args ...any) []int64 {
	rows, err := db.Pool.Query(context.Background(), sql, args...)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	return ids
}

// Any number of rows, and any ids, arrive exactly; the stream's buffer holds about
// 2,500 notifications or 1,700 messages, so sizes around its multiples are drawn.
func TestWrite_StoresExactlyTheGivenChannels(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	next := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		next++
		j := job.Job{ID: next, Arrival: next}
		start := rapid.Int64Range(-1<<62, 1<<62).Draw(t, "start")
		n := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1670, 1690), rapid.IntRange(2510, 2530), rapid.IntRange(5000, 5100)).Draw(t, "n")
		ids := make([]int64, n)
		for i := range ids {
			start += rapid.Int64Range(1, 9).Draw(t, "gap")
			ids[i] = start
		}
		wrote, err := write(db, outbox.Inbox{}, j, ids)
		require.NoError(t, err)
		require.Equal(t, int64(n), wrote)
		require.Equal(t, ids, stored(t, db, `SELECT channel_id FROM belfry.notifications WHERE arrival = $1 ORDER BY 1`, j.Arrival))

		wrote, err = write(db, outbox.Push{}, j, ids)
		require.NoError(t, err)
		require.Equal(t, int64(n), wrote)
		require.Equal(t, ids, stored(t, db, `SELECT channel_id FROM belfry.messages WHERE job_id = $1 ORDER BY 1`, j.ID))
	})
}

// I2: a row that is there already is an error, never a second row or a silent skip.
func TestWrite_RefusesADuplicate(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	for _, w := range []job.Writer[int64]{outbox.Inbox{}, outbox.Push{}} {
		j := job.Job{ID: 1, Arrival: 1}
		_, err := write(db, w, j, []int64{1, 2, 3})
		require.NoError(t, err)
		_, err = write(db, w, j, []int64{5, 3, 4})
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Equal(t, "23505", pg.Code)
	}
	require.Equal(t, []int64{1, 2, 3}, stored(t, db, `SELECT channel_id FROM belfry.notifications ORDER BY 1`))
	require.Equal(t, []int64{1, 2, 3}, stored(t, db, `SELECT channel_id FROM belfry.messages ORDER BY 1`))
}

func TestPush_MessagesAreDueAtDeliverAt(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	ctx := context.Background()
	// Before and after the epoch of the binary format, with microseconds.
	for i, at := range []time.Time{
		time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC),
		time.Date(1999, 12, 31, 23, 59, 59, 999999000, time.UTC),
	} {
		j := job.Job{ID: int64(i + 1), DeliverAt: &at}
		_, err := write(db, outbox.Push{}, j, []int64{1})
		require.NoError(t, err)
		var due time.Time
		var status string
		require.NoError(t, db.Pool.QueryRow(ctx, `SELECT next_attempt_at, status FROM belfry.messages WHERE job_id = $1`, j.ID).Scan(&due, &status))
		require.True(t, at.Equal(due), "%s %s", at, due)
		require.Equal(t, "PENDING", status)
	}
}

// Without deliver_at a message is due at once, in the database's clock.
func TestPush_MessagesAreDueNowByDefault(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	ctx := context.Background()
	err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
		if _, err := (outbox.Push{}).Write(ctx, tx, job.Job{ID: 1}, []int64{1, 2}); err != nil {
			return err
		}
		var same bool
		err := tx.QueryRow(ctx, `SELECT bool_and(next_attempt_at = now()) FROM belfry.messages`).Scan(&same)
		require.True(t, same)
		return err
	})
	require.NoError(t, err)
}

// The inbox listing has the index it needs; the relay's claim is in sendable_test.go.
func TestTables_ServeInboxByIndex(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	ids := make([]int64, 200)
	for i := range ids {
		ids[i] = int64(i)
	}
	for j := range 100 {
		_, err := write(db, outbox.Inbox{}, job.Job{Arrival: int64(j + 1)}, ids)
		require.NoError(t, err)
	}
	_, err := db.Pool.Exec(ctx, `VACUUM (ANALYZE) belfry.notifications`)
	require.NoError(t, err)
	rows, err := db.Pool.Query(ctx, `EXPLAIN SELECT arrival FROM belfry.notifications WHERE channel_id = 7 AND withdrawn_at IS NULL ORDER BY arrival DESC LIMIT 20`)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(plan, func(line string) bool { return strings.Contains(line, "notifications_0_pkey") }), "%v", plan)
	require.False(t, slices.ContainsFunc(plan, func(line string) bool { return strings.Contains(line, "Sort") }), "%v", plan)
}
