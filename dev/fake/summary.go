package fake

import "maps"

// Tally counts what one provider saw. Of its numbers these hold at any time:
//
//	Calls    = Accepted + the sum of Refused + Dropped
//	Accepted = DistinctKeys + Duplicates + Repeats + Keyless
type Tally struct {
	Provider Provider `json:"provider"`
	Calls    int64    `json:"calls"` // one per message of a call
	Accepted int64    `json:"accepted"`
	// DistinctKeys are the idempotency keys that were accepted at least once.
	DistinctKeys int64 `json:"distinct_keys"`
	// Duplicates are accepted calls beyond the first of their key: a person got the
	// message again.
	Duplicates int64 `json:"duplicates"`
	// Repeats are the same where keys are honoured: answered as the first one was, and
	// nobody got anything again.
	Repeats int64 `json:"repeats"`
	// Keyless are accepted calls without an idempotency key.
	Keyless int64 `json:"keyless"`
	// Refused counts by the provider's code.
	Refused map[string]int64 `json:"refused"`
	// Dropped calls were neither accepted nor answered.
	Dropped int64 `json:"dropped"`
	// Unanswered calls were accepted, and the caller cannot know it: no answer, one that
	// says otherwise, or one that cannot be read.
	Unanswered int64 `json:"unanswered"`
	// Early calls came before the Retry-After of their key's last call was over.
	Early int64 `json:"early"`
}

func newTally(p Provider) *Tally {
	return &Tally{Provider: p, Refused: make(map[string]int64)}
}

// Refusals is the sum of Refused.
func (t Tally) Refusals() (n int64) {
	for _, count := range t.Refused {
		n += count
	}
	return n
}

// copied returns a tally that shares nothing with t.
func (t Tally) copied() Tally {
	t.Refused = maps.Clone(t.Refused)
	return t
}

// Summary is what all providers saw since the start, or the last Reset.
type Summary struct {
	Seed      uint64  `json:"seed"`
	Providers []Tally `json:"providers"` // all of them, in the order of Providers
}

// Of returns the tally of one provider.
func (s Summary) Of(p Provider) Tally {
	for _, t := range s.Providers {
		if t.Provider == p {
			return t
		}
	}
	return *newTally(p)
}

// Total returns the sum of all tallies, as of a provider without a name.
func (s Summary) Total() Tally {
	sum := *newTally("")
	for _, t := range s.Providers {
		sum.Calls += t.Calls
		sum.Accepted += t.Accepted
		sum.DistinctKeys += t.DistinctKeys
		sum.Duplicates += t.Duplicates
		sum.Repeats += t.Repeats
		sum.Keyless += t.Keyless
		sum.Dropped += t.Dropped
		sum.Unanswered += t.Unanswered
		sum.Early += t.Early
		for code, n := range t.Refused {
			sum.Refused[code] += n
		}
	}
	return sum
}
