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
	// sampleFor bounds how long a job waits for its sample, and receiptsFor for its receipts.
	sampleFor, receiptsFor = time.Minute, 5 * time.Minute
)

// probe is a job's sample at one sender, which decides whether the job is aborted. A row of failures
// alone may consist of the oldest addresses of a good list.
//
//	counting ──a row of failures──► suspected ──an acceptance──► counting, twice as many in a row
//	    ▲                               │
//	    ├── resumed by an operator,     ├──sampleOf failures, or of all that are left──► the job is ABORTED
//	    └── or deferred, or too slow ───┘
//
// A sample that decides nothing, such as that of a sender that gets few of the job's messages, is continued by the next
// one, which is tried soon, until the sender accepts a message of the job.
//
// While a job is suspected, for probe.limit at most, this relay claims no other message of it, and
// returns its messages that wait for the sender. The state is in this relay's memory: each relay tries
// its own sample, and starts again after a restart. Only an operator's resume is durable, and prevents
// another abort by a relay (Ledger.Sample, Ledger.Abort).
//
// After a row of receipts, failures may only have been faster than successes, and the receipts of the sample decide.
// Messages whose receipt is not known when its time is over, or is read by another relay, speak for the job.
type probe struct {
	queue    *queue
	receipts bool // after a row of receipts
	streak

	mu       sync.Mutex
	keys     map[outbox.Key]answer // of the sample
	answered int                   // of these, or awaited
	awaited  int                   // of these
	accepted bool                  // any message of the job
}

// answer is a sender's answer to a message of a sample.
type answer int

const (
	noAnswer answer = iota
	awaitedAnswer
	lastAnswer
)

// observe records the sender's answer to a message of the job, by a call or a receipt. final is the result of counts.
func (p *probe) observe(k outbox.Key, class sender.Class, final, receipt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, is := p.keys[k]
	awaits := class == sender.Pending && p.receipts
	switch {
	case class == sender.Accepted && receipt == p.receipts, class == sender.Pending && !p.receipts:
		p.accepted = true
		return
	case !is, was == lastAnswer, was == awaitedAnswer && !receipt, !awaits && !final && class != sender.Retryable && class != sender.Unknown:
		return
	}
	if was == noAnswer {
		p.answered++
	} else {
		p.awaited--
	}
	p.keys[k] = lastAnswer
	switch {
	case awaits:
		p.keys[k] = awaitedAnswer
		p.awaited++
	case final:
		p.tally.failed++
	default:
		p.tally.deferred++
	}
}

// fails reports whether the sample decides against the job: the sender has accepted none, and has failed more than it
// has deferred, and sampleOf of this and earlier samples or, if these are all that are left, all of this one.
func (p *probe) fails(all bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.accepted && p.tally.failed > p.tally.deferred+p.awaited && (p.tally.failed >= sampleOf || all && p.answered == len(p.keys))
}

// done reports whether the sample decides: a sender that defers as many messages as it fails is not asked until
// sampleOf have failed.
func (p *probe) done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted || p.tally.failed >= max(sampleOf, p.tally.deferred+p.awaited+1) || p.answered-p.awaited >= 2*sampleOf
}

// enough reports whether no more messages are needed for the sample.
func (p *probe) enough() bool {
	if p.done() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.receipts && p.awaited+p.tally.failed >= sampleOf
}

// has reports whether a message is of the sample.
func (p *probe) has(k outbox.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, is := p.keys[k]
	return is
}

// awaits reports whether receipts of the sample are not known.
func (p *probe) awaits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.awaited > 0
}

// outcome reports whether the sender has accepted any message of the job, and what else it answered to samples.
func (p *probe) outcome() (accepted bool, tally score) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted, p.tally
}

// expect adds messages to the sample.
func (p *probe) expect(claimed []outbox.Claimed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range claimed {
		p.keys[claimed[i].Key] = noAnswer
	}
}

// streaks returns the rows to which the probe belongs.
func (p *probe) streaks() *streaks {
	if p.receipts {
		return &p.queue.confirmations
	}
	return &p.queue.answers
}

// limit returns how long the job waits for the sample at most, and for its receipts.
func (p *probe) limit() time.Duration {
	if p.receipts {
		return sampleFor + min(receiptsFor, p.queue.relay.settings().Receipts.Limit)
	}
	return sampleFor
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

// suspect starts the sample of a job, after a row of answers to calls or of receipts.
func (q *queue) suspect(failing []streak, receipts bool) {
	for _, f := range failing {
		if q.probes.of(f.job) != nil {
			continue
		}
		p := &probe{queue: q, receipts: receipts, streak: f, keys: make(map[outbox.Key]answer)}
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
	limited, cancel := context.WithTimeout(ctx, p.limit())
	defer cancel()
	done := func() bool { return p.enough() || limited.Err() != nil }
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
	for p.receipts && !p.done() && p.awaits() && limited.Err() == nil {
		_ = lifecycle.Pause(limited, 100*time.Millisecond)
	}
	fails := p.fails(exhausted) && ctx.Err() == nil
	switch accepted, tally := p.outcome(); {
	case accepted:
		p.streaks().acquit(p.job)
	case !fails:
		p.streaks().undecided(p.job, tally)
	}
	return fails
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
