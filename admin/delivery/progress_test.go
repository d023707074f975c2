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
