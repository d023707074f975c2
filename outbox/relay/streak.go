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
	mu      sync.Mutex
	lengths map[int64]int // by job
	allowed map[int64]int // factors of jobs whose sample was accepted
}

// acquit doubles the number of consecutive failures allowed for a job, because the sender accepts some
// of its messages.
func (s *streaks) acquit(job int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allowed == nil || len(s.allowed) >= mostStreaks {
		s.allowed = make(map[int64]int)
	}
	s.allowed[job] = min(2*max(s.allowed[job], 1), 1<<20)
}

// mostStreaks is the maximum number of remembered jobs. Beyond it all counts restart.
const mostStreaks = 10_000

// streak is a row of failures that has reached SenderConfig.AbortAfter.
type streak struct {
	job    int64
	length int
	code   string // of its last failure
}

// add counts the result of a job's message. It returns the job's streak if that has reached most
// failures, and restarts the count; most 0 means never. A result that is neither an acceptance nor a
// permanent failure says nothing about the job and is ignored.
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
