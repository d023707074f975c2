package judge

import (
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	// SampleFor bounds how long a job waits for its sample, and receiptsFor for its receipts.
	SampleFor, receiptsFor = time.Minute, 5 * time.Minute
	// Rounds is the maximum number of claims of SampleOf messages, because other senders may get some of them.
	Rounds = 20
	// spread is the factor of the number of written messages between two samples of a job during its walk.
	spread = 10
)

// Sample is a sample of a job's messages at one sender. It is safe for concurrent use.
type Sample struct {
	Streak
	Receipts bool // after a streak of receipts

	mu       sync.Mutex
	keys     map[outbox.Key]answer
	carried  int   // number of keys of earlier samples, which awaited their receipts
	answered int   // number of keys with an answer, including awaited
	awaited  int   // number of keys whose receipt is unknown
	score    score // including earlier samples
	accepted bool  // any message of the job was accepted

	walk      outbox.Walk // before the sample's first claim
	exhausted bool        // no further message of the job remains
}

// answer is a sender's answer to a message of a sample.
type answer int

const (
	noAnswer answer = iota
	awaitedAnswer
	lastAnswer
)

// NewSample returns an empty sample after a streak of calls or of receipts.
func NewSample(after Streak, receipts bool) *Sample {
	p := &Sample{Streak: after, Receipts: receipts, score: after.earlier.score, keys: make(map[outbox.Key]answer)}
	for k := range after.earlier.awaited {
		p.keys[k] = awaitedAnswer
	}
	p.carried, p.answered, p.awaited = len(p.keys), len(p.keys), len(p.keys)
	return p
}

// Begin sets the progress of the job's walk before the sample's first claim.
func (p *Sample) Begin(walk outbox.Walk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.walk = walk
}

// Exhaust records that no further message of the job remains.
func (p *Sample) Exhaust() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exhausted = true
}

// Limit returns how long the job waits for the sample at most, and for its receipts, which a message awaits for limit.
func (p *Sample) Limit(limit time.Duration) time.Duration {
	if p.Receipts {
		return SampleFor + min(receiptsFor, limit)
	}
	return SampleFor
}

// Expect adds claimed messages, which have no answer yet.
func (p *Sample) Expect(claimed []outbox.Claimed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range claimed {
		p.keys[claimed[i].Key] = noAnswer
	}
}

// Has reports whether a message is of the sample.
func (p *Sample) Has(k outbox.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, is := p.keys[k]
	return is
}

// Observe records the sender's answer to any message of the job, from a call or from a receipt. final marks a failure by
// the provider that ends the message.
func (p *Sample) Observe(k outbox.Key, r sender.Result, final, receipt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, is := p.keys[k]
	class, awaits := r.Class, r.Class == sender.Pending && p.Receipts
	switch {
	case class == sender.Accepted && receipt == p.Receipts, class == sender.Pending && !p.Receipts:
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
		p.score.failed++
	default:
		p.score.deferred++
		if r.AboutAddress {
			p.score.refused++
		}
	}
}

// Verdict is the decision of a sample.
type Verdict int

const (
	// Continue means that the sender has accepted a message, or that the sample is undecided.
	Continue Verdict = iota
	// Hold means that the sample fails during the job's walk, and that the next one decides.
	Hold
	// Fail means that the job fails.
	Fail
)

// Verdict returns the decision. The job fails if the sender has accepted no message, failed more than it deferred, and
// refused none temporarily for its address. Either SampleOf messages have failed, with earlier samples, or no further
// messages of the job remain, and each message of the sample has an answer.
//
// While the walk continues, a failing sample holds the job, and so does one without any message.
func (p *Sample) Verdict() Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.exhausted && p.answered == len(p.keys) && p.score.refused == 0
	fails := !p.accepted && p.score.failed > p.score.deferred+p.awaited && p.score.refused == p.earlier.refused &&
		(p.score.failed >= p.enough() || all)
	switch empty := p.exhausted && !p.accepted && len(p.keys) == 0; {
	case p.walk.Exempt:
		return Continue
	case p.walk.Continues && (fails || empty):
		return Hold
	case fails:
		return Fail
	}
	return Continue
}

// Renew empties the sample of a held job if enough of the job is written for the next one: ten times as many messages as
// before the last sample, of which its messages are a tenth at most, or all. The score starts at zero.
func (p *Sample) Renew(now outbox.Walk) (renewed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case now.Exempt:
		p.walk = now
	case !now.Continues, now.Written >= spread*max(p.walk.Written, 1):
		p.earlier, p.keys, p.score, p.exhausted = earlier{}, make(map[outbox.Key]answer), score{}, false
		p.carried, p.answered, p.awaited = 0, 0, 0
		return true
	}
	return false
}

// Done reports whether the sample has enough answers. With twice SampleOf answers it remains undecided.
func (p *Sample) Done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done()
}

func (p *Sample) done() bool {
	return p.accepted || p.score.failed >= max(p.enough(), p.score.deferred+p.awaited+1) || p.answered-p.awaited >= 2*SampleOf
}

// enough returns the number of failures that decide against the job.
func (p *Sample) enough() int { return SampleOf * (1 + p.score.refused) }

// Enough reports whether the sample has enough messages.
func (p *Sample) Enough() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done() || p.Receipts && p.awaited+p.score.failed >= SampleOf
}

// Awaits reports whether the decision depends on unknown receipts. A sample that consists of earlier ones' messages has
// waited for them, and decides at once.
func (p *Sample) Awaits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Receipts && p.awaited > 0 && len(p.keys) > p.carried && !p.done()
}

func (p *Sample) outcome() (accepted bool, left earlier) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left = earlier{p.score, make(map[outbox.Key]bool, p.awaited)}
	for k, a := range p.keys {
		if a == awaitedAnswer {
			left.awaited[k] = true
		}
	}
	return p.accepted, left
}
