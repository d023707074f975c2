package relay

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/belfryhq/belfry/outbox"
)

// inflight contains the claimed messages that are not recorded: the leases of the claims, and the
// counts by lane. All of it is bounded (I13).
//
// A message whose outcome cannot be recorded, because another session has locked its row, is parked: it takes no room,
// so that it delays no others. A job with a batch of these gets no more claims, and no more are parked than four times
// MaxInFlight.
type inflight struct {
	mu         sync.Mutex
	leases     map[int64]int  // messages that are not recorded, by lease
	lanes      map[string]int // by lane; activities have none
	jobs       map[int64]int  // messages that are not recorded, by job
	activities int
	total      int
	parked     map[outbox.Key]bool
	stuck      map[int64]int // parked messages by job
	parts      int           // the lanes with due messages, and one more
	changed    chan struct{} // size 1: something has ended, or there may be more to receive
}

func newInflight() *inflight {
	return &inflight{
		leases: make(map[int64]int), lanes: make(map[string]int), jobs: make(map[int64]int),
		parked: make(map[outbox.Key]bool), stuck: make(map[int64]int),
		parts: 2, changed: make(chan struct{}, 1),
	}
}

// take adds claimed messages.
func (f *inflight) take(claimed []outbox.Claimed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range claimed {
		f.add(&claimed[i], 1)
	}
}

func (f *inflight) add(c *outbox.Claimed, n int) {
	f.leases[c.LeaseID] += n
	if f.jobs[c.JobID] += n; f.jobs[c.JobID] <= 0 {
		delete(f.jobs, c.JobID)
	}
	if n < 0 && f.parked[c.Key] {
		delete(f.parked, c.Key)
		if f.stuck[c.JobID]--; f.stuck[c.JobID] == 0 {
			delete(f.stuck, c.JobID)
		}
		return
	}
	f.count(c, n)
}

// count changes the room that messages take.
func (f *inflight) count(c *outbox.Claimed, n int) {
	f.total += n
	if c.JobID < 0 {
		f.activities += n
	} else if f.lanes[c.Lane] += n; f.lanes[c.Lane] <= 0 {
		delete(f.lanes, c.Lane)
	}
}

// park gives back the room of messages whose outcome cannot be recorded now. They stay in flight.
func (f *inflight) park(messages iter.Seq[*outbox.Claimed], most int) {
	f.mu.Lock()
	for c := range messages {
		if _, known := f.leases[c.LeaseID]; known && !f.parked[c.Key] && len(f.parked) < most {
			f.parked[c.Key] = true
			f.stuck[c.JobID]++
			f.count(c, -1)
		}
	}
	f.mu.Unlock()
	f.wake()
}

// stuckOf returns the number of parked messages of a job.
func (f *inflight) stuckOf(jobID int64) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stuck[jobID]
}

// finishing returns the leases that have no messages left once these are recorded.
func (f *inflight) finishing(messages iter.Seq[*outbox.Claimed]) (done []int64) {
	counts := make(map[int64]int)
	for c := range messages {
		counts[c.LeaseID]++
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, n := range counts {
		if left, known := f.leases[id]; known && left <= n {
			done = append(done, id)
		}
	}
	return done
}

// drop removes recorded or lost messages and returns the leases without messages left. The leases stay
// until they have ended.
func (f *inflight) drop(messages iter.Seq[*outbox.Claimed]) (done []int64) {
	f.mu.Lock()
	for c := range messages {
		if _, known := f.leases[c.LeaseID]; !known {
			continue
		}
		if f.add(c, -1); f.leases[c.LeaseID] == 0 {
			done = append(done, c.LeaseID)
		}
	}
	f.mu.Unlock()
	f.wake()
	return done
}

// ended takes leases out that are deleted.
func (f *inflight) ended(leases []int64) {
	if len(leases) == 0 {
		return
	}
	f.mu.Lock()
	for _, id := range leases {
		delete(f.leases, id)
	}
	f.mu.Unlock()
	f.wake()
}

// holds reports whether a lease has messages in flight.
func (f *inflight) holds(lease int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leases[lease] > 0
}

// ofJob returns the number of messages of a job in flight.
func (f *inflight) ofJob(jobID int64) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobs[jobID]
}

// wake makes waiting receivers check the credits again.
func (f *inflight) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// empty reports whether nothing is in flight, and no lease is left to be deleted.
func (f *inflight) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.leases) == 0
}

// ids are the leases in flight.
func (f *inflight) ids() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.leases))
}

func (f *inflight) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total + len(f.parked)
}

// room returns the number of messages of a lane, or of activities, that may be claimed, if the given number
// of lanes has due messages. No lane gets all of it, so that a lane whose sender hangs leaves room for the
// other lanes.
func (f *inflight) room(c Config, lane string, lanes int, activity bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := kept(c)
	if activity {
		if kept == 0 {
			return c.MaxInFlight - f.total
		}
		return min(c.MaxInFlight-f.total, max(kept-f.activities, c.MaxInFlight-kept-f.bulk()))
	}
	f.parts = max(lanes, 1) + 1
	return min(f.part(c)-f.lanes[lane], c.MaxInFlight-kept-f.bulk(), c.MaxInFlight-f.total)
}

// bulkRoom is how many more messages of jobs may be claimed.
func (f *inflight) bulkRoom(c Config) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return min(c.MaxInFlight-kept(c)-f.bulk(), c.MaxInFlight-f.total)
}

// kept returns the room that bulk messages leave to activities.
func kept(c Config) int { return int(c.ActivityShare * float64(c.MaxInFlight)) }

// part is how many messages one lane may have in flight: a tenth of a batch if there are too many lanes for
// more, so that no number of lanes stops a lane.
func (f *inflight) part(c Config) int {
	return max((c.MaxInFlight-kept(c))/f.parts, c.Batch/10, 1)
}

// least is the smallest number of messages of a lane that is worth a claim: claims in crumbs would cost as
// much each as whole ones.
func (f *inflight) least(c Config) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return min(c.Batch, max(1, f.part(c)/4))
}

// share is how many bulk messages one queue may hold: half of a lane's part, so that a
// lane of which one sender hangs goes on with the others.
func (f *inflight) share(c Config) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(1, f.part(c)/2)
}

func (f *inflight) bulk() int { return f.total - f.activities }

// forget drops everything: what the database did not take is other relays'.
func (f *inflight) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.leases)
	clear(f.lanes)
	clear(f.jobs)
	clear(f.parked)
	clear(f.stuck)
	f.activities, f.total = 0, 0
}
