package model_test

// fault is what may go wrong, and what comes of it later without having to.
func (m *model) fault(s *state, e emit) {
	for w := range s.workers {
		m.faultOf(s, uint8(w), e)
	}
	m.leader(s, e)
	if s.stale.number > 0 {
		n := *s
		n.stale = push{}
		broken := m.push(&n.carrier, s.stale, func(bool) {})
		e(n, step{op: opStalePush, push: s.stale.number}, broken)
	}
	if s.left.cut > 0 {
		n := *s
		n.left.cut--
		n.replica, n.cut = s.carrier, true
		e(n, step{op: opCut}, "")
	}
	if s.cut {
		n := *s
		n.carrier, n.replica, n.cut = s.replica, carrier{}, false
		e(n, step{op: opPromote}, "")
	}
	if s.left.flush > 0 {
		n := *s
		n.left.flush--
		n.carrier = carrier{noGroup: m.stream}
		e(n, step{op: opFlush}, "")
	}
	for i, it := range s.carrier.items {
		if s.left.delete == 0 || it.msg == 0 || it.place >= taken && !m.stream {
			continue
		}
		n := *s
		n.left.delete--
		n.carrier.lose(i)
		if it.place == waiting {
			n.carrier.items[i] = item{}
		}
		e(n, step{op: opDelete, msg: it.msg, push: it.push}, "")
	}
}

// faultOf is what may go wrong with a worker. One of them lives.
func (m *model) faultOf(s *state, w uint8, e emit) {
	x := &s.workers[w]
	if x.runs() && s.left.crash > 0 && s.running() > 1 {
		n := *s
		n.left.crash--
		n.workers[w] = worker{crashed: true, silent: x.silent}
		e(n, step{op: opCrash, who: w}, "")
	}
	if x.crashed && s.left.restart > 0 {
		n := *s
		n.left.restart--
		n.workers[w] = worker{unread: m.ownOnStart}
		e(n, step{op: opRestart, who: w}, "")
	}
	if x.runs() && s.left.stop > 0 && s.running() > 1 {
		n := *s
		n.left.stop--
		y := &n.workers[w]
		y.stopped, y.late = true, x.phase == rechecked
		e(n, step{op: opStop, who: w}, "")
	}
	if x.stopped {
		n := *s
		n.workers[w].stopped = false
		e(n, step{op: opContinue, who: w}, "")
	}
	if s.left.reply > 0 && x.phase == idle && !s.carrier.noGroup { // it waits, or its blocked connection does
		for i, it := range s.carrier.items {
			if it.msg == 0 || it.place != inMain {
				continue
			}
			n := *s
			n.left.reply--
			n.carrier.items[i].place = takenBy(int(w))
			if !m.moveTaken {
				n.carrier.items[i] = item{}
			}
			e(n, step{op: opTakeUnseen, who: w, msg: it.msg, push: it.push}, "")
		}
	}
}

func (s *state) running() (n int) {
	for w := range s.workers {
		if s.workers[w].runs() {
			n++
		}
	}
	return n
}

// leader is what may go wrong with the dispatcher: it dies, is stopped with a push that it
// makes when another one leads, or a push is made and nobody hears of it.
func (m *model) leader(s *state, e emit) {
	if s.left.lead == 0 || !s.known {
		return
	}
	n := *s
	n.left.lead--
	n.known, n.made, n.handed = false, push{}, 0
	e(n, step{op: opLeaderDies}, "")
	if s.made.number == 0 {
		return
	}
	stops := n
	stops.stale = s.made
	e(stops, step{op: opLeaderStops}, "")
	broken := m.push(&n.carrier, s.made, func(bool) {})
	e(n, step{op: opPushUnseen}, broken)
}
