package api

import (
	"time"

	"github.com/belfryhq/belfry/admin/operation"
)

// SetStreams sets the limits of streams, before the first.
func (h *Handler) SetStreams(most, own int, beat, event time.Duration) {
	h.streams.most, h.streams.own, h.streams.beat, h.streams.event = most, own, beat, event
}

// HoldBeats puts the next heartbeat off until 2099, so that a stream's text is always the same.
func (h *Handler) HoldBeats() { h.streams.beat = 100 * 365 * 24 * time.Hour }

// SetLimits sets the limits of concurrent requests, before the first request.
func (h *Handler) SetLimits(own int, within time.Duration) {
	h.limiter.own, h.limiter.within = own, within
}

// LimitedIdentities returns the number of identities with running or waiting requests.
func (h *Handler) LimitedIdentities() int {
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	return len(h.limiter.by)
}

// RunningRequests returns the number of running requests.
func (h *Handler) RunningRequests() (n int) {
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	for _, o := range h.limiter.by {
		n += len(o.slots)
	}
	return n
}

// MaxOwn returns the maximum of concurrent requests of one identity.
func (h *Handler) MaxOwn() int { return h.limiter.own }

// NextBeat returns the time until the next heartbeat of all streams.
func NextBeat() time.Duration { return newStreams().nextBeat() }

// Hurry divides the read timeout, before Run.
func (s *Server) Hurry(by int) { s.http.ReadTimeout /= time.Duration(by) }

// TokenOf returns the page_token of a list's page.
func TokenOf(list, begins string) string { return tokenOf(operation.Operation{Name: list}, begins) }

// LimitConnections sets the limits of connections, before Run.
func (s *Server) LimitConnections(most, own int) { s.connections.most, s.connections.own = most, own }

// IdleConnections returns the number of connections without a request.
func (s *Server) IdleConnections() int {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	return s.connections.idle.Len()
}

// Share returns how many connections a listener has of a number of descriptors.
var Share = share

// StopLockoutClock lets no lockout pass, however long the guesses take.
func (h *Handler) StopLockoutClock() {
	at := time.Now()
	for _, l := range []*lockout{h.lockout, h.signIns.addresses, h.signIns.names} {
		l.now = func() time.Time { return at }
	}
}
