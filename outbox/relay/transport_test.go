package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// PostgreSQL is a transport.
func TestPostgres_IsATransport(t *testing.T) {
	t.Parallel()
	outboxtest.Exercise(t, func(t testing.TB) *outboxtest.Subject {
		t.Helper()
		b := setup(t, 200)
		return b.Subject(t, func(name string) outbox.Transport {
			return relay.Postgres(b.relay(t, config(name), []relay.Sender{push(&script{})}))
		})
	})
}

// A job that had messages left when it was asked for is marked when they are recorded.
func TestPostgres_JobIsDeliveredWithItsLastMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	id := b.job(t, "default", 1, 2)
	b.exec(t, `UPDATE belfry.message_rows SET lease_id = 0, next_attempt_at = now() + interval '2 seconds' WHERE channel_id = 2`)
	b.start(t, config("r"), []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, id)
	require.Less(t, b.unnoticed(t, id), 7.0, "not when it is asked for again without a reason, ten seconds later")
}

// A relay that records the last message of a job and dies leaves it to the others to notice.
func TestLong_PostgresJobWhoseLastMessageADeadRelayRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	id := b.job(t, "default", 1, 2)
	dead := outbox.NewLedger(b.DB.Pool, "dead", time.Hour)
	claimed, _, err := dead.ClaimJob(t.Context(), id, outbox.Position{}, 2, outbox.AnyTry)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	b.start(t, config("r"), []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT count(*) = 1 FROM belfry.relays WHERE heartbeat_at > started_at + interval '1 second'`) // it has asked
	var record []outbox.Settlement
	for _, c := range claimed {
		record = append(record, outbox.Settlement{Claimed: c, To: outbox.Sent, NextAttempts: 1, Sender: "fcm"})
	}
	_, err = dead.Settle(t.Context(), record, nil)
	require.NoError(t, err)
	b.eventually(t, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, id)
}

// unnoticed is for how many seconds a job was not marked although its last message had been sent.
func (b *bundle) unnoticed(t testing.TB, id int64) float64 {
	t.Helper()
	return one[float64](t, b, `SELECT extract(epoch FROM j.delivered_at - max(m.sent_at))::float8
		FROM belfry.jobs j JOIN belfry.messages m ON m.job_id = j.id WHERE j.id = $1 GROUP BY j.id`, id)
}
