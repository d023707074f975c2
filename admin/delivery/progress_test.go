package delivery_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// The sums are those of a count whatever operators do, over several jobs and activities.
func TestProgress_AgreesWithACountAfterOperatorsActs(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	rapid.Check(t, func(t *rapid.T) {
		var ids []int64
		for range 3 {
			ids = append(ids, b.Rest(t, outbox.TypePush, 12, job.Processed))
		}
		b.activity(t, 1)
		for range rapid.IntRange(1, 6).Draw(t, "acts") {
			id := rapid.SampledFrom(ids).Draw(t, "job")
			filter := delivery.DeadFilter{JobID: rapid.SampledFrom([]int64{id, 0}).Draw(t, "filter")}
			var err error
			switch rapid.IntRange(0, 3).Draw(t, "act") {
			case 0:
				b.States(t, id, "DEAD", "PENDING", "SENT", "DEAD", "PROCESSING", "QUEUED")
			case 1:
				_, err = delivery.Redrive(bg, b.DB.Pool, filter, delivery.DeadOptions{Act: ann})
			case 2:
				_, err = delivery.Discard(bg, b.DB.Pool, filter, delivery.DeadOptions{Act: ann})
			default:
				_, err = delivery.Recall(bg, b.DB.Pool, id, ann, nil)
			}
			require.NoError(t, err)
			require.Empty(t, dbtest.Miscounted(t, b.DB.Pool))
		}
	})
}

// What retention deletes stays counted, and the counts go with the job.
func TestProgress_OutlivesTheMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	b.States(t, id, "SENT", "SENT", "CANCELLED")
	b.Age(t, "31 days", id)
	rows := month()
	rows.Jobs = 0
	_, err := delivery.Prune(bg, b.DB.Pool, rows, delivery.PruneOptions{Act: ann})
	require.NoError(t, err)
	require.Zero(t, b.rows(t, id))
	require.True(t, b.exists(t, id))
	got, err := outbox.ProgressOf(bg, b.DB.Pool, []int64{id})
	require.NoError(t, err)
	require.Equal(t, outbox.Progress{JobID: id, Messages: 6, Sent: 4, Cancelled: 2}, got[id])
	_, err = delivery.Prune(bg, b.DB.Pool, month(), delivery.PruneOptions{Act: ann})
	require.NoError(t, err)
	require.False(t, b.exists(t, id))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_deliveries`))
}
