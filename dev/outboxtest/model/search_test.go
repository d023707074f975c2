package model_test

import (
	"fmt"
	"strings"
)

// search is all that a model can come to.
type search struct {
	states []state
	from   []int32 // whence it was reached first, by the shortest way
	by     []step
	broken found
	last   int32 // the state that broke it
	cut    bool  // not all was searched: a number was too high
	taken  map[op]bool
}

// searched is breadth first, so that the first violation is one of the shortest. It stops
// there.
func searched(m model) *search {
	f := &search{taken: make(map[op]bool)}
	known := make(map[state]int32)
	add := func(s state, from int32, by step) int32 {
		if i, ok := known[s]; ok {
			return i
		}
		i := int32(len(f.states))
		known[s] = i
		f.states, f.from, f.by = append(f.states, s), append(f.from, from), append(f.by, by)
		return i
	}
	start := state{epoch: 1, first: 1, left: m.all}
	if m.begun {
		start.last, start.handed, start.known, start.carrier = 1, 1, true, carrier{epoch: 1, last: 1}
	}
	for i := range max(m.messages, 1) {
		start.msgs[i].status = pending
	}
	start.canonical()
	add(start, -1, step{})
	var before [][]int32 // what leads to a state when nothing fails
	beyond := make(map[int32]bool)
	for i := int32(0); int(i) < len(f.states) && f.broken == ""; i++ {
		s := f.states[i]
		if s.last >= mostPushes {
			f.cut, beyond[i] = true, true
			continue
		}
		m.next(&s, func(next state, by step, broken found) {
			if f.broken != "" {
				return
			}
			j := add(next, i, by)
			f.taken[by.op] = true
			if broken != "" {
				// The state may have been reached another way before.
				f.states, f.from, f.by = append(f.states, next), append(f.from, i), append(f.by, by)
				f.broken, f.last = broken, int32(len(f.states))-1
				return
			}
			for len(before) <= int(j) {
				before = append(before, nil)
			}
			if by.op < opSweep || by.op == opSweep && s.left.delete < m.all.delete {
				before[j] = append(before[j], i)
			}
		})
	}
	if f.broken == "" {
		f.ends(before, beyond, func(s *state) bool { return s.final() }, "I10: a message that never becomes final")
	}
	if f.broken == "" {
		f.ends(before, beyond, func(s *state) bool { return s.final() && s.carrier.empty() }, "I13: a copy that stays permanently")
	}
	return f
}

// ends looks for the first state from which none that is good can be reached when nothing
// fails.
func (f *search) ends(before [][]int32, beyond map[int32]bool, good func(*state) bool, broken found) {
	reaches := make([]bool, len(f.states))
	var open []int32
	for i := range f.states {
		if good(&f.states[i]) || beyond[int32(i)] {
			reaches[i] = true
			open = append(open, int32(i))
		}
	}
	for len(open) > 0 {
		j := open[len(open)-1]
		open = open[:len(open)-1]
		if int(j) >= len(before) {
			continue
		}
		for _, i := range before[j] {
			if !reaches[i] {
				reaches[i] = true
				open = append(open, i)
			}
		}
	}
	for i, ok := range reaches {
		if !ok {
			f.broken, f.last = broken, int32(i)
			return
		}
	}
}

// story is the way to what is broken, one step a line.
func (f *search) story() string {
	var lines []string
	for i := f.last; i > 0; i = f.from[i] {
		lines = append(lines, f.by[i].String())
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s, after %d steps\n", f.broken, len(lines))
	for i := len(lines) - 1; i >= 0; i-- {
		fmt.Fprintf(b, "  %s\n", lines[i])
	}
	fmt.Fprintf(b, "  %+v", f.states[f.last])
	return b.String()
}

// String says who did what. Workers' names are of the state before the step.
func (s step) String() string {
	text := stepNames[s.op]
	if strings.HasPrefix(text, "worker") {
		text = fmt.Sprintf("worker %d%s", s.who+1, strings.TrimPrefix(text, "worker"))
	}
	if s.msg > 0 {
		text += fmt.Sprintf(": message %d", s.msg)
	}
	if s.push > 0 {
		text += fmt.Sprintf(", push %d", s.push)
	}
	return text
}

var stepNames = map[op]string{
	opQueue:          "dispatcher queues what is due",
	opPush:           "dispatcher pushes",
	opCompare:        "dispatcher compares numbers and epochs",
	opAgain:          "dispatcher makes the next push again",
	opAsk:            "dispatcher asks what is inside",
	opDue:            "a message is due",
	opExpire:         "a lease expires",
	opRecover:        "a lost lease is recovered",
	opMove:           "a waiting copy is due",
	opTake:           "worker takes a copy",
	opReadOwn:        "worker reads what it has taken before",
	opTimeout:        "worker waits in vain, or has read all it had",
	opClaim:          "worker claims",
	opHandOver:       "worker records the handover",
	opRecheck:        "worker rechecks",
	opCall:           "worker calls",
	opRecord:         "worker records",
	opRemove:         "worker removes the copy",
	opSilent:         "worker's heartbeat ends",
	opBeat:           "worker's heartbeat begins",
	opReturn:         "worker's copy is returned by the monitor",
	opLook:           "worker finds an entry to reclaim",
	opReclaim:        "worker reclaims it",
	opGroup:          "the group is created",
	opTrim:           "the stream is trimmed",
	opDeleteConsumer: "worker's consumer is deleted",
	opSweep:          "the sweep takes a message back",
	opFault:          "",
	opLocked:         "worker finds the row locked and puts the copy back",
	opCallRetry:      "worker calls, and is to call again later",
	opCrash:          "worker CRASHES",
	opRestart:        "worker starts again under the same name",
	opStop:           "worker is STOPPED",
	opContinue:       "worker CONTINUES",
	opTakeUnseen:     "worker is given a copy and never hears of it: REPLY LOST",
	opClaimUnseen:    "worker claims and never hears of it: REPLY LOST",
	opPushUnseen:     "dispatcher pushes and never hears of it: REPLY LOST",
	opLeaderDies:     "dispatcher DIES",
	opLeaderStops:    "dispatcher is STOPPED, another one leads",
	opStalePush:      "the stopped dispatcher makes its push",
	opCut:            "the replica is CUT OFF",
	opPromote:        "the replica is PROMOTED",
	opFlush:          "the carrier FORGETS ALL",
	opDelete:         "somebody DELETES a copy",
}
