package delivery_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// tally makes one of lines as "dead permanent 3".
func tally(lines ...string) delivery.Tally {
	t := make(delivery.Tally)
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
func rows(c delivery.Counts) delivery.Counts {
	c.Media, c.Flow = nil, delivery.Flow{}
	return c
}

func TestDeliveries_CountsWhatHasBecomeOfTheRows(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	states := []string{"PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD", "CANCELLED"}
	want := delivery.Counts{Pending: 10, Queued: 10, Processing: 10, Sent: 10, Dead: 10, Cancelled: 10, Complete: true, UpTo: 60, Why: tally("dead exhausted 10", "cancelled recalled 10")}
	done := b.Rest(t, outbox.TypePush, 60, job.Processed)
	b.States(t, done, states...)
	got, err := delivery.Deliveries(t.Context(), b.DB.Pool, done)
	require.NoError(t, err)
	require.Equal(t, want, rows(got))

	aborted := b.Rest(t, outbox.TypePush, 60, job.Aborted)
	b.States(t, aborted, states...)
	want.Held = 20
	got, err = delivery.Deliveries(t.Context(), b.DB.Pool, aborted)
	require.NoError(t, err)
	require.Equal(t, want, rows(got))

	inbox := b.Rest(t, outbox.TypeInbox, 30, job.Processed)
	b.Rest(t, outbox.TypeInbox, 50, job.Processed)
	b.Exec(t, `UPDATE belfry.notifications SET read_at = now() WHERE channel_id <= 10`)
	b.Exec(t, `UPDATE belfry.notifications SET withdrawn_at = now() WHERE channel_id BETWEEN 10 AND 14`)
	got, err = delivery.Deliveries(t.Context(), b.DB.Pool, inbox)
	require.NoError(t, err)
	require.Equal(t, delivery.Counts{Read: 9, Withdrawn: 5, Unread: 16, Complete: true, UpTo: 30, Why: tally()}, rows(got))

	got, err = delivery.Deliveries(t.Context(), b.DB.Pool, b.Rest(t, outbox.TypeInbox, 0, job.Aborted))
	require.NoError(t, err)
	require.Equal(t, delivery.Counts{Complete: true, Why: tally()}, rows(got))
	_, err = delivery.Deliveries(t.Context(), b.DB.Pool, 1<<40)
	require.ErrorIs(t, err, job.ErrNotFound)
}

// Every refusal, every dead letter and every wait is counted under its reason, and the
// counts by reason are those by status but for first attempts and calls in progress.
func TestDeliveries_CountByReason(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 24, job.Processed)
	b.States(t, id, "PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD", "CANCELLED") // four of each
	b.Exec(t, `UPDATE belfry.message_rows SET reason = CASE
			WHEN status IN ('PENDING', 'QUEUED', 'PROCESSING', 'SENT') AND channel_id <= 12 THEN 'retry' WHEN status = 'PENDING' THEN 'quiet_hours'
			WHEN status = 'DEAD' AND channel_id <= 6 THEN 'no_address' WHEN status = 'DEAD' THEN 'unknown'
			WHEN status = 'CANCELLED' AND channel_id <= 6 THEN 'capped' WHEN status = 'CANCELLED' THEN 'opted_out' END,
		receipt = CASE WHEN status IN ('PROCESSING', 'SENT') AND channel_id <= 6 THEN 'r-1' END WHERE job_id = $1`, id)
	got, err := delivery.Deliveries(t.Context(), b.DB.Pool, id)
	require.NoError(t, err)
	require.Equal(t, tally("pending retry 4", "pending quiet_hours 2", "sending receipt 1", "dead no_address 1", "dead unknown 3",
		"cancelled capped 1", "cancelled opted_out 3"), got.Why)

	report := b.audited(t, id)
	require.Equal(t, got.Why, report.Why)
}

// What was refused or discarded was not recalled: it does not stand in for a row that a
// recall says it took back.
func TestAudit_RefusedMessagesAreNotRecalledOnes(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.States(t, id, "CANCELLED")
	b.Exec(t, `UPDATE belfry.jobs SET recalled = 3 WHERE id = $1`, id)
	report := b.audited(t, id)
	require.True(t, report.Agree, "%v", report.Disagreements)
	b.Exec(t, `UPDATE belfry.message_rows SET reason = 'opted_out' WHERE job_id = $1 AND channel_id = 1`, id)
	b.Exec(t, `UPDATE belfry.message_rows SET reason = 'discarded' WHERE job_id = $1 AND channel_id = 2`, id)
	report = b.audited(t, id)
	require.Equal(t, []string{"3 rows were recalled, and 1 are marked so"}, report.Disagreements)
	require.Equal(t, tally("cancelled recalled 1", "cancelled opted_out 1", "cancelled discarded 1"), report.Why)
}

// I13: counting ends with its time, and says how far it came.
func TestDeliveries_EndWithTheirTime(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 30000, job.Processed)
	got, err := delivery.DeliveriesUntil(t.Context(), b.DB.Pool, id, time.Now())
	require.NoError(t, err)
	require.Equal(t, delivery.Counts{Pending: 20000, UpTo: 20000, Why: tally()}, rows(got))
}

func (b *bundle) audited(t *testing.T, id int64) accounts.Report {
	t.Helper()
	report, err := accounts.Audit(t.Context(), b.DB.Pool, b.Channels, id, accounts.AuditOptions{})
	require.NoError(t, err)
	return report
}
