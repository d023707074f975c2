package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// storeTimeout bounds each transaction of a Store, so that an operator's command
// ends even when the database does not answer.
const storeTimeout = 15 * time.Second

// rowWait bounds the wait of an act for a row that another session has locked. It is shorter than the
// deadline of the HTTP API, so that callers get the reason.
const rowWait = 5 * time.Second

// serverFirst is the part of storeTimeout in which the server has ended a statement already, and says why.
const serverFirst = time.Second

// Store reads jobs and carries out operators' acts, each in a transaction of its own of at most 15 seconds.
// An act that waits 5 seconds for a row that another session has locked fails with ErrLocked. It is safe for
// concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	cache   AbortCache // nil: none
	limited string     // the requester that belfry.limits binds; empty means that the database role decides
}

// NewStore returns a Store over pool, which stays the caller's to close.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// inTx runs do in one short transaction.
func (s *Store) inTx(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return mapError(db.InTx(ctx, s.pool, db.Options{Limit: storeTimeout - serverFirst, Grace: serverFirst, Wait: rowWait}, do))
}

// change is inTx for a change by an operator; it checks act.If first.
func (s *Store) change(ctx context.Context, act Act, do func(context.Context, pgx.Tx) error) error {
	return s.changes(ctx, act, false, do)
}

// changes is change. The server caches the plans of an act that is made often, as a step of many.
func (s *Store) changes(ctx context.Context, act Act, often bool, do func(context.Context, pgx.Tx) error) error {
	return mapError(db.InTx(ctx, s.pool, db.Options{Limit: storeTimeout - serverFirst, Grace: serverFirst, Wait: rowWait, If: act.If, Often: often}, do))
}

// KeyWait bounds the wait of a request for another transaction with its idempotency key, and so the time for
// which a repeated request occupies a connection.
const KeyWait = 2 * time.Second

// Limited returns a Store whose requests of jobs are bound by belfry.limits as those of a role that may
// INSERT jobs and not UPDATE them, whatever the role may. Errors name who, as "authors".
func (s *Store) Limited(who string) *Store {
	limited := *s
	limited.limited = who
	return &limited
}

// limit binds a transaction's requests of jobs.
func (s *Store) limit(ctx context.Context, tx pgx.Tx) error {
	if s.limited == "" {
		return nil
	}
	_, err := tx.Exec(ctx, queries.jobsLimited, pgx.StrictNamedArgs{"limited": s.limited})
	return err
}

// enqueues is inTx for requests of jobs, which many callers may make many times a second.
func (s *Store) enqueues(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return mapEnqueued(db.InTx(ctx, s.pool,
		db.Options{Limit: storeTimeout, Wait: KeyWait, Often: true}, func(ctx context.Context, tx pgx.Tx) error {
			if err := s.limit(ctx, tx); err != nil {
				return err
			}
			return do(ctx, tx)
		}))
}

// read runs do in one short read-only transaction, which also works on a standby.
func (s *Store) read(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return mapError(db.InTx(ctx, s.pool, db.Options{Limit: storeTimeout, Reads: true}, do))
}

// Get returns one job, or ErrNotFound.
func (s *Store) Get(ctx context.Context, id int64) (j Job, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		j, err = get(ctx, tx, id)
		return err
	})
	return j, err
}

func get(ctx context.Context, tx pgx.Tx, id int64) (Job, error) { return find(ctx, tx, id, true) }

// find reads a job, versioned or without its Version.
func find(ctx context.Context, tx pgx.Tx, id int64, versioned bool) (Job, error) {
	j, err := db.One[Job](ctx, tx, queries.jobGet, pgx.StrictNamedArgs{"id": id, "versioned": versioned})
	if errors.Is(err, pgx.ErrNoRows) {
		return Job{}, fmt.Errorf("job %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return Job{}, fmt.Errorf("job %d: %w", id, err)
	}
	return j, nil
}

// Summaries reads the jobs of these ids that there are, by id, in one statement. They have no Body, Data and Variants,
// and at most ten entries of a list of channels.
func (s *Store) Summaries(ctx context.Context, ids []int64) (list []Job, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		list, err = getAll(ctx, tx, ids, true)
		return err
	})
	return list, err
}

// Summary is Summaries of one job, or ErrNotFound.
func (s *Store) Summary(ctx context.Context, id int64) (Job, error) {
	list, err := s.Summaries(ctx, []int64{id})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("job %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return Job{}, err
	}
	return list[0], nil
}

// summary returns the job as Summaries does.
func (j Job) summary() Job {
	j.Body, j.Data, j.Variants = "", json.RawMessage("{}"), json.RawMessage("{}")
	j.Audience.IDs = slices.Clone(j.Audience.IDs[:min(10, len(j.Audience.IDs))])
	j.Audience.ExternalIDs = slices.Clone(j.Audience.ExternalIDs[:min(10, len(j.Audience.ExternalIDs))])
	return j
}

func getAll(ctx context.Context, tx pgx.Tx, ids []int64, summary bool) (list []Job, err error) {
	if list, err = db.All[Job](ctx, tx, queries.jobGetAll, pgx.StrictNamedArgs{"ids": ids, "summary": summary}); err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	slices.Reverse(list)
	return list, nil
}

// FirstOfGroups returns the lowest job id of each group, which people use as its name.
func (s *Store) FirstOfGroups(ctx context.Context, groups []uuid.UUID) (first map[uuid.UUID]int64, err error) {
	first = make(map[uuid.UUID]int64, len(groups))
	if len(groups) == 0 {
		return first, nil
	}
	ids := make([]string, len(groups)) // plain strings: pgx's exec and simple modes know no other
	for i, group := range groups {
		ids[i] = group.String()
	}
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var group uuid.UUID
		var id int64
		err = db.Each(ctx, tx, queries.groupsFirst, pgx.StrictNamedArgs{"groups": ids}, []any{&group, &id}, func() error {
			first[group] = id
			return nil
		})
		if err != nil {
			return fmt.Errorf("read groups: %w", err)
		}
		return nil
	})
	return first, err
}

// Events returns a job's timeline after event afterID (0: from the start), oldest
// first, at most limit entries (0: 1,000). ErrNotFound when there is no such job.
func (s *Store) Events(ctx context.Context, id, afterID int64, limit int) (list []Event, err error) {
	if limit <= 0 {
		limit = 1000
	}
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := get(ctx, tx, id); err != nil {
			return err
		}
		args := pgx.StrictNamedArgs{"job_id": id, "after_id": afterID, "limit": limit}
		if list, err = db.All[Event](ctx, tx, queries.jobEvents, args); err != nil {
			return fmt.Errorf("events of job %d: %w", id, err)
		}
		return nil
	})
	return list, err
}

// LastEvent returns a job's newest event of one kind, such as EventAborted, or nil if there is none.
func (s *Store) LastEvent(ctx context.Context, id int64, kind string) (last *Event, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		args := pgx.StrictNamedArgs{"job_id": id, "kind": kind}
		list, err := db.Collect(ctx, tx, queries.jobEventLast, args, pgx.RowToAddrOfStructByName[Event])
		if err != nil {
			return fmt.Errorf("events of job %d: %w", id, err)
		}
		if len(list) > 0 {
			last = list[0]
		}
		return nil
	})
	return last, err
}

// HasCeiling reports whether a job of a category that asks for no max_recipients gets one of at most
// n, by its category or by the limits of who inserts it.
func (s *Store) HasCeiling(ctx context.Context, category string, n int) (has bool, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.jobHasCeiling, pgx.StrictNamedArgs{"category": category, "most": n, "limited": s.limited != ""}).Scan(&has)
	})
	if err != nil {
		return false, fmt.Errorf("read the ceiling of category %q: %w", category, err)
	}
	return has, nil
}

// Now is the database's clock, in UTC.
func (s *Store) Now(ctx context.Context) (t time.Time, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, queries.serverClock).Scan(&t) })
	if err != nil {
		return t, fmt.Errorf("read the database's clock: %w", err)
	}
	return t.UTC(), nil
}
