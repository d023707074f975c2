package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/dev/admintest"
)

// slow looks tokens up. A lookup of an unknown token waits until end is closed.
type slow struct {
	running, most atomic.Int64
	end           chan struct{}
	once          sync.Once
}

// finish ends the lookups.
func (s *slow) finish() { s.once.Do(func() { close(s.end) }) }

func (s *slow) authenticate(ctx context.Context, token string) (access.Identity, error) {
	if !strings.HasPrefix(token, "nobody") {
		return tokens(ctx, token)
	}
	n := s.running.Add(1)
	defer s.running.Add(-1)
	for {
		if most := s.most.Load(); n <= most || s.most.CompareAndSwap(most, n) {
			break
		}
	}
	select {
	case <-s.end:
	case <-ctx.Done():
	}
	return access.Identity{}, access.ErrToken
}

// flood sends requests with unknown tokens, and returns the function that waits for them.
func (b *bundle) flood(ctx context.Context, n int, method, path string) (wait func()) {
	var asking sync.WaitGroup
	for i := range n {
		asking.Go(func() { b.ask(ctx, fmt.Sprint("nobody-", i), method, path, "") })
	}
	return asking.Wait
}

// Unknown tokens of any number of addresses hold one reserved connection, and two others of an address.
// A caller whose token was valid before does not wait for them.
func TestLookups_OfUnknownTokensDelayNoKnownCaller(t *testing.T) {
	t.Parallel()
	var general, stops *slow
	b := setup(t, func(c *api.Options) {
		admintest.Reserve(t, c)
		general, stops = &slow{end: make(chan struct{})}, &slow{end: make(chan struct{})}
		c.Authenticate, c.Stops.Authenticate = general.authenticate, stops.authenticate
	})
	t.Cleanup(general.finish) // before the server waits for its requests
	t.Cleanup(stops.finish)
	require.Equal(t, http.StatusOK, b.call(t, "operator", "GET", "/lanes", "").status, "the token is known")
	ctx, cancel := context.WithCancel(t.Context())
	waitGeneral, waitStops := b.flood(ctx, 100, "GET", "/lanes"), b.flood(ctx, 100, "POST", "/halt")
	var asking sync.WaitGroup
	for i := range 20 {
		asking.Go(func() {
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, api.Prefix+"/halt", nil)
			req.RemoteAddr = fmt.Sprintf("203.0.113.%d:1", i)
			req.Header.Set("Authorization", "Bearer nobody")
			b.handler.ServeHTTP(httptest.NewRecorder(), req)
		})
	}
	require.Eventually(t, func() bool { return general.running.Load() == 2 && stops.running.Load() == 1 }, patience, time.Millisecond)
	for _, path := range []string{"/halt", "/unhalt"} {
		got := b.call(t, "operator", "POST", path, "")
		require.Equal(t, http.StatusOK, got.status, got.text)
	}
	require.Equal(t, http.StatusOK, b.call(t, "operator", "GET", "/lanes", "").status)
	general.finish()
	stops.finish()
	waitGeneral()
	waitStops()
	asking.Wait()
	cancel()
	require.LessOrEqual(t, general.most.Load(), int64(2))
	require.Equal(t, int64(1), stops.most.Load())
}

// A request with an unknown token from an address that is locked out does not wait for the lookup of another.
func TestLookups_OfALockedOutAddressDoNotWait(t *testing.T) {
	t.Parallel()
	s := &slow{end: make(chan struct{})}
	b := setup(t, func(c *api.Options) { c.Authenticate = s.authenticate })
	t.Cleanup(s.finish)
	require.Equal(t, http.StatusOK, b.call(t, "viewer", "GET", "/lanes", "").status)
	for range 21 {
		b.call(t, "", "GET", "/lanes", "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := b.flood(ctx, 2, "GET", "/lanes")
	require.Eventually(t, func() bool { return s.running.Load() == 2 }, patience, time.Millisecond)
	began := time.Now()
	for range 10 {
		got := b.call(t, "nobody", "GET", "/lanes", "")
		require.Equal(t, http.StatusTooManyRequests, got.status, got.text)
		require.NotEmpty(t, got.header.Get("Retry-After"))
	}
	require.Less(t, time.Since(began), 25*time.Second, "each would wait for five seconds")
	require.Equal(t, http.StatusOK, b.call(t, "viewer", "GET", "/lanes", "").status, "a token that was valid before")
	cancel()
	wait()
}

// A token that was valid is looked up at each request all the same.
func TestLookups_DecideNothingAboutAccess(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	b := setup(t, func(c *api.Options) {
		c.Authenticate = func(ctx context.Context, token string) (access.Identity, error) {
			if revoked.Load() {
				return access.Identity{}, access.ErrToken
			}
			return tokens(ctx, token)
		}
	})
	require.Equal(t, http.StatusOK, b.call(t, "viewer", "GET", "/lanes", "").status)
	revoked.Store(true)
	require.Equal(t, http.StatusUnauthorized, b.call(t, "viewer", "GET", "/lanes", "").status)
}
