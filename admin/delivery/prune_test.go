package delivery_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/retention"
)

const day = 24 * time.Hour

// month keeps everything for 30 days and deletes in small steps.
func month() outbox.Retention {
	r := outbox.DefaultRetention()
	r.Notifications, r.Messages, r.Jobs, r.Events = 30*day, 30*day, 30*day, 30*day
	r.StepRows = 100
	return r
}

// A message's time begins when it became what it is, however long ago its job ended: it may
// have been due days later, or been deferred. What is young can be redriven, and what is
// left can be stopped and go on, also while older ones are deleted.
func TestPrune_DeadLettersOfALateJobWereDeletedAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	hour := month()
	hour.Messages = time.Hour
	id := b.Rest(t, outbox.TypePush, 60, job.Processed)
	b.States(t, id, "SENT", "DEAD", "CANCELLED", "PENDING", "PENDING", "PROCESSING")
	b.Age(t, "3 days", id)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour' WHERE job_id = $1 AND status = 'PENDING'`, id)
	b.Exec(t, `UPDATE belfry.message_rows SET sent_at = now() WHERE job_id = $1 AND status = 'SENT'`, id)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE job_id = $1 AND status IN ('DEAD', 'CANCELLED')`, id)
	prune := func(want retention.Pruned) {
		for _, dry := range []bool{true, false} {
			got, err := retention.Prune(t.Context(), b.DB.Pool, hour, retention.Options{DryRun: dry})
			require.NoError(t, err)
			require.Equal(t, want, got, "dry run %t", dry)
		}
	}
	prune(retention.Pruned{})
	require.True(t, one[bool](t, b, `SELECT retention_at IS NULL FROM belfry.jobs WHERE id = $1`, id))

	b.Exec(t, `UPDATE belfry.message_rows SET sent_at = now() - interval '2 hours' WHERE job_id = $1 AND status = 'SENT'`, id)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '2 hours' WHERE job_id = $1 AND status IN ('DEAD', 'CANCELLED') AND channel_id <= 12`, id)
	prune(retention.Pruned{Messages: 10 + 2 + 2})
	require.Equal(t, map[string]int{"DEAD": 8, "CANCELLED": 8, "PENDING": 20, "PROCESSING": 10}, b.Statuses(t, id))
	require.True(t, one[bool](t, b, `SELECT retention_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, id))

	done, err := delivery.Redrive(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: id}, delivery.DeadOptions{})
	require.NoError(t, err)
	require.Equal(t, delivery.DeadDone{Looked: 8, Changed: 8}, done)
	aborted, err := b.Jobs.Abort(t.Context(), job.One(id), ann)
	require.NoError(t, err)
	require.Equal(t, job.Aborted, aborted[0].Status)
	resumed, err := b.Jobs.Resume(t.Context(), job.One(id), ann)
	require.NoError(t, err)
	require.Equal(t, job.Processed, resumed[0].Status, "nothing of what was held is deleted")
	_, err = b.Jobs.Abort(t.Context(), job.One(id), ann)
	require.NoError(t, err)
	b.Age(t, "2 hours", id)
	prune(retention.Pruned{Messages: 28 + 8})
	_, err = b.Jobs.Resume(t.Context(), job.One(id), ann)
	require.ErrorContains(t, err, "retention deletes its rows since")
}

// What an operator cancels is kept from then on.
func TestPrune_CancelledCountsFromTheAct(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	discarded, recalled := b.letters(t, 5, job.Processed), b.Rest(t, outbox.TypePush, 5, job.Processed)
	b.Age(t, "40 days", discarded, recalled)
	_, err := delivery.Discard(t.Context(), b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{})
	require.NoError(t, err)
	_, err = delivery.Recall(t.Context(), b.DB.Pool, recalled, ann, nil)
	require.NoError(t, err)
	got, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{})
	require.NoError(t, err)
	require.Zero(t, got)
	require.Equal(t, map[string]int{"CANCELLED": 5}, b.Statuses(t, discarded))
	require.Equal(t, map[string]int{"CANCELLED": 5}, b.Statuses(t, recalled))
}
