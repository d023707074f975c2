package relay

import (
	"context"
	"fmt"
	"sync"

	"github.com/belfryhq/belfry/outbox/sender"
)

// streaks are the permanent failures in a row of each job at one sender: those that the
// breaker takes for a sign of life, when they tell of more than their own message. Invalid
// addresses are among them: a provider that is asked in the wrong environment calls every
// address invalid.
type streaks struct {
	mu      sync.Mutex
	lengths map[int64]int // by job
	allowed map[int64]int // of jobs of which a sample was accepted
}

// believe allows a job twice as many failures in a row as before: the sender accepts some of its
// messages.
func (s *streaks) believe(job int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allowed == nil || len(s.allowed) >= mostStreaks {
		s.allowed = make(map[int64]int)
	}
	s.allowed[job] = min(2*max(s.allowed[job], 1), 1<<20)
}

// mostStreaks is how many jobs are remembered. When there are more, all are counted anew.
const mostStreaks = 10_000

// streak is one that is as long as SenderConfig.AbortAfter allows.
type streak struct {
	job    int64
	length int
	code   string // of its last failure
}

// add takes note of what became of a job's message. It returns the job's streak when that has
// come to most failures, and counts anew then; 0 never does. What is neither an acceptance nor
// a permanent failure says nothing of the job.
func (s *streaks) add(job int64, r sender.Result, most int) (full streak, is bool) {
	if job < 0 || most == 0 {
		return streak{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Class {
	case sender.Accepted, sender.Pending:
		delete(s.lengths, job)
	case sender.Permanent, sender.InvalidAddress:
		if s.lengths == nil || len(s.lengths) >= mostStreaks {
			s.lengths = make(map[int64]int)
		}
		s.lengths[job]++
		if s.lengths[job] >= most*max(s.allowed[job], 1) {
			full, is = streak{job, s.lengths[job], r.Code}, true
			delete(s.lengths, job)
		}
	case sender.Retryable, sender.Unknown:
	}
	return full, is
}

// abort makes jobs ABORTED that this sender keeps failing: what is left of them is held until an
// operator has looked. A job that cannot be aborted goes on, and is tried again
// after as many failures.
func (q *queue) abort(ctx context.Context, failing []streak) {
	r, name := q.relay, q.settings().Name
	for _, f := range failing {
		reason := fmt.Sprintf("%s: %d permanent failures in a row", name, f.length)
		if f.code != "" {
			reason += fmt.Sprintf(", the last with the code %.100q", f.code) // without control characters
		}
		var done bool
		err := r.within(ctx, func(ctx context.Context) (err error) {
			done, err = r.ledger.Abort(ctx, f.job, reason)
			return err
		})
		switch {
		case err != nil:
			r.log.Error().Err(err).Int64("job_id", f.job).Str("sender", name).Int("failures", f.length).Msg("a job that keeps failing is not aborted")
		case done:
			r.tally.abort(f.job)
			r.log.Warn().Int64("job_id", f.job).Str("sender", name).Int("failures", f.length).Str("code", f.code).Msg("aborted a job that keeps failing")
		}
	}
}
