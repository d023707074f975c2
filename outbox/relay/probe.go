package relay

import (
	"context"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	// sampleOf is how many messages of a job a sender must fail before the job is aborted, after as
	// many failures in a row as SenderConfig.AbortAfter.
	sampleOf = 50
	// sampleRounds bounds how often as many are taken: others of the sample may go to other senders.
	sampleRounds = 20
	// sampleFor bounds how long a job waits for its sample.
	sampleFor = time.Minute
)

// probe is a job's sample at one sender, which decides whether the job is aborted. A row of failures
// alone may consist of the oldest addresses of a good list.
//
//	counting ──a row of failures──► suspected ──an acceptance──► counting, twice as many in a row
//	    ▲                               │
//	    ├── resumed by an operator,     ├──sampleOf failures, or of all that are left──► the job is ABORTED
//	    └── or deferred, or too slow ───┘
//
// While a job is suspected, for sampleFor at most, this relay claims no other message of it, and
// returns its messages that wait for the sender. The state is in this relay's memory: each relay tries
// its own sample, and starts again after a restart. Only an operator's resume is durable, and prevents
// another abort by a relay (Ledger.Sample, Ledger.Abort).
type probe struct {
	queue *queue
	streak

	mu       sync.Mutex
	keys     map[outbox.Key]bool // of the sample; true if answered
	failed   int                 // permanent failures in the sample
	deferred int                 // messages of the sample that will be retried
	accepted bool                // any message of the job
}

// observe records the sender's answer to a message of the job. final is the result of counts.
func (p *probe) observe(k outbox.Key, class sender.Class, final bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answered, is := p.keys[k]
	switch {
	case class == sender.Accepted, class == sender.Pending:
		p.accepted = true
	case !is || answered:
	case final:
		p.keys[k] = true
		p.failed++
	case class == sender.Retryable, class == sender.Unknown:
		p.keys[k] = true
		p.deferred++
	}
}

// fails reports whether the sample decides against the job: the sender has accepted none, and has
// failed sampleOf of it or, if these are all that are left, more than it has deferred.
func (p *probe) fails(all bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.accepted && (p.failed >= sampleOf || all && p.failed+p.deferred == len(p.keys) && p.failed > p.deferred)
}

// done reports whether the sample is large enough: a sender that defers as many messages as it
// fails is not asked until sampleOf have failed.
func (p *probe) done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted || p.failed >= sampleOf || p.failed+p.deferred >= 2*sampleOf
}

// has reports whether a message is of the sample.
func (p *probe) has(k outbox.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, is := p.keys[k]
	return is
}

// takenAny reports whether the sender has accepted any message of the job.
func (p *probe) takenAny() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// expect adds messages to the sample.
func (p *probe) expect(claimed []outbox.Claimed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range claimed {
		p.keys[claimed[i].Key] = false
	}
}

// probes are the probes of a sender, by job.
type probes struct {
	mu  sync.Mutex
	all map[int64]*probe
}

func (p *probes) of(job int64) *probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[job]
}

func (p *probes) set(job int64, to *probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = make(map[int64]*probe)
	}
	if p.all[job] = to; to == nil {
		delete(p.all, job)
	}
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

// suspect starts the sample of a job.
func (q *queue) suspect(failing []streak) {
	for _, f := range failing {
		if q.probes.of(f.job) != nil {
			continue
		}
		p := &probe{queue: q, streak: f, keys: make(map[outbox.Key]bool)}
		q.probes.set(f.job, p)
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
	q.probes.set(p.job, nil)
	q.relay.suspected.Add(-1)
	q.relay.inflight.wake()
}

// putBack returns the suspected job's messages that wait for the sender and are not in the sample.
func (q *queue) putBack(p *probe) {
	var out []item
	q.mu.Lock()
	left := q.bulk[:0]
	for _, it := range q.bulk {
		if it.Claimed.JobID == p.job && !p.has(it.Claimed.Key) {
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
					p.queue.abort(ctx, []streak{p.streak})
				}
			})
		}
	}
}

// failsSample delivers a sample that is spread over the rest of the job, and reports whether it decides
// against the job (probe.fails).
func (r *Relay) failsSample(ctx context.Context, p *probe, out chan<- batch) bool {
	limited, cancel := context.WithTimeout(ctx, sampleFor)
	defer cancel()
	done := func() bool { return p.done() || limited.Err() != nil }
	// The messages that putBack returned are recorded in several commits, the oldest first. They are what is left, too.
	for began := time.Now(); r.inflight.ofJob(p.job) > 0 && time.Since(began) < sampleFor/2 && !done(); {
		_ = lifecycle.Pause(limited, 10*time.Millisecond)
	}
	exhausted := false
	for rounds := 0; rounds < sampleRounds && !done(); rounds++ {
		claimed, left, err := r.claimSample(limited, p.job)
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
		p.expect(claimed)
		out <- r.credits.spend(claimed)
		for r.inflight.holds(claimed[0].LeaseID) && !done() {
			_ = lifecycle.Pause(limited, 10*time.Millisecond)
		}
	}
	if p.takenAny() {
		p.queue.answers.acquit(p.job)
	}
	return p.fails(exhausted) && ctx.Err() == nil
}

// claimSample claims up to sampleOf messages of a job. left is false if the job is not to be
// aborted, because an operator has resumed it.
func (r *Relay) claimSample(ctx context.Context, job int64) (claimed []outbox.Claimed, left bool, err error) {
	began := time.Now()
	err = r.withTimeout(ctx, func(ctx context.Context) error {
		var keys []outbox.Key
		if keys, left, err = r.ledger.Sample(ctx, job, sampleOf); err != nil || len(keys) == 0 {
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
