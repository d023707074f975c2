package judge

import (
	"sync"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Sample is a sample of a job's messages at one sender. It is safe for concurrent use.
type Sample struct {
	Streak
	Receipts bool // after a streak of receipts

	mu       sync.Mutex
	keys     map[outbox.Key]answer
	answered int   // number of keys with an answer, including awaited
	awaited  int   // number of keys whose receipt is unknown
	score    score // including earlier samples
	accepted bool  // any message of the job was accepted
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
	return &Sample{Streak: after, Receipts: receipts, score: after.earlier, keys: make(map[outbox.Key]answer)}
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

// Fails reports whether the sample decides against the job. The sender has accepted no message and failed more than it
// deferred. Either SampleOf messages have failed, with earlier samples, or all is set, because no further messages of the
// job remain, and each message of the sample has an answer.
func (p *Sample) Fails(all bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.accepted && p.score.failed > p.score.deferred+p.awaited && (p.score.failed >= SampleOf || all && p.answered == len(p.keys))
}

// Done reports whether the sample has enough answers. With twice SampleOf answers it remains undecided.
func (p *Sample) Done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done()
}

func (p *Sample) done() bool {
	return p.accepted || p.score.failed >= max(SampleOf, p.score.deferred+p.awaited+1) || p.answered-p.awaited >= 2*SampleOf
}

// Enough reports whether the sample has enough messages.
func (p *Sample) Enough() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done() || p.Receipts && p.awaited+p.score.failed >= SampleOf
}

// Awaits reports whether the decision depends on unknown receipts.
func (p *Sample) Awaits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Receipts && p.awaited > 0 && !p.done()
}

func (p *Sample) outcome() (accepted bool, score score) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted, p.score
}
