package delivery

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// MediumCount is the number of messages of a job at a medium, by fate and reason. Why is "" without a
// reason.
type MediumCount struct {
	Medium   string        `json:"medium"`
	Reason   outbox.Reason `json:"reason"`
	Why      outbox.Reason `json:"why"`
	Messages int64         `json:"messages"`
}

// mediumKey is the key of a count of messages.
type mediumKey struct {
	step        int
	reason, why outbox.Reason
}

type mediaCounts map[mediumKey]int64

// list names the media, in the order of the route and of a report.
func (m mediaCounts) list(route []string) []MediumCount {
	reasons, keys := outbox.Reasons(), slices.Collect(maps.Keys(m))
	slices.SortFunc(keys, func(a, b mediumKey) int {
		whys := outbox.Whys(a.reason)
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(slices.Index(reasons, a.reason), slices.Index(reasons, b.reason)),
			cmp.Compare(slices.Index(whys, a.why), slices.Index(whys, b.why)), cmp.Compare(a.why, b.why))
	})
	list := make([]MediumCount, 0, len(keys))
	for _, k := range keys {
		medium := ""
		if len(route) > 0 {
			medium = route[min(k.step, len(route)-1)]
		}
		list = append(list, MediumCount{medium, k.reason, k.why, m[k]})
	}
	return list
}

// Flow counts a job's sent and dead messages in equal steps of time. Empty steps are omitted.
type Flow struct {
	StepSeconds int64     `json:"step_seconds"` // 0 without sent and dead messages
	Bins        []FlowBin `json:"bins"`         // oldest first; they span at most 60 steps
}

// FlowBin counts the sent and dead messages of the step that starts at At, in UTC.
type FlowBin struct {
	At   time.Time `json:"at"`
	Sent int64     `json:"sent"`
	Dead int64     `json:"dead"`
}

// flowBins is the maximum number of steps of a flow.
const flowBins = 60

// flowSteps are the steps, in seconds. Each is a multiple of the previous one.
func flowSteps() []int64 {
	return []int64{1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 86400, 604800, 4 * 604800, 52 * 604800, 520 * 604800}
}

// flow builds a Flow from counts in any order: it starts with the shortest step, and uses the next step
// when the counts span too many.
type flow struct {
	steps []int64 // the first is the present one
	bins  map[int64]*FlowBin
}

func newFlow() *flow { return &flow{flowSteps(), make(map[int64]*FlowBin)} }

// step is in seconds.
func (f *flow) step() int64 { return f.steps[0] }

// add counts messages that became final at a time, in Unix seconds.
func (f *flow) add(at int64, s outbox.Status, n int64) {
	b := f.at(at)
	if s == outbox.Sent {
		b.Sent += n
	} else {
		b.Dead += n
	}
	for len(f.steps) > 1 && f.span() > flowBins {
		f.steps = f.steps[1:]
		before := f.bins
		f.bins = make(map[int64]*FlowBin)
		for at, b := range before {
			into := f.at(at)
			into.Sent, into.Dead = into.Sent+b.Sent, into.Dead+b.Dead
		}
	}
}

// at is the bin of a time.
func (f *flow) at(at int64) *FlowBin {
	begin := at - (at%f.step()+f.step())%f.step()
	b, there := f.bins[begin]
	if !there {
		b = &FlowBin{At: time.Unix(begin, 0).UTC()}
		f.bins[begin] = b
	}
	return b
}

// span returns the number of steps from the first bin to the last.
func (f *flow) span() int64 {
	at := slices.Collect(maps.Keys(f.bins))
	return (slices.Max(at)-slices.Min(at))/f.step() + 1
}

// result returns the flow.
func (f *flow) result() Flow {
	if len(f.bins) == 0 {
		return Flow{Bins: []FlowBin{}}
	}
	told := Flow{StepSeconds: f.step()}
	for _, b := range f.bins {
		told.Bins = append(told.Bins, *b)
	}
	slices.SortFunc(told.Bins, func(a, b FlowBin) int { return a.At.Compare(b.At) })
	return told
}
