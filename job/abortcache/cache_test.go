package abortcache_test

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/abortcache"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logged)
	dbtest.Main(m)
}

// logged counts what the Redis client says to the logger of the process.
var logged counter

type counter struct{ atomic.Int64 }

func (c *counter) Printf(context.Context, string, ...any) { c.Add(1) }

const (
	// How long a test waits for what must happen, and between two looks.
	patience = 30 * time.Second
	poll     = 5 * time.Millisecond
	// slack is what a loaded machine may add to a timeout: less than the ten seconds that
	// caches have otherwise.
	slack = 8 * time.Second
)

var _ job.AbortCache = (*abortcache.Cache)(nil)

var act = job.Act{Actor: "ana", Reason: "wrong audience"}

// bundle is a cache, its server and a client that sees what the cache has written.
type bundle struct {
	*abortcache.Cache
	server *dbtest.Redis
	raw    *redis.Client
}

func setup(t testing.TB) *bundle {
	t.Helper()
	server := dbtest.StartRedis(t)
	raw := redis.NewClient(&redis.Options{Addr: server.Addr, Protocol: 2})
	t.Cleanup(func() { require.NoError(t, raw.Close()) })
	return &bundle{Cache: open(t, server.URL), server: server, raw: raw}
}

// open gives calls the time that a loaded machine may need.
func open(t testing.TB, url string) *abortcache.Cache {
	t.Helper()
	config := abortcache.DefaultConfig()
	config.URL, config.Timeout = url, 10*time.Second
	return openWith(t, config)
}

func openWith(t testing.TB, config abortcache.Config) *abortcache.Cache {
	t.Helper()
	cache, err := abortcache.Open(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = cache.Close() })
	return cache
}

func (b *bundle) get(t *testing.T, id int64) *job.Act {
	t.Helper()
	got, err := b.Get(t.Context(), id)
	require.NoError(t, err)
	return got
}

func TestCache_SetGetClear(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Nil(t, b.get(t, 42))
	require.NoError(t, b.Clear(t.Context(), 42))

	require.NoError(t, b.Set(t.Context(), 42, act))
	require.Equal(t, &act, b.get(t, 42))
	require.Nil(t, b.get(t, 4))
	require.Nil(t, b.get(t, -42))

	newer := job.Act{Actor: "bo", Reason: "“late” \x00 und zu früh"}
	require.NoError(t, b.Set(t.Context(), 42, newer))
	require.Equal(t, &newer, b.get(t, 42))

	require.NoError(t, b.Clear(t.Context(), 42))
	require.Nil(t, b.get(t, 42))
}

// What operators read and write with redis-cli is part of the contract.
func TestCache_KeyAndValueAreForPeople(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := time.Now().Add(-time.Millisecond)
	require.NoError(t, b.Set(t.Context(), 42, act))
	text, err := b.raw.Get(t.Context(), "belfry:abort:42").Result()
	require.NoError(t, err)
	var value map[string]string
	require.NoError(t, json.Unmarshal([]byte(text), &value))
	at, err := time.Parse(time.RFC3339, value["at"])
	require.NoError(t, err)
	require.WithinRange(t, at, before, time.Now())
	require.Equal(t, time.UTC, at.Location())
	delete(value, "at")
	require.Equal(t, map[string]string{"actor": "ana", "reason": "wrong audience"}, value)
}

func TestCache_FlagEndsByItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Set(t.Context(), 1, act))
	left, err := b.raw.PTTL(t.Context(), "belfry:abort:1").Result()
	require.NoError(t, err)
	require.Greater(t, left, 59*time.Minute)
	require.LessOrEqual(t, left, time.Hour)

	config := abortcache.Config{URL: b.server.URL, TTL: time.Second, Timeout: 10 * time.Second}
	short := openWith(t, config)
	require.NoError(t, short.Set(t.Context(), 1, act)) // the newest call's time to live counts
	require.Eventually(t, func() bool {
		got, err := short.Get(t.Context(), 1)
		return err == nil && got == nil
	}, patience, poll)
}

// A key that exists means stop, whatever it holds.
func TestCache_UnreadableIsAFlag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	unreadable := job.Act{Actor: abortcache.UnknownActor, Reason: "the abort flag in the cache could not be read"}
	for value, want := range map[string]job.Act{
		``:                             unreadable,
		`1`:                            unreadable,
		`null`:                         unreadable,
		`[]`:                           unreadable,
		`{`:                            unreadable,
		`{"actor":5}`:                  unreadable,
		"\xff\x00":                     unreadable,
		`{}`:                           {Actor: abortcache.UnknownActor},
		`{"reason":"r"}`:               {Actor: abortcache.UnknownActor, Reason: "r"},
		`{"actor":"ana","at":"soon"}`:  {Actor: "ana"},
		`{"actor":"ana","more":[1,2]}`: {Actor: "ana"},
	} {
		require.NoError(t, b.raw.Set(t.Context(), "belfry:abort:7", value, 0).Err())
		require.Equal(t, &want, b.get(t, 7), "value %q", value)
	}
	require.NoError(t, b.Clear(t.Context(), 7))
	require.NoError(t, b.raw.RPush(t.Context(), "belfry:abort:7", "x").Err())
	require.Equal(t, &unreadable, b.get(t, 7))
	require.NoError(t, b.Set(t.Context(), 7, act))
	require.Equal(t, &act, b.get(t, 7))
}

// failing calls each operation of a cache whose server does not answer, and
// requires an error that names operation and job within the timeout.
func failing(t *testing.T, cache *abortcache.Cache, timeout time.Duration) {
	t.Helper()
	for operation, call := range map[string]func() error{
		"set":   func() error { return cache.Set(t.Context(), 42, act) },
		"get":   func() error { _, err := cache.Get(t.Context(), 42); return err },
		"clear": func() error { return cache.Clear(t.Context(), 42) },
	} {
		started := time.Now()
		err := call()
		require.ErrorContains(t, err, "abort cache: "+operation+" job 42: ")
		require.Less(t, time.Since(started), timeout+slack)
	}
}

func TestFault_ServerStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Set(t.Context(), 42, act))
	require.NoError(t, b.server.Stop())
	failing(t, b.Cache, 0) // refused, which takes no time at all
	for range 20 {         // more than there are connections
		_, err := b.Get(t.Context(), 42)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	require.NoError(t, b.server.Start(t.Context()))
	require.Nil(t, b.get(t, 42)) // found by the next call; what it held is lost
	require.NoError(t, b.Set(t.Context(), 42, act))
	require.Equal(t, &act, b.get(t, 42))
}

func TestFault_ServerRestartedBetweenCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Set(t.Context(), 42, act))
	require.NoError(t, b.server.Stop())
	require.NoError(t, b.server.Start(t.Context()))
	require.Nil(t, b.get(t, 42)) // over a new connection, although calls are not repeated
}

// An operator looks at belfry's log, not at what a library writes to stderr.
func TestFault_OutageLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.server.Stop())
	before := logged.Load()
	failing(t, b.Cache, 0)
	for range 20 {
		_, err := b.Get(t.Context(), 42)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	require.Equal(t, before, logged.Load())
	require.NoError(t, b.Close()) // and no goroutine: TestMain looks
}

func TestFault_ServerFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const timeout = 50 * time.Millisecond
	cache := openWith(t, abortcache.Config{URL: b.server.URL, TTL: time.Hour, Timeout: timeout})
	require.NoError(t, b.server.Pause())
	failing(t, cache, timeout) // on new connections
	require.NoError(t, b.server.Continue())
	require.Nil(t, b.get(t, 1))
	require.NoError(t, b.server.Pause())
	failing(t, cache, timeout) // and on one that has worked
	require.NoError(t, b.server.Continue())
	require.NoError(t, b.Set(t.Context(), 42, act))
	require.Equal(t, &act, b.get(t, 42))
}

// An error leaves open whether the flag was set: a frozen server finds the
// command when it goes on.
func TestFault_SetMayHappenAfterItsError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cache := openWith(t, abortcache.Config{URL: b.server.URL, TTL: time.Hour, Timeout: time.Second})
	require.Eventually(t, func() bool {
		_, err := cache.Get(t.Context(), 42)
		return err == nil // there is a connection
	}, patience, poll)
	require.NoError(t, b.server.Pause())
	require.Error(t, cache.Set(t.Context(), 42, act))
	require.NoError(t, b.server.Continue())
	require.Eventually(t, func() bool {
		got, err := b.Get(t.Context(), 42)
		return err == nil && got != nil
	}, patience, poll)
}

// The timeout is for one attempt, not for each of several.
func TestCache_AsksOnce(t *testing.T) {
	t.Parallel()
	var count atomic.Int64
	cache := open(t, "redis://"+dbtest.Serve(t, func(net.Conn) { count.Add(1) }))
	for i := range int64(3) {
		_, err := cache.Get(t.Context(), 1)
		require.Error(t, err)
		require.Equal(t, i+1, count.Load())
	}
}

func TestCache_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.NoError(t, b.server.Pause())
	started := time.Now()
	require.Error(t, b.Set(ctx, 42, act))
	require.Less(t, time.Since(started), slack) // its own timeout is ten seconds
	cancel()
	_, err := b.Get(ctx, 42)
	require.Error(t, err)
}

func TestCache_Password(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const password = "s3cret/ä:@"
	require.NoError(t, b.raw.ConfigSet(t.Context(), "requirepass", password).Err())
	with := func(user *url.Userinfo) *abortcache.Cache {
		u, err := url.Parse(b.server.URL)
		require.NoError(t, err)
		u.User = user
		return open(t, u.String())
	}
	require.NoError(t, with(url.UserPassword("", password)).Set(t.Context(), 1, act))
	_, err := with(nil).Get(t.Context(), 1)
	require.ErrorContains(t, err, "NOAUTH")
	_, err = with(url.UserPassword("", "gu3ss")).Get(t.Context(), 1)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "gu3ss")
	require.NoError(t, b.server.Stop())
	err = with(url.UserPassword("me", password)).Clear(t.Context(), 1)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "s3cret")
}

// Installations that share a server keep apart by the number of the database.
func TestCache_DatabaseNumber(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := open(t, "redis://"+b.server.Addr+"/3")
	require.NoError(t, other.Set(t.Context(), 42, act))
	require.Nil(t, b.get(t, 42))
	got, err := open(t, "redis://"+b.server.Addr+"?db=3").Get(t.Context(), 42)
	require.NoError(t, err)
	require.Equal(t, &act, got)
}

func TestCache_Closed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Close())
	_, err := b.Get(t.Context(), 42)
	require.ErrorIs(t, err, redis.ErrClosed)
	require.ErrorIs(t, b.Set(t.Context(), 42, act), redis.ErrClosed)
}

// BenchmarkCache_Get is what a chunk pays for looking.
func BenchmarkCache_Get(b *testing.B) {
	s := setup(b)
	for b.Loop() {
		if _, err := s.Get(b.Context(), 42); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCache_GetRefused is what a chunk pays while the server is down.
func BenchmarkCache_GetRefused(b *testing.B) {
	s := setup(b)
	require.NoError(b, s.server.Stop())
	for b.Loop() {
		if _, err := s.Get(b.Context(), 42); err == nil {
			b.Fatal("no error")
		}
	}
}
