package model_test

// guards are what the design has against loss and duplicates: all are true in belfry.
type guards struct {
	claimFree      bool // a claim takes what is QUEUED or PENDING, not what is PROCESSING or final
	claimDue       bool // and due
	claimLatest    bool // and, while it is QUEUED, only by a copy of that push or a later one
	handOverFirst  bool // a handover is recorded before the call
	recheck        bool // the lease is looked at right before the call
	settleOwner    bool // who records has the lease
	recoverLost    bool // what is under an expired lease is taken back
	recoverExpired bool // and what is under a living one is not
	countCrash     bool // and counted, if it was handed over

	pushCompared  bool // a push that is known is done, one out of turn is a gap
	pushCounted   bool // the carrier writes the number
	firstOfEpoch  bool // an epoch begins with its first push only
	askInside     bool // the carrier is asked from time to time how much it remembers
	pushAgain     bool // what it has not, it is handed again
	renewEarliest bool // a new epoch begins with the earliest push that a message is QUEUED by
	sweepLost     bool // what no copy is left of is PENDING again
	sweepOldest   bool // and what may be inside is not

	moveTaken   bool // a copy that is taken stays in the carrier
	ownOnStart  bool // a worker that starts reads what it had taken before
	ownOnError  bool // and one whose take timed out or failed
	putBack     bool // what is due later, or locked, is put back
	backOwn     bool // if it is still where who had taken it left it
	takeBack    bool // what dead workers had taken others get
	heartbeat   bool // and what living ones have they do not
	afterLease  bool // nor what is under a lease
	oneReclaims bool // streams: an entry is reclaimed from whom it was idle with
	trimBound   bool // streams: not what is pending or was not delivered
	ackDeleted  bool // streams: an entry that is not there is acknowledged
	deleteEmpty bool // streams: a consumer is deleted when nothing is pending for it
	groupAtZero bool // streams: a new group begins at the first entry
}

// op is a kind of step.
type op uint8

// The steps, and after opFault those that need not happen: faults, and what those do later
// that were believed dead.
const (
	opQueue op = iota
	opPush
	opCompare
	opAgain
	opAsk
	opDue
	opExpire
	opRecover
	opMove
	opTake
	opReadOwn
	opTimeout
	opClaim
	opHandOver
	opRecheck
	opCall
	opRecord
	opRemove
	opSilent
	opBeat
	opReturn
	opLook
	opReclaim
	opGroup
	opTrim
	opDeleteConsumer
	opSweep // only counts where a copy was deleted

	opFault
	opLocked
	opCallRetry
	opCrash
	opRestart
	opStop
	opContinue
	opTakeUnseen
	opClaimUnseen
	opPushUnseen
	opLeaderDies
	opLeaderStops
	opStalePush
	opCut
	opPromote
	opFlush
	opDelete
)

// step is one step: of a worker, from 0, or about a message, from 1, by one of its copies.
type step struct {
	op             op
	who, msg, push uint8
}

// model is a carrier with its guards.
type model struct {
	guards
	stream   bool
	messages int  // 0: one
	begun    bool // a push was made before, and all of it is done
	vain     bool // copies may be claimed in vain
	all      failures
}

// found is what a step breaks; "": nothing.
type found string

// emit takes a state that follows.
type emit func(next state, by step, broken found)

// next emits all that may follow a state.
func (m *model) next(s *state, yield emit) {
	e := func(next state, by step, broken found) {
		if broken == "" {
			broken = violation(s, &next)
		}
		next.canonical()
		yield(next, by, broken)
	}
	m.dispatch(s, e)
	m.truth(s, e)
	m.carry(s, e)
	for w := range s.workers {
		m.worker(s, uint8(w), e)
	}
	m.fault(s, e)
}

// violation is what no step may do.
func violation(was, is *state) found {
	for i := range is.msgs {
		a, b := &was.msgs[i], &is.msgs[i]
		if a.status >= sent && b.status != a.status {
			return "I8: a final status was left"
		}
		limit := b.retries + b.crashes
		if b.status == processing || b.status >= sent {
			limit++
		}
		if b.calls > limit {
			return "I9: a call that nothing explains"
		}
	}
	return ""
}

// dispatch is what the dispatcher does.
func (m *model) dispatch(s *state, e emit) {
	if !s.known {
		m.compare(s, e)
		return
	}
	if s.made.number > 0 {
		n := *s
		broken := m.push(&n.carrier, s.made, func(done bool) {
			n.made = push{}
			if done {
				n.handed = s.made.number
			} else {
				n.known, n.handed = false, 0
			}
		})
		e(n, step{op: opPush}, broken)
		return
	}
	if m.askInside && s.handed >= s.first && (s.carrier.epoch != s.epoch || s.carrier.last != s.handed) {
		n := *s
		n.known, n.handed = false, 0
		e(n, step{op: opAsk}, "")
	}
	if s.handed < s.last {
		n := *s
		if !m.pushAgain {
			n.handed = n.last
		} else {
			n.made = push{s.handed + 1, s.epoch, s.first, 0}
			for i, x := range s.msgs {
				if x.status == queued && x.push == n.made.number {
					n.made.keys |= 1 << i
				}
			}
		}
		e(n, step{op: opAgain}, "")
		return
	}
	m.queue(s, e)
	m.sweep(s, e)
}

// queue makes a push of what is due.
func (m *model) queue(s *state, e emit) {
	for keys := uint8(1); keys < 1<<len(s.msgs); keys++ {
		n, all := *s, true
		n.last++
		n.made = push{n.last, s.epoch, s.first, keys}
		for i := range n.msgs {
			if keys&(1<<i) == 0 {
				continue
			}
			x := &n.msgs[i]
			all = all && x.status == pending && !x.later
			x.status, x.push = queued, n.last
		}
		if all {
			e(n, step{op: opQueue, push: n.last}, "")
		}
	}
}

const newEpoch = 9 // until it is renumbered

// compare asks the carrier how much it remembers.
func (m *model) compare(s *state, e emit) {
	n := *s
	n.known, n.handed = true, s.first-1
	switch {
	case s.carrier.epoch == s.epoch && s.carrier.last <= s.last:
		n.handed = s.carrier.last
	case s.carrier.epoch != s.epoch && s.last < s.first:
	default:
		n.epoch, n.first = newEpoch, s.last+1
		for _, x := range s.msgs {
			if x.status == queued && m.renewEarliest {
				n.first = min(n.first, x.push)
			}
		}
		n.handed = n.first - 1
	}
	e(n, step{op: opCompare}, "")
}

// push is the carrier's script.
func (m *model) push(c *carrier, p push, answer func(done bool)) (broken found) {
	known := c.epoch == p.epoch
	switch {
	case m.pushCompared && known && p.number <= c.last:
		answer(true)
		return ""
	case m.pushCompared && known && p.number > c.last+1, m.firstOfEpoch && !known && p.number != p.first:
		answer(false)
		return ""
	}
	c.epoch = p.epoch
	if m.pushCounted {
		c.last = p.number
	}
	for i := range 2 {
		if p.keys&(1<<i) != 0 && !c.add(item{uint8(i) + 1, p.number, inMain, false}) {
			broken = "I13: copies multiply"
		}
	}
	answer(true)
	return broken
}

// sweep takes back what the carrier has no copy of.
func (m *model) sweep(s *state, e emit) {
	if !m.sweepLost || s.carrier.epoch != s.epoch || s.carrier.last != s.handed {
		return
	}
	for i, x := range s.msgs {
		if x.status != queued || m.sweepOldest && x.push >= s.carrier.oldest() {
			continue
		}
		var broken found
		for _, it := range s.carrier.items {
			if it.msg == uint8(i)+1 && it.push == x.push && !it.deleted {
				broken = "I13: a backlog is pushed again"
			}
		}
		n := *s
		n.msgs[i] = back(x)
		e(n, step{op: opSweep, msg: uint8(i) + 1}, broken)
	}
}

// back is a message that is PENDING again, as it was.
func back(x message) message {
	x.status, x.push, x.owner, x.expired, x.handed = pending, 0, 0, false, false
	return x
}

// truth is what time does to messages and leases, and the recovery.
func (m *model) truth(s *state, e emit) {
	for i, x := range s.msgs {
		by := step{msg: uint8(i) + 1}
		if x.status == pending && x.later {
			n := *s
			n.msgs[i].later = false
			by.op = opDue
			e(n, by, "")
		}
		if x.status != processing {
			continue
		}
		if holder := &s.workers[x.owner-1]; !x.expired && !(holder.runs() && holder.holds(by.msg)) {
			n := *s
			n.msgs[i].expired = true
			by.op = opExpire
			e(n, by, "")
		}
		if m.recoverLost && (x.expired || !m.recoverExpired) {
			n := *s
			y := back(x)
			if x.handed && m.countCrash {
				y.crashes++
			}
			y.later = x.handed
			if y.crashes == crashes {
				y.status, y.later = dead, false
			}
			n.msgs[i] = y
			by.op = opRecover
			e(n, by, "")
		}
	}
}

// holds reports that a worker believes a message to be under its lease.
func (w *worker) holds(msg uint8) bool {
	return w.msg == msg && w.phase >= claimed && w.phase < recorded
}
