package limit

import (
	"sync"
	"time"
)

const (
	// AbsentLeast is how long a message waits for a sender for its platform, at least.
	AbsentLeast = 10 * time.Second
	// absentRate is how many of them come again a second: it may be a tenth of all channels.
	absentRate = 500
)

// Absent spaces the returns of messages without a sender, activities and bulk separately. The zero value is ready. It is
// safe for concurrent use.
type Absent struct {
	mu               sync.Mutex
	activities, bulk time.Time // when the next one does
}

// Pause returns how long the next message waits.
func (a *Absent) Pause(activity bool, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := &a.bulk
	if activity {
		next = &a.activities
	}
	at := now.Add(AbsentLeast)
	if at.Before(*next) {
		at = *next
	}
	*next = at.Add(time.Second / absentRate)
	return at.Sub(now)
}
