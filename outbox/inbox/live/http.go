package live

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

const (
	// beatEvery is the interval of heartbeats, which also carry the position.
	beatEvery = 25 * time.Second
	// writeTime is the deadline of each write.
	writeTime = 10 * time.Second
	// Clients reconnect after a random time between these, so that the clients of a lost node do not come at once.
	minReconnect, maxReconnect = time.Second, 5 * time.Second
	// A WebSocket may send maxPings pings at once, and one in pingEvery.
	pingEvery, maxPings = time.Second, 20
	// maxIncoming is the size of a message of a WebSocket client, which has nothing to send.
	maxIncoming = 512
	// unauthorized is the registered close code for credentials that are not valid any more.
	unauthorized = websocket.StatusCode(3000)
)

// ServeEvents answers GET /v1/stream with server-sent events.
func (s *Server) ServeEvents(w http.ResponseWriter, r *http.Request) {
	c, first, expires, ok := s.enter(w, r, r.Header.Get("Last-Event-ID"))
	if !ok {
		return
	}
	defer s.hub.leave(c)
	out := lifecycle.NewEventWriter(w, writeTime)
	b := lifecycle.AppendRetry(nil, minReconnect+rand.N(maxReconnect-minReconnect)) //nolint:gosec // no secret
	out.Begin(lifecycle.EventStream)
	s.pump(r.Context(), c, expires, first, func(list []event) error {
		for _, e := range list {
			b = lifecycle.AppendEvent(b, e.at.String(), "", e.data)
		}
		err := out.Send(b)
		b = nil
		return err
	})
}

// ServeWebSocket answers GET /v1/ws. Its messages have the data of the events and the position.
func (s *Server) ServeWebSocket(w http.ResponseWriter, r *http.Request) {
	if origin := r.Header.Get("Origin"); origin != "" && !sameHost(origin, r.Host) && !s.readers.AllowsOrigin(origin) {
		refuse(w, http.StatusForbidden, "pages of this origin are not allowed (inbox.origins)")
		return
	}
	c, first, expires, ok := s.enter(w, r, r.URL.Query().Get("after"))
	if !ok {
		return
	}
	defer s.hub.leave(c)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	pings := rate.NewLimiter(rate.Every(pingEvery), maxPings)
	pinged := func(context.Context, []byte) bool {
		if !pings.Allow() {
			cancel()
			return false
		}
		return true
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the origin is checked above
		OnPingReceived:     pinged, OnPongReceived: func(ctx context.Context, b []byte) { pinged(ctx, b) },
	})
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = socket.CloseNow() }()
	socket.SetReadLimit(maxIncoming)
	ctx = socket.CloseRead(ctx)
	reason := s.pump(ctx, c, expires, first, func(list []event) error {
		for _, e := range list {
			within, cancel := context.WithTimeout(ctx, writeTime)
			err := socket.Write(within, websocket.MessageText, e.text())
			cancel()
			if err != nil {
				return err
			}
		}
		return nil
	})
	switch reason {
	case open, gone:
	case tooSlow:
		_ = socket.Close(websocket.StatusTryAgainLater, "too slow; connect again")
	case stopping:
		_ = socket.Close(websocket.StatusServiceRestart, "the server stops; connect again")
	case expired:
		_ = socket.Close(unauthorized, "the token has expired")
	}
}

// text returns the JSON object of an event with its position.
func (e event) text() []byte {
	data := e.data
	if data == nil {
		data = []byte(`{"type":"position"}`)
	}
	if at := e.at.String(); at != "" {
		data = append(append([]byte(nil), data[:len(data)-1]...), `,"position":"`+at+`"}`...)
	}
	return data
}

// sameHost reports whether an origin is the host of the request.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host == host && host != ""
}

// enter authenticates a request and joins its connection. The caller leaves it. Otherwise it has answered.
func (s *Server) enter(w http.ResponseWriter, r *http.Request, after string) (*conn, []event, time.Time, bool) {
	tokenOf(r)
	channel, expires, err := s.readers.Reader(r)
	if err != nil {
		s.readers.Refuse(w, err)
		return nil, nil, expires, false
	}
	c, first, err := s.start(r.Context(), channel, after)
	switch {
	case err == nil:
		return c, first, expires, true
	case errors.Is(err, errTooManyOwn):
		refuse(w, http.StatusTooManyRequests, err.Error()+"; allowed: "+strconv.Itoa(maxPerChannel))
	case errors.Is(err, errNotReady):
		if r.Context().Err() == nil { // the client is there
			s.log.Warn().Err(err).Msg("cannot open a stream")
		}
		refuse(w, http.StatusServiceUnavailable, errNotReady.Error())
	default:
		refuse(w, http.StatusServiceUnavailable, err.Error())
	}
	return nil, nil, expires, false
}

// tokenOf moves a token from the URL to the header: browsers cannot set headers of these requests. It also
// removes it from the URL, so that no log of a later handler has it.
func tokenOf(r *http.Request) {
	query := r.URL.Query()
	for _, name := range [...]string{"access_token", "token"} {
		if token := query.Get(name); token != "" && r.Header.Get("Authorization") == "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		query.Del(name)
	}
	r.URL.RawQuery = query.Encode()
	r.RequestURI = r.URL.RequestURI()
}

// refuse answers with a problem in the format of RFC 9457.
func refuse(w http.ResponseWriter, status int, detail string) {
	text, _ := json.Marshal(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail}) //nolint:errchkjson // plain
	w.Header().Set("Content-Type", "application/problem+json")
	if status != http.StatusForbidden {
		w.Header().Set("Retry-After", "5")
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// pump sends the events of a connection until it ends, and counts both.
func (s *Server) pump(ctx context.Context, c *conn, expires time.Time, list []event, send func([]event) error) closing {
	beat := time.NewTimer(0)
	defer beat.Stop()
	counted := gone
	defer func() { s.counts.ended[counted].Add(1) }()
	for {
		if len(list) > 0 {
			if err := send(list); err != nil {
				counted = c.lost(err)
				return gone
			}
			for _, e := range list {
				s.counts.sent[e.kind].Add(1)
			}
			list = nil
			beat.Reset(min(s.beat, time.Until(expires)))
		}
		select {
		case <-ctx.Done():
			return gone
		case <-c.wake:
		case <-beat.C:
			if !time.Now().Before(expires) {
				counted = expired
				return expired
			}
			list = append(list, event{at: s.hub.at()}) // before the queue is read
		}
		queued, reason := c.take()
		if reason != open {
			counted = reason
			return reason
		}
		if len(queued) > 0 {
			list = queued
		}
	}
}
