package redisstream_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
)

// I8, I10, I13: it is a transport as PostgreSQL is, and a carrier.
func TestLong_BrokerIsACarrier(t *testing.T) {
	t.Parallel()
	outboxtest.Exercise(t, subjects(t))
}

func TestBroker_IsACarrier(t *testing.T) {
	t.Parallel()
	outboxtest.Sample(t, subjects(t))
}

// subjects are carriers on one server.
func subjects(t *testing.T) func(t testing.TB) *outboxtest.Subject {
	t.Helper()
	server := dbtest.StartRedis(t)
	var n atomic.Int64
	return func(t testing.TB) *outboxtest.Subject {
		t.Helper()
		return subject(t, open(t, server.URL, fmt.Sprint("test", n.Add(1))))
	}
}
