package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/judge"
)

// probe is a job's sample at one sender, which decides whether the job is aborted (package judge).
//
// While a job is suspected, for judge.Sample.Limit at most, or held during its walk, this relay claims no other message of
// it, and returns its messages that wait for the sender. Only an operator's resume is durable, and prevents
// another abort by a relay (Ledger.Sample, Ledger.Abort).
type probe struct {
	*judge.Sample
	queue *queue
	from  *judge.Streaks // of the queue: answers or confirmations
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
	return slices.ContainsFunc(r.queues, func(q *queue) bool { return q.probes.of(job) != nil })
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
	q.bulk = slices.DeleteFunc(q.bulk, func(it item) bool {
		back := it.Claimed.JobID == p.JobID && !p.Has(it.Claimed.Key)
		if back {
			out = append(out, it)
		}
		return back
	})
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
				if r.fails(ctx, p, out) {
					p.queue.abort(ctx, p.Streak)
				}
			})
		}
	}
}

// fails delivers samples until one decides, and reports whether it decides against the job.
func (r *Relay) fails(ctx context.Context, p *probe, out chan<- batch) bool {
	r.sample(ctx, p, out)
	for r.hold(ctx, p) {
		r.sample(ctx, p, out)
	}
	if p.Verdict() == judge.Fail && ctx.Err() == nil {
		return true
	}
	p.from.End(p.Sample)
	return false
}

// hold waits with a job of which a sample fails during its walk, and reports whether enough is written for the next sample.
// It returns false if the sample has not failed, or if none follows because the sender has accepted a message, an operator
// has resumed the job, or ctx has ended. A drain does not wait for held jobs.
func (r *Relay) hold(ctx context.Context, p *probe) bool {
	if p.Verdict() != judge.Hold {
		return false
	}
	r.log.Warn().Int64("job_id", p.JobID).Str("sender", p.queue.settings().Name).Int("failures", p.Length).Str("code", p.Code).
		Msg("holds a failing job until ten times as many of its messages are written, or all")
	r.suspected.Add(-1)
	defer r.suspected.Add(1)
	for p.Verdict() == judge.Hold && lifecycle.Pause(ctx, r.settings().PollInterval) == nil {
		if walk, err := r.ledger.Walk(ctx, p.JobID); err == nil && p.Renew(walk) {
			return true
		}
	}
	return false
}

// sample delivers a sample that is spread over the rest of the job.
func (r *Relay) sample(ctx context.Context, p *probe, out chan<- batch) {
	limited, cancel := context.WithTimeout(ctx, p.Limit(r.settings().Receipts.Limit))
	defer cancel()
	done := func() bool { return p.Enough() || limited.Err() != nil }
	// The messages that putBack returned are recorded in several commits, the oldest first. They are what is left, too.
	for began := time.Now(); r.inflight.ofJob(p.JobID) > 0 && time.Since(began) < judge.SampleFor/2 && !done(); {
		_ = lifecycle.Pause(limited, 10*time.Millisecond)
	}
	walk, err := r.ledger.Walk(limited, p.JobID)
	if p.Begin(walk); err != nil || walk.Exempt {
		return
	}
	for rounds := 0; rounds < judge.Rounds && !done(); rounds++ {
		claimed, err := r.claimSample(limited, p.JobID)
		if err != nil {
			break
		}
		if len(claimed) == 0 { // all remaining messages may be in flight here and be returned
			if r.inflight.empty() {
				p.Exhaust()
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
}

// claimSample claims up to judge.SampleOf messages of a job.
func (r *Relay) claimSample(ctx context.Context, job int64) (claimed []outbox.Claimed, err error) {
	began := time.Now()
	err = r.withTimeout(ctx, func(ctx context.Context) error {
		keys, err := r.ledger.Sample(ctx, job, judge.SampleOf)
		if err == nil && len(keys) > 0 {
			claimed, err = r.ledger.ClaimKeys(ctx, keys)
		}
		return err
	})
	if err != nil && ctx.Err() == nil && !r.outage.Observe(began, err) {
		r.log.Warn().Err(err).Int64("job_id", job).Msg("cannot claim a sample of a failing job")
	}
	if len(claimed) > 0 {
		r.took(claimed, began)
		r.composer.Expect(claimed)
	}
	return claimed, err
}

// abort makes a failing job ABORTED: its remaining messages are held until an operator decides. A job
// that cannot be aborted continues, and is tried again after as many failures.
func (q *queue) abort(ctx context.Context, f judge.Streak) {
	r, name := q.relay, q.settings().Name
	var done bool
	err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
		done, err = r.ledger.Abort(ctx, f.JobID, f.Reason(name))
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
