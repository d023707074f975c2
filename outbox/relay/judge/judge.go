// Package judge decides whether a sender fails a whole job, for example in the wrong environment or with a template that
// is not approved. It counts permanent failures, which the breaker takes for a sign of life, and invalid addresses: in the
// wrong environment each address is invalid. A streak of failures is no proof, because the oldest addresses of a good
// list come first. So a sample of the remaining messages decides.
//
//	counting ──streak of failures──► sampling ──a message accepted──► counting, with twice the limit
//	    ▲                             │  ▲  │
//	    └────────── undecided ────────┘  │  └──SampleOf failures, or all remaining messages──► the job fails
//	                                     │  │
//	                                     │  └──the same during the walk of the job──► held
//	                                     └──ten times as many messages, or all───────┘
//
// A sample during the walk contains messages written so far, which are those of the oldest addresses. So it does not fail
// the job. The job is held until its walk has written ten times as many messages, or ends, and a new sample decides.
//
// An undecided sample has more deferred than failed messages, or too few answers in time. This also happens if the
// sender gets few of the job's messages. The next sample follows after SampleOf further failures and adds to the score,
// until the sender accepts a message of the job.
//
// A sample with a message that was refused temporarily for its address is undecided, too: a server that greylists refuses
// each good address first, and the gone ones outnumber them in what is left. Each such message requires SampleOf further
// failures in the next samples.
//
// Calls and receipts have separate streaks. Failures may be reported long before successes, so after a streak of
// receipts only the receipts of the sample count. Receipts that are still unknown, or that another relay has read,
// count in favour of the job, also in the next samples. A message whose receipt stays unknown for receipts.limit counts as
// accepted.
//
// The state is in memory. Each relay has its own, and a restart clears it.
package judge

import (
	"fmt"
	"maps"
	"sync"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// SampleOf is the number of failed messages with which a sample decides against the job.
const SampleOf = 50

// mostJobs is the maximum number of jobs in memory. Above it all counts are cleared.
const mostJobs = 10_000

// Streaks counts the consecutive permanent failures of each job at one sender. The zero value is ready. It is safe for
// concurrent use.
type Streaks struct {
	mu   sync.Mutex
	jobs map[int64]*count
}

// count is the state of one job.
type count struct {
	length  int     // failures since the last acceptance
	next    int     // length of the next sample, if above the limit
	factor  int     // of the limit, doubled by each accepted sample; 0 means 1
	earlier earlier // undecided samples since the last acceptance
}

// Streak is a streak of failures that requires a sample.
type Streak struct {
	JobID   int64
	Length  int
	Code    string // of the last failure
	earlier earlier
}

// Reason returns the reason of the job's abort, without control characters.
func (s Streak) Reason(name string) string {
	reason := fmt.Sprintf("%s: %d permanent failures in a row", name, s.Length)
	if s.Code != "" {
		reason += fmt.Sprintf(", the last with the code %.100q", s.Code)
	}
	return reason
}

// earlier is what undecided samples leave to the next one.
type earlier struct {
	score
	awaited map[outbox.Key]bool // messages whose receipts are unknown
}

// score counts the answers to samples. refused messages are deferred, too.
type score struct{ failed, deferred, refused int }

// Counts reports whether a failure concerns the job: it ends the message, and it is an answer of the provider, not a
// refusal by the client.
func Counts(c *outbox.Composed, r sender.Result) bool {
	return r.Refusal == "" && c.Step+1 >= len(c.Route) && (r.Class == sender.Permanent || r.Class == sender.InvalidAddress)
}

func (s *Streaks) of(job int64) *count {
	found := s.jobs[job]
	if found == nil {
		if s.jobs == nil || len(s.jobs) >= mostJobs {
			s.jobs = make(map[int64]*count)
		}
		found = &count{}
		s.jobs[job] = found
	}
	return found
}

// Add counts the result of a message. It returns the job's streak when its length reaches the limit, and again after as
// many more failures; a limit of 0 disables it. Retryable and unknown results are ignored, and so are activities, whose
// ids are negative.
func (s *Streaks) Add(k outbox.Key, r sender.Result, limit int) (streak Streak, full bool) {
	job := k.JobID
	if job < 0 || limit == 0 {
		return Streak{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Class {
	case sender.Accepted, sender.Pending:
		if of := s.jobs[job]; of != nil && of.factor > 0 {
			*of = count{factor: of.factor}
		} else if of != nil {
			delete(s.jobs, job)
		}
	case sender.Permanent, sender.InvalidAddress:
		of := s.of(job)
		if of.earlier.awaited[k] {
			delete(of.earlier.awaited, k)
			of.earlier.failed++
		}
		limit *= max(of.factor, 1)
		if of.length++; of.length >= max(of.next, limit) {
			streak, full = Streak{job, of.length, r.Code, earlier{of.earlier.score, maps.Clone(of.earlier.awaited)}}, true
			of.next = of.length + limit
		}
	case sender.Retryable, sender.Unknown:
	}
	return streak, full
}

// End applies a sample that did not fail the job: an accepted one doubles the job's limit, and an undecided one leaves
// its score and the messages that await their receipts to the next sample.
func (s *Streaks) End(p *Sample) {
	accepted, left := p.outcome()
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of(p.JobID)
	if accepted {
		*of = count{factor: min(2*max(of.factor, 1), 1<<20)}
	} else if of.earlier = left; left.failed > 0 {
		of.next = min(of.next, of.length+SampleOf)
	}
}
