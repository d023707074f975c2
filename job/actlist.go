package job

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// SubjectJob is the Subject of ControlEvents for acts on jobs.
const SubjectJob = "job"

// actsExamined is the number of entries of each timeline that Acts examines for one page.
const actsExamined = 2_000

// ActFilter selects acts that match all given fields.
type ActFilter struct {
	Subject string     // "" means all subjects
	Actor   string     // "" means all actors
	Kind    string     // "" means all kinds
	Since   *time.Time // nil means from the first act
	Before  ActPosition
	Limit   int // 0 means 100
}

// ActPosition is a position in the two timelines that Acts merges: the next page has ids below these. Zero
// is the newest end of a timeline; a negative value means that the timeline is exhausted.
type ActPosition struct {
	Job   int64 // of belfry.job_events
	Event int64 // of belfry.events
}

// acts is the examined part of one timeline, newest first.
type acts struct {
	list  []ControlEvent // that pass the filter
	after int64          // the last examined id; 0 if all were
}

// Acts returns the acts of all actors, newest first: acts on jobs, including enqueuing, and all events of
// other subjects except scheduled firings. next is the position of the next page, or the zero value if this
// is the last. A page examines a bounded number of entries, so it may be short or empty although there is a
// next page.
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

// actsOf reads one timeline below an id. Zero means from its newest end, a negative id that it is exhausted.
// args are the arguments of this timeline.
func actsOf(ctx context.Context, tx pgx.Tx, statement string, f ActFilter, before int64, args pgx.StrictNamedArgs) (a acts, err error) {
	if before < 0 {
		return a, nil
	}
	if before == 0 {
		before = math.MaxInt64
	}
	args["before"], args["looks"], args["actor"], args["kind"] = before, actsExamined, f.Actor, f.Kind
	args["since"], args["limit"] = f.Since, f.Limit+1
	var e ControlEvent
	scans := []any{&a.after, &e.ID, &e.At, &e.Subject, &e.Name, &e.Kind, &e.Actor, &e.Reason, &e.Detail}
	err = db.Each(ctx, tx, statement, args, scans, func() error {
		if e.ID != 0 {
			e.Detail = slices.Clone(e.Detail)
			a.list = append(a.list, e)
		}
		return nil
	})
	if err != nil {
		return acts{}, fmt.Errorf("list acts: %w", err)
	}
	if len(a.list) > f.Limit { // the page ends here
		a.after = a.list[len(a.list)-1].ID
	}
	return a, nil
}

// merge merges both timelines by time, up to the point where the order is known: an incompletely examined
// timeline may continue with acts that are newer than the other's next act. Within a timeline the ids
// determine the order, so that pages are contiguous.
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
