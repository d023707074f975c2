package jobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// Limits of newEvents.
const (
	// newEventsMost is the number of entries of each timeline that one poll reads.
	newEventsMost = 1_000
	// newEventsLate is how many ids lower than the newest one an entry is found that is
	// committed after it.
	newEventsLate = 200
)

// newEvent is an entry of the timeline of jobs or of everything else.
type newEvent struct {
	job.ControlEvent

	Act bool `db:"act"` // somebody did it; otherwise it is what a run or a schedule does by itself
}

// after reports whether the event is later than a place, by its id.
func (e newEvent) after(place job.ActPosition) bool {
	if e.Subject == job.SubjectJob {
		return e.ID > place.Job
	}
	return e.ID > place.Event
}

// newEvents returns the entries of the two timelines since the previous poll. Ids are assigned before their
// transactions commit, in a different order, so it remembers the last few hundred ids. It can miss entries
// that commit later, or among very many between two polls: it is for live displays, and job.Store.Acts is complete. It
// is for one goroutine at a time.
type newEvents struct {
	after job.ActPosition
	seen  map[newEventKey]struct{} // the ids above after; nil before the first poll
}

type newEventKey struct {
	job bool
	id  int64
}

func (e newEvent) key() newEventKey { return newEventKey{e.Subject == job.SubjectJob, e.ID} }

// poll returns new entries, the oldest first as far as the order is known. The first poll returns the last
// few hundred.
func (n *newEvents) poll(ctx context.Context, pool *pgxpool.Pool) (list []newEvent, err error) {
	limit := newEventsMost
	if n.seen == nil {
		limit = newEventsLate
	}
	err = operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		args := pgx.StrictNamedArgs{"job": n.after.Job, "other": n.after.Event, "limit": limit}
		list, err = db.All[newEvent](ctx, tx, queries.newestEvents, args)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("poll new events: %w", err)
	}
	return n.unseen(list), nil
}

// unseen removes known entries and remembers the others.
func (n *newEvents) unseen(list []newEvent) []newEvent {
	before := n.seen
	for _, e := range list {
		if e.Subject == job.SubjectJob {
			n.after.Job = max(n.after.Job, e.ID-newEventsLate)
		} else {
			n.after.Event = max(n.after.Event, e.ID-newEventsLate)
		}
	}
	n.seen = make(map[newEventKey]struct{})
	fresh := slices.DeleteFunc(slices.Clone(list), func(e newEvent) bool {
		lowest := n.after.Event
		if e.Subject == job.SubjectJob {
			lowest = n.after.Job
		}
		if e.ID > lowest {
			n.seen[e.key()] = struct{}{}
		}
		_, old := before[e.key()]
		return old
	})
	slices.SortStableFunc(fresh, func(a, b newEvent) int { return a.At.Compare(b.At) })
	return fresh
}
