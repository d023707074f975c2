package job

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Limits of NewEvents.
const (
	// newEventsMost is how many entries of each timeline one look reads.
	newEventsMost = 1_000
	// newEventsLate is how many ids lower than the newest one an entry is found that is
	// committed after it.
	newEventsLate = 200
)

// NewEvent is an entry of the timeline of jobs or of everything else.
type NewEvent struct {
	ControlEvent

	Act bool `db:"act"` // somebody did it; otherwise it is what a run or a schedule does by itself
}

// After reports whether the event is later than a place, by its id.
func (e NewEvent) After(place ActPosition) bool {
	if e.Subject == SubjectJob {
		return e.ID > place.Job
	}
	return e.ID > place.Event
}

// NewEvents finds what was written into the two timelines since it looked last. Ids are given out
// before their transactions commit, in another order, so it remembers what it has seen of the last
// few hundred. What commits later than that, or as one of very many between two looks, it does not
// find: it tells people what goes on, and Acts has everything. It is for one goroutine at a time.
type NewEvents struct {
	after ActPosition
	seen  map[newEventKey]struct{} // of what is above after; nil: it has not looked yet
}

type newEventKey struct {
	job bool
	id  int64
}

func (e NewEvent) key() newEventKey { return newEventKey{e.Subject == SubjectJob, e.ID} }

// Look returns what is new, the oldest first as far as the order is known. The first look returns
// the last few hundred.
func (n *NewEvents) Poll(ctx context.Context, s *Store) (list []NewEvent, err error) {
	limit := newEventsMost
	if n.seen == nil {
		limit = newEventsLate
	}
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.newestEvents, pgx.StrictNamedArgs{"job": n.after.Job, "other": n.after.Event, "limit": limit})
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[NewEvent])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for new events: %w", err)
	}
	return n.unseen(list), nil
}

// unseen leaves out what was seen before, and remembers the rest.
func (n *NewEvents) unseen(list []NewEvent) []NewEvent {
	before := n.seen
	for _, e := range list {
		if e.Subject == SubjectJob {
			n.after.Job = max(n.after.Job, e.ID-newEventsLate)
		} else {
			n.after.Event = max(n.after.Event, e.ID-newEventsLate)
		}
	}
	n.seen = make(map[newEventKey]struct{})
	fresh := slices.DeleteFunc(slices.Clone(list), func(e NewEvent) bool {
		lowest := n.after.Event
		if e.Subject == SubjectJob {
			lowest = n.after.Job
		}
		if e.ID > lowest {
			n.seen[e.key()] = struct{}{}
		}
		_, old := before[e.key()]
		return old
	})
	slices.SortStableFunc(fresh, func(a, b NewEvent) int { return a.At.Compare(b.At) })
	return fresh
}
