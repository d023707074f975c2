package job

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Filter selects jobs. Zero fields match everything.
type Filter struct {
	Statuses []Status
	Type     string
	Category string
	Lane     string
	GroupID  *uuid.UUID
	Awaiting bool       // only those that wait for approval
	Text     string     // only those whose title contains it, in any case
	Since    *time.Time // only those that were requested then or later, by the beginning of the transaction; nil: all
	Until    *time.Time // only those that were requested before; nil: all
	BeforeID int64      // only older jobs: for paging; 0: from the newest
	Limit    int        // at most this many; 0: 100
	Summary  bool       // without contents, as by Summaries; not with Awaiting
}

// pageLooks is the maximum number of the newest jobs of each status that a page examines by each of its
// filters.
const pageLooks = 1000

// List returns the jobs that f selects, newest first. See Page.
func (s *Store) List(ctx context.Context, f Filter) (list []Job, err error) {
	f.Limit = cmp.Or(f.Limit, 100)
	for wanted := f.Limit; ; f.Limit = wanted - len(list) {
		page, lookedTo, err := s.Page(ctx, f)
		if err != nil {
			return nil, err
		}
		if list = append(list, page...); lookedTo == 0 {
			return list, nil
		}
		f.BeforeID = lookedTo
	}
}

// Page is List for interactive use: it examines a bounded number of jobs, because many jobs may pass each of
// several filters, but few or none all of them, and ends after 16 MB of rows. If it finds fewer than Limit, possibly none,
// lookedTo is the lowest examined id, and the next call continues with that as BeforeID. Otherwise it is 0.
func (s *Store) Page(ctx context.Context, f Filter) (list []Job, lookedTo int64, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		args := f.args()
		if f.Since != nil || f.Until != nil {
			var lowest, beyond int64
			if err := tx.QueryRow(ctx, queries.jobSpan, pgx.StrictNamedArgs{"since": f.Since, "until": f.Until}).Scan(&lowest, &beyond); err != nil {
				return fmt.Errorf("list jobs: %w", err)
			}
			before, _ := args["before_id"].(int64)
			args["lowest"], args["before_id"] = lowest, min(before, beyond)
		}
		statement := queries.jobsAwaiting // which are few, whatever they are filtered by
		if f.Awaiting {
			args["limit"] = cmp.Or(f.Limit, 100)
		} else {
			var ids []int64
			var err error
			if ids, lookedTo, err = f.looked(ctx, tx, args); err != nil {
				return fmt.Errorf("list jobs: %w", err)
			}
			statement, args = queries.jobGetAll, pgx.StrictNamedArgs{"ids": ids, "summary": f.Summary}
		}
		rows, err := tx.Query(ctx, statement, args)
		if err != nil {
			return fmt.Errorf("list jobs: %w", err)
		}
		var more bool
		if list, more, err = firstOf(rows); err != nil {
			return fmt.Errorf("list jobs: %w", err)
		}
		if more {
			lookedTo = list[len(list)-1].ID
		}
		return nil
	})
	return list, lookedTo, err
}

// pageBytes is the size of the rows after which a page ends. A job has up to 1.2 MB.
const pageBytes = 16 << 20

// firstOf returns the first rows up to pageBytes, at least one, and whether there are more.
func firstOf(rows pgx.Rows) (list []Job, more bool, err error) {
	defer rows.Close()
	for size := 0; rows.Next(); {
		for _, value := range rows.RawValues() {
			size += len(value)
		}
		if size > pageBytes && len(list) > 0 {
			return list, true, nil
		}
		j, err := pgx.RowToStructByName[Job](rows)
		if err != nil {
			return nil, false, err
		}
		list = append(list, j)
	}
	return list, false, rows.Err()
}

// args are those that JobsLooked and JobsAwaiting share.
func (f Filter) args() pgx.StrictNamedArgs {
	wanted := f.Statuses
	if len(wanted) == 0 {
		wanted = Statuses()
	}
	statuses := make([]string, len(wanted)) // plain strings: pgx's exec and simple modes know no other
	for i, status := range wanted {
		statuses[i] = string(status)
	}
	args := pgx.StrictNamedArgs{
		"before_id": int64(math.MaxInt64), "statuses": statuses, "type": optional(f.Type), "category": optional(f.Category),
		"lane": optional(f.Lane), "text": optional(f.Text), "group_id": f.GroupID, "lowest": int64(1), "since": f.Since, "until": f.Until,
	}
	if f.BeforeID > 0 {
		args["before_id"] = f.BeforeID
	}
	return args
}

// indexed returns the filters that an index serves together with the status. No index serves several.
func (f Filter) indexed() (by []string) {
	if f.GroupID != nil { // a group is small
		return []string{"group"}
	}
	for _, filter := range []struct{ name, value string }{{"lane", f.Lane}, {"category", f.Category}, {"type", f.Type}} {
		if filter.value != "" {
			by = append(by, filter.name)
		}
	}
	if len(by) == 0 {
		by = []string{"status"}
	}
	return by
}

// looked returns the ids of a page: the jobs that pass all filters, out of the jobs that pass one filter. It
// uses the filter that reaches the last job, or the lowest id. Most pages are full after the first query.
func (f Filter) looked(ctx context.Context, tx pgx.Tx, args pgx.StrictNamedArgs) (ids []int64, lookedTo int64, err error) {
	limit := cmp.Or(f.Limit, 100)
	most := max(limit, pageLooks)
	for looks := limit; ; looks = min(5*looks, most) {
		lookedTo = math.MaxInt64
		for _, by := range f.indexed() {
			args["by"], args["looks"] = by, looks
			rows, err := tx.Query(ctx, queries.jobsLooked, args)
			if err != nil {
				return nil, 0, err
			}
			var passed []int64
			var id int64
			var passes bool
			seen, err := pgx.ForEachRow(rows, []any{&id, &passes}, func() error {
				if passes {
					passed = append(passed, id)
				}
				return nil
			})
			if err != nil {
				return nil, 0, err
			}
			if seen.RowsAffected() < int64(looks) { // these are all there are
				return passed[:min(len(passed), limit)], 0, nil
			}
			if id < lookedTo {
				ids, lookedTo = passed, id
			}
		}
		switch {
		case len(ids) >= limit:
			return ids[:limit], 0, nil
		case looks == most:
			return ids, lookedTo, nil
		}
	}
}
