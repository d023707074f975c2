package judge

import (
	"sync"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Sample is a job's sample at one sender. It is safe for concurrent use.
type Sample struct {
	Row
	Receipts bool // after a row of receipts

	mu       sync.Mutex
	keys     map[outbox.Key]answer
	answered int   // of these, or awaited
	awaited  int   // of these
	score    Score // with that of earlier samples
	accepted bool  // any message of the job
}

// answer is a sender's answer to a message of a sample.
type answer int

const (
	noAnswer answer = iota
	awaitedAnswer
	lastAnswer
)

// NewSample returns an empty sample after a row of answers to calls or of receipts.
func NewSample(after Row, receipts bool) *Sample {
	return &Sample{Row: after, Receipts: receipts, score: after.earlier, keys: make(map[outbox.Key]answer)}
}

// Expect adds messages.
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

// Observe records the sender's answer to any message of the job, by a call or a receipt. final is set for a failure that
// concerns the job: it ends the message, and is the provider's.
func (p *Sample) Observe(k outbox.Key, class sender.Class, final, receipt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, is := p.keys[k]
	awaits := class == sender.Pending && p.Receipts
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
	}
}

// Fails reports whether the sample decides against the job: the sender has accepted none, and has failed more than it
// has deferred, and SampleOf of this and earlier samples or, if these are all that are left, all of this one.
func (p *Sample) Fails(all bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.accepted && p.score.failed > p.score.deferred+p.awaited && (p.score.failed >= SampleOf || all && p.answered == len(p.keys))
}

// Done reports whether the sample decides: a sender that defers as many messages as it fails is not asked until
// SampleOf have failed.
func (p *Sample) Done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done()
}

func (p *Sample) done() bool {
	return p.accepted || p.score.failed >= max(SampleOf, p.score.deferred+p.awaited+1) || p.answered-p.awaited >= 2*SampleOf
}

// Enough reports whether no more messages are needed.
func (p *Sample) Enough() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done() || p.Receipts && p.awaited+p.score.failed >= SampleOf
}

// Awaits reports whether receipts are needed that are not known.
func (p *Sample) Awaits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Receipts && p.awaited > 0 && !p.done()
}

func (p *Sample) outcome() (accepted bool, score Score) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted, p.score
}
