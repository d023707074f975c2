package model_test

// worker is what a worker that runs does next.
func (m *model) worker(s *state, w uint8, e emit) {
	x := &s.workers[w]
	if !x.runs() {
		return
	}
	by := step{who: w, msg: x.msg, push: x.push}
	n := *s
	y := &n.workers[w]
	switch x.phase {
	case idle:
		m.take(s, w, e)
		if m.stream {
			m.look(s, w, e)
		}
	case looking:
		m.reclaim(s, w, e)
	case took:
		m.claim(s, w, e)
	case claimed:
		if row := &n.msgs[x.msg-1]; m.handOverFirst && row.isOf(w) {
			row.handed = true
		}
		y.phase, by.op = handed, opHandOver
		e(n, by, "")
	case handed:
		y.phase, by.op = rechecked, opRecheck
		if m.recheck && !n.msgs[x.msg-1].isOf(w) {
			y.rest() // its copy stays where it is: it is found when the worker reads its own
		}
		e(n, by, "")
	case rechecked:
		m.call(s, w, e)
	case called:
		y.phase, by.op = recorded, opRecord
		m.record(&n.msgs[x.msg-1], y, w)
		e(n, by, "")
	case recorded:
		by.op = opRemove
		broken := m.remove(&n.carrier, x, w, x.outcome == retry)
		y.rest()
		e(n, by, broken)
	}
}

// isOf reports that a worker has the lease, which lives.
func (x *message) isOf(w uint8) bool { return x.status == processing && x.owner == w+1 && !x.expired }

// rest has done with a copy.
func (w *worker) rest() {
	w.phase, w.msg, w.push, w.from, w.outcome, w.late = idle, 0, 0, 0, success, false
}

func (w *worker) begin(it item) { w.phase, w.msg, w.push = took, it.msg, it.push }

// remove removes the copy that a worker had taken, from its own list, or by acknowledging its
// entry, whosesoever it is by now; or puts it back, if it was there.
func (m *model) remove(c *carrier, x *worker, w uint8, back bool) found {
	there := c.at(x.msg, x.push, takenBy(int(w)))
	for i, it := range c.items {
		if m.stream && there < 0 && it.msg == x.msg && it.push == x.push && it.place >= taken {
			there = i
		}
	}
	if there >= 0 {
		c.items[there] = item{}
	}
	if back && (there >= 0 || !m.backOwn) && !c.add(item{x.msg, x.push, waiting, false}) {
		return "I13: copies multiply"
	}
	return ""
}

// take takes a copy out of main, or reads what the worker had taken before.
func (m *model) take(s *state, w uint8, e emit) {
	own := false
	for i, it := range s.carrier.items {
		by := step{who: w, msg: it.msg, push: it.push}
		switch {
		case it.msg == 0:
		case it.place == inMain && !s.carrier.noGroup:
			n := *s
			n.carrier.items[i].place = takenBy(int(w))
			if !m.moveTaken {
				n.carrier.items[i] = item{}
			}
			n.workers[w].begin(it)
			by.op = opTake
			e(n, by, "")
		case it.place == takenBy(int(w)):
			own = true
			if !s.workers[w].unread {
				break
			}
			n := *s
			if !it.deleted {
				n.workers[w].begin(it)
			} else if m.ackDeleted {
				n.carrier.items[i] = item{}
			}
			by.op = opReadOwn
			e(n, by, "")
		}
	}
	if x := &s.workers[w]; own == x.unread || own && !m.ownOnError {
		return
	}
	n := *s
	n.workers[w].unread = own // else it has read all
	e(n, step{op: opTimeout, who: w}, "")
}

// claim is the claim by key, and what becomes of the copy by its verdict.
func (m *model) claim(s *state, w uint8, e emit) {
	x := s.workers[w]
	by := step{op: opClaim, who: w, msg: x.msg, push: x.push}
	n := *s
	row, y := &n.msgs[x.msg-1], &n.workers[w]
	free := row.status == pending || row.status == queued
	switch {
	case free && row.later && m.claimDue:
		m.later(s, w, by, e)
		return
	case free && row.status == queued && row.push > x.push && m.claimLatest, !free && m.claimFree:
		broken := found("")
		if !m.vain && row.status == processing && row.push == x.push && s.left.only(m.all) && s.left.restart == m.all.restart {
			broken = "I13: a copy is claimed in vain"
		}
		if put := m.remove(&n.carrier, &x, w, false); put != "" {
			broken = put
		}
		y.rest()
		e(n, by, broken)
		return
	}
	broken := found("")
	if row.later {
		broken = "I11: claimed before it is due"
	}
	was := row.push
	if row.status != queued && row.status != processing {
		was = 0
	}
	*row = back(*row)
	row.status, row.push, row.owner, row.later = processing, was, w+1, false
	y.phase = claimed
	e(n, by, broken)
	if s.left.reply > 0 { // nobody hears of the lease
		n.left.reply--
		*y = x
		by.op = opClaimUnseen
		e(n, by, broken)
	}
	if free && s.left.lock > 0 {
		by.op = opLocked
		m.later(s, w, by, e)
	}
}

// later puts a copy back whose message is due later, or was locked.
func (m *model) later(s *state, w uint8, by step, e emit) {
	n := *s
	if by.op == opLocked {
		n.left.lock--
	}
	broken := m.remove(&n.carrier, &s.workers[w], w, m.putBack)
	n.workers[w].rest()
	e(n, by, broken)
}

// call is the call of the provider.
func (m *model) call(s *state, w uint8, e emit) {
	x := &s.workers[w]
	by := step{op: opCall, who: w, msg: x.msg, push: x.push}
	n := *s
	row, y := &n.msgs[x.msg-1], &n.workers[w]
	broken := found("")
	if !x.late && !(row.status == processing && row.owner == w+1) {
		broken = "I8: a call by one that has no lease"
	}
	row.calls++
	y.phase, y.late = called, false
	e(n, by, broken)
	if s.left.retry > 0 {
		n.left.retry--
		y.outcome = retry
		by.op = opCallRetry
		e(n, by, broken)
	}
}

// record records what came of a call.
func (m *model) record(row *message, w *worker, who uint8) {
	if m.settleOwner && !(row.status == processing && row.owner == who+1) {
		w.outcome = lost
		return
	}
	*row = back(*row)
	if w.outcome == retry {
		row.retries++
		row.later = true
		return
	}
	row.status = sent
}

// carry is what the carrier does beside workers that take from it, and who looks after it.
func (m *model) carry(s *state, e emit) {
	for i, it := range s.carrier.items {
		by := step{msg: it.msg, push: it.push}
		if it.msg == 0 {
			continue
		}
		if it.place == waiting {
			n := *s
			n.carrier.items[i].place = inMain
			by.op = opMove
			e(n, by, "")
		}
		if m.stream && !m.trimBound && it.place != waiting {
			n := *s
			n.carrier.lose(i)
			by.op = opTrim
			e(n, by, "")
		}
		if it.place < taken {
			continue
		}
		by.who = uint8(it.place - taken)
		if m.idle(s, it) && !m.stream {
			n := *s
			n.carrier.items[i].place = inMain
			by.op = opReturn
			e(n, by, "")
		}
		if m.stream && !m.deleteEmpty && s.workers[by.who].silent {
			n := *s
			n.carrier.items[i] = item{}
			by.op = opDeleteConsumer
			e(n, by, "")
		}
	}
	for w, x := range s.workers {
		if x.silent == !x.runs() {
			continue
		}
		n, by := *s, step{op: opSilent, who: uint8(w)}
		n.workers[w].silent = !x.runs()
		if x.silent {
			by.op = opBeat
		}
		e(n, by, "")
	}
	if s.carrier.noGroup {
		n := *s
		n.carrier.noGroup = false
		for i, it := range n.carrier.items {
			if it.place == inMain && !m.groupAtZero {
				n.carrier.items[i] = item{}
			}
		}
		e(n, step{op: opGroup}, "")
	}
}

// lose deletes a copy, behind the back of who has taken it.
func (c *carrier) lose(i int) {
	if c.items[i].place >= taken {
		c.items[i].deleted = true
	} else {
		c.items[i] = item{}
	}
}

// idle reports that a copy is to be taken back from who has it.
func (m *model) idle(s *state, it item) bool {
	return m.takeBack && (s.workers[it.place-taken].silent || !m.heartbeat) &&
		!(m.afterLease && s.msgs[it.msg-1].status == processing)
}

// look finds an entry to reclaim. Which consumer it is to go to is left open.
func (m *model) look(s *state, w uint8, e emit) {
	for _, it := range s.carrier.items {
		if it.msg == 0 || it.place < taken || it.place == takenBy(int(w)) || !m.idle(s, it) {
			continue
		}
		n := *s
		y := &n.workers[w]
		y.phase, y.msg, y.push, y.from = looking, it.msg, it.push, it.place
		e(n, step{op: opLook, who: w, msg: it.msg, push: it.push}, "")
	}
}

// reclaim makes the entry its own, if it still is who had it.
func (m *model) reclaim(s *state, w uint8, e emit) {
	x := s.workers[w]
	n := *s
	y := &n.workers[w]
	y.rest()
	for i, it := range s.carrier.items {
		if it.msg != x.msg || it.push != x.push || it.place < taken || m.oneReclaims && it.place != x.from {
			continue
		}
		switch {
		case !it.deleted:
			n.carrier.items[i].place = takenBy(int(w))
			y.begin(it)
		case m.ackDeleted:
			n.carrier.items[i] = item{}
		}
		break
	}
	e(n, step{op: opReclaim, who: w, msg: x.msg, push: x.push}, "")
}
