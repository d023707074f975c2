package redisstream_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox/outboxtest"
)

// I8, I10, I13: it is a transport as PostgreSQL is, and a carrier.
func TestBroker_IsACarrier(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	var n atomic.Int64
	outboxtest.Exercise(t, func(t testing.TB) *outboxtest.Subject {
		t.Helper()
		return subject(t, open(t, server.URL, fmt.Sprint("test", n.Add(1))))
	})
}
