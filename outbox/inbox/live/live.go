package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Readers authenticates readers (package outbox/inbox).
type Readers interface {
	// Reader returns the channel of the token in the header Authorization, and when the token expires.
	Reader(r *http.Request) (channelID int64, expires time.Time, err error)
	// Refuse answers an error of Reader.
	Refuse(w http.ResponseWriter, err error)
	// AllowsOrigin reports whether pages of an origin may open a WebSocket.
	AllowsOrigin(origin string) bool
}

// The statements of a connection's start are bounded by startTime, and the wait for the feed.
const startTime = 10 * time.Second

// maxReplayed is the number of notifications that a client can have missed. Beyond it the client reads its list.
const maxReplayed = 100

// bell is the PostgreSQL channel that belfry.activities_wake notifies.
const bell = "belfry_messages"

// reload is the event after which a client reads its list.
var reload = []byte(`{"type":"reload"}`)

// Server serves the streams of a node. It is safe for concurrent use.
type Server struct {
	pool    *pgxpool.Pool
	readers Readers
	outage  *lifecycle.Outage
	log     zerolog.Logger
	beat    time.Duration
	idle    time.Duration // without connections before the feed rests
	quiet   time.Duration // between two polls if nothing happens
	hub     *hub
	wake    chan struct{} // size 1
	feed    *feed
	counts  counts
	nodes   *nodes // nil without hints

	mu    sync.Mutex
	walks walks
}

// Connections is the size of the pool of a Server: one for the feed, and the rest for clients that reconnect.
const Connections = 3

// New returns a Server of at most maxStreams streams. Nothing else should use pool. Its role needs the profile inbox.
// outage may be nil.
func New(pool *pgxpool.Pool, maxStreams int, readers Readers, outage *lifecycle.Outage, log zerolog.Logger) *Server {
	return &Server{
		pool: pool, readers: readers, outage: outage, log: log, beat: beatEvery, idle: restAfter, quiet: quietEvery,
		wake: make(chan struct{}, 1), feed: new(feed),
		hub: &hub{most: maxStreams, conns: make(map[int64][]*conn), ready: make(chan struct{})},
	}
}

// Streams returns the number of open streams.
func (s *Server) Streams() int { return s.hub.count() }

// EndStreams ends all open and all later streams. Their clients connect again, elsewhere.
func (s *Server) EndStreams() { s.hub.all(stopping) }

// Marked sends a read event to the streams of a channel, with hints on every node: notifications were marked as seen, read
// or archived.
func (s *Server) Marked(channelID int64) {
	s.hub.marked(channelID)
	s.nodes.marked(channelID)
}

// Run follows the database until ctx ends, and then ends the streams and waits for them.
func (s *Server) Run(ctx context.Context) error {
	var listening sync.WaitGroup
	defer listening.Wait()
	defer s.hub.serving.Wait()
	defer s.EndStreams()
	listener := lifecycle.NewListener(s.pool, bell, startTime, func() { s.rouse(); s.nodes.pass() }, s.outage, s.log)
	listening.Go(func() { listener.Run(ctx) })
	if s.nodes != nil {
		s.nodes.listens = listener.Listening
		listening.Go(func() { s.nodes.hints.Run(ctx, s.hinted) })
	}
	var hot, used time.Time
	for ctx.Err() == nil {
		if s.hub.count() > 0 {
			used = time.Now()
		} else if time.Since(used) > s.idle && s.hub.rest() {
			s.feed = new(feed)
			select {
			case <-ctx.Done():
			case <-s.wake:
			}
			if s.hub.count() == 0 {
				continue
			}
		}
		s.nodes.ask()
		wait := s.interval(hot)
		if began, err := time.Now(), s.cycle(ctx); err != nil && ctx.Err() == nil {
			if !s.outage.Observe(began, err) {
				s.log.Warn().Err(err).Msg("cannot read new notifications; trying again")
			}
			wait = s.quiet
		} else if err == nil {
			s.outage.Observe(began, nil)
			wait = s.interval(hot)
		}
		if s.pause(ctx, wait) {
			hot = time.Now().Add(hotFor)
		}
	}
	return nil
}

// interval returns the time until the next cycle.
func (s *Server) interval(hot time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case time.Now().Before(hot):
		return hotEvery
	case s.walks.running() || len(s.feed.arrivals.holes) > 0:
		return busyEvery
	}
	return s.quiet
}

// pause waits until a time has passed or, except after a short one, until a wake. It reports whether there was a wake.
func (s *Server) pause(ctx context.Context, wait time.Duration) (woken bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	case <-s.wake:
	}
	if wait <= hotEvery {
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return true
}

// rouse begins a cycle at once.
func (s *Server) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// errNotReady reports that the database did not answer in time for a new stream.
var errNotReady = errors.New("the database does not answer now")

// start joins a connection and returns its first events: the notifications since a position, or a reload.
func (s *Server) start(ctx context.Context, channel int64, after string) (c *conn, first []event, err error) {
	c, ready, err := s.hub.join(channel)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			s.hub.leave(c)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	select {
	case <-ready:
	default:
		s.rouse()
		if err := c.await(ctx, ready); err != nil {
			return c, nil, err
		}
	}
	// The position is older than the statement below: everything up to it is found or was sent.
	now := s.hub.at()
	p, ok := parsePosition(after)
	if !ok || !p.resumable(now) {
		return c, []event{{isReload, reload, now}}, nil
	}
	s.mu.Lock()
	late := s.walks.late(p.arrival, time.Unix(p.at, 0))
	s.mu.Unlock()
	missed, err := db.Column[int64](ctx, s.pool, queries.arrivalsSince, pgx.StrictNamedArgs{
		"channel_id": channel, "after": min(p.arrival, now.arrival), "late": late, "rows": maxReplayed + 1,
	})
	switch {
	case err != nil:
		return c, nil, fmt.Errorf("%w: %w", errNotReady, err)
	case len(missed) > maxReplayed:
		return c, []event{{isReload, reload, now}}, nil
	}
	for _, arrival := range missed {
		first = append(first, event{kind: isNew, data: newEvent(arrival)})
	}
	return c, append(first, event{at: now}), nil
}
