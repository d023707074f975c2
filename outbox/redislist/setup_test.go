package redislist_test

import (
	"strconv"
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
	"github.com/belfryhq/belfry/outbox/redislist"
)

func TestMain(m *testing.M) { outboxtest.Main(m, equip) }

const (
	// capacity is what a queue of a test's carrier holds.
	capacity = 100
	patience = time.Minute
)

// server is a Redis server and what a test does to it.
type server struct {
	*dbtest.Redis
	client redis.UniversalClient
}

func start(t testing.TB, settings ...string) *server {
	t.Helper()
	return serverOf(t, dbtest.StartRedis(t, settings...))
}

func serverOf(t testing.TB, r *dbtest.Redis) *server {
	t.Helper()
	options, err := redis.ParseURL(r.URL)
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return &server{r, client}
}

func (s *server) config() redisdb.Config {
	c := redisdb.DefaultConfig()
	c.URL = s.URL
	return c
}

// broker is one on the server, or on what stands before it.
func (s *server) broker(t testing.TB, url string, change func(*redislist.Options)) *redislist.Broker {
	t.Helper()
	config, options := s.config(), redislist.Options{MaxQueued: capacity, Log: zerolog.Nop()}
	if url != "" {
		config.URL = url
	}
	if change != nil {
		change(&options)
	}
	b, err := redislist.New(config, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

const (
	bulk       = "{belfry:bulk}:"
	activities = "{belfry:activities}:"
)

// copies counts what waits.
func (s *server) copies(t testing.TB) (n int) {
	t.Helper()
	for _, tag := range []string{bulk, activities} {
		main, err := s.client.LLen(t.Context(), tag+"main").Result()
		require.NoError(t, err)
		later, err := s.client.ZCard(t.Context(), tag+"waiting").Result()
		require.NoError(t, err)
		n += int(main + later)
	}
	return n
}

// processing counts what a worker has taken of bulk.
func (s *server) processing(t testing.TB, worker string) int {
	t.Helper()
	n, err := s.client.HLen(t.Context(), bulk+"processing:"+worker).Result()
	require.NoError(t, err)
	return int(n)
}

// lose drops the copies of keys from main.
func (s *server) lose(t testing.TB, keys []outbox.Key) {
	t.Helper()
	items, err := s.client.LRange(t.Context(), bulk+"main", 0, -1).Result()
	require.NoError(t, err)
	for _, item := range items {
		for _, k := range keys {
			if strings.Contains(item, "/"+strconv.FormatInt(k.JobID, 10)+"/"+strconv.FormatInt(k.ChannelID, 10)+"/") {
				require.NoError(t, s.client.LRem(t.Context(), bulk+"main", 1, item).Err())
			}
		}
	}
}

func setup(t testing.TB, channels int) *outboxtest.Database {
	t.Helper()
	return outboxtest.NewDatabase(t, dbtest.Reused(t, 4), channels)
}
