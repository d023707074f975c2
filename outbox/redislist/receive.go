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
)

const (
	// recheck is the interval of credit checks while ids wait for credit.
	recheck = 10 * time.Millisecond
	// headEvery is the interval at which the head is read in that time, because ids of other jobs may
	// have arrived.
	headEvery = 100 * time.Millisecond
	// seenFor is how long credits are requested for a job after its last id was seen.
	seenFor = 5 * time.Second
	// manyJobs is the maximum number of remembered jobs.
	manyJobs = 500
)

// carrier connects one relay to a Broker.
type carrier struct {
	*Broker
	name    string
	claim   outbox.Claim
	taken   [2]*taken
	arrived chan struct{} // size 1: main has ids

	// Only used by Receive:
	jobs    map[int64]*jobSeen // bulk jobs with ids at the head
	blocked bool               // the last read found only ids without credit
}

// taken records the ids that a worker has taken from one queue.
type taken struct {
	keys
	wanted  chan struct{} // size 1: main was empty while there were credits
	earlier chan struct{} // size 1: an id is due earlier than expected
	news    atomic.Bool   // ids arrived in main

	// Only used by Receive:
	readAt time.Time
	empty  bool // main was empty at readAt

	mu      sync.Mutex
	claimed map[outbox.Key]string // items in flight
	late    []change              // failed changes
	doubt   bool                  // processing may contain unknown ids
}

// change is a change to an item in processing (settle.lua).
type change struct {
	item string
	to   any // drop, dead, head, tail, or a delay in ms
}

// jobSeen is a job with ids in the queue.
type jobSeen struct {
	lane  string
	seen  time.Time
	broke time.Time // when its credit ended; zero while it has credit
}

// String implements outbox.Transport.
func (*carrier) String() string { return "redislist" }

// Receive implements outbox.Transport.
func (c *carrier) Receive(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
	for ctx.Err() == nil {
		found, bulkFrom, err := c.take(ctx, credits)
		if len(found) > 0 {
			claimed, e := c.claimAll(ctx, found, bulkFrom)
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

// take takes ids within the credits, activities first. bulkFrom is the index of the first id of bulk.
func (c *carrier) take(ctx context.Context, credits outbox.Credits) (found []string, bulkFrom int, err error) {
	if n := min(credits.Activities(), outbox.MaxBatch); n > 0 && !c.quiet(c.taken[activities]) {
		_, _, found, err = c.takeOf(ctx, c.taken[activities], n, true, nil)
	}
	bulkFrom = len(found)
	if n := min(credits.Bulk(), outbox.MaxBatch-len(found)); n > 0 && err == nil && !c.quiet(c.taken[bulk]) {
		var items []string
		items, err = c.takeBulk(ctx, credits, n)
		found = append(found, items...)
	}
	return found, bulkFrom, err
}

// quiet reports whether main was empty at the last read and no ids have arrived since. It then makes
// listen wait for ids.
func (c *carrier) quiet(t *taken) bool {
	if !t.empty || t.news.Swap(false) || time.Since(t.readAt) > c.pace.block {
		return false
	}
	wake(t.wanted)
	return true
}

// takeBulk takes ids of jobs that have credit. The server knows which jobs have ids: take.lua returns
// the jobs for which it was given no limit.
func (c *carrier) takeBulk(ctx context.Context, credits outbox.Credits, n int) ([]string, error) {
	t := c.taken[bulk]
	for range 3 {
		limits, most := c.limits(credits)
		if most == 0 && c.blocked && time.Since(t.readAt) < headEvery {
			return nil, nil
		}
		room := n // jobs may share a sender, so together they get the largest credit
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

// limits returns the credits of the jobs that had ids at the head, as arguments of take.lua. -1 allows
// to defer a job's ids.
func (c *carrier) limits(credits outbox.Credits) (limits []any, most int) {
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

// saw records the jobs that have ids.
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

// takeOf runs take.lua after unknown ids were returned. length is the length of main afterwards.
func (c *carrier) takeOf(ctx context.Context, t *taken, n int, anyJob bool, limits []any) (unknown []any, length int64,
	items []string, err error) {
	if err := c.clear(ctx, t); err != nil {
		return nil, 0, nil, err
	}
	all := 0
	if anyJob {
		all = 1
	}
	args := append([]any{c.name, n, window, c.pace.off.Milliseconds(), all}, limits...)
	reply, err := c.run(ctx, c.scripts.take, []string{t.state, t.main, t.waiting, t.workers, t.processing(c.name)}, args...).Slice()
	if err != nil {
		t.doubts()
		return nil, 0, nil, fmt.Errorf("take ids of the queue %s: %w", t.name, err)
	}
	list, _ := reply[0].([]any) // the order of take.lua
	unknown, _ = reply[1].([]any)
	length, _ = reply[2].(int64)
	inside, _ := reply[3].(int64)
	items = make([]string, 0, len(list))
	for _, item := range list {
		text, _ := item.(string)
		items = append(items, text)
	}
	t.mu.Lock()
	t.doubt = t.doubt || int(inside) > len(t.claimed)+len(t.late)+len(items)
	t.mu.Unlock()
	t.readAt, t.empty = time.Now(), length == 0
	return unknown, length, items, nil
}

// clear returns unknown ids in processing to the head. A call whose reply was lost has taken them, or a
// previous worker of the same name.
func (c *carrier) clear(ctx context.Context, t *taken) error {
	t.mu.Lock()
	doubt := t.doubt
	t.mu.Unlock()
	if !doubt {
		return nil
	}
	list, err := c.db.Do.HKeys(context.WithoutCancel(ctx), t.processing(c.name)).Result()
	if err != nil {
		return fmt.Errorf("read the processing ids of the queue %s: %w", t.name, err)
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

// claimAll claims the taken ids and applies the verdict of each. The ids of bulk begin at bulkFrom.
func (c *carrier) claimAll(ctx context.Context, items []string, bulkFrom int) (claimed []outbox.Claimed, err error) {
	copies, kept := make([]outbox.Copy, 0, len(items)), items[:0]
	changes := [2][]change{}
	for i, item := range items {
		from := activities
		if i >= bulkFrom {
			from = bulk
		}
		copied, err := parse(item)
		if err != nil || queueOf(copied.Key) != from { // not written by belfry: stored for inspection
			changes[from] = append(changes[from], change{item, "dead"})
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
			to := "drop"
			if a.Dead {
				to = "dead"
			}
			changes[q] = append(changes[q], change{kept[i], to})
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

// change applies changes to items in processing. After an error it may have applied some of them.
func (c *carrier) change(ctx context.Context, t *taken, changes []change) error {
	for from := 0; from < len(changes); from += outbox.MaxBatch {
		part := changes[from:min(from+outbox.MaxBatch, len(changes))]
		args := make([]any, 0, 1+2*len(part))
		args = append(args, deadKept)
		soon := false
		for _, ch := range part {
			args = append(args, ch.item, ch.to)
			if _, due := ch.to.(int64); due {
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

// later schedules changes for the time when the server is back.
func (t *taken) later(changes []change) {
	t.mu.Lock()
	t.late = append(t.late, changes...)
	t.mu.Unlock()
}

// Settled implements outbox.Transport.
func (c *carrier) Settled(ctx context.Context, outcomes []outbox.Settled) error {
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
			to := any("drop")
			switch o.Status {
			case "":
				to = "tail"
			case outbox.Pending:
				to = max(0, o.Wait).Milliseconds()
			case outbox.Dead:
				to = "dead"
			case outbox.Sent, outbox.Cancelled, outbox.Queued, outbox.Processing:
			}
			changes = append(changes, change{item, to})
		}
		t.mu.Unlock()
		err := c.change(ctx, t, changes)
		t.mu.Lock()
		for _, k := range done { // only after the change: clear would return unknown ids
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

// wait waits for ids, credits or the end of ctx.
func (c *carrier) wait(ctx context.Context, credits outbox.Credits) {
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

// health logs changes of the server's state: unreachable, failing, and back.
type health struct {
	log zerolog.Logger
	mu  sync.Mutex
	bad string // the logged problem; "" while there is none
}

// observe records the result of a call.
func (v *health) observe(worker string, err error) {
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
		v.log.Error().Err(err).Str("transport", "redislist").Str("worker_id", worker).Msg("the carrier returns errors")
	}
}
