// Package judge decides, from a sender's answers, whether a job fails there as a whole. Permanent failures are a sign of
// life for the breaker. Invalid addresses count: a provider that is called in the wrong environment calls every address
// invalid. But a row of failures alone may consist of the oldest addresses of a good list.
//
//	counting ──a row of failures──► suspected ──an acceptance──► counting, twice as many in a row
//	    ▲                               │
//	    ├── resumed by an operator,     ├──SampleOf failures, or of all that are left──► the job fails
//	    └── or deferred, or too slow ───┘
//
// A sample that decides nothing, such as that of a sender that gets few of the job's messages, is continued by the next
// one, which is tried soon, until the sender accepts a message of the job.
//
// Answers to calls and receipts are counted separately. After a row of receipts, failures may only have been faster than
// successes, and the receipts of the sample decide. Messages whose receipt is not known when its time is over, or is read
// by another relay, speak for the job.
//
// The state is in memory: each relay judges for itself, and starts again after a restart.
package judge

import (
	"sync"

	"github.com/belfryhq/belfry/outbox/sender"
)

// SampleOf is how many messages of a job a sender must fail before the job fails, after a row of failures.
const SampleOf = 50

// mostJobs is the maximum number of remembered jobs. Beyond it all counts restart, and allowed numbers are forgotten.
const mostJobs = 10_000

// Rows counts the consecutive permanent failures of each job at one sender. The zero value is ready. It is safe for
// concurrent use.
type Rows struct {
	mu   sync.Mutex
	jobs map[int64]*suspicion
}

// suspicion is what a sender's failures say about a job.
type suspicion struct {
	length  int   // of the row of failures
	next    int   // the length at which the next sample is tried, if it is more than the caller's most
	allowed int   // factor of most, after samples that were accepted; 0: 1
	earlier Score // of the samples that decided nothing in this row
}

// Row is a row of failures that is long enough for a sample.
type Row struct {
	JobID   int64
	Length  int
	Code    string // of its last failure
	earlier Score
}

// Score is what a sender answered to samples of a job.
type Score struct{ failed, deferred int }

func (s *Rows) of(job int64) *suspicion {
	found := s.jobs[job]
	if found == nil {
		if s.jobs == nil || len(s.jobs) >= mostJobs {
			s.jobs = make(map[int64]*suspicion)
		}
		found = &suspicion{}
		s.jobs[job] = found
	}
	return found
}

// Add counts the result of a job's message. It returns the job's row if that has reached most failures, and again after
// as many more; most 0 means never. A result that is neither an acceptance nor a permanent failure says nothing about
// the job and is ignored, and so is an activity, whose id is negative.
func (s *Rows) Add(job int64, r sender.Result, most int) (full Row, is bool) {
	if job < 0 || most == 0 {
		return Row{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Class {
	case sender.Accepted, sender.Pending:
		if of := s.jobs[job]; of != nil && of.allowed > 0 {
			*of = suspicion{allowed: of.allowed}
		} else if of != nil {
			delete(s.jobs, job)
		}
	case sender.Permanent, sender.InvalidAddress:
		of := s.of(job)
		allowed := most * max(of.allowed, 1)
		if of.length++; of.length >= max(of.next, allowed) {
			full, is = Row{job, of.length, r.Code, of.earlier}, true
			of.next = of.length + allowed
		}
	case sender.Retryable, sender.Unknown:
	}
	return full, is
}

// End ends a job's row after its sample. If the sender has accepted some of its messages, twice as many failures are
// allowed in the next row. If the sample decided nothing, its score is kept: after a failure in it the next sample is
// tried soon, as the sender gets a small share of the job's messages, or answers slowly.
func (s *Rows) End(p *Sample) {
	accepted, score := p.outcome()
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of(p.JobID)
	if accepted {
		*of = suspicion{allowed: min(2*max(of.allowed, 1), 1<<20)}
	} else if of.earlier = score; score.failed > 0 {
		of.next = min(of.next, of.length+SampleOf)
	}
}
