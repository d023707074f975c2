package jetstream_test

import (
	"testing"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
)

func TestLong_BrokerIsATransport(t *testing.T) {
	t.Parallel()
	outboxtest.Exercise(t, subjects(t))
}

func TestBroker_IsATransport(t *testing.T) {
	t.Parallel()
	outboxtest.Sample(t, subjects(t))
}

// subjects are brokers on one server.
func subjects(t *testing.T) func(t testing.TB) *outboxtest.Subject {
	t.Helper()
	servers := dbtest.StartNATS(t, 1)
	return func(t testing.TB) *outboxtest.Subject {
		t.Helper()
		b := setup(t, servers)
		return outboxtest.NewDatabase(t, dbtest.Reused(t, 4), 200).Carried(t, b, outboxtest.CarrierSubject{
			Copies: func(t testing.TB) int { t.Helper(); return b.ready(t) }, Capacity: capacity,
			Forget: func(t testing.TB) { t.Helper(); b.forget(t) },
			Lose:   func(t testing.TB, keys []outbox.Key) { t.Helper(); b.lose(t, keys) },
		})
	}
}
