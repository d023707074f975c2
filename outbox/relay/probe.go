package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/judge"
	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	// sampleRounds is the maximum number of claims of judge.SampleOf messages, because other senders may get some of them.
	sampleRounds = 20
	// sampleFor bounds how long a job waits for its sample, and receiptsFor for its receipts.
	sampleFor, receiptsFor = time.Minute, 5 * time.Minute
)

// probe is a job's sample at one sender, which decides whether the job is aborted (package judge).
//
// While a job is suspected, for limit at most, this relay claims no other message of it, and
// returns its messages that wait for the sender. Only an operator's resume is durable, and prevents
// another abort by a relay (Ledger.Sample, Ledger.Abort).
type probe struct {
	*judge.Sample
	queue *queue
	from  *judge.Streaks // of the queue: answers or confirmations
}

// limit returns how long the job waits for the sample at most, and for its receipts.
func (p *probe) limit() time.Duration {
	if p.Receipts {
		return sampleFor + min(receiptsFor, p.queue.relay.settings().Receipts.Limit)
	}
	return sampleFor
}

// probes are the probes of a sender, by job.
type probes struct{ sync.Map }

// of returns the probe of a job, or nil.
func (p *probes) of(job int64) *probe {
	found, _ := p.Load(job)
	of, _ := found.(*probe)
	return of
}

// probing reports whether a sample of the job is tried at any sender.
func (r *Relay) probing(job int64) bool {
	for _, q := range r.queues {
		if q.probes.of(job) != nil {
			return true
		}
	}
	return false
}

// suspect starts a sample for each streak of the queue's answers or confirmations.
func (q *queue) suspect(failing []judge.Streak, from *judge.Streaks) {
	for _, f := range failing {
		p := &probe{judge.NewSample(f, from == &q.confirmations), q, from}
		if _, is := q.probes.LoadOrStore(f.JobID, p); is {
			continue
		}
		q.relay.suspected.Add(1)
		select {
		case q.relay.suspects <- p:
			q.putBack(p)
		default: // too many suspected jobs: try again after as many failures
			q.acquit(p)
		}
	}
}

// acquit lets the job continue.
func (q *queue) acquit(p *probe) {
	q.probes.Delete(p.JobID)
	q.relay.suspected.Add(-1)
	q.relay.inflight.wake()
}

// putBack returns the suspected job's messages that wait for the sender and are not in the sample.
func (q *queue) putBack(p *probe) {
	var out []item
	q.mu.Lock()
	left := q.bulk[:0]
	for _, it := range q.bulk {
		if it.Claimed.JobID == p.JobID && !p.Has(it.Claimed.Key) {
			out = append(out, it)
		} else {
			left = append(left, it)
		}
	}
	clear(q.bulk[len(left):])
	q.bulk = left
	q.mu.Unlock()
	for _, it := range out {
		q.relay.outcomes.add(outbox.Release(it.Claimed))
	}
}

// probeAll tries samples until ctx ends.
func (r *Relay) probeAll(ctx context.Context, out chan<- batch) {
	var trying sync.WaitGroup
	defer trying.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-r.suspects:
			trying.Go(func() {
				defer p.queue.acquit(p)
				if r.failsSample(ctx, p, out) {
					p.queue.abort(ctx, p.Streak)
				}
			})
		}
	}
}

// failsSample delivers a sample that is spread over the rest of the job, and reports whether it decides
// against the job (judge.Sample.Fails).
func (r *Relay) failsSample(ctx context.Context, p *probe, out chan<- batch) bool {
	limited, cancel := context.WithTimeout(ctx, p.limit())
	defer cancel()
	done := func() bool { return p.Enough() || limited.Err() != nil }
	// The messages that putBack returned are recorded in several commits, the oldest first. They are what is left, too.
	for began := time.Now(); r.inflight.ofJob(p.JobID) > 0 && time.Since(began) < sampleFor/2 && !done(); {
		_ = lifecycle.Pause(limited, 10*time.Millisecond)
	}
	exhausted := false
	for rounds := 0; rounds < sampleRounds && !done(); rounds++ {
		claimed, left, err := r.claimSample(limited, p.JobID)
		if err != nil || !left {
			break
		}
		if len(claimed) == 0 { // all remaining messages may be in flight here and be returned
			if exhausted = r.inflight.empty(); exhausted {
				break
			}
			_ = lifecycle.Pause(limited, 100*time.Millisecond)
			continue
		}
		p.Expect(claimed)
		out <- r.credits.spend(claimed)
		for r.inflight.holds(claimed[0].LeaseID) && !done() {
			_ = lifecycle.Pause(limited, 10*time.Millisecond)
		}
	}
	for p.Awaits() && limited.Err() == nil {
		_ = lifecycle.Pause(limited, 100*time.Millisecond)
	}
	fails := p.Fails(exhausted) && ctx.Err() == nil
	if !fails {
		p.from.End(p.Sample)
	}
	return fails
}

// claimSample claims up to judge.SampleOf messages of a job. left is false if the job is not to be
// aborted, because an operator has resumed it.
func (r *Relay) claimSample(ctx context.Context, job int64) (claimed []outbox.Claimed, left bool, err error) {
	began := time.Now()
	err = r.withTimeout(ctx, func(ctx context.Context) error {
		var keys []outbox.Key
		if keys, left, err = r.ledger.Sample(ctx, job, judge.SampleOf); err != nil || len(keys) == 0 {
			return err
		}
		claimed, err = r.ledger.ClaimKeys(ctx, keys)
		return err
	})
	if err != nil && ctx.Err() == nil && !r.outage.Observe(began, err) {
		r.log.Warn().Err(err).Int64("job_id", job).Msg("cannot claim a sample of a failing job")
	}
	if len(claimed) > 0 {
		r.took(claimed, began)
		r.composer.Expect(claimed)
	}
	return claimed, left, err
}

// counts reports whether a failure concerns the job: it ends the message, and it is an answer of the
// provider, not a refusal by the client.
func counts(c *outbox.Composed, r sender.Result) bool {
	return r.Refusal == "" && c.Step+1 >= len(c.Route) && (r.Class == sender.Permanent || r.Class == sender.InvalidAddress)
}

// abort makes a failing job ABORTED: its remaining messages are held until an operator decides. A job
// that cannot be aborted continues, and is tried again after as many failures.
func (q *queue) abort(ctx context.Context, f judge.Streak) {
	r, name := q.relay, q.settings().Name
	reason := fmt.Sprintf("%s: %d permanent failures in a row", name, f.Length)
	if f.Code != "" {
		reason += fmt.Sprintf(", the last with the code %.100q", f.Code) // without control characters
	}
	var done bool
	err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
		done, err = r.ledger.Abort(ctx, f.JobID, reason)
		return err
	})
	switch {
	case err != nil:
		r.log.Error().Err(err).Int64("job_id", f.JobID).Str("sender", name).Int("failures", f.Length).Msg("cannot abort a failing job")
	case done:
		r.tally.abort(f.JobID)
		r.log.Warn().Int64("job_id", f.JobID).Str("sender", name).Int("failures", f.Length).Str("code", f.Code).Msg("aborted a failing job")
	}
}
