package api

import (
	"time"

	"github.com/belfryhq/belfry/admin/operation"
)

// SetStreams sets the limits of streams, before the first.
func (h *Handler) SetStreams(most, own int, beat, event time.Duration) {
	h.streams.most, h.streams.own, h.streams.beat, h.streams.event = most, own, beat, event
}

// SetTurns sets the limits of what looks, before the first request.
func (h *Handler) SetTurns(own int, within time.Duration) {
	h.limiter.own, h.limiter.within = own, within
}

// Turns is how many identities look, or wait for a turn.
func (h *Handler) Turns() int {
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	return len(h.limiter.by)
}

// TurnsTaken is how many looks go on at once.
func (h *Handler) TurnsTaken() (n int) {
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	for _, o := range h.limiter.by {
		n += len(o.slots)
	}
	return n
}

// OwnTurns is how many looks of one identity go on at once.
func (h *Handler) OwnTurns() int { return h.limiter.own }

// NextBeat is in how long all streams beat.
func NextBeat() time.Duration { return newStreams().nextBeat() }

// Hurry divides the time that a request may take to be read, before Run.
func (s *Server) Hurry(by int) { s.http.ReadTimeout /= time.Duration(by) }

// TokenOf is the page_token of a list's page.
func TokenOf(list, begins string) string { return tokenOf(operation.Operation{Name: list}, begins) }
