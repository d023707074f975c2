package job

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// SubjectJob is the Subject of a ControlEvent that is an act on a job.
const SubjectJob = "job"

// actsLookedAt is how many entries of each of the two timelines Acts looks at for one page.
const actsLookedAt = 2_000

// ActFilter selects acts, by everything that is given.
type ActFilter struct {
	Subject string     // "": acts on anything
	Actor   string     // "": anybody's
	Since   *time.Time // nil: from the first
	Before  ActPosition
	Limit   int // 0: 100
}

// ActPosition is a place in the two timelines that Acts goes through: what comes next has ids
// below these. 0 is the end of a timeline, where the newest is; negative: nothing comes any more.
type ActPosition struct {
	Job   int64 // of belfry.job_events
	Event int64 // of belfry.events
}

// acts is one of the timelines, newest first, as far as it was looked at.
type acts struct {
	list  []ControlEvent // that pass the filter
	after int64          // the id that was looked at last; 0: all were
}

// Acts returns who did what to whatever there is, newest first: the acts on jobs, that they were
// enqueued included, and all events of other things but what schedules did by the clock. next is
// where the page after this one begins, the zero value when there is none. A page looks at a bounded
// number of entries, so it may be short, or have nothing, although there is a next one.
func (s *Store) Acts(ctx context.Context, f ActFilter) (list []ControlEvent, next ActPosition, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	var ofJobs, others acts
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if f.Subject == "" || f.Subject == SubjectJob {
			if ofJobs, err = actsOf(ctx, tx, queries.jobActs, f, f.Before.Job, pgx.StrictNamedArgs{}); err != nil {
				return err
			}
		}
		if f.Subject != SubjectJob {
			others, err = actsOf(ctx, tx, queries.otherActs, f, f.Before.Event, pgx.StrictNamedArgs{"subject": f.Subject})
		}
		return err
	})
	if err != nil {
		return nil, next, err
	}
	list, next = merge(ofJobs, others, f.Limit)
	return list, next, nil
}

// actsOf reads one timeline below an id; 0: from its end, negative: there is nothing more. args are
// those of this timeline alone.
func actsOf(ctx context.Context, tx pgx.Tx, statement string, f ActFilter, before int64, args pgx.StrictNamedArgs) (a acts, err error) {
	if before < 0 {
		return a, nil
	}
	if before == 0 {
		before = math.MaxInt64
	}
	args["before"], args["looks"], args["actor"], args["since"], args["limit"] = before, actsLookedAt, f.Actor, f.Since, f.Limit+1
	rows, err := tx.Query(ctx, statement, args)
	if err != nil {
		return a, fmt.Errorf("list acts: %w", err)
	}
	var e ControlEvent
	_, err = pgx.ForEachRow(rows, []any{&a.after, &e.ID, &e.At, &e.Subject, &e.Name, &e.Kind, &e.Actor, &e.Reason, &e.Detail}, func() error {
		if e.ID != 0 {
			e.Detail = slices.Clone(e.Detail)
			a.list = append(a.list, e)
		}
		return nil
	})
	if err != nil {
		return acts{}, fmt.Errorf("list acts: %w", err)
	}
	if len(a.list) > f.Limit { // what comes after the first left out was not asked for
		a.after = a.list[len(a.list)-1].ID
	}
	return a, nil
}

// merge puts the acts of both timelines into one order, as far as it is known: one that was not
// looked at to its end may go on with what is newer than the other's next. Within a timeline the
// order is that of the ids, so that a page begins where the one before has ended.
func merge(jobs, others acts, limit int) (list []ControlEvent, next ActPosition) {
	from := [2]*acts{&jobs, &others}
	var taken [2]int
	for len(list) < limit {
		newest := -1
		for i, a := range from {
			if taken[i] == len(a.list) {
				if a.after > 0 {
					newest = -1
					break
				}
				continue
			}
			if newest < 0 || a.list[taken[i]].At.After(from[newest].list[taken[newest]].At) {
				newest = i
			}
		}
		if newest < 0 {
			break
		}
		list = append(list, from[newest].list[taken[newest]])
		taken[newest]++
	}
	ends := [2]int64{-1, -1}
	for i, a := range from {
		switch {
		case taken[i] < len(a.list):
			ends[i] = a.list[taken[i]].ID + 1
		case a.after > 0:
			ends[i] = a.after
		}
	}
	if ends == [2]int64{-1, -1} {
		return list, ActPosition{}
	}
	return list, ActPosition{Job: ends[0], Event: ends[1]}
}
