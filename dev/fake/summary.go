package fake

import "maps"

// Tally has the counts of one provider. These equations always hold:
//
//	Calls    = Accepted + the sum of Refused + Dropped
//	Accepted = DistinctKeys + Duplicates + Repeats + Keyless
type Tally struct {
	Provider Provider `json:"provider"`
	Calls    int64    `json:"calls"` // each message of a call counts
	Accepted int64    `json:"accepted"`
	// DistinctKeys counts idempotency keys with at least one accepted call.
	DistinctKeys int64 `json:"distinct_keys"`
	// Duplicates counts accepted calls beyond the first of their key: the recipient got the
	// message again.
	Duplicates int64 `json:"duplicates"`
	// Repeats counts such calls if keys are honoured: they got the first answer, and the recipient
	// got no second message.
	Repeats int64 `json:"repeats"`
	// Keyless counts accepted calls without an idempotency key.
	Keyless int64 `json:"keyless"`
	// Refused counts by the provider's code.
	Refused map[string]int64 `json:"refused"`
	// Dropped calls were neither accepted nor answered.
	Dropped int64 `json:"dropped"`
	// Unanswered counts accepted calls without a valid answer.
	Unanswered int64 `json:"unanswered"`
	// Early counts calls before the end of the Retry-After of their key's last call.
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

// copied returns a deep copy of t.
func (t Tally) copied() Tally {
	t.Refused = maps.Clone(t.Refused)
	return t
}

// Summary has the counts of all providers since the start or the last Reset.
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

// Total returns the sum of all tallies, with an empty name.
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
