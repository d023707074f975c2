package redislist

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

const (
	// recheck is how often credits are asked for while there is something that has none.
	recheck = 10 * time.Millisecond
	// lookAgain is how often the head is looked at meanwhile: other jobs may have come.
	lookAgain = 100 * time.Millisecond
	// seenFor is how long a job is asked credits for after its last id was seen.
	seenFor = 5 * time.Second
	// manyJobs is how many jobs are remembered at most.
	manyJobs = 500
)

// carrier is what one relay has of a Broker.
type carrier struct {
	*Broker
	name    string
	claim   relay.Claim
	taken   [2]*taken
	arrived chan struct{} // size 1: something is in main

	// Of Receive alone:
	jobs    map[int64]*jobSeen // of bulk, that had ids at the head
	blocked bool               // at the last look there were ids without credit
}

// taken is what a worker has taken of one queue, as far as it knows.
type taken struct {
	keys
	wanted  chan struct{} // size 1: main was empty, and there are credits
	earlier chan struct{} // size 1: something is due earlier than was known
	news    atomic.Bool   // something came to main

	// Of Receive alone:
	looked time.Time
	empty  bool // main was, then

	mu      sync.Mutex
	claimed map[outbox.Key]string // the items of what is in flight
	late    []change              // that could not be made
	doubt   bool                  // there may be more in processing
}

// change is what becomes of an item in processing: as settle.lua has it.
type change struct {
	item string
	what any // drop, dead, head, tail, or ms
}

// jobSeen is a job of which there are ids.
type jobSeen struct {
	lane  string
	seen  time.Time
	broke time.Time // since when it has no credit; zero: it has
}

// String implements relay.Transport.
func (*carrier) String() string { return "redislist" }

// Receive implements relay.Transport.
func (c *carrier) Receive(ctx context.Context, credits relay.Credits) ([]outbox.Claimed, error) {
	for ctx.Err() == nil {
		found, err := c.take(ctx, credits)
		if len(found) > 0 {
			claimed, e := c.claimAll(ctx, found)
			if err = errors.Join(err, e); err != nil || len(claimed) > 0 {
				return claimed, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		c.wait(ctx, credits)
	}
	return nil, ctx.Err()
}

// take takes what there are credits for, activities first.
func (c *carrier) take(ctx context.Context, credits relay.Credits) (found []string, err error) {
	if n := min(credits.Activities(), outbox.MaxBatch); n > 0 && !c.quiet(c.taken[activities]) {
		_, _, found, err = c.takeOf(ctx, c.taken[activities], n, true, nil)
	}
	if n := min(credits.Bulk(), outbox.MaxBatch-len(found)); n > 0 && err == nil && !c.quiet(c.taken[bulk]) {
		var items []string
		items, err = c.takeBulk(ctx, credits, n)
		found = append(found, items...)
	}
	return found, err
}

// quiet reports whether main was empty and nothing was heard of it since, and has that listened
// for.
func (c *carrier) quiet(t *taken) bool {
	if !t.empty || t.news.Swap(false) || time.Since(t.looked) > c.pace.block {
		return false
	}
	wake(t.wanted)
	return true
}

// takeBulk takes ids of the jobs that have credit. Which jobs have ids only the server knows:
// it says so for those that it is not told a limit of.
func (c *carrier) takeBulk(ctx context.Context, credits relay.Credits, n int) ([]string, error) {
	t := c.taken[bulk]
	for range 3 {
		limits, most := c.limits(credits)
		if most == 0 && c.blocked && time.Since(t.looked) < lookAgain {
			return nil, nil
		}
		room := n // jobs may share a sender: together they get what one of them may
		if len(c.jobs) > 0 {
			room = max(1, min(n, most))
		}
		unknown, length, items, err := c.takeOf(ctx, t, room, false, limits)
		c.blocked = length > 0 && len(items) == 0
		c.saw(items, unknown)
		if err != nil || len(items) > 0 || len(unknown) == 0 {
			return items, err
		}
	}
	return nil, nil
}

// limits asks for the credits of the jobs that had ids at the head. -1: its ids may be deferred.
func (c *carrier) limits(credits relay.Credits) (limits []any, most int) {
	now, lanes := time.Now(), make(map[string]struct{})
	for id, j := range c.jobs {
		if now.Sub(j.seen) > seenFor || len(c.jobs) > manyJobs {
			delete(c.jobs, id)
			continue
		}
		lanes[j.lane] = struct{}{}
	}
	for id, j := range c.jobs {
		limit := max(0, credits.Job(id, j.lane, len(lanes)))
		most = max(most, limit)
		switch {
		case limit > 0:
			j.broke = time.Time{}
		case j.broke.IsZero():
			j.broke = now
		case now.Sub(j.broke) > c.pace.held:
			limit = -1
		}
		limits = append(limits, id, limit)
	}
	return limits, most
}

// saw notes of which jobs there are ids.
func (c *carrier) saw(items []string, unknown []any) {
	now := time.Now()
	for i := 0; i+1 < len(unknown); i += 2 {
		lane, _ := unknown[i+1].(string)
		c.jobs[parseJob(unknown[i])] = &jobSeen{lane: lane, seen: now}
	}
	for _, item := range items {
		if copied, err := parse(item); err == nil && c.jobs[copied.JobID] != nil {
			c.jobs[copied.JobID].seen = now
		}
	}
}

// takeOf runs the script that takes, after what is in doubt was put back. length is that of
// main afterwards.
func (c *carrier) takeOf(ctx context.Context, t *taken, n int, anyJob bool, limits []any) (unknown []any, length int64, items []string, err error) {
	if err := c.clear(ctx, t); err != nil {
		return nil, 0, nil, err
	}
	all := 0
	if anyJob {
		all = 1
	}
	args := append([]any{c.name, n, window, c.pace.off.Milliseconds(), all}, limits...)
	said, err := c.run(ctx, c.scripts.take, []string{t.state, t.main, t.waiting, t.workers, t.processing(c.name)}, args...).Slice()
	if err != nil {
		t.doubts()
		return nil, 0, nil, fmt.Errorf("take ids of the queue %s: %w", t.name, err)
	}
	list, _ := said[0].([]any) // as take.lua has it
	unknown, _ = said[1].([]any)
	length, _ = said[2].(int64)
	inside, _ := said[3].(int64)
	items = make([]string, 0, len(list))
	for _, item := range list {
		text, _ := item.(string)
		items = append(items, text)
	}
	t.mu.Lock()
	t.doubt = t.doubt || int(inside) > len(t.claimed)+len(t.late)+len(items)
	t.mu.Unlock()
	t.looked, t.empty = time.Now(), length == 0
	return unknown, length, items, nil
}

// clear puts back to the head what is in processing and unknown here: taken by a call whose
// answer was lost, or by a worker of this name before this one.
func (c *carrier) clear(ctx context.Context, t *taken) error {
	t.mu.Lock()
	doubt := t.doubt
	t.mu.Unlock()
	if !doubt {
		return nil
	}
	list, err := c.db.Do.HKeys(context.WithoutCancel(ctx), t.processing(c.name)).Result()
	if err != nil {
		return fmt.Errorf("read what was taken of the queue %s: %w", t.name, err)
	}
	t.mu.Lock()
	known := make(map[string]struct{}, len(t.claimed)+len(t.late))
	for _, item := range t.claimed {
		known[item] = struct{}{}
	}
	for _, l := range t.late {
		known[l.item] = struct{}{}
	}
	t.doubt = false
	t.mu.Unlock()
	var strays []change
	for _, item := range list {
		if _, ours := known[item]; !ours {
			strays = append(strays, change{item, "head"})
		}
	}
	if err := c.change(ctx, t, strays); err != nil {
		t.doubts()
		return err
	}
	return nil
}

func (t *taken) doubts() {
	t.mu.Lock()
	t.doubt = true
	t.mu.Unlock()
}

// claimAll claims what was taken, and does with each what the verdict says.
func (c *carrier) claimAll(ctx context.Context, items []string) (claimed []outbox.Claimed, err error) {
	copies, kept := make([]outbox.Copy, 0, len(items)), items[:0]
	changes := [2][]change{}
	for _, item := range items {
		copied, err := parse(item)
		if err != nil { // not ours: whoever wrote it may look at it
			changes[bulk] = append(changes[bulk], change{item, "dead"})
			changes[activities] = append(changes[activities], change{item, "dead"})
			continue
		}
		copies, kept = append(copies, copied), append(kept, item)
	}
	answers, err := c.claim(copies)
	for i, copied := range copies {
		q := queueOf(copied.Key)
		if err != nil {
			changes[q] = append(changes[q], change{kept[i], "head"})
			continue
		}
		switch a := answers[i]; a.Verdict {
		case outbox.CopyClaimed:
			claimed = append(claimed, a.Claimed)
			c.taken[q].mu.Lock()
			c.taken[q].claimed[copied.Key] = kept[i]
			c.taken[q].mu.Unlock()
		case outbox.CopyLater:
			changes[q] = append(changes[q], change{kept[i], max(0, a.Wait).Milliseconds()})
		case outbox.CopyFinished, outbox.CopyAnother, outbox.CopyHeld, outbox.CopyNotQueued:
			what := "drop"
			if a.Dead {
				what = "dead"
			}
			changes[q] = append(changes[q], change{kept[i], what})
		}
	}
	for i, t := range c.taken {
		if e := c.change(ctx, t, changes[i]); e != nil {
			t.later(changes[i])
			if err == nil && len(claimed) == 0 {
				err = e
			}
		}
	}
	return claimed, err
}

// change makes changes of items in processing. After an error some may have been made.
func (c *carrier) change(ctx context.Context, t *taken, changes []change) error {
	for from := 0; from < len(changes); from += outbox.MaxBatch {
		part := changes[from:min(from+outbox.MaxBatch, len(changes))]
		args := make([]any, 0, 1+2*len(part))
		args = append(args, deadKept)
		soon := false
		for _, ch := range part {
			args = append(args, ch.item, ch.what)
			if _, due := ch.what.(int64); due {
				soon = true
			}
		}
		if err := c.run(ctx, c.scripts.settle, []string{t.state, t.main, t.waiting, t.dead, t.processing(c.name)}, args...).Err(); err != nil {
			return fmt.Errorf("settle %d ids of the queue %s: %w", len(changes), t.name, err)
		}
		if soon {
			wake(t.earlier)
		}
	}
	return nil
}

// later has changes made when the server is back.
func (t *taken) later(changes []change) {
	t.mu.Lock()
	t.late = append(t.late, changes...)
	t.mu.Unlock()
}

// Settled implements relay.Transport.
func (c *carrier) Settled(ctx context.Context, outcomes []relay.Settled) error {
	var failed error
	for q, t := range c.taken {
		var changes []change
		var done []outbox.Key
		t.mu.Lock()
		for _, o := range outcomes {
			item, here := t.claimed[o.Key]
			if !here || queueOf(o.Key) != q {
				continue
			}
			done = append(done, o.Key)
			what := any("drop")
			switch o.Status {
			case "":
				what = "tail"
			case outbox.Pending:
				what = max(0, o.Wait).Milliseconds()
			case outbox.Dead:
				what = "dead"
			case outbox.Sent, outbox.Cancelled, outbox.Queued, outbox.Processing:
			}
			changes = append(changes, change{item, what})
		}
		t.mu.Unlock()
		err := c.change(ctx, t, changes)
		t.mu.Lock()
		for _, k := range done { // not before: what is in processing and not here is in doubt
			delete(t.claimed, k)
		}
		if err != nil {
			t.late = append(t.late, changes...)
		}
		t.mu.Unlock()
		failed = errors.Join(failed, err)
	}
	return failed
}

// wait waits for ids, credits or a stop.
func (c *carrier) wait(ctx context.Context, credits relay.Credits) {
	pause := c.pace.block
	for _, t := range c.taken {
		if t.empty {
			wake(t.wanted)
		}
	}
	if c.blocked || credits.Activities() == 0 || credits.Bulk() == 0 {
		pause = recheck
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-credits.Changed():
	case <-c.arrived:
	}
}

func wake(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// voice says once that the server is away, or what else is wrong, and once that it is back.
type voice struct {
	log zerolog.Logger
	mu  sync.Mutex
	bad string // what was said
}

// heard takes note of what came of a call.
func (v *voice) heard(worker string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err == nil && v.bad != "":
		v.bad = ""
		v.log.Info().Str("transport", "redislist").Str("worker_id", worker).Msg("the carrier is back")
	case err == nil:
	case redisdb.Away(err) && v.bad != "away":
		v.bad = "away"
		v.log.Warn().Err(err).Str("transport", "redislist").Str("worker_id", worker).Msg("the carrier is away")
	case !redisdb.Away(err) && v.bad == "":
		v.bad = "refuses"
		v.log.Error().Err(err).Str("transport", "redislist").Str("worker_id", worker).Msg("the carrier refuses")
	}
}
