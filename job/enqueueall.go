package job

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// enqueueAllTimeout bounds the transaction of EnqueueAll.
const enqueueAllTimeout = 30 * time.Second

// Request is a request of several: one job, or with several types a group. The Spec's Type and
// GroupID are not used.
type Request struct {
	Types []string
	Spec  Spec
}

// Requested is what came of a Request.
type Requested struct {
	Jobs []Job // one for each type, in their order
	// Before tells of each whether it was there before, with the same idempotency key.
	Before []bool
}

// RequestError is bad input of one Request among several. Nothing was enqueued.
type RequestError struct {
	Index int // of the Request, from 0
	Err   error
}

// Error is that of Err, with the index before it.
func (e *RequestError) Error() string { return fmt.Sprintf("request %d: %v", e.Index, e.Err) }

func (e *RequestError) Unwrap() error { return e.Err }

// EnqueueAll enqueues every request, in order and in one transaction, or none. Before it is
// committed agree sees what was made; an error of it keeps anything from being enqueued, and is
// the error. Bad input is a *RequestError with an *InvalidError; otherwise as Enqueue. Two calls
// with the same idempotency keys in another order may be a deadlock, of which one is refused and
// can be repeated.
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

// enqueueRequest enqueues one request. A job that is not as old as the transaction was there
// before.
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
	if made.Jobs, err = getEach(ctx, tx, ids); err != nil {
		return made, err
	}
	for _, j := range made.Jobs {
		made.Before = append(made.Before, !j.CreatedAt.Equal(began))
	}
	return made, nil
}
