package outbox_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// letter is what the model knows of one message: what the database has to say of it,
// and what happened outside.
type letter struct {
	status           string
	lease            int64 // of a PROCESSING one
	receipt          string
	recalled         bool
	later            bool // due in an hour
	attempts         int
	crashes          int
	records          int // rows of belfry.attempts
	calls            int // of the provider
	acceptedByAnyone bool
}

// holding is what the model knows of a lease.
type holding struct {
	number  int // in the order of the claims: ids are drawn at random
	handed  map[int64]bool
	expired bool
}

// inFlight is a message as its relay sees it, who may not know that he has lost it.
type inFlight struct {
	outbox.Claimed
	handed, called bool
}

// postOffice is the model: a job's letters, the leases, and what each relay believes to
// hold. It is the naive reading of the package's invariants.
type postOffice struct {
	*bundle

	id      int64
	aborted bool
	letters map[int64]*letter
	leases  map[int64]*holding
	claims  int
	relays  []*outbox.Ledger
	hands   [][]inFlight
	sent    map[int64]bool
}

func newPostOffice(t *rapid.T, b *bundle) *postOffice {
	n := rapid.IntRange(1, 9).Draw(t, "messages")
	p := &postOffice{
		bundle: b, id: b.Rest(t, outbox.TypePush, n, job.Aborted), letters: map[int64]*letter{}, leases: map[int64]*holding{},
		relays: []*outbox.Ledger{b.ledger("r1"), b.ledger("r2"), b.ledger("r3")}, hands: make([][]inFlight, 3), aborted: true, sent: map[int64]bool{},
	}
	for channel := range int64(n) {
		p.letters[channel+1] = &letter{status: "PENDING"}
	}
	p.toggle(t)
	return p
}

// toggle aborts the job, or resumes it.
func (p *postOffice) toggle(t *rapid.T) {
	act := p.jobs.Abort
	if p.aborted {
		act = p.jobs.Resume
	}
	_, err := act(bg, job.One(p.id), job.Act{})
	require.NoError(t, err)
	p.aborted = !p.aborted
}

// recall takes the job back if it may be.
func (p *postOffice) recall(t *rapid.T) {
	_, err := delivery.Recall(bg, p.DB.Pool, p.id, ann, nil)
	require.Equal(t, p.aborted, err == nil, "%v", err)
	for _, m := range p.letters {
		switch {
		case err != nil:
		case m.status == "PENDING":
			m.status = "CANCELLED"
		case m.status == "PROCESSING":
			m.recalled = true
		}
	}
}

func (p *postOffice) claim(t *rapid.T) {
	r, limit := p.relay(t), rapid.IntRange(1, 10).Draw(t, "limit")
	var due int
	for _, m := range p.letters {
		if m.status == "PENDING" && !m.later && !p.aborted {
			due++
		}
	}
	claimed := claim(t, p.relays[r], p.id, limit)
	require.Len(t, claimed, min(due, limit))
	for _, c := range claimed {
		m := p.letters[c.ChannelID]
		require.Equal(t, "PENDING", m.status)
		require.Equal(t, m.attempts, c.Attempts)
		require.Equal(t, m.crashes, c.Crashes)
		if p.leases[c.LeaseID] == nil {
			p.claims++
			p.leases[c.LeaseID] = &holding{number: p.claims, handed: map[int64]bool{}}
		}
		m.status, m.lease = "PROCESSING", c.LeaseID
		p.hands[r] = append(p.hands[r], inFlight{Claimed: c})
	}
}

func (p *postOffice) relay(t *rapid.T) int {
	return rapid.IntRange(0, len(p.relays)-1).Draw(t, "relay")
}

// pick draws some of what a relay believes to hold.
func (p *postOffice) pick(t *rapid.T, r int) (some []*inFlight) {
	for i := range p.hands[r] {
		if rapid.IntRange(0, 2).Draw(t, "pick") > 0 {
			some = append(some, &p.hands[r][i])
		}
	}
	return some
}

func (p *postOffice) owned(c outbox.Claimed) bool {
	m := p.letters[c.ChannelID]
	return m.status == "PROCESSING" && m.lease == c.LeaseID
}

// send hands over, looks and calls.
func (p *postOffice) send(t *rapid.T) {
	r := p.relay(t)
	some := slices.DeleteFunc(p.pick(t, r), func(h *inFlight) bool { return h.called })
	list := make([]outbox.Claimed, len(some))
	for i, h := range some {
		list[i], h.handed = h.Claimed, true
		if lease := p.leases[h.LeaseID]; lease != nil && !lease.expired {
			lease.handed[h.ChannelID] = true
		}
	}
	handOver(t, p.relays[r], list, nil)
	if rapid.IntRange(0, 3).Draw(t, "pause") == 0 { // and never looks, or later
		return
	}
	verdicts, err := p.relays[r].Recheck(bg, list)
	require.NoError(t, err)
	for i, h := range some {
		m, lease := p.letters[h.ChannelID], p.leases[h.LeaseID]
		want := outbox.VerdictSend
		switch {
		case !p.owned(h.Claimed) || lease == nil || lease.expired:
			want = outbox.VerdictLost
		case m.recalled:
			want = outbox.VerdictRecalled
		case p.aborted:
			want = outbox.VerdictHeld
		}
		require.Equal(t, want, verdicts[i])
		if want == outbox.VerdictSend {
			require.False(t, m.status == "SENT" || m.receipt != "", "I8: it is sent already")
			m.calls++
			h.called = true
		}
	}
}

// settle records random outcomes of some, or again those of a call before.
func (p *postOffice) settle(t *rapid.T) {
	r := p.relay(t)
	var settlements []outbox.Settlement
	var want []outbox.Status
	for _, h := range p.pick(t, r) {
		s := p.outcome(t, h)
		settlements, want = append(settlements, s), append(want, p.apply(s, p.owned(h.Claimed), h.called))
	}
	for _, s := range settlements {
		p.hands[r] = slices.DeleteFunc(p.hands[r], func(h inFlight) bool { return h.Claimed == s.Claimed })
	}
	done := p.done(r)
	for round := range rapid.IntRange(1, 2).Draw(t, "times") { // the second time: after an unknown COMMIT
		statuses, err := p.relays[r].Settle(bg, settlements, done)
		require.NoError(t, err)
		require.Len(t, statuses, len(want))
		for i := range want {
			require.Equal(t, want[i], statuses[i], "round %d: %+v", round, settlements[i])
		}
	}
	for _, id := range done {
		if !slices.ContainsFunc(p.list(), func(m *letter) bool { return m.status == "PROCESSING" && m.lease == id }) {
			delete(p.leases, id)
		}
	}
}

func (p *postOffice) list() (list []*letter) {
	for _, m := range p.letters {
		list = append(list, m)
	}
	return list
}

// done are leases of which a relay holds nothing any more, as far as it knows.
func (p *postOffice) done(r int) (ids []int64) {
	for id := range p.leases {
		if !slices.ContainsFunc(p.hands[r], func(h inFlight) bool { return h.LeaseID == id }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// outcome draws what may become of a message in flight.
func (p *postOffice) outcome(t *rapid.T, h *inFlight) outbox.Settlement {
	s := outbox.Settlement{Claimed: h.Claimed, NextAttempts: h.Attempts, Wait: time.Duration(rapid.IntRange(0, 1).Draw(t, "wait")) * time.Hour}
	if !h.called {
		switch rapid.IntRange(0, 2).Draw(t, "unsent") {
		case 0:
			return outbox.Release(h.Claimed)
		case 1:
			s.To, s.Reason = outbox.Pending, outbox.ReasonBreakerOpen
		default:
			s.To, s.Reason = outbox.Cancelled, outbox.ReasonCapped
		}
		return s
	}
	s.NextAttempts++
	record := outbox.Attempt{Attempt: s.NextAttempts, Medium: "push"}
	switch rapid.IntRange(0, 3).Draw(t, "outcome") {
	case 0:
		s.To = outbox.Sent
		return s
	case 1:
		s.To, s.Reason, record.Outcome = outbox.Pending, outbox.ReasonRetry, outbox.OutcomeUnknown
	case 2:
		s.To, s.Reason, record.Outcome = outbox.Dead, outbox.ReasonPermanent, outbox.OutcomePermanent
	default:
		s.To, s.Receipt, record.Outcome = outbox.Processing, "r-"+strconv.Itoa(p.letters[h.ChannelID].calls), outbox.OutcomeAccepted
	}
	s.Record = []outbox.Attempt{record}
	return s
}

// apply changes the model as a settlement changes the database, if its owner asks.
func (p *postOffice) apply(s outbox.Settlement, owned, called bool) outbox.Status {
	if !owned {
		return ""
	}
	m := p.letters[s.ChannelID]
	m.status, m.records = string(s.To), m.records+len(s.Record)
	if m.recalled && (s.To == outbox.Pending || s.To == outbox.Dead) {
		m.status = "CANCELLED"
	}
	m.attempts = s.NextAttempts
	if !s.Untouched && (s.To == outbox.Pending || s.To == outbox.Dead) {
		m.later = s.Wait > 0
	}
	m.acceptedByAnyone = m.acceptedByAnyone || called && s.To == outbox.Sent
	if s.To == outbox.Processing {
		m.lease, m.receipt = 0, s.Receipt
	} else if s.To == outbox.Pending {
		m.receipt = ""
	}
	return outbox.Status(m.status)
}

// receipts asks for every receipt and settles it somehow, twice.
func (p *postOffice) receipts(t *rapid.T) {
	p.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE job_id = $1 AND receipt IS NOT NULL AND status = 'PROCESSING'`, p.id)
	l := p.relays[p.relay(t)]
	var settlements []outbox.Settlement
	var want []outbox.Status
	for _, a := range due(t, l, 100) {
		require.Equal(t, p.letters[a.ChannelID].receipt, a.Receipt)
		s := outbox.Settlement{Claimed: a.Claimed, NextAttempts: a.Attempts, Receipt: a.Receipt}
		s.To = rapid.SampledFrom([]outbox.Status{outbox.Sent, outbox.Pending, outbox.Processing}).Draw(t, "receipt")
		if s.To == outbox.Pending {
			s.Reason, s.Record = outbox.ReasonFailover, []outbox.Attempt{{Attempt: a.Attempts, Medium: "push", Outcome: outbox.OutcomePermanent}}
		}
		settlements, want = append(settlements, s), append(want, p.apply(s, true, true))
	}
	statuses, err := l.Settle(bg, settlements, nil)
	require.NoError(t, err)
	require.Len(t, statuses, len(want))
	for i := range want {
		require.Equal(t, want[i], statuses[i])
	}
}

// expire lets some leases expire.
func (p *postOffice) expireSome(t *rapid.T, every bool) {
	ids := make([]int64, 0, len(p.leases))
	for id := range p.leases {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b int64) int { return p.leases[a].number - p.leases[b].number })
	for _, id := range ids {
		if every || rapid.Bool().Draw(t, "expires") {
			p.leases[id].expired = true
			p.expire(t, id)
		}
	}
}

// recoverSome takes back expired leases.
func (p *postOffice) recoverSome(t *rapid.T) {
	require.NoError(t, recoverAll(p.relays[p.relay(t)]))
	for id, lease := range p.leases {
		if !lease.expired {
			continue
		}
		for channel, m := range p.letters {
			if m.status != "PROCESSING" || m.lease != id {
				continue
			}
			m.status, m.lease = "PENDING", 0
			if m.recalled {
				m.status = "CANCELLED"
			}
			if lease.handed[channel] {
				m.crashes, m.attempts, m.records, m.later = m.crashes+1, m.attempts+1, m.records+1, true
			}
		}
		delete(p.leases, id)
	}
}

func (p *postOffice) renew(t *rapid.T) {
	r := p.relay(t)
	var ids, want []int64
	for _, h := range p.hands[r] {
		if lease := p.leases[h.LeaseID]; !slices.Contains(ids, h.LeaseID) {
			if ids = append(ids, h.LeaseID); lease == nil || lease.expired {
				want = append(want, h.LeaseID)
			}
		}
	}
	lost, err := p.relays[r].Renew(bg, ids)
	require.NoError(t, err)
	require.ElementsMatch(t, want, lost)
}

// check compares the database with the model.
func (p *postOffice) check(t *rapid.T) {
	rows, err := p.DB.Pool.Query(bg, `SELECT m.channel_id, m.status, CASE WHEN m.status = 'PROCESSING' THEN coalesce(m.lease_id, 0) ELSE 0 END,
			coalesce(CASE WHEN m.status = 'PROCESSING' THEN m.receipt END, ''), m.recalled_at IS NOT NULL, m.attempts, m.crashes,
			(SELECT count(*) FROM belfry.attempts a WHERE a.job_id = m.job_id AND a.channel_id = m.channel_id)
		  FROM belfry.messages m WHERE m.job_id = $1`, p.id)
	require.NoError(t, err)
	var channel int64
	var l letter
	_, err = pgx.ForEachRow(rows, []any{&channel, &l.status, &l.lease, &l.receipt, &l.recalled, &l.attempts, &l.crashes, &l.records}, func() error {
		m := *p.letters[channel]
		if m.status != "PROCESSING" {
			m.lease, m.receipt = 0, ""
		}
		require.LessOrEqual(t, m.calls, 1+m.records, "I9: message %d", channel)
		require.False(t, p.sent[channel] && l.status != "SENT", "I8: message %d left SENT", channel)
		p.sent[channel] = l.status == "SENT"
		m.later, m.calls, m.acceptedByAnyone = false, 0, false
		require.Equal(t, m, l, "message %d", channel)
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, dbtest.Miscounted(t, p.DB.Pool))
	ids := []int64{}
	for id := range p.leases {
		ids = append(ids, id)
	}
	require.ElementsMatch(t, ids, one[[]int64](t, p.bundle, `SELECT coalesce(array_agg(id), '{}') FROM belfry.leases`))
}

// finish lets the faults end: every message is SENT, DEAD or CANCELLED then (I10), and
// no lease, handover or receipt is left.
func (p *postOffice) finish(t *rapid.T) {
	p.expireSome(t, true)
	p.recoverSome(t)
	if p.aborted {
		p.toggle(t)
	}
	p.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE job_id = $1`, p.id)
	l := p.relays[0]
	for _, a := range due(t, l, 100) {
		_, err := l.Settle(bg, []outbox.Settlement{{Claimed: a.Claimed, To: outbox.Sent, Receipt: a.Receipt}}, nil)
		require.NoError(t, err)
	}
	if claimed := handed(t, l, p.id, 100); len(claimed) > 0 {
		verdicts, err := l.Recheck(bg, claimed)
		require.NoError(t, err)
		require.Equal(t, all(len(claimed), outbox.VerdictSend), verdicts)
		_, err = l.Settle(bg, each(claimed, sent), leasesOf(claimed))
		require.NoError(t, err)
	}
	require.Zero(t, one[int](t, p.bundle, `SELECT (SELECT count(*) FROM belfry.messages WHERE job_id = $1 AND status NOT IN ('SENT', 'DEAD', 'CANCELLED'))
		+ (SELECT count(*) FROM belfry.leases) + (SELECT count(*) FROM belfry.handovers)`, p.id))
}

// I6, I8, I9, I10 through random schedules of three relays, an operator, and time,
// against the model.
func TestLedger_AgreesWithANaiveModel(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	rapid.Check(t, func(t *rapid.T) {
		p := newPostOffice(t, b)
		acts := []func(*rapid.T){
			p.claim, p.claim, p.claim, p.send, p.send, p.send, p.settle, p.settle, p.settle, p.receipts,
			func(t *rapid.T) { p.expireSome(t, false) }, p.recoverSome, p.renew, p.toggle, p.recall,
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			acts[rapid.IntRange(0, len(acts)-1).Draw(t, "act")](t)
			p.check(t)
		}
		p.finish(t)
	})
}
