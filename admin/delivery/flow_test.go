package delivery_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Messages are counted by the medium of the route where they are or ended, and those that are
// final by when they were sent or died.
func TestDeliveries_CountByMediumAndTime(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 24, job.Processed)
	b.States(t, id, "PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD", "CANCELLED") // four of each
	begin := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	dbtest.Past(t, b.DB.Pool, `UPDATE belfry.jobs SET route = '{push,sms}' WHERE id = $1`, id)
	b.Exec(t, `UPDATE belfry.message_rows SET step = CASE WHEN channel_id > 12 THEN 1 ELSE 0 END,
		sent_at = CASE status WHEN 'SENT' THEN $2::timestamptz + make_interval(secs => channel_id) END,
		next_attempt_at = $2::timestamptz + make_interval(secs => channel_id) WHERE job_id = $1`, id, begin)
	got, err := delivery.Deliveries(t.Context(), b.DB.Pool, id)
	require.NoError(t, err)
	half := func(medium string) []delivery.MediumCount {
		return []delivery.MediumCount{
			{medium, outbox.ReasonSent, "", 2}, {medium, outbox.ReasonSending, "", 2}, {medium, outbox.ReasonWaiting, "", 4},
			{medium, outbox.ReasonCancelled, outbox.ReasonRecalled, 2}, {medium, outbox.ReasonDead, outbox.ReasonExhausted, 2},
		}
	}
	require.Equal(t, slices.Concat(half("push"), half("sms")), got.Media)
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }
	require.Equal(t, delivery.Flow{StepSeconds: 1, Bins: []delivery.FlowBin{
		{at(4), 1, 0}, {at(5), 0, 1}, {at(10), 1, 0}, {at(11), 0, 1}, {at(16), 1, 0}, {at(17), 0, 1}, {at(22), 1, 0}, {at(23), 0, 1},
	}}, got.Flow)

	b.Exec(t, `UPDATE belfry.message_rows SET sent_at = sent_at + interval '5 hours' WHERE job_id = $1 AND channel_id = 22`, id)
	got, err = delivery.Deliveries(t.Context(), b.DB.Pool, id)
	require.NoError(t, err)
	require.Equal(t, delivery.Flow{StepSeconds: 600, Bins: []delivery.FlowBin{{begin, 3, 4}, {begin.Add(5 * time.Hour), 1, 0}}}, got.Flow, "what lies far apart is told in longer steps")

	got, err = delivery.Deliveries(t.Context(), b.DB.Pool, b.Rest(t, outbox.TypeInbox, 5, job.Processed))
	require.NoError(t, err)
	require.Empty(t, got.Media)
	require.Equal(t, delivery.Flow{Bins: []delivery.FlowBin{}}, got.Flow)
}
