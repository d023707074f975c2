package relay

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// Stats counts the recorded outcomes of a Relay since it was created, and describes its state. A
// message that is tried again counts each time.
type Stats struct {
	Claimed     int64 `json:"claimed"`
	Sent        int64 `json:"sent"`
	Unconfirmed int64 `json:"unconfirmed"` // of Sent: no receipt came in time
	Awaiting    int64 `json:"awaiting"`    // accepted, and a receipt is to come
	Retried     int64 `json:"retried"`     // put back for another attempt
	FailedOver  int64 `json:"failed_over"` // put back for the next medium
	Deferred    int64 `json:"deferred"`    // put back without an attempt: quiet hours, or the sender cannot now
	Returned    int64 `json:"returned"`    // put back as they were: held, or not reached before the stop
	Dead        int64 `json:"dead"`
	// DeadBy counts Dead again, by the letters' reasons.
	DeadBy    map[outbox.Reason]int64 `json:"dead_by"`
	Refused   int64                   `json:"refused"`   // CANCELLED before a call: opted out, or capped
	Cancelled int64                   `json:"cancelled"` // CANCELLED because they were recalled
	Ambiguous int64                   `json:"ambiguous"` // attempts that may have been accepted, crashes among them
	Recovered int64                   `json:"recovered"` // taken back from relays that died
	Lost      int64                   `json:"lost"`      // claimed, then lost to another relay

	// Aborted are the ids of the jobs that this relay has aborted, the last hundred at most
	// (SenderConfig.AbortAfter).
	Aborted []int64 `json:"aborted"`

	InFlight int           `json:"in_flight"`
	Senders  []SenderStats `json:"senders"`
}

// SenderStats is the state of one sender.
type SenderStats struct {
	Name          string  `json:"name"`
	Medium        string  `json:"medium"`
	Waiting       int     `json:"waiting"`         // messages in its queue
	Calling       int     `json:"calling"`         // calls allowed and not ended
	Breaker       string  `json:"breaker"`         // closed, open, half_open or off
	Paused        bool    `json:"paused"`          // by an operator
	Concurrency   int     `json:"concurrency"`     // in force
	RatePerSecond float64 `json:"rate_per_second"` // this relay's share; 0: no limit
}

// tally counts.
type tally struct {
	claimed, sent, unconfirmed, awaiting, retried, failedOver, deferred, returned atomic.Int64
	dead, refused, cancelled, ambiguous, recovered, lost                          atomic.Int64

	mu      sync.Mutex
	deadBy  map[outbox.Reason]int64
	aborted []int64
}

// mostAborted is the maximum number of reported aborted jobs.
const mostAborted = 100

// abort records an aborted job.
func (t *tally) abort(job int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.aborted) == mostAborted {
		t.aborted = slices.Delete(t.aborted, 0, 1)
	}
	t.aborted = append(t.aborted, job)
}

// aborts returns the jobs that were aborted.
func (t *tally) aborts() []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]int64{}, t.aborted...)
}

// died counts a dead letter.
func (t *tally) died(why outbox.Reason) {
	t.dead.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deadBy == nil {
		t.deadBy = make(map[outbox.Reason]int64)
	}
	t.deadBy[why]++
}

// deaths returns the dead letters by reason.
func (t *tally) deaths() map[outbox.Reason]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	by := make(map[outbox.Reason]int64, len(t.deadBy))
	maps.Copy(by, t.deadBy)
	return by
}

// settled counts outcomes by their new statuses; a message without one was not recorded.
func (t *tally) settled(batch []outbox.Settlement, statuses []outbox.Status) {
	sent := int64(0)
	for i := range batch {
		status := outbox.Status("")
		if i < len(statuses) {
			status = statuses[i]
		}
		if status == outbox.Sent && len(batch[i].Record) == 0 {
			sent++
			continue
		}
		t.settledOne(&batch[i], status)
	}
	t.sent.Add(sent)
}

func (t *tally) settledOne(s *outbox.Settlement, status outbox.Status) {
	for i := range s.Record {
		if o := s.Record[i].Outcome; status != "" && (o == outbox.OutcomeUnknown || o == outbox.OutcomeCrashed) {
			t.ambiguous.Add(1)
		}
	}
	switch s.RecordedAs(status) {
	case outbox.RecordedSent:
		t.sent.Add(1)
	case outbox.RecordedUnconfirmed:
		t.sent.Add(1)
		t.unconfirmed.Add(1)
	case outbox.RecordedAwaiting:
		t.awaiting.Add(1)
	case outbox.RecordedDead:
		t.died(s.Reason)
	case outbox.RecordedRefused:
		t.refused.Add(1)
	case outbox.RecordedCancelled:
		t.cancelled.Add(1)
	case outbox.RecordedReturned:
		t.returned.Add(1)
	case outbox.RecordedFailedOver:
		t.failedOver.Add(1)
	case outbox.RecordedRetried:
		t.retried.Add(1)
	case outbox.RecordedDeferred:
		t.deferred.Add(1)
	case outbox.RecordedLost:
		t.lost.Add(1)
	}
}

// Stats may be called at any time.
func (r *Relay) Stats() Stats {
	t := &r.tally
	s := Stats{
		Claimed: t.claimed.Load(), Sent: t.sent.Load(), Unconfirmed: t.unconfirmed.Load(), Awaiting: t.awaiting.Load(),
		Retried: t.retried.Load(), FailedOver: t.failedOver.Load(), Deferred: t.deferred.Load(), Returned: t.returned.Load(),
		Dead: t.dead.Load(), DeadBy: t.deaths(), Refused: t.refused.Load(), Cancelled: t.cancelled.Load(), Ambiguous: t.ambiguous.Load(),
		Recovered: t.recovered.Load(), Lost: t.lost.Load(), Aborted: t.aborts(), InFlight: r.inflight.size(),
		Senders: make([]SenderStats, len(r.queues)),
	}
	for i, q := range r.queues {
		s.Senders[i] = q.stats()
	}
	return s
}

func (q *queue) stats() SenderStats {
	s := q.limits.State()
	q.mu.Lock()
	defer q.mu.Unlock()
	return SenderStats{
		Name: q.config.Name, Medium: q.config.Medium, Waiting: len(q.activities) + len(q.bulk), Calling: q.calling,
		Breaker: s.Breaker, Paused: s.Paused, Concurrency: s.Concurrency, RatePerSecond: s.RatePerSecond,
	}
}

// work returns the sender's state for operators.
func (q *queue) work(now time.Time) outbox.SenderWork {
	s, limits := q.stats(), q.limits.InForce()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sentRate.Observe(now, q.sent)
	q.failedRate.Observe(now, q.failed)
	sent, _ := q.sentRate.Rate()
	failed, _ := q.failedRate.Rate()
	return outbox.SenderWork{
		SenderLimits: limits, Medium: s.Medium, Breaker: s.Breaker, Waiting: s.Waiting, Calling: s.Calling,
		SentPerSecond: tenths(sent), FailedPerSecond: tenths(failed),
	}
}

// tenths rounds a rate.
func tenths(rate float64) float64 { return math.Round(rate*10) / 10 }
