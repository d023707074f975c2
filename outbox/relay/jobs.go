package relay

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// work is a job with claimable messages.
type work struct {
	outbox.Candidate
	after     outbox.Position
	rescanned time.Time     // when the claims began at the beginning last
	took      time.Duration // what beginning there has cost
	bare      bool          // nothing was found since
	long      bool          // as in sweep
	empty     int           // claims in a row that found less than they might
	dry       bool          // the last claim found nothing; not before the first
	held      bool          // another session held its claims at the last claim
	ready     time.Time     // not claimed from before
	asked     time.Time     // whether anything is left, last
}

// laneWork is a lane with its jobs, most urgent first.
type laneWork struct {
	name string
	jobs []*work
}

// byLane groups jobs by lane, in the order of the lanes' names.
func byLane(jobs []*work) (lanes []laneWork) {
	at := make(map[string]int)
	for _, w := range jobs {
		i, known := at[w.Lane]
		if !known {
			i = len(lanes)
			at[w.Lane], lanes = i, append(lanes, laneWork{name: w.Lane})
		}
		lanes[i].jobs = append(lanes[i].jobs, w)
	}
	slices.SortFunc(lanes, func(a, b laneWork) int { return strings.Compare(a.name, b.name) })
	return lanes
}

// dueLanes returns the number of lanes with a job that may have due messages. Lanes without one, such as
// lanes of jobs that are delivered next year, take no share from the others.
func (p *postgres) dueLanes() (n int) {
	for _, l := range p.lanes {
		if slices.ContainsFunc(l.jobs, func(w *work) bool { return !w.dry }) {
			n++
		}
	}
	return n
}

// askAgain is the interval at which a job is checked for remaining messages if this relay records none
// of them: another relay may have recorded the last one and died before its check.
const askAgain = 10 * time.Second

// atLeast is how long a job without a due message is skipped, so that at most two hundred claims per
// second find nothing.
func (p *postgres) atLeast() time.Duration { return time.Duration(len(p.order)) * 5 * time.Millisecond }

// claimBulk makes one claim that finds messages, if any does in the time that activities can wait.
func (p *postgres) claimBulk(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
	p.more, p.starved = false, false
	if err := p.refresh(); err != nil {
		return nil, err
	}
	p.search()
	due := p.dueLanes()
	for began := time.Now(); ctx.Err() == nil; {
		w, limit := p.next(credits, due, time.Now())
		if w == nil {
			break
		}
		if p.more = time.Since(began) > p.config().PollInterval/4; p.more {
			break // activities do not wait for thousands of jobs without a due message
		}
		if found, err := p.claimJob(w, limit); err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

// next returns the next job to claim from, and the number of messages, in the next lane with a ready
// job. In a lane, the most urgent of the jobs that have more to claim and the job that has waited
// longest of the jobs that had run out take turns, so that neither kind starves the other. due is the number
// of lanes with due messages.
func (p *postgres) next(credits outbox.Credits, due int, now time.Time) (*work, int) {
	for range p.lanes {
		lane := p.lanes[p.turn%len(p.lanes)]
		p.turn = (p.turn + 1) % len(p.lanes)
		if w, n := p.inLane(credits, lane, due, now); w != nil {
			return w, min(n, p.config().Batch)
		}
	}
	return nil, 0
}

func (p *postgres) inLane(credits outbox.Credits, lane laneWork, due int, now time.Time) (*work, int) {
	var flowing, waiting *work
	var most, some int
	for _, w := range lane.jobs {
		switch {
		case now.Before(w.ready):
			continue
		case w.empty == 0 && flowing != nil, w.empty > 0 && waiting != nil && !w.ready.Before(waiting.ready):
			continue
		}
		n := credits.Job(w.JobID, lane.name, due)
		switch {
		case n <= 0:
			p.starved = true
		case w.empty == 0:
			flowing, most = w, n
		default:
			waiting, some = w, n
		}
	}
	if waiting != nil && (flowing == nil || !p.probed[lane.name]) {
		p.probed[lane.name] = true
		return waiting, some
	}
	p.probed[lane.name] = false
	return flowing, most
}

func (p *postgres) claimJob(w *work, limit int) (found []outbox.Claimed, err error) {
	began := time.Now()
	if w.empty > 0 && !w.after.More && began.Sub(w.rescanned) >= w.rest() {
		w.rescan(began)
	}
	whole := w.after == outbox.Position{}
	next := w.after
	err = p.act(func(ctx context.Context) error {
		found, next, err = p.claims.ClaimJob(ctx, w.JobID, w.after, limit, p.tries)
		return err
	})
	took := time.Since(began)
	if w.bare = w.bare || whole; w.bare || next.More && len(found) < limit {
		w.took += took // it has stepped over what is dead, or not this relay's
	}
	w.held = errors.Is(err, job.ErrLocked)
	switch {
	case w.held: // another session holds its claims: as if it had run out, so that others have their turn
		w.empty++
		w.ready = time.Now().Add(time.Second << min(w.empty-1, 3))
		p.again = earlier(p.again, w.ready)
		return nil, nil
	case err != nil:
		w.ready = time.Now().Add(time.Second) // the others are to have their turn
		return nil, err
	}
	w.after, w.bare, w.dry = next, w.bare && len(found) == 0, len(found) == 0
	for i := range found {
		found[i].Lane = w.Lane
	}
	if len(found) == limit {
		w.empty, w.ready = 0, time.Time{}
		return found, nil
	}
	if next.More {
		if w.empty, w.long = max(w.empty, 1), true; !p.drain {
			w.ready = time.Now().Add(took)
		}
		p.again = earlier(p.again, time.Now().Add(took))
		return found, nil
	}
	w.empty++
	poll := p.config().PollInterval
	w.ready = time.Now().Add(max(p.atLeast(), min(poll<<min(w.empty-1, 4), 10*poll, max(poll, time.Second))))
	if w.bare {
		if p.later != nil { // of retries the first walk asks, too
			err = p.delivered(w, began)
		}
		if w.after == (outbox.Position{}) { // the next claim begins there, too
			w.ready = time.Now().Add(max(w.rest(), p.atLeast()))
		}
	}
	return found, err
}

// rest is the time between two claims from the beginning. A claim may also be slow because the server was, so it has a
// limit, as the sweep of activities has.
func (w *work) rest() time.Duration { return min(max(time.Second, 20*w.took), longestRest) }

// rescan makes the job's next claim begin at the beginning: messages behind the position were locked,
// or were returned. It costs as much as there are dead index entries, so it is rare.
func (w *work) rescan(now time.Time) {
	w.after, w.rescanned, w.took, w.bare, w.long = outbox.Position{}, now, 0, false, false
}

// delivered marks a job without remaining messages as delivered. It is checked after outcomes of the
// job, and from time to time for messages recorded by other relays.
func (p *postgres) delivered(w *work, began time.Time) error {
	p.mu.Lock()
	settled := p.settled[w.JobID]
	delete(p.settled, w.JobID)
	p.mu.Unlock()
	if !settled && began.Sub(w.asked) < max(askAgain, 10*p.atLeast()) {
		return nil
	}
	w.asked = began
	done := false
	err := p.act(func(ctx context.Context) (err error) {
		done, err = p.ledger.MarkDelivered(ctx, w.JobID)
		return err
	})
	w.took += time.Since(began)
	if err != nil {
		w.asked = time.Time{}
	}
	if done {
		p.log.Info().Int64("job_id", w.JobID).Str("worker_id", p.name).Str("transport", p.String()).Msg("job delivered")
		delete(p.jobs, w.JobID)
		is := func(o *work) bool { return o == w }
		p.order = slices.DeleteFunc(p.order, is)
		for i := range p.lanes {
			p.lanes[i].jobs = slices.DeleteFunc(p.lanes[i].jobs, is)
		}
	}
	return err
}
