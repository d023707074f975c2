package relay

import (
	"context"
	"fmt"
	"sync"

	"github.com/belfryhq/belfry/outbox/sender"
)

// streaks counts the consecutive permanent failures of each job at one sender: failures that the
// breaker takes for a sign of life, if they concern more than their own message. Invalid addresses
// count: a provider that is called in the wrong environment calls every address invalid.
type streaks struct {
	mu   sync.Mutex
	jobs map[int64]*suspicion
}

// suspicion is what a sender's failures say about a job.
type suspicion struct {
	length  int   // of the row of failures
	next    int   // the length at which the next sample is tried, if it is more than AbortAfter
	allowed int   // factor of AbortAfter, after samples that were accepted; 0: 1
	tally   score // of the samples that decided nothing in this row
}

// score is what a sender answered to samples of a job.
type score struct{ failed, deferred int }

func (s *streaks) of(job int64) *suspicion {
	found := s.jobs[job]
	if found == nil {
		if s.jobs == nil || len(s.jobs) >= mostStreaks {
			s.jobs = make(map[int64]*suspicion)
		}
		found = &suspicion{}
		s.jobs[job] = found
	}
	return found
}

// acquit doubles the number of consecutive failures allowed for a job, because the sender accepts some
// of its messages.
func (s *streaks) acquit(job int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of(job)
	*of = suspicion{allowed: min(2*max(of.allowed, 1), 1<<20)}
}

// undecided keeps the score of samples that decided nothing. After a failure in them the next sample, which adds to
// it, is tried soon: the sender gets a small share of the job's messages, or answers slowly.
func (s *streaks) undecided(job int64, tally score) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of(job)
	if of.tally = tally; tally.failed > 0 {
		of.next = min(of.next, of.length+sampleOf)
	}
}

// mostStreaks is the maximum number of remembered jobs. Beyond it all counts restart, and allowed numbers are forgotten.
const mostStreaks = 10_000

// streak is a row of failures that has reached SenderConfig.AbortAfter.
type streak struct {
	job    int64
	length int
	code   string // of its last failure
	tally  score  // of earlier samples
}

// add counts the result of a job's message. It returns the job's streak if that has reached most
// failures, and again after as many more; most 0 means never. A result that is neither an acceptance nor a
// permanent failure says nothing about the job and is ignored.
func (s *streaks) add(job int64, r sender.Result, most int) (full streak, is bool) {
	if job < 0 || most == 0 {
		return streak{}, false
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
			full, is = streak{job, of.length, r.Code, of.tally}, true
			of.next = of.length + allowed
		}
	case sender.Retryable, sender.Unknown:
	}
	return full, is
}

// abort makes failing jobs ABORTED: their remaining messages are held until an operator decides. A job
// that cannot be aborted continues, and is tried again after as many failures.
func (q *queue) abort(ctx context.Context, failing []streak) {
	r, name := q.relay, q.settings().Name
	for _, f := range failing {
		reason := fmt.Sprintf("%s: %d permanent failures in a row", name, f.length)
		if f.code != "" {
			reason += fmt.Sprintf(", the last with the code %.100q", f.code) // without control characters
		}
		var done bool
		err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
			done, err = r.ledger.Abort(ctx, f.job, reason)
			return err
		})
		switch {
		case err != nil:
			r.log.Error().Err(err).Int64("job_id", f.job).Str("sender", name).Int("failures", f.length).Msg("cannot abort a failing job")
		case done:
			r.tally.abort(f.job)
			r.log.Warn().Int64("job_id", f.job).Str("sender", name).Int("failures", f.length).Str("code", f.code).Msg("aborted a failing job")
		}
	}
}
