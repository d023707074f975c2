package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/relay"
)

// I6, of everything: what relays have composed and queued when an operator halts is not sent,
// of jobs and of activities, from PostgreSQL and from a carrier; nothing is claimed, pushed or
// sent while it is halted, by a relay that starts then either; and all of it goes out, once,
// when the halt is lifted, without a restart.
func TestHalt_InMidDeliveryHoldsEverything(t *testing.T) {
	t.Parallel()
	for _, on := range []string{"postgres", "carrier"} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 60)
			b.job(t, "default", 1, 60)
			b.job(t, "other", 1, 60)
			for i := range 20 {
				b.activity(t, i+1)
			}
			s, log := &script{}, new(dbtest.Buffer)
			g := newGate(t, relay.PointRecheck)
			c := config("r")
			options := []relay.Option{relay.WithFailpoint(g.stop), relay.WithLogger(zerolog.New(log))}
			if on == "carrier" {
				c = carrying("r")
				options = append(options, relay.WithBroker(outboxtest.NewMemory(capacity), time.Hour))
			}
			b.start(t, c, []relay.Sender{push(s)}, options...)
			g.await(t)
			jobs := job.NewStore(b.DB.Pool)
			h, changed, err := jobs.Halt(t.Context(), job.Act{Actor: "ann", Reason: "wrong link"})
			require.NoError(t, err)
			require.True(t, changed)
			require.NotNil(t, h.At)
			before := len(s.all())
			g.open()
			b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status = 'PROCESSING')`)
			_, err = b.relay(t, config("restarted"), []relay.Sender{push(s)}).Drain(t.Context())
			require.ErrorIs(t, err, job.ErrHalted)
			require.ErrorContains(t, err, "by ann: wrong link")
			// Two heartbeats on, the relay has had the time to do what it should not.
			b.eventually(t, `SELECT count(*) = 1 FROM belfry.relays WHERE name = 'r' AND heartbeat_at > $1::timestamptz + interval '3 seconds'`, h.At)
			require.Len(t, s.all(), before, "nothing is sent after the halt returned")
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status NOT IN ('PENDING', 'QUEUED', 'SENT')`))
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.sendable_messages`))
			require.Equal(t, 1, strings.Count(log.String(), "delivery is halted: resume it with `belfry unhalt`"))
			require.Empty(t, dbtest.Miscounted(t, b.DB.Pool))

			changed, err = jobs.Unhalt(t.Context(), job.Act{Actor: "ann", Reason: "corrected"})
			require.NoError(t, err)
			require.True(t, changed)
			b.Delivered(t)
			require.Len(t, s.all(), 140)
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.attempts`), "no attempt was counted")
			require.Equal(t, 1, strings.Count(log.String(), "the halt was lifted: the relay continues"))
		})
	}
}

// What was handed to a provider before is recorded while everything is halted.
func TestHalt_RecordsWhatWasHandedOverBefore(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	b.job(t, "default", 1, 5)
	g, s := newGate(t, relay.PointRechecked), &script{}
	b.start(t, config("r"), []relay.Sender{push(s)}, relay.WithFailpoint(g.at))
	g.await(t)
	_, _, err := job.NewStore(b.DB.Pool).Halt(t.Context(), job.Act{Actor: "ann"})
	require.NoError(t, err)
	g.open()
	b.eventually(t, `SELECT count(*) = 0 FROM belfry.messages WHERE status = 'PROCESSING'`)
	require.Len(t, s.all(), one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'SENT'`))
}
