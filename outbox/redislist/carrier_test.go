package redislist_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
)

// I8, I10: what every carrier does.
func TestLong_BrokerIsACarrier(t *testing.T) {
	t.Parallel()
	outboxtest.Exercise(t, subject)
}

func TestBroker_IsACarrier(t *testing.T) {
	t.Parallel()
	outboxtest.Sample(t, subject)
}

func subject(t testing.TB) *outboxtest.Subject {
	t.Helper()
	s := start(t)
	return setup(t, 200).Carried(t, s.broker(t, "", nil), outboxtest.CarrierSubject{
		Copies: s.copies, Capacity: capacity,
		Forget: func(t testing.TB) {
			t.Helper()
			require.NoError(t, s.client.FlushAll(t.Context()).Err())
		},
		Lose: func(t testing.TB, keys []outbox.Key) {
			t.Helper()
			s.lose(t, keys)
		},
	})
}
