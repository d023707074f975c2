package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// ledger is one of a relay with that name.
func (b *bundle) ledger(relay string) *outbox.Ledger {
	return outbox.NewLedger(b.DB.Pool, relay, time.Minute)
}

// claim takes up to n due messages of a job from the beginning.
func claim(t require.TestingT, l *outbox.Ledger, id int64, n int) []outbox.Claimed {
	claimed, _, err := l.ClaimJob(context.Background(), id, outbox.Position{}, n, outbox.AnyTry)
	require.NoError(t, err)
	return claimed
}

// handOver records that messages are handed over.
func handOver(t require.TestingT, l *outbox.Ledger, messages []outbox.Claimed, bypassed map[outbox.Key][]outbox.Attempt) {
	_, err := l.HandOver(context.Background(), messages, bypassed)
	require.NoError(t, err)
}

// handed claims up to n messages of a job and hands them over.
func handed(t require.TestingT, l *outbox.Ledger, id int64, n int) []outbox.Claimed {
	claimed := claim(t, l, id, n)
	handOver(t, l, claimed, nil)
	return claimed
}

func sent(c outbox.Claimed) outbox.Settlement {
	return outbox.Settlement{Claimed: c, To: outbox.Sent, NextStep: c.Step, NextAttempts: c.Attempts + 1}
}

// each makes a settlement of every message.
func each(claimed []outbox.Claimed, settle func(outbox.Claimed) outbox.Settlement) []outbox.Settlement {
	all := make([]outbox.Settlement, len(claimed))
	for i, c := range claimed {
		all[i] = settle(c)
	}
	return all
}

// all is the same value n times.
func all[T any](n int, v T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// From PENDING to SENT, and nothing is left behind.
func TestLedger_DeliversAJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	id := b.Rest(t, outbox.TypePush, 25, job.Processed)
	l := b.ledger("r1")
	candidates, err := l.Candidates(ctx)
	require.NoError(t, err)
	require.Equal(t, []outbox.Candidate{{JobID: id, Lane: "default"}}, candidates)
	var position outbox.Position
	for _, n := range []int{10, 10, 5} {
		marked, err := l.MarkDelivered(ctx, id)
		require.NoError(t, err)
		require.False(t, marked)
		var claimed []outbox.Claimed
		claimed, position, err = l.ClaimJob(ctx, id, position, 10, outbox.AnyTry)
		require.NoError(t, err)
		require.Len(t, claimed, n)
		handOver(t, l, claimed, nil)
		verdicts, err := l.Recheck(ctx, claimed)
		require.NoError(t, err)
		require.Equal(t, all(n, outbox.VerdictSend), verdicts)
		statuses, err := l.Settle(ctx, each(claimed, sent), []int64{claimed[0].LeaseID})
		require.NoError(t, err)
		require.Equal(t, all(n, outbox.Sent), statuses)
	}
	claimed, after, err := l.ClaimJob(ctx, id, position, 10, outbox.AnyTry)
	require.NoError(t, err)
	require.Empty(t, claimed)
	require.Equal(t, position, after)
	require.Equal(t, map[string]int{"SENT": 25}, b.Statuses(t, id))
	require.Zero(t, one[int](t, b, `SELECT (SELECT count(*) FROM belfry.leases) + (SELECT count(*) FROM belfry.handovers) + (SELECT count(*) FROM belfry.attempts)`))
	require.EqualValues(t, 25, one[int64](t, b, `SELECT count(*) FROM belfry.messages WHERE sent_at > now() - interval '1 minute' AND attempts = 1`))
	marked, err := l.MarkDelivered(ctx, id)
	require.NoError(t, err)
	require.True(t, marked)
	candidates, err = l.Candidates(ctx)
	require.NoError(t, err)
	require.Empty(t, candidates)
}

// Jobs whose messages are due later than in a minute cost a relay no memory, and are found in time.
func TestCandidates_OmitJobsThatAreDueLater(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	deliverIn := func(wait string, rows int, recalled bool) {
		dbtest.Past(t, b.DB.Pool, `UPDATE belfry.jobs SET rows_written = $3, deliver_at = now() + $2::interval, recalled_at = CASE WHEN $4 THEN now() END WHERE id = $1`,
			id, wait, rows, recalled)
		b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + $2::interval WHERE job_id = $1`, id, wait)
	}
	candidates := func() int {
		list, err := l.Candidates(t.Context())
		require.NoError(t, err)
		return len(list)
	}
	for wait, want := range map[string]int{"1 hour": 0, "30 seconds": 1, "-1 hour": 1} {
		deliverIn(wait, 3, false)
		require.Equal(t, want, candidates(), wait)
		next, some, err := l.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, wait != "-1 hour", some, wait)
		if wait == "1 hour" {
			require.InDelta(t, time.Hour, next, float64(time.Minute))
		}
	}
	deliverIn("1 hour", 3, true)
	require.Equal(t, 1, candidates(), "nothing of it is left, and it is marked as delivered")
	deliverIn("1 hour", 0, false)
	require.Equal(t, 1, candidates(), "nothing was written, and it is marked as delivered")
}

// Behind a pooler statements are not prepared: every one of them does without. And where
// transactions are read-only by default each that writes says so, on a program's own pool.
func TestLedger_NeedsNoSession(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol", "describe_exec", "cache_describe", "cache_statement&default_transaction_read_only=on", "exec&default_transaction_read_only=on"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 0)
			ctx := t.Context()
			pool, err := pgxpool.New(ctx, b.DB.DSN+"&default_query_exec_mode="+mode)
			require.NoError(t, err)
			defer pool.Close()
			l := outbox.NewLedger(pool, "r1", time.Minute)
			id := b.Rest(t, outbox.TypePush, 40, job.Processed)
			b.ActivitiesFor(t, 3)
			_, _, err = l.Beat(ctx, []outbox.SenderWork{named("fcm")}, 3, 0)
			require.NoError(t, err)
			candidates, err := l.Candidates(ctx)
			require.NoError(t, err)
			require.Len(t, candidates, 1)
			claimed := append(claim(t, l, id, 20), claimActivities(t, l, 10)...)
			require.Len(t, claimed, 23)
			handOver(t, l, claimed, nil)
			verdicts, err := l.Recheck(ctx, claimed)
			require.NoError(t, err)
			require.Equal(t, all(23, outbox.VerdictSend), verdicts)
			settlements, want := each(claimed, sent), all(23, outbox.Sent)
			i := 0
			for _, o := range outcomes() {
				settlements[i], want[i] = o.settle(claimed[i]), outbox.Status(o.row.Status)
				if len(settlements[i].Record) > 0 {
					settlements[i].InvalidAddress = make([]byte, 32)
				}
				i++
			}
			statuses, err := l.Settle(ctx, settlements, []int64{claimed[0].LeaseID, claimed[22].LeaseID})
			require.NoError(t, err)
			require.Equal(t, want, statuses)
			require.Equal(t, 5, one[int](t, b, `SELECT count(*) FROM belfry.attempts`))
			b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE receipt IS NOT NULL`)
			for _, a := range due(t, l, 10) {
				_, err = l.Settle(ctx, []outbox.Settlement{{Claimed: a.Claimed, To: outbox.Sent, Receipt: a.Receipt}}, nil)
				require.NoError(t, err)
			}
			claimed = handed(t, l, id, 5)
			lost, err := l.Renew(ctx, []int64{claimed[0].LeaseID})
			require.NoError(t, err)
			require.Empty(t, lost)
			_, err = l.Lost(ctx, nil, nil, 5)
			require.NoError(t, err)
			b.expire(t, claimed[0].LeaseID)
			require.NoError(t, recoverAll(l))
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
			_, err = l.MarkDelivered(ctx, id)
			require.NoError(t, err)
			_, err = l.Installation(ctx)
			require.NoError(t, err)
			require.NoError(t, l.Deregister(ctx))
		})
	}
}

// Without prepared statements times come as text: in the form that a client reads,
// whatever the role's DateStyle.
func TestLedger_ReadsTimesOfAnyDateStyle(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	pool, err := pgxpool.New(t.Context(), b.DB.DSN+"&default_query_exec_mode=simple_protocol&datestyle=German,DMY")
	require.NoError(t, err)
	defer pool.Close()
	l := outbox.NewLedger(pool, "r1", time.Minute)
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	b.ActivitiesFor(t, 2)
	first, position, err := l.ClaimJob(t.Context(), id, outbox.Position{}, 3, outbox.AnyTry)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3}, channelsOf(first))
	second, _, err := l.ClaimJob(t.Context(), id, position, 3, outbox.AnyTry)
	require.NoError(t, err)
	require.Equal(t, []int64{4}, channelsOf(second))
	require.Len(t, claimActivities(t, l, 10), 2)
}

// A lease that was locked when its last message was recorded ends with its relay; one with
// messages in flight stays.
func TestLedger_DeregisterEndsLeases(t *testing.T) {
	t.Parallel()
	b := setup(t, 20)
	id, l := b.Rest(t, outbox.TypePush, 20, job.Processed), b.ledger("r1")
	claimed, open := handed(t, l, id, 10), handed(t, l, id, 5)
	lease := claimed[0].LeaseID
	err := pgx.BeginFunc(t.Context(), b.DB.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM belfry.leases WHERE id = $1 FOR KEY SHARE`, lease); err != nil {
			return err
		}
		_, err := l.Settle(t.Context(), each(claimed, sent), []int64{lease})
		return err
	})
	require.NoError(t, err)
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.leases WHERE id = $1`, lease), "it was locked")
	require.NoError(t, l.Deregister(t.Context()))
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.leases WHERE id = $1`, open[0].LeaseID))
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
	require.Equal(t, 1, one[int](t, b, `SELECT count(DISTINCT lease_id) FROM belfry.handovers`))
}
