package outbox_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// tally makes one of lines as "dead permanent 3".
func tally(lines ...string) outbox.Tally {
	t := make(outbox.Tally)
	for _, line := range lines {
		f := strings.Fields(line)
		r := outbox.Reason(f[0])
		if t[r] == nil {
			t[r] = make(map[outbox.Reason]int64)
		}
		t[r][outbox.Reason(f[1])], _ = strconv.ParseInt(f[2], 10, 64)
	}
	return t
}

// rows are counts without where and when.
func rows(c outbox.Counts) outbox.Counts {
	c.Media, c.Flow = nil, outbox.Flow{}
	return c
}

func TestDeliveries_CountsWhatHasBecomeOfTheRows(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	states := []string{"PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD", "CANCELLED"}
	want := outbox.Counts{Pending: 10, Queued: 10, Processing: 10, Sent: 10, Dead: 10, Cancelled: 10, Complete: true, UpTo: 60, Why: tally("dead exhausted 10", "cancelled recalled 10")}
	done := b.rest(t, outbox.TypePush, 60, job.Processed)
	b.states(t, done, states...)
	got, err := outbox.Deliveries(t.Context(), b.db.Pool, done)
	require.NoError(t, err)
	require.Equal(t, want, rows(got))

	aborted := b.rest(t, outbox.TypePush, 60, job.Aborted)
	b.states(t, aborted, states...)
	want.Held = 20
	got, err = outbox.Deliveries(t.Context(), b.db.Pool, aborted)
	require.NoError(t, err)
	require.Equal(t, want, rows(got))

	inbox := b.rest(t, outbox.TypeInbox, 30, job.Processed)
	b.rest(t, outbox.TypeInbox, 50, job.Processed)
	b.exec(t, `UPDATE belfry.notifications SET read_at = now() WHERE channel_id <= 10`)
	b.exec(t, `UPDATE belfry.notifications SET withdrawn_at = now() WHERE channel_id BETWEEN 10 AND 14`)
	got, err = outbox.Deliveries(t.Context(), b.db.Pool, inbox)
	require.NoError(t, err)
	require.Equal(t, outbox.Counts{Read: 9, Withdrawn: 5, Unread: 16, Complete: true, UpTo: 30, Why: tally()}, rows(got))

	got, err = outbox.Deliveries(t.Context(), b.db.Pool, b.rest(t, outbox.TypeInbox, 0, job.Aborted))
	require.NoError(t, err)
	require.Equal(t, outbox.Counts{Complete: true, Why: tally()}, rows(got))
	_, err = outbox.Deliveries(t.Context(), b.db.Pool, 1<<40)
	require.ErrorIs(t, err, job.ErrNotFound)
}

// Every refusal, every dead letter and every wait is counted under its reason, and the
// counts by reason are those by status but for first attempts and calls in progress.
func TestDeliveries_CountByReason(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.rest(t, outbox.TypePush, 24, job.Processed)
	b.states(t, id, "PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD", "CANCELLED") // four of each
	b.exec(t, `UPDATE belfry.messages SET reason = CASE
			WHEN status IN ('PENDING', 'QUEUED', 'PROCESSING', 'SENT') AND channel_id <= 12 THEN 'retry' WHEN status = 'PENDING' THEN 'quiet_hours'
			WHEN status = 'DEAD' AND channel_id <= 6 THEN 'no_address' WHEN status = 'DEAD' THEN 'unknown'
			WHEN status = 'CANCELLED' AND channel_id <= 6 THEN 'capped' WHEN status = 'CANCELLED' THEN 'opted_out' END,
		receipt = CASE WHEN status IN ('PROCESSING', 'SENT') AND channel_id <= 6 THEN 'r-1' END WHERE job_id = $1`, id)
	got, err := outbox.Deliveries(t.Context(), b.db.Pool, id)
	require.NoError(t, err)
	require.Equal(t, tally("pending retry 4", "pending quiet_hours 2", "sending receipt 1", "dead no_address 1", "dead unknown 3",
		"cancelled capped 1", "cancelled opted_out 3"), got.Why)

	report, _ := b.audit(t, id)
	require.Equal(t, got.Why, report.Why)
}

// What was refused or discarded was not recalled: it does not stand in for a row that a
// recall says it took back.
func TestAudit_RefusedMessagesAreNotRecalledOnes(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	id := b.rest(t, outbox.TypePush, 3, job.Processed)
	b.states(t, id, "CANCELLED")
	b.exec(t, `UPDATE belfry.jobs SET recalled = 3 WHERE id = $1`, id)
	report, _ := b.audit(t, id)
	require.True(t, report.Agree, "%v", report.Disagreements)
	b.exec(t, `UPDATE belfry.messages SET reason = 'opted_out' WHERE job_id = $1 AND channel_id = 1`, id)
	b.exec(t, `UPDATE belfry.messages SET reason = 'discarded' WHERE job_id = $1 AND channel_id = 2`, id)
	report, _ = b.audit(t, id)
	require.Equal(t, []string{"3 rows were recalled, and 1 are marked so"}, report.Disagreements)
	require.Equal(t, tally("cancelled recalled 1", "cancelled opted_out 1", "cancelled discarded 1"), report.Why)
}

// I13: counting ends with its time, and says how far it came.
func TestDeliveries_EndWithTheirTime(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.rest(t, outbox.TypePush, 30000, job.Processed)
	got, err := outbox.DeliveriesUntil(t.Context(), b.db.Pool, id, time.Now())
	require.NoError(t, err)
	require.Equal(t, outbox.Counts{Pending: 20000, UpTo: 20000, Why: tally()}, rows(got))
}

// dueSQL is what a relay may take: due messages of every job that is not held, by due
// time within a job, in bounded number.
const dueSQL = `SELECT d.job_id, d.channel_id
  FROM belfry.sendable_jobs s
 CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id, m.next_attempt_at
                       FROM belfry.sendable_messages m
                      WHERE m.job_id = s.job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.next_attempt_at <= statement_timestamp()
                      ORDER BY m.next_attempt_at, m.channel_id
                      LIMIT 100
                        FOR UPDATE SKIP LOCKED) d
 ORDER BY d.next_attempt_at
 LIMIT 100`

func (b *bundle) claimed(t *testing.T, on interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) (jobs map[int64]int) {
	t.Helper()
	rows, err := on.Query(t.Context(), dueSQL)
	require.NoError(t, err)
	jobs = make(map[int64]int)
	var id, channel int64
	_, err = pgx.ForEachRow(rows, []any{&id, &channel}, func() error {
		jobs[id]++
		return nil
	})
	require.NoError(t, err)
	return jobs
}

// I6: nothing of an ABORTED job is due, and all of it again when it is resumed.
func TestSendable_HoldsTheMessagesOfAbortedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	aborted := b.rest(t, outbox.TypePush, 20, job.Aborted)
	done := b.rest(t, outbox.TypePush, 7, job.Processed)
	failed := b.rest(t, outbox.TypePush, 5, job.Failed)
	later := b.rest(t, outbox.TypePush, 5, job.Processed)
	b.exec(t, `UPDATE belfry.messages SET next_attempt_at = now() + interval '1 hour' WHERE job_id = $1`, later)
	b.states(t, failed, "PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD")
	b.exec(t, `INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at) VALUES (1000000, 1, now())`) // of no job
	require.Equal(t, map[int64]int{done: 7, failed: 1}, b.claimed(t, b.db.Pool))
	for id, n := range map[int64]int64{aborted: 0, failed: 3} { // the look right before the call
		require.Equal(t, n, one[int64](t, b, `SELECT count(*) FROM belfry.sendable_messages WHERE job_id = $1`, id))
	}

	// A relay's claim keeps no job locked: an abort goes through beside it, and the
	// look right before the call finds the message held.
	relay, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[int64]int{done: 7, failed: 1}, b.claimed(t, relay))
	b.exec(t, `UPDATE belfry.jobs SET title = title WHERE id IN ($1, $2)`, done, failed)
	require.NoError(t, relay.Rollback(t.Context()))

	_, err = b.jobs.Resume(t.Context(), aborted, job.Act{})
	require.NoError(t, err)
	require.Equal(t, map[int64]int{aborted: 20, done: 7, failed: 1}, b.claimed(t, b.db.Pool))
	_, err = b.jobs.Abort(t.Context(), aborted, job.Act{})
	require.NoError(t, err)
	require.Equal(t, map[int64]int{done: 7, failed: 1}, b.claimed(t, b.db.Pool))
}

// I13: a relay's claim costs the same however many messages are held.
func TestSendable_HeldMessagesCostAClaimNothing(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	b.rest(t, outbox.TypePush, 50000, job.Aborted)
	done := b.rest(t, outbox.TypePush, 10, job.Processed)
	b.exec(t, `ANALYZE belfry.messages`)
	b.exec(t, `ANALYZE belfry.jobs`)
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, json.Unmarshal(one[[]byte](t, b, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+dueSQL), &plan))
	require.Less(t, plan[0].Plan.Hit+plan[0].Plan.Read, 200)
	require.Equal(t, map[int64]int{done: 10}, b.claimed(t, b.db.Pool))
}
