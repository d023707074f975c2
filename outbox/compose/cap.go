package compose

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/outbox"
)

// capWait is how long a message waits if messages in flight may fill its cap, or if the count did not
// finish in time.
const (
	capWait   = time.Second
	capSpread = 9 * time.Second
)

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
	left int
	full bool // by sent messages, whatever is in flight
}

// roomInTime counts all pairs in half of the time that ctx leaves. If that does not finish, it
// continues with an eighth of the pairs in half of the remaining time, and so on, so that some messages
// of each batch make progress. The result contains only the counted pairs.
func (c *Composer) roomInTime(ctx context.Context, q channels.Querier, pairs []pair, limits map[pair]channels.Cap,
	here mine) (map[pair]*room, error) {
	counted := make(map[pair]*room, len(pairs))
	deadline, limited := ctx.Deadline()
	for size := len(pairs); len(pairs) > 0; {
		part := pairs[:min(size, len(pairs))]
		began := time.Now()
		try, cancel := ctx, context.CancelFunc(func() {})
		if limited && (len(part) > 1 || len(counted) > 0) {
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
	var n, counted int
	var inFlight, leases []int64
	args := pgx.StrictNamedArgs{
		"channel_ids": ids, "categories": categories, "windows": windows, "span_categories": spanned, "lows": lows, "highs": highs,
	}
	err := db.Each(ctx, q, queries.capCounts, args, []any{&n, &counted, &inFlight, &leases}, func() error {
		p := pairs[n-1]
		r := found[p]
		r.left -= counted
		r.full = r.left <= 0
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
