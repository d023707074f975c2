package redisstream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redisstream"
)

const (
	// patience is how long a test waits for what must happen.
	patience = time.Minute
	// capacity is what a queue of a test's carrier holds.
	capacity = 100
)

// open makes a broker on a server, with keys of its own.
func open(t testing.TB, url, prefix string, options ...func(*redisstream.Options)) *redisstream.Broker {
	t.Helper()
	c := redisdb.DefaultConfig()
	c.URL, c.KeyPrefix = url, prefix
	return openAt(t, c, options...)
}

// openAt makes a broker where a configuration says.
func openAt(t testing.TB, c redisdb.Config, options ...func(*redisstream.Options)) *redisstream.Broker {
	t.Helper()
	o := redisstream.Options{MaxQueued: capacity, Lease: time.Hour, Log: zerolog.Nop()}
	for _, option := range options {
		option(&o)
	}
	b, err := redisstream.New(c, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// subject is a carrier on b over a database of its own.
func subject(t testing.TB, b *redisstream.Broker) *outboxtest.Subject {
	t.Helper()
	d := outboxtest.NewDatabase(t, dbtest.Reused(t, 4), 200)
	return d.Carried(t, b, outboxtest.CarrierSubject{
		Copies: func(t testing.TB) int { t.Helper(); return copies(t, b) }, Capacity: capacity,
		Forget: func(t testing.TB) { t.Helper(); require.NoError(t, b.Empty(t.Context())) },
		Lose:   func(t testing.TB, keys []outbox.Key) { t.Helper(); lose(t, b, keys) },
	})
}

// copies counts what waits in both queues.
func copies(t testing.TB, b *redisstream.Broker) (n int) {
	t.Helper()
	list, err := b.Queues(t.Context())
	require.NoError(t, err)
	for _, q := range list {
		n += int(q.Ready + q.Later)
	}
	return n
}

// lose deletes entries of the bulk queue, as somebody with redis-cli does.
func lose(t testing.TB, b *redisstream.Broker, keys []outbox.Key) {
	t.Helper()
	lost := make(map[string]bool)
	for _, k := range keys {
		lost[fmt.Sprintf("%d %d", k.JobID, k.ChannelID)] = true
	}
	for id, e := range entries(t, b) {
		if lost[fmt.Sprintf("%d %d", e.JobID, e.ChannelID)] {
			require.NoError(t, b.Client().XDel(t.Context(), b.Keys().Stream, id).Err())
		}
	}
}

// entries are those of the bulk queue's stream, by id.
func entries(t testing.TB, b *redisstream.Broker) map[string]outbox.Copy {
	t.Helper()
	all := make(map[string]outbox.Copy)
	list, err := b.Client().XRange(t.Context(), b.Keys().Stream, "-", "+").Result()
	require.NoError(t, err)
	for _, m := range list {
		var c outbox.Copy
		_, err := fmt.Sscanf(m.Values["c"].(string), "%d %d %d", &c.JobID, &c.ChannelID, &c.Push)
		require.NoError(t, err)
		all[m.ID] = c
	}
	return all
}

// pending are the entries that are taken out of the bulk queue.
func pending(t testing.TB, b *redisstream.Broker) []redis.XPendingExt {
	t.Helper()
	list, err := b.Client().XPendingExt(t.Context(), &redis.XPendingExtArgs{
		Stream: b.Keys().Stream, Group: "belfry", Start: "-", End: "+", Count: 100_000,
	}).Result()
	require.NoError(t, err)
	return list
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !is(); <-tick.C {
		require.Less(t, time.Since(began), patience, "never: %s", what)
	}
}

// room are fixed credits.
type room struct{ n int }

func (r *room) Activities() int            { return r.n }
func (r *room) Bulk() int                  { return r.n }
func (r *room) Job(int64, string, int) int { return r.n }
func (*room) Idle() bool                   { return true }
func (*room) Changed() <-chan struct{}     { return nil }

// background is a context that outlives the test's own.
func background(t testing.TB) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

// redisstreamLines counts the lines of a log that say something.
func redisstreamLines(log *dbtest.Buffer, what string) int { return strings.Count(log.String(), what) }
