package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/outboxtest"
	"github.com/belfryhq/belfry/outbox/relay"
)

// PostgreSQL is a transport.
func TestPostgres_IsATransport(t *testing.T) {
	t.Parallel()
	outboxtest.Exercise(t, func(t testing.TB) *outboxtest.Subject {
		t.Helper()
		b := setup(t, 200)
		transport := func(name string) relay.Transport {
			return relay.Postgres(b.relay(t, config(name), []relay.Sender{push(&script{})}))
		}
		ledger := outbox.NewLedger(b.db.Pool, "r1", time.Hour)
		return &outboxtest.Subject{
			Transport: transport("r1"), Other: transport("r2"),
			Bulk: func(t testing.TB, lane string, n int, in time.Duration) []outbox.Key {
				t.Helper()
				return b.due(t, b.job(t, lane, 1, 0), n, in)
			},
			Activities: func(t testing.TB, n int, in time.Duration) (keys []outbox.Key) {
				t.Helper()
				for i := range n {
					id := one[int64](t, b, `INSERT INTO belfry.activities (channel_id, title, deliver_at) VALUES ($1, 'a like', now() + $2) RETURNING id`, i+1, in)
					keys = append(keys, outbox.Key{JobID: id, ChannelID: int64(i + 1)})
				}
				return keys
			},
			Strand: func(t testing.TB, keys []outbox.Key) func() {
				t.Helper()
				tx, err := b.db.Pool.Begin(t.Context())
				require.NoError(t, err)
				for _, k := range keys {
					_, err = tx.Exec(t.Context(), `SELECT FROM belfry.messages WHERE job_id = $1 AND channel_id = $2 FOR UPDATE`, k.JobID, k.ChannelID)
					require.NoError(t, err)
				}
				return func() { require.NoError(t, tx.Rollback(t.Context())) }
			},
			Settle: func(t testing.TB, settlements []outbox.Settlement) (outcomes []relay.Settled) {
				t.Helper()
				statuses, err := ledger.Settle(t.Context(), settlements, nil)
				require.NoError(t, err)
				for i, s := range settlements {
					outcomes = append(outcomes, relay.Settled{Key: s.Key, Status: statuses[i], Reason: s.Reason, Wait: s.Wait})
				}
				return outcomes
			},
			Processing: func(t testing.TB) int {
				t.Helper()
				return one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING'`)
			},
		}
	})
}

// due writes messages of a job to the first channels.
func (b *bundle) due(t testing.TB, id int64, n int, in time.Duration) (keys []outbox.Key) {
	t.Helper()
	b.exec(t, `INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at) SELECT $1, g, now() + $3 FROM generate_series(1, $2::bigint) g`, id, n, in)
	dbtest.Recount(t, b.db.Pool)
	for i := range n {
		keys = append(keys, outbox.Key{JobID: id, ChannelID: int64(i + 1)})
	}
	return keys
}

// A job that had messages left when it was asked for is marked when they are recorded.
func TestPostgres_JobIsDeliveredWithItsLastMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	id := b.job(t, "default", 1, 2)
	b.exec(t, `UPDATE belfry.messages SET next_attempt_at = now() + interval '4 seconds' WHERE channel_id = 2`)
	b.start(t, config("r"), []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, id)
	require.Less(t, b.unnoticed(t, id), 4.0, "not when it is asked for again without a reason")
}

// A relay that records the last message of a job and dies leaves it to the others to notice.
func TestPostgres_JobWhoseLastMessageADeadRelayRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	id := b.job(t, "default", 1, 2)
	dead := outbox.NewLedger(b.db.Pool, "dead", time.Hour)
	claimed, _, err := dead.ClaimJob(t.Context(), id, outbox.Position{}, 2)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	b.start(t, config("r"), []relay.Sender{push(&script{})})
	pass(2 * time.Second) // it has asked
	var record []outbox.Settlement
	for _, c := range claimed {
		record = append(record, outbox.Settlement{Claimed: c, To: outbox.Sent, NextAttempts: 1, Sender: "fcm"})
	}
	_, err = dead.Settle(t.Context(), record, nil)
	require.NoError(t, err)
	b.eventually(t, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, id)
	require.Less(t, b.unnoticed(t, id), 30.0)
}

// unnoticed is for how many seconds a job was not marked although its last message had been sent.
func (b *bundle) unnoticed(t testing.TB, id int64) float64 {
	t.Helper()
	return one[float64](t, b, `SELECT extract(epoch FROM j.delivered_at - max(m.sent_at))::float8
		FROM belfry.jobs j JOIN belfry.messages m ON m.job_id = j.id WHERE j.id = $1 GROUP BY j.id`, id)
}
