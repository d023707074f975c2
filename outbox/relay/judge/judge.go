// Package judge decides whether a sender fails a whole job, for example in the wrong environment or with a template that
// is not approved. It counts permanent failures, which the breaker takes for a sign of life, and invalid addresses: in the
// wrong environment each address is invalid. A streak of failures is no proof, because the oldest addresses of a good
// list come first. So a sample of the remaining messages decides.
//
//	counting ──streak of failures──► sampling ──a message accepted──► counting, with twice the limit
//	    ▲                               │
//	    └────────── undecided ──────────┼──SampleOf failures, or all remaining messages──► the job fails
//
// An undecided sample has more deferred than failed messages, or too few answers in time. This also happens if the
// sender gets few of the job's messages. The next sample follows after SampleOf further failures and adds to the score,
// until the sender accepts a message of the job.
//
// Calls and receipts have separate streaks. Failures may be reported long before successes, so after a streak of
// receipts only the receipts of the sample count. Receipts that are still unknown, or that another relay has read,
// count in favour of the job.
//
// The state is in memory. Each relay has its own, and a restart clears it.
package judge

import (
	"sync"

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
	length  int   // failures since the last acceptance
	next    int   // length of the next sample, if above the limit
	factor  int   // of the limit, doubled by each accepted sample; 0 means 1
	earlier score // of undecided samples since the last acceptance
}

// Streak is a streak of failures that requires a sample.
type Streak struct {
	JobID   int64
	Length  int
	Code    string // of the last failure
	earlier score
}

// score counts the answers to samples.
type score struct{ failed, deferred int }

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

// Add counts a result. It returns the job's streak when its length reaches the limit, and again after as many more
// failures; a limit of 0 disables it. Retryable and unknown results are ignored, and so are activities, whose ids are
// negative.
func (s *Streaks) Add(job int64, r sender.Result, limit int) (streak Streak, full bool) {
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
		limit *= max(of.factor, 1)
		if of.length++; of.length >= max(of.next, limit) {
			streak, full = Streak{job, of.length, r.Code, of.earlier}, true
			of.next = of.length + limit
		}
	case sender.Retryable, sender.Unknown:
	}
	return streak, full
}

// End applies a sample that did not fail the job: an accepted one doubles the job's limit, and an undecided one leaves
// its score to the next sample.
func (s *Streaks) End(p *Sample) {
	accepted, score := p.outcome()
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of(p.JobID)
	if accepted {
		*of = count{factor: min(2*max(of.factor, 1), 1<<20)}
	} else if of.earlier = score; score.failed > 0 {
		of.next = min(of.next, of.length+SampleOf)
	}
}
