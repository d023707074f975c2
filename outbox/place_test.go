package outbox_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// I6, I8: where a claim left a message is a hint. A row that has moved since is found by
// its key, and one that has taken its place is left alone.
func TestLedger_FindsMessagesThatMoved(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 8, job.Processed)
	b.returned(t)
	claimed := claim(t, l, id, 8)
	b.Exec(t, `UPDATE belfry.message_rows SET last_error = 'moved' WHERE channel_id IN (2, 3)`)
	b.Exec(t, `UPDATE belfry.message_rows SET recalled_at = now() WHERE channel_id = 4`)
	b.Exec(t, `UPDATE belfry.message_rows SET lease_id = 99 WHERE channel_id = 5`)
	claimed[5] = outbox.Misplaced(claimed[5], claimed[6]) // channels 6 and 7
	claimed[7] = outbox.Anywhere(claimed)[7]
	handOver(t, l, claimed, nil)
	verdicts, err := l.Recheck(ctx, claimed)
	require.NoError(t, err)
	require.Equal(t, []outbox.Verdict{"send", "send", "send", "recalled", "lost", "send", "send", "send"}, verdicts)

	statuses, err := l.Settle(ctx, each(claimed[:6], sent), nil)
	require.NoError(t, err)
	require.Equal(t, []outbox.Status{outbox.Sent, outbox.Sent, outbox.Sent, outbox.Sent, "", outbox.Sent}, statuses)
	require.Equal(t, []int64{5, 7, 8}, stored(t, b.DB, `SELECT channel_id FROM belfry.messages WHERE status = 'PROCESSING' ORDER BY channel_id`))
	statuses, err = l.Settle(ctx, each(claimed[6:], sent), []int64{claimed[0].LeaseID})
	require.NoError(t, err)
	require.Equal(t, []outbox.Status{outbox.Sent, outbox.Sent}, statuses)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`), "of which the other owner's message is none")
}

// onBatch does something before the nth batch of a pool.
type onBatch struct {
	n  int
	do func()
}

func (o *onBatch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if o.n--; o.n == 0 {
		o.do()
	}
	return ctx
}

func (*onBatch) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*onBatch) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (*onBatch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*onBatch) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// I6: the verdicts are of one snapshot. An abort that comes while one message is looked for by
// its key holds those that were found before.
func TestLook_IsOfOneSnapshot(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	claimed := claim(t, b.ledger("r1"), id, 3)
	b.Exec(t, `UPDATE belfry.message_rows SET last_error = 'moved' WHERE channel_id = 2`)
	config := b.DB.Pool.Config()
	abort := &onBatch{n: 2, do: func() { b.Exec(t, `UPDATE belfry.jobs SET abort_requested = true WHERE id = $1`, id) }}
	config.ConnConfig.Tracer = abort
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	verdicts, err := outbox.NewLedger(pool, "r1", time.Minute).Recheck(t.Context(), claimed)
	require.NoError(t, err)
	require.Equal(t, []outbox.Verdict{"held", "held", "held"}, verdicts)
	require.Zero(t, abort.n)
}

// I10: a lease does not end before the last of its messages has, wherever their keys lie.
func TestSettle_EndsALeaseWithItsLastMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	for name, channels := range map[string][]int64{
		"close": {1, 2, 3, 4}, "with gaps": {1, 9, 20, 31}, "apart": {1, 2, 3, 1_000_000}, "at the ends": {math.MinInt64, -1, 0, math.MaxInt64}, "alone": {7},
	} {
		id := b.Rest(t, outbox.TypePush, 0, job.Processed)
		b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT $1, c, now() FROM unnest($2::bigint[]) c`, id, channels)
		claimed := claim(t, l, id, 10)
		handOver(t, l, claimed, nil)
		require.Len(t, claimed, len(channels))
		for i := range claimed {
			require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.leases WHERE id = $1`, claimed[0].LeaseID), "%s: %d", name, i)
			_, err := l.Settle(t.Context(), each(claimed[i:i+1], sent), []int64{claimed[0].LeaseID})
			require.NoError(t, err)
		}
		require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`)+one[int](t, b, `SELECT count(*) FROM belfry.handovers`), name)
	}
}
