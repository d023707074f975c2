package api_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
)

// long is an operation that looks for as long as a test likes.
type long struct {
	running atomic.Int64
	begun   chan struct{} // one for each that runs
	end     chan struct{} // one for each that is to end
}

func newLong() *long { return &long{begun: make(chan struct{}, 100), end: make(chan struct{})} }

func (l *long) operation() operation.Operation {
	return operation.Define(operation.Operation{Name: "people count", Short: "Count", Role: operation.Viewer}, func(ctx context.Context, _ *operation.Env, _ operation.None) (sum, error) {
		n := l.running.Add(1)
		defer l.running.Add(-1)
		l.begun <- struct{}{}
		select {
		case <-l.end:
			return sum{int(n)}, nil
		case <-ctx.Done():
			return sum{}, ctx.Err()
		}
	}, func(*text.Doc, operation.None, sum) {})
}

// However much one identity looks up, it leaves connections to others, and to its own acts. What
// waits has its turn, or is told to come again.
func TestTurns_LeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	l := newLong()
	b := setup(t, func(o *api.Options) { o.Operations = append(o.Operations, l.operation()) })
	own := b.handler.MaxOwn()
	b.handler.SetLimits(own, time.Minute)
	answers := make(chan int, 16)
	var asking sync.WaitGroup
	ask := func() {
		asking.Go(func() { answers <- b.call(t, "operator", "GET", "/people/count", "").status })
	}
	for range own + 2 {
		ask()
	}
	for range own {
		<-l.begun
	}
	require.Equal(t, http.StatusOK, b.call(t, "viewer", "GET", "/lanes", "").status, "somebody else's look")
	require.Equal(t, http.StatusOK, b.call(t, "operator", "POST", "/lanes/night/pause", `{"reason": "stop"}`).status, "an act of the same identity")
	require.EqualValues(t, own, l.running.Load(), "the rest waits")
	l.end <- struct{}{}
	<-l.begun // of one that waited
	require.Equal(t, http.StatusOK, <-answers)
	for range own + 1 {
		l.end <- struct{}{}
	}
	asking.Wait()
	for range own + 1 {
		require.Equal(t, http.StatusOK, <-answers)
	}
	require.Zero(t, b.handler.LimitedIdentities(), "nothing is kept of those who have gone")
}

func TestTurns_AreRefusedWhereNoneComes(t *testing.T) {
	t.Parallel()
	l := newLong()
	b := setup(t, func(o *api.Options) { o.Operations = append(o.Operations, l.operation()) })
	b.handler.SetLimits(1, 20*time.Millisecond)
	var asking sync.WaitGroup
	asking.Go(func() { b.call(t, "operator", "GET", "/people/count", "") })
	<-l.begun
	plan := `{"everyone": true, "preview": true}`
	require.Equal(t, http.StatusTooManyRequests, b.call(t, "operator", "POST", "/enqueue", plan).status, "the plan of an act is a look")
	refused := b.call(t, "operator", "GET", "/lanes", "")
	require.Equal(t, http.StatusTooManyRequests, refused.status)
	require.Equal(t, "5", refused.header.Get("Retry-After"))
	require.Equal(t, "too many concurrent requests; allowed: 1 request of one identity; further requests wait up to 20ms", refused.problem(t).Detail)
	l.end <- struct{}{}
	asking.Wait()
	b.handler.SetLimits(1, patience) // an answer may come before its turn is given back
	require.Equal(t, http.StatusOK, b.call(t, "operator", "GET", "/lanes", "").status)
	require.Equal(t, http.StatusOK, b.call(t, "operator", "POST", "/enqueue", plan).status)
	require.Zero(t, b.handler.LimitedIdentities())
}

// A small pool is not taken by one identity, either.
func TestTurns_AreFewerThanConnections(t *testing.T) {
	t.Parallel()
	for connections, own := range map[int32]int{1: 1, 2: 1, 3: 2, 6: 4, 16: 4} {
		c, err := pgxpool.ParseConfig("postgres://localhost/none")
		require.NoError(t, err)
		c.MaxConns = connections
		pool, err := pgxpool.NewWithConfig(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, own, api.New(api.Options{Env: operation.Env{DB: pool}}).MaxOwn(), connections)
		pool.Close()
	}
}

// A stream has a turn while it reads, and none while nobody takes what it sends.
func TestTurns_OfAStreamThatIsNotReadAreOthers(t *testing.T) {
	t.Parallel()
	reading, goOn := make(chan struct{}), make(chan struct{})
	s := serveStream(t, talking(func(ctx context.Context, _ *operation.Env, in talk, each func([]string) error) (sum, error) {
		if in.Fail == "" {
			return sum{}, each([]string{"hi"})
		}
		reading <- struct{}{}
		<-goOn
		for ctx.Err() == nil {
			if err := each([]string{strings.Repeat("x", 1<<20)}); err != nil {
				return sum{}, err
			}
		}
		return sum{}, nil
	}), false, func(h *api.Handler, _ *http.Server) {
		h.SetStreams(8, 8, time.Hour, time.Hour)
		h.SetLimits(1, 20*time.Millisecond)
	})
	ctx, leave := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		// Its head comes with the first item; then nobody reads.
		require.Equal(t, http.StatusOK, s.get(t, ctx, "?fail=never").status)
	})
	<-reading
	res := s.get(t, t.Context(), "")
	require.Equal(t, http.StatusTooManyRequests, res.status, "the first stream reads")
	require.NotEmpty(t, res.header.Get("Retry-After"))
	close(goOn)
	asking.Wait()
	require.Eventually(t, func() bool { return s.get(t, t.Context(), "").status == http.StatusOK }, patience, 10*time.Millisecond)
	leave()
	require.Eventually(t, func() bool { return s.handler.Streams() == 0 && s.handler.LimitedIdentities() == 0 }, patience, 10*time.Millisecond)
}

// What looks once for all that watch needs no turn.
func TestTurns_AreNotAWatchs(t *testing.T) {
	t.Parallel()
	for _, o := range admin.Operations() {
		require.Equal(t, o.Verb() == "watch", o.Shared, o.Name)
	}
	ended := make(chan struct{}, 2)
	watch := talking(func(ctx context.Context, _ *operation.Env, _ talk, each func([]string) error) (sum, error) {
		defer func() { ended <- struct{}{} }()
		if err := each([]string{"hi"}); err != nil {
			return sum{}, err
		}
		<-ctx.Done()
		return sum{}, nil
	})
	watch.Shared = true
	s := serveStream(t, watch, false, func(h *api.Handler, _ *http.Server) {
		h.SetStreams(8, 8, time.Hour, time.Minute)
		h.SetLimits(1, time.Millisecond)
	})
	ctx, leave := context.WithCancel(t.Context())
	for range 2 {
		require.Equal(t, http.StatusOK, s.get(t, ctx, "").status)
	}
	leave()
	<-ended
	<-ended
}
