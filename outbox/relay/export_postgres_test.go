package relay

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// Turns lists from which of a lane's jobs a relay claims in n turns that take so long
// each: claims from those of flowing find as much as they may, from the others, which
// have run out before, nothing.
func Turns(r *Relay, list []outbox.Candidate, flowing map[int64]bool, took time.Duration, n int) (ids []int64) {
	p := r.postgres(context.Background(), false).(*postgres)
	for _, c := range list {
		w := &work{Candidate: c}
		if !flowing[c.JobID] {
			w.empty = 1
		}
		p.order = append(p.order, w)
	}
	p.lanes = byLane(p.order)
	for now := time.Now(); len(ids) < n; now = now.Add(took) {
		w, _ := p.next(r.credits, p.dueLanes(), now)
		if w == nil {
			continue
		}
		ids = append(ids, w.JobID)
		if !flowing[w.JobID] {
			w.empty++
			w.ready = now.Add(p.atLeast())
		}
	}
	return ids
}

// JobPause returns the pause between two claims of a job from the beginning, which take this long.
func JobPause(took time.Duration) time.Duration { return (&work{took: took}).rest() }

// SweepPause returns the pause after the first claim of a sweep, which took this long and found nothing.
func SweepPause(took time.Duration, more bool) time.Duration {
	var s sweep
	s.step(time.Now().Add(-took), outbox.Position{More: more}, 0, 1)
	return time.Until(s.next)
}

// Looks reports whether a busy relay looks for activities at once after a claim that found none, after a hint then, and
// again without another hint.
func Looks(r *Relay) (unhinted, hinted, again bool) {
	p := r.postgres(context.Background(), false).(*postgres)
	p.claims, p.act = &steppedClaims{}, func(act func(context.Context) error) error { return act(context.Background()) }
	look := func() bool {
		p.activities.sweep.next = time.Now().Add(time.Hour)
		p.activities.last = time.Now().Add(-p.config().PollInterval / 20)
		_, _ = p.claimActivities(r.credits)
		return p.activities.looked
	}
	p.activities.next = time.Now().Add(time.Hour)
	unhinted = look()
	r.wake()
	hinted = look()
	p.activities.next = time.Now().Add(time.Hour)
	return unhinted, hinted, look()
}

// Swept makes claims of activities until a sweep that finds none ends, which takes steps claims. It lists
// which of all claims were of recent activities.
func Swept(r *Relay, steps int) []bool {
	p := r.postgres(context.Background(), false).(*postgres)
	s := &steppedClaims{steps: steps}
	p.claims, p.act = s, func(act func(context.Context) error) error { return act(context.Background()) }
	for len(s.recent) < 4*steps {
		p.activities.next = time.Time{} // the time of recent ones has come
		p.activities.sweep.next = time.Time{}
		_, _ = p.claimActivities(r.credits)
		if s.ended {
			break
		}
	}
	return s.recent
}

// steppedClaims are claims that find nothing, of activities that take steps claims.
type steppedClaims struct {
	steps  int
	ended  bool
	recent []bool
}

func (*steppedClaims) ClaimJob(context.Context, int64, outbox.Position, int, outbox.Tries) ([]outbox.Claimed, outbox.Position, error) {
	return nil, outbox.Position{}, nil
}

func (s *steppedClaims) ClaimActivities(_ context.Context, after outbox.Position, within time.Duration, _ int,
	_ outbox.Tries) ([]outbox.Claimed, outbox.Position, error) {
	s.recent = append(s.recent, within > 0)
	if within > 0 {
		return nil, after, nil
	}
	n := after.ChannelID + 1
	s.ended = n >= int64(s.steps)
	return nil, outbox.Position{ChannelID: n, More: !s.ended}, nil
}

// Waited lists what a relay's first queue lets go of n bulk messages that were enqueued so long ago.
func Waited(r *Relay, n int, d time.Duration, draining bool) []outbox.Settlement {
	r.draining.Store(draining)
	q, now := r.queues[0], time.Now()
	list := make([]*outbox.Composed, n)
	for i := range list {
		list[i] = &outbox.Composed{Claimed: outbox.Claimed{Key: outbox.Key{JobID: 1, ChannelID: int64(i + 1)}}}
	}
	q.enqueue(list, len(list), now)
	q.expire(now.Add(d))
	put, _, _ := r.outcomes.next()
	q.activities, q.bulk = nil, nil
	return put
}
