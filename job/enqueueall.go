package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// enqueueAllTimeout bounds the transaction of EnqueueAll.
const enqueueAllTimeout = 30 * time.Second

// Request is one request of EnqueueAll: one job, or a group if it has several types. The Spec's Type and
// GroupID are not used.
type Request struct {
	Types []string
	Spec  Spec
}

// Requested is the result of a Request.
type Requested struct {
	Jobs []Job // one for each type, in their order
	// Before reports for each job whether it existed already, with the same idempotency key.
	Before []bool
}

// RequestError is invalid input of one Request among several. Nothing was enqueued.
type RequestError struct {
	Index int // of the Request, from 0
	Err   error
}

// Error returns the text of Err after the index.
func (e *RequestError) Error() string { return fmt.Sprintf("request %d: %v", e.Index, e.Err) }

func (e *RequestError) Unwrap() error { return e.Err }

// EnqueueAll enqueues all requests in order in one transaction, or none. It calls agree with the jobs before
// the commit; an error of agree rolls everything back and is returned. Invalid input is a *RequestError with
// an *InvalidError. Otherwise it is like Enqueue. Two calls with the same idempotency keys in different
// order can deadlock; one of them then fails and can be repeated.
func (s *Store) EnqueueAll(ctx context.Context, requests []Request, agree func([]Requested) error) (made []Requested, err error) {
	err = db.InTx(ctx, s.pool, db.Options{Limit: enqueueAllTimeout, Wait: KeyWait, Often: true}, func(ctx context.Context, tx pgx.Tx) error {
		made = make([]Requested, len(requests))
		if err := s.limit(ctx, tx); err != nil {
			return err
		}
		var began time.Time
		if err := tx.QueryRow(ctx, queries.txClock).Scan(&began); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
		for i, r := range requests {
			if made[i], err = enqueueRequest(ctx, tx, r, began); err != nil {
				return &RequestError{i, mapEnqueued(err)}
			}
		}
		return agree(made)
	})
	if err != nil {
		return nil, mapEnqueued(err)
	}
	return made, nil
}

// enqueueRequest enqueues one request. A job that is older than the transaction existed before.
func enqueueRequest(ctx context.Context, tx pgx.Tx, r Request, began time.Time) (made Requested, err error) {
	ids := make([]int64, 1)
	if len(r.Types) == 1 {
		r.Spec.Type, r.Spec.GroupID = r.Types[0], nil
		ids[0], err = EnqueueTx(ctx, tx, r.Spec)
	} else {
		ids, err = EnqueueGroupTx(ctx, tx, r.Types, r.Spec)
	}
	if err != nil {
		return made, err
	}
	if made.Jobs, err = getAll(ctx, tx, ids, false); err != nil {
		return made, err
	}
	slices.SortFunc(made.Jobs, func(a, b Job) int { return cmp.Compare(slices.Index(ids, a.ID), slices.Index(ids, b.ID)) })
	for _, j := range made.Jobs {
		made.Before = append(made.Before, !j.CreatedAt.Equal(began))
	}
	return made, nil
}
