package delivery

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// MediumCount is how many messages of a job are at a medium, or ended there, by what has become
// of them and why. Why is "" where there is no reason.
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

// Flow is when a job's messages were sent, and when they died, in equal steps: those in which
// there was none are left out.
type Flow struct {
	StepSeconds int64     `json:"step_seconds"` // 0: none was sent or died
	Bins        []FlowBin `json:"bins"`         // oldest first; from the first to the last are at most 60 steps
}

// FlowBin is what was sent and what died from At on, for one step. At is in UTC.
type FlowBin struct {
	At   time.Time `json:"at"`
	Sent int64     `json:"sent"`
	Dead int64     `json:"dead"`
}

// flowBins is how many steps a flow has at most.
const flowBins = 60

// flowSteps are the steps, in seconds: each has the one before it a whole number of times.
func flowSteps() []int64 {
	return []int64{1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 86400, 604800, 4 * 604800, 52 * 604800, 520 * 604800}
}

// flow makes one of counts as they come, whose time is not known before: it begins with the
// shortest step, and takes the next where the counts lie too far apart.
type flow struct {
	steps []int64 // the first is the present one
	bins  map[int64]*FlowBin
}

func newFlow() *flow { return &flow{flowSteps(), make(map[int64]*FlowBin)} }

// step is in seconds.
func (f *flow) step() int64 { return f.steps[0] }

// add counts what became final at a time, in seconds since 1970.
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

// span is how many steps there are from the first bin to the last.
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
