package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// A chunk counts its messages when it commits, and not when it does not.
func TestProgress_CountsWhatChunksCommit(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 0, job.Processed)
	chunk := func(err error, ids ...int64) {
		got := pgx.BeginFunc(bg, b.DB.Pool, func(tx pgx.Tx) error {
			if _, err := (outbox.Push{}).Write(bg, tx, job.Job{ID: id}, ids); err != nil {
				return err
			}
			return err
		})
		require.ErrorIs(t, got, err)
	}
	chunk(nil, 1, 2, 3)
	chunk(context.Canceled, 4, 5)
	chunk(nil, 4)
	chunk(nil)
	got, err := outbox.ProgressOf(bg, b.DB.Pool, []int64{id, 1 << 40})
	require.NoError(t, err)
	require.Equal(t, map[int64]outbox.Progress{id: {JobID: id, Messages: 4, Waiting: 4}}, got)
	require.Empty(t, dbtest.Miscounted(t, b.DB.Pool))
}

// Transactions of one relay that settle the same jobs in opposite orders do not wait for each other in a circle.
func TestProgress_SettlementsOfOneRelayDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	first, second := b.Rest(t, outbox.TypePush, 400, job.Processed), b.Rest(t, outbox.TypePush, 400, job.Processed)
	l := b.ledger("r1")
	errs := make(chan error, 4)
	for _, order := range [][2]int64{{first, second}, {second, first}, {first, second}, {second, first}} {
		var batches [][]outbox.Settlement
		for range 10 {
			batch := each(handed(t, l, order[0], 10), sent)
			for _, c := range handed(t, l, order[1], 10) {
				batch = append(batch, outbox.Settlement{Claimed: c, To: outbox.Dead, Reason: outbox.ReasonPermanent, Record: []outbox.Attempt{{Attempt: 1, Medium: "push", Outcome: outbox.OutcomePermanent}}})
			}
			batches = append(batches, batch)
		}
		go func() {
			var err error
			for _, batch := range batches {
				_, problem := l.Settle(bg, batch, nil)
				err = errors.Join(err, problem)
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	require.Empty(t, dbtest.Miscounted(t, b.DB.Pool))
	got, err := outbox.ProgressOf(bg, b.DB.Pool, []int64{first, second})
	require.NoError(t, err)
	require.Equal(t, outbox.Progress{JobID: first, Messages: 400, Sent: 200, Dead: 200}, got[first])
	require.Equal(t, outbox.Progress{JobID: second, Messages: 400, Sent: 200, Dead: 200}, got[second])
}

// A settlement does not wait for a row of counts that another session has locked, such as another settlement of the same
// relay until its COMMIT is on disk.
func TestProgress_SettlementsDoNotWaitForLockedCounts(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	l := b.ledger("r1")
	settle := func() {
		statuses, err := l.Settle(bg, each(handed(t, l, id, 1), sent), nil)
		require.NoError(t, err)
		require.Equal(t, []outbox.Status{outbox.Sent}, statuses)
	}
	settle()
	held, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	for range 2 {
		_, err = held.Exec(bg, `SELECT FROM belfry.job_deliveries WHERE job_id = $1 AND relay <> '' FOR UPDATE`, id)
		require.NoError(t, err)
		settle()
	}
	require.NoError(t, held.Rollback(bg))
	settle()
	require.Equal(t, "r1=2 r1/2=1 r1/3=1", one[string](t, b, `SELECT string_agg(relay || '=' || sent, ' ' ORDER BY relay) FROM belfry.job_deliveries WHERE job_id = $1 AND relay <> ''`, id))
	require.Empty(t, dbtest.Miscounted(t, b.DB.Pool))
}

// A role that delivers cannot add rows to a job without bound: the relays after the first 1,000 share one row, with exact
// sums, and a row stays that of its job and relay.
func TestProgress_RowsOfAJobAreBounded(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'x'), ('push', 'operator_notice', 'y')`)
	require.NoError(t, err)
	for range 2 {
		_, err = db.Pool.Exec(t.Context(), `DO $$ BEGIN FOR n IN 1..1100 LOOP
			INSERT INTO belfry.job_deliveries AS d (job_id, relay, sent) VALUES (1, 'r' || n, 1)
				ON CONFLICT ON CONSTRAINT job_deliveries_pkey DO UPDATE SET sent = d.sent + excluded.sent;
			END LOOP; END $$`)
		require.NoError(t, err)
	}
	var rows, sent int
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT count(*), sum(sent) FROM belfry.job_deliveries WHERE job_id = 1`).Scan(&rows, &sent))
	require.Equal(t, []int{1001, 2200}, []int{rows, sent})
	_, err = db.Pool.Exec(t.Context(), `INSERT INTO belfry.job_deliveries (job_id, relay) SELECT 2, 'q' || n FROM generate_series(1, 3000) n`)
	require.Error(t, err)
	_, err = db.Pool.Exec(t.Context(), `UPDATE belfry.job_deliveries SET job_id = 2 WHERE relay = 'r1'`)
	require.ErrorContains(t, err, "belfry.job_deliveries.relay: the row of job 1 and relay 'r1' keeps both; allowed changes: its counts")
}
