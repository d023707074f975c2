package model_test

const (
	workers    = 3
	copies     = 10 // in the carrier, and of one message:
	copiesOf   = 5  // more of them are a violation
	crashes    = 2  // so many counted ones make a message DEAD
	mostPushes = 9  // a state beyond is not searched on
)

// status is a message's.
type status uint8

const (
	none status = iota // there is no such message
	pending
	queued
	processing
	sent
	dead
)

func (s status) final() bool { return s == none || s >= sent }

// message is a row of belfry.messages, with its lease.
type message struct {
	status  status
	later   bool  // PENDING: due later
	push    uint8 // QUEUED, or claimed from there
	owner   uint8 // PROCESSING: the worker that has its lease
	expired bool  // the lease
	handed  bool  // a handover is recorded

	calls, retries, crashes uint8 // so far
}

// push is a hand-over of ids.
type push struct{ number, epoch, first, keys uint8 }

// item is a copy in the carrier, of a message (from 1) and a push.
type item struct {
	msg, push uint8
	place     place
	deleted   bool // a stream's pending entry that is not there any more
}

// place is where a copy is: with a worker from taken on.
type place uint8

const (
	waiting place = iota
	inMain
	taken
)

func takenBy(w int) place { return taken + place(w) }

// carrier is what its server remembers.
type carrier struct {
	epoch, last uint8 // 0: none
	noGroup     bool  // a stream's
	items       [copies]item
}

// phase is what a worker has done last.
type phase uint8

const (
	idle    phase = iota
	looking       // at an entry that it is to reclaim; place is its owner's
	took
	claimed
	handed
	rechecked
	called
	recorded
)

// outcome is what there is to record or was recorded.
type outcome uint8

const (
	success outcome = iota
	retry
	lost
)

// worker is a process, and what the carrier has of its heartbeat.
type worker struct {
	phase            phase
	msg, push        uint8 // the copy
	from             place // looking
	outcome          outcome
	crashed, stopped bool
	silent           bool // its heartbeat is gone
	unread           bool // it reads what it has taken before, first
	late             bool // it was stopped between its recheck and the call
}

func (w *worker) runs() bool { return !w.crashed && !w.stopped }

// failures are what may still go wrong.
type failures struct {
	crash, restart, stop, reply, lead, cut, flush, delete, lock, retry uint8
}

// only reports whether but for crashes nothing of all that could has gone wrong.
func (f failures) only(all failures) bool {
	all.crash, all.lock, all.retry = f.crash, f.lock, f.retry
	return f == all
}

// state is one of the whole.
type state struct {
	msgs [2]message

	epoch, first, last uint8 // belfry.queues
	known              bool  // the dispatcher has asked what the carrier remembers
	handed             uint8 // all up to this one it has handed over
	made, stale        push  // made and to be handed over; stale: by one that was stopped

	carrier carrier
	replica carrier // of an earlier time, which may be promoted
	cut     bool    // there is one

	workers [workers]worker
	left    failures
}

// final reports that all messages are.
func (s *state) final() bool { return s.msgs[0].status.final() && s.msgs[1].status.final() }

// empty reports that no copy is left.
func (c *carrier) empty() bool { return c.items == [copies]item{} }

// oldest is the earliest push of which a copy is inside.
func (c *carrier) oldest() uint8 {
	n := c.last + 1
	for _, it := range c.items {
		if it.msg > 0 {
			n = min(n, it.push)
		}
	}
	return n
}

// add adds a copy, and reports whether there was room. waiting is a set.
func (c *carrier) add(it item) bool {
	same, free := 0, -1
	for i, was := range c.items {
		switch {
		case was == it && it.place == waiting:
			return true
		case was.msg == it.msg:
			same++
		case was.msg == 0:
			free = i
		}
	}
	if same == copiesOf {
		return false
	}
	c.items[free] = it
	return true
}

// at is the index of a copy, -1: it is not there.
func (c *carrier) at(msg, push uint8, where place) int {
	for i, it := range c.items {
		if it.msg == msg && it.msg > 0 && it.push == push && it.place == where {
			return i
		}
	}
	return -1
}

func less(a, b item) bool {
	if a.msg != b.msg {
		return a.msg > b.msg // none last
	}
	if a.push != b.push {
		return a.push < b.push
	}
	if a.place != b.place {
		return a.place < b.place
	}
	return !a.deleted && b.deleted
}

func (c *carrier) sort() {
	for i := 1; i < len(c.items); i++ {
		for j := i; j > 0 && less(c.items[j], c.items[j-1]); j-- {
			c.items[j], c.items[j-1] = c.items[j-1], c.items[j]
		}
	}
}

// key is all that tells a worker from another.
func (s *state) key(w int) (key uint64) {
	x := s.workers[w]
	add := func(v, bits uint64) { key = key<<bits | v }
	flag := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	add(uint64(x.phase), 3)
	add(uint64(x.msg), 2)
	add(uint64(x.push), 4)
	add(uint64(x.outcome), 2)
	for _, b := range []bool{x.crashed, x.stopped, x.silent, x.unread, x.late, s.msgs[0].owner == uint8(w)+1, s.msgs[1].owner == uint8(w)+1} {
		add(flag(b), 1)
	}
	for _, c := range []*carrier{&s.carrier, &s.replica} {
		sum := uint64(0)
		for _, it := range c.items {
			if it.msg > 0 && it.place == takenBy(w) {
				sum += uint64(it.msg)*31 + uint64(it.push)*7 + flag(it.deleted) + 1
			}
		}
		add(sum&0xfff, 12)
	}
	return key
}

// canonical makes states equal that differ in the workers' names only.
func (s *state) canonical() {
	keys := [workers]uint64{s.key(0), s.key(1), s.key(2)}
	order := [workers]int{0, 1, 2}
	for i := 1; i < workers; i++ {
		for j := i; j > 0 && keys[order[j]] > keys[order[j-1]]; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	if order != [workers]int{0, 1, 2} {
		s.rename(order)
	}
	s.renumber()
	s.carrier.sort()
	s.replica.sort()
}

// renumber makes states equal that differ only in how many pushes and epochs came before all
// that anybody remembers.
func (s *state) renumber() {
	base := s.last + 1
	note := func(n uint8) {
		if n > 0 {
			base = min(base, n)
		}
	}
	if s.known {
		note(s.handed + 1)
	}
	note(s.made.number)
	note(s.stale.number)
	for i := range s.msgs {
		note(s.msgs[i].push)
	}
	for i := range s.workers {
		note(s.workers[i].push)
	}
	carriers := [...]*carrier{&s.carrier, &s.replica}
	for _, c := range carriers {
		if c.epoch > 0 {
			note(c.last + 1)
		}
		for i := range c.items {
			note(c.items[i].push)
		}
	}
	less := func(n *uint8) {
		if *n > 0 {
			*n -= min(*n, base-1)
		}
	}
	firsts := [...]*uint8{&s.first, &s.made.first, &s.stale.first}
	for _, n := range firsts { // one that is before all others is before them
		less(n)
	}
	s.last -= base - 1
	less(&s.handed)
	less(&s.made.number)
	less(&s.stale.number)
	for i := range s.msgs {
		less(&s.msgs[i].push)
	}
	for i := range s.workers {
		less(&s.workers[i].push)
	}
	for _, c := range carriers {
		less(&c.last)
		for i := range c.items {
			less(&c.items[i].push)
		}
	}
	was, epochs := s.epoch, [...]*uint8{&s.made.epoch, &s.carrier.epoch, &s.replica.epoch, &s.stale.epoch}
	s.epoch = 1
	var names [newEpoch + 1]uint8
	names[was] = 1
	next := uint8(2)
	for _, n := range epochs {
		if *n > 0 && names[*n] == 0 {
			names[*n] = next
			next++
		}
		*n = names[*n]
	}
}

// rename makes the worker order[i] the worker i.
func (s *state) rename(order [workers]int) {
	var now [workers]int
	was := s.workers
	for i, w := range order {
		now[w] = i
		s.workers[i] = was[w]
	}
	for i := range s.msgs {
		if o := s.msgs[i].owner; o > 0 {
			s.msgs[i].owner = uint8(now[o-1]) + 1
		}
	}
	for i := range s.workers {
		if w := &s.workers[i]; w.phase == looking {
			w.from = takenBy(now[w.from-taken])
		}
	}
	for _, c := range []*carrier{&s.carrier, &s.replica} {
		for i := range c.items {
			if it := &c.items[i]; it.place >= taken {
				it.place = takenBy(now[it.place-taken])
			}
		}
	}
}
