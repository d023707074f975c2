package api

import "time"

// SetStreams sets the limits of streams, before the first.
func (h *Handler) SetStreams(most, own int, beat, event time.Duration) {
	h.streams.most, h.streams.own, h.streams.beat, h.streams.event = most, own, beat, event
}
