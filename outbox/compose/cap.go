package compose

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// capWait is how long a message waits if messages in flight may fill its cap, or if the count did not
	// finish in time.
	capWait   = time.Second
	capSpread = 9 * time.Second
	// uncountedWait is how long a message waits if its cap cannot be counted.
	uncountedWait   = 30 * time.Second
	uncountedSpread = 30 * time.Second
	// countedAgain is how long a category whose caps cannot be counted is not counted again.
	countedAgain = 20 * time.Second
	// maxJobs is the number of jobs of a category in its window above which its caps are not counted. Looking
	// for one message in each takes half a second.
	maxJobs = 50_000
	// maxActivities is the number of a channel's activities of any category in the window, in addition to the
	// cap, above which the cap is not counted.
	maxActivities = 2_000
)

// uncounted contains the categories whose caps could not be counted, with the time of the next count.
type uncounted struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (u *uncounted) add(category string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.until == nil {
		u.until = make(map[string]time.Time)
	}
	u.until[category] = time.Now().Add(countedAgain)
}

func (u *uncounted) has(category string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	until, known := u.until[category]
	if known && time.Now().After(until) {
		delete(u.until, category)
		known = false
	}
	return known
}

// pair is a channel and a category with a cap.
type pair struct {
	channel  int64
	category string
}

// capped refuses and defers messages beyond a cap, first come, first served within the batch.
func (c *Composer) capped(ctx context.Context, q channels.Querier, b *batch, list []outbox.Composed, turn int64) error {
	var pairs []pair
	limits := make(map[pair]channels.Cap)
	for i := range list {
		out := &list[i]
		limit := b.limit(out)
		if limit == nil {
			continue
		}
		p := pair{out.Claimed.ChannelID, out.Category}
		if _, seen := limits[p]; !seen {
			limits[p] = *limit
			pairs = append(pairs, p)
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	pairs = slices.DeleteFunc(pairs, func(p pair) bool { return c.uncounted.has(p.category) })
	here := mine{turn: turn, keys: make(map[outbox.Key]bool, len(list))}
	for i := range list {
		here.keys[list[i].Claimed.Key] = true
	}
	room, err := c.roomInTime(ctx, q, pairs, limits, here)
	if err != nil {
		return err
	}
	for i := range list {
		out := &list[i]
		if b.limit(out) == nil {
			continue
		}
		r, counted := room[pair{out.Claimed.ChannelID, out.Category}]
		switch {
		case counted && r.full:
			refuse(out, outbox.Cancelled, outbox.ReasonCapped)
		case counted && r.uncounted, c.uncounted.has(out.Category):
			putOff(out, outbox.ReasonUncounted, uncountedWait+time.Duration(c.random()*float64(uncountedSpread)))
		case !counted || r.left <= 0:
			putOff(out, outbox.ReasonCapped, capWait+time.Duration(c.random()*float64(capSpread)))
		default:
			r.left--
		}
	}
	return nil
}

// limit returns the cap of a message, or nil if it has none.
func (b *batch) limit(out *outbox.Composed) *channels.Cap {
	if out.Action != outbox.ActionSend {
		return nil
	}
	return b.contents[out.Claimed.JobID].cap
}

// mine is a batch with its turn and its messages.
type mine struct {
	turn int64
	keys map[outbox.Key]bool
}

// room is the remaining cap of one pair.
type room struct {
	left      int
	full      bool // by sent messages, whatever is in flight
	uncounted bool // there are too many to count
}

// roomInTime counts all pairs in a quarter of the time that ctx leaves. If that does not finish, it
// continues with an eighth of the pairs in half of the remaining time, and so on, so that some messages
// of each batch make progress. It leaves half of the time to the messages without a cap. The result contains
// only the counted pairs. If one pair alone is not counted in time, its category waits.
func (c *Composer) roomInTime(ctx context.Context, q channels.Querier, pairs []pair, limits map[pair]channels.Cap,
	here mine) (map[pair]*room, error) {
	counted := make(map[pair]*room, len(pairs))
	deadline, limited := ctx.Deadline()
	if limited {
		deadline = deadline.Add(-time.Until(deadline) / 2)
	}
	for size := len(pairs); len(pairs) > 0; {
		part := pairs[:min(size, len(pairs))]
		began := time.Now()
		try, cancel := ctx, context.CancelFunc(func() {})
		if limited {
			try, cancel = context.WithTimeout(ctx, deadline.Sub(began)/2)
		}
		found, err := c.room(try, q, part, limits, here)
		late := errors.Is(try.Err(), context.DeadlineExceeded) && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			maps.Copy(counted, found)
			pairs = pairs[len(part):]
			if limited && time.Until(deadline) < 2*time.Since(began) {
				return counted, nil
			}
		case late && len(counted) > 0:
			return counted, nil
		case late && len(part) > 1:
			size = (len(part) + 7) / 8
		case late:
			category := part[0].category
			c.uncounted.add(category)
			pairs = slices.DeleteFunc(pairs, func(p pair) bool { return p.category == category })
		default:
			return nil, err
		}
	}
	return counted, nil
}

// room counts, for all pairs, sent messages and messages in flight.
func (c *Composer) room(ctx context.Context, q channels.Querier, pairs []pair, limits map[pair]channels.Cap,
	here mine) (map[pair]*room, error) {
	var ids, lows, highs []int64
	var categories, spanned []string
	var windows []float64
	found := make(map[pair]*room, len(pairs))
	for _, p := range pairs {
		found[p] = &room{left: limits[p].Max}
		ids, categories, windows = append(ids, p.channel), append(categories, p.category), append(windows, limits[p].Window.Seconds())
	}
	for _, s := range spans(pairs) {
		spanned, lows, highs = append(spanned, s.category), append(lows, s.low), append(highs, s.high)
	}
	var n, counted, most int
	for _, l := range limits {
		most = max(most, l.Max)
	}
	var inFlight, leases []int64
	var manyJobs, manyActivities bool
	args := pgx.StrictNamedArgs{
		"channel_ids": ids, "categories": categories, "windows": windows, "span_categories": spanned, "lows": lows, "highs": highs,
		"jobs": c.maxJobs, "activities": c.maxActivities + most,
	}
	err := db.Each(ctx, q, queries.capCounts, args, []any{&n, &counted, &inFlight, &leases, &manyJobs, &manyActivities}, func() error {
		p := pairs[n-1]
		r := found[p]
		r.left -= counted
		r.full = r.left <= 0
		if r.uncounted = manyJobs || manyActivities; manyJobs {
			c.uncounted.add(p.category)
		}
		for i, id := range inFlight {
			if !here.keys[outbox.Key{JobID: id, ChannelID: p.channel}] && !c.turns.later(leases[i], here.turn) {
				r.left--
			}
		}
		return nil
	})
	return found, err
}

// span is a range of ids that contains the channels of some pairs.
type span struct {
	category  string
	low, high int64
}

// spanGap is the largest distance of two ids in one span. Reading that many messages of a job costs
// about as much as another index scan.
const spanGap = 16

// spans returns a small number of spans that contain every pair.
func spans(pairs []pair) []span {
	sorted := slices.Clone(pairs)
	slices.SortFunc(sorted, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.category, b.category), cmp.Compare(a.channel, b.channel))
	})
	var list []span
	for _, p := range sorted {
		if n := len(list); n > 0 && list[n-1].category == p.category {
			// The distance of two ids may exceed an int64.
			if uint64(p.channel)-uint64(list[n-1].high) <= spanGap { //nolint:gosec // wraps as it should
				list[n-1].high = p.channel
				continue
			}
		}
		list = append(list, span{category: p.category, low: p.channel, high: p.channel})
	}
	return list
}
