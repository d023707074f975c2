package job

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Limits of NewEvents.
const (
	// newEventsMost is the number of entries of each timeline that one poll reads.
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

// NewEvents returns the entries of the two timelines since the previous poll. Ids are assigned before their
// transactions commit, in a different order, so it remembers the last few hundred ids. It can miss entries
// that commit later, or among very many between two polls: it is for live displays, and Acts is complete. It
// is for one goroutine at a time.
type NewEvents struct {
	after ActPosition
	seen  map[newEventKey]struct{} // the ids above after; nil before the first poll
}

type newEventKey struct {
	job bool
	id  int64
}

func (e NewEvent) key() newEventKey { return newEventKey{e.Subject == SubjectJob, e.ID} }

// Poll returns new entries, the oldest first as far as the order is known. The first poll returns the last
// few hundred.
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
		return nil, fmt.Errorf("poll new events: %w", err)
	}
	return n.unseen(list), nil
}

// unseen removes known entries and remembers the others.
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
