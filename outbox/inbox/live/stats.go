package live

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
)

// kind is the type of an event. The zero value is a heartbeat.
type kind int

const (
	isNew kind = iota + 1
	isRead
	isReload
	kinds
)

// Stats counts the streams of a Server, and since its start the events that it sent and the streams that ended.
type Stats struct {
	Open  int
	Sent  map[string]int64 // by type: new, read, reload
	Ended map[string]int64 // by reason: too_slow, stopping, expired, gone
}

// counts are the counters of a Server.
type counts struct {
	sent  [kinds]atomic.Int64
	ended [gone + 1]atomic.Int64
}

// Stats does not block.
func (s *Server) Stats() Stats {
	sent, ended := &s.counts.sent, &s.counts.ended
	return Stats{
		Open: s.hub.count(),
		Sent: map[string]int64{"new": sent[isNew].Load(), "read": sent[isRead].Load(), "reload": sent[isReload].Load()},
		Ended: map[string]int64{
			"too_slow": ended[tooSlow].Load(), "stopping": ended[stopping].Load(), "expired": ended[expired].Load(), "gone": ended[gone].Load(),
		},
	}
}

// lost returns the reason for a failed write: a client that reads nothing until the deadline is too slow.
func (c *conn) lost(err error) closing {
	if _, reason := c.take(); reason != open {
		return reason
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return tooSlow
	}
	return gone
}
