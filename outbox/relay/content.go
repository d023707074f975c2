package relay

import (
	"sync/atomic"

	"github.com/belfryhq/belfry/outbox"
)

// maxContent is the maximum number of bytes of the titles, bodies and data of a relay's messages that wait
// in queues or are being called. Texts that messages share count once. A message has up to 57 KB, and a
// relay has up to MaxInFlight messages, each perhaps of another job.
const maxContent = 64 << 20

// content counts bytes of texts. Bulk messages leave the activities' share free. Claims of bulk messages
// stop at half, because the texts of claimed messages are unknown until they are composed.
type content struct {
	limit int64
	held  atomic.Int64
}

// add counts the texts of a message that is enqueued.
func (c *content) add(m *outbox.Composed) { c.held.Add(int64(m.Own + m.Shared.Hold())) }

// drop removes the texts of a message that has left the queue, or was called.
func (c *content) drop(m *outbox.Composed) {
	c.held.Add(-int64(m.Own + m.Shared.Drop()))
	withoutText(m)
}

// withoutText frees the texts of a message that is not sent now. The message itself is in memory as long as
// any message of its batch.
func withoutText(m *outbox.Composed) {
	m.Delivery.Title, m.Delivery.Body, m.Delivery.Data, m.Shared = "", "", nil, nil
}

// full reports whether no further activity, or bulk message, may be enqueued.
func (c *content) full(activity bool, share float64) bool {
	held := c.held.Load()
	return held >= c.limit || !activity && float64(held) >= (1-share)*float64(c.limit)
}

// claims reports whether further bulk messages may be claimed.
func (c *content) claims() bool { return c.held.Load() < c.limit/2 }
