package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// A sample has what is not sent, claimed before or never, and nothing that is in flight.
func TestTake_SamplesWhatIsUnsent(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 20, job.Processed)
	claimed := handed(t, l, id, 10)
	settlements := each(claimed[:2], outbox.Release)
	settlements = append(settlements, sent(claimed[3]),
		outbox.Settlement{Claimed: claimed[2], To: outbox.Pending, Reason: outbox.ReasonRetry, NextAttempts: 1, Wait: time.Hour})
	_, err := l.Settle(bg, settlements, nil)
	require.NoError(t, err)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id = 12`, id)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour' WHERE job_id = $1 AND channel_id = 20`, id)
	keys, err := l.Sample(bg, id, 100)
	require.NoError(t, err)
	channels := make([]int64, len(keys))
	for i, k := range keys {
		channels[i] = k.ChannelID
	}
	require.ElementsMatch(t, []int64{1, 2, 3, 11, 13, 14, 15, 16, 17, 18, 19, 20}, channels)
	keys, err = l.Sample(bg, b.Rest(t, outbox.TypePush, 5, job.Processed), 100)
	require.NoError(t, err)
	require.Len(t, keys, 5, "none was ever claimed")
}

// A relay sleeps until the first message is due, of those that were returned and of those that were never claimed.
func TestTake_NextIsTheFirstThatWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	claimed := handed(t, l, id, 3)
	in := func(minutes int, channels ...int64) {
		b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + make_interval(mins => $2) WHERE job_id = $1 AND channel_id = ANY ($3)`, id, minutes, channels)
	}
	next := func() float64 {
		wait, _, err := l.Next(bg)
		require.NoError(t, err)
		return wait.Round(time.Minute).Minutes()
	}
	in(10, 1, 2, 3) // in flight
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id = 4`, id)
	in(20, 4)
	in(50, 5, 6)
	require.InDelta(t, 50, next(), 0)
	_, err := l.Settle(bg, []outbox.Settlement{{Claimed: claimed[0], To: outbox.Pending, Reason: outbox.ReasonRetry, NextAttempts: 1, Wait: 40 * time.Minute}}, nil)
	require.NoError(t, err)
	require.InDelta(t, 40, next(), 0)
	in(60, 1)
	require.InDelta(t, 50, next(), 0)
	in(-1, 5)
	require.InDelta(t, 50, next(), 0, "what is due does not hide what is not")
	b.Exec(t, `UPDATE belfry.message_rows SET lease_id = 0 WHERE job_id = $1 AND channel_id = 5`, id)
	in(70, 5)
	require.InDelta(t, 50, next(), 0, "nor what was returned")
}

// The first message that waits is not one in flight, and neither the messages that were returned nor the others hide it.
func TestTake_FirstWaitingIsNotInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	require.Len(t, claim(t, b.ledger("r1"), id, 3), 3)
	set := func(channel int64, hoursAgo int, change string) {
		b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = date_trunc('minute', now()) - make_interval(hours => $3)`+change+` WHERE job_id = $1 AND channel_id = $2`, id, channel, hoursAgo)
	}
	first := func() string {
		return one[string](t, b, `SELECT round(extract(epoch FROM now() - w.next_attempt_at) / 3600) || coalesce(w.reason, '') FROM belfry.first_waiting($1) w`, id)
	}
	for channel := range int64(3) {
		set(channel+1, 9, "")
	}
	set(4, 8, `, status = 'CANCELLED', reason = 'recalled'`)
	set(5, 3, "")
	set(6, 3, "")
	require.Equal(t, "3", first())
	set(5, 2, `, lease_id = 0, reason = 'retry'`)
	require.Equal(t, "3", first())
	set(5, 4, "")
	require.Equal(t, "4retry", first())
}
