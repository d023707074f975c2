package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
)

// Spec is a request for one job. Zero values take the database's defaults: the
// default lane, priority 0, scheduled now, delivered at once, requested by the
// session's user, everyone as the audience.
type Spec struct {
	Type           string // a registered job type: inbox, push, or the user's own
	Category       string // popular_content, question_content, operator_notice, or the user's own
	Title          string // 1 to 200 characters
	Body           string // up to 10,000 characters
	Data           json.RawMessage
	Audience       channels.Audience
	Lane           string
	Priority       int        // -1000 to 1000, higher is more urgent
	ScheduleAt     *time.Time // not before this instant; nil: now
	DeliverAt      *time.Time // messages are due then; nil: as soon as they are written
	IdempotencyKey string     // with the type, makes a repeated enqueue return the first job
	GroupID        *uuid.UUID
	RequestedBy    string
}

func (s Spec) args() (pgx.StrictNamedArgs, error) {
	audience := s.Audience
	if audience.Kind == "" {
		audience = channels.Everyone()
	}
	encoded, err := json.Marshal(audience)
	if err != nil {
		return nil, &InvalidError{Column: "audience", Message: "belfry.jobs.audience: " + err.Error()}
	}
	if s.Priority < math.MinInt32 || s.Priority > math.MaxInt32 {
		return nil, &InvalidError{Column: "priority", Message: fmt.Sprintf("belfry.jobs.priority: %d is not allowed; allowed values: -1000 to 1000, higher is more urgent", s.Priority)}
	}
	if s.Data != nil && !json.Valid(s.Data) {
		return nil, &InvalidError{Column: "data", Message: "belfry.jobs.data: is not valid JSON; allowed values: JSON objects of up to 16384 bytes"}
	}
	return pgx.StrictNamedArgs{
		"category": s.Category, "title": s.Title, "body": s.Body, "audience": string(encoded), "data": optional(string(s.Data)),
		"schedule_at": s.ScheduleAt, "deliver_at": s.DeliverAt, "lane": optional(s.Lane), "priority": s.Priority,
		"idempotency_key": optional(s.IdempotencyKey), "requested_by": optional(s.RequestedBy),
	}, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// EnqueueTx inserts one job in the caller's transaction and returns its id. The
// job exists, and can be claimed, when that transaction commits. Bad input is an
// *InvalidError, and the caller's transaction is then aborted as after any SQL
// error. It is safe to repeat with the same IdempotencyKey.
func EnqueueTx(ctx context.Context, tx pgx.Tx, s Spec) (int64, error) {
	args, err := s.args()
	if err != nil {
		return 0, fmt.Errorf("enqueue: %w", err)
	}
	args["type"], args["group_id"] = s.Type, s.GroupID
	var id int64
	if err := tx.QueryRow(ctx, queries.SQL("JobEnqueue"), args).Scan(&id); err != nil {
		return 0, fmt.Errorf("enqueue: %w", mapError(err))
	}
	return id, nil
}

// EnqueueGroupTx inserts one job per type under one new group id, all with the
// content of s (whose Type and GroupID are not used), and returns their ids in the
// order of types. Otherwise it is EnqueueTx.
func EnqueueGroupTx(ctx context.Context, tx pgx.Tx, types []string, s Spec) ([]int64, error) {
	args, err := s.args()
	if err != nil {
		return nil, fmt.Errorf("enqueue group: %w", err)
	}
	args["types"] = types
	rows, err := tx.Query(ctx, queries.SQL("JobEnqueueGroup"), args)
	if err != nil {
		return nil, fmt.Errorf("enqueue group: %w", mapError(err))
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("enqueue group: %w", mapError(err))
	}
	return ids, nil
}

// storeTimeout bounds each transaction of a Store, so that an operator's command
// ends even when the database does not answer.
const storeTimeout = 15 * time.Second

// Store reads jobs and carries out operators' acts, each in a transaction of its
// own that takes 15 seconds at the most; one that waits 12 seconds for a row that
// another session keeps locked is ErrLocked. It is safe for concurrent use.
type Store struct{ pool *pgxpool.Pool }

// NewStore returns a Store over pool, which stays the caller's to close.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// inTx runs do in one short transaction.
func (s *Store) inTx(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return mapError(shortTx(ctx, s.pool, storeTimeout, do))
}

// Enqueue is EnqueueTx in a transaction of its own. When the error is
// ErrUnreachable the job may have been enqueued: repeat with an IdempotencyKey.
func (s *Store) Enqueue(ctx context.Context, spec Spec) (id int64, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		id, err = EnqueueTx(ctx, tx, spec)
		return err
	})
	return id, err
}

// EnqueueGroup is EnqueueGroupTx in a transaction of its own.
func (s *Store) EnqueueGroup(ctx context.Context, types []string, spec Spec) (ids []int64, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		ids, err = EnqueueGroupTx(ctx, tx, types, spec)
		return err
	})
	return ids, err
}

// Get returns one job, or ErrNotFound.
func (s *Store) Get(ctx context.Context, id int64) (j Job, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		j, err = get(ctx, tx, id)
		return err
	})
	return j, err
}

func get(ctx context.Context, tx pgx.Tx, id int64) (Job, error) {
	rows, err := tx.Query(ctx, queries.SQL("JobGet"), pgx.StrictNamedArgs{"id": id})
	if err != nil {
		return Job{}, fmt.Errorf("job %d: %w", id, err)
	}
	j, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Job])
	if errors.Is(err, pgx.ErrNoRows) {
		return Job{}, fmt.Errorf("job %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return Job{}, fmt.Errorf("job %d: %w", id, err)
	}
	return j, nil
}

// Filter selects jobs. Zero fields match everything.
type Filter struct {
	Statuses []Status
	Type     string
	Category string
	Lane     string
	GroupID  *uuid.UUID
	BeforeID int64 // only older jobs: for paging; 0: from the newest
	Limit    int   // at most this many; 0: 100
}

// List returns the jobs that f selects, newest first.
func (s *Store) List(ctx context.Context, f Filter) (list []Job, err error) {
	var statuses []string // plain strings: pgx's exec and simple modes know no other
	for _, status := range f.Statuses {
		statuses = append(statuses, string(status))
	}
	args := pgx.StrictNamedArgs{
		"before_id": int64(1<<63 - 1), "statuses": statuses, "type": optional(f.Type), "category": optional(f.Category),
		"lane": optional(f.Lane), "group_id": f.GroupID, "limit": 100,
	}
	if f.BeforeID > 0 {
		args["before_id"] = f.BeforeID
	}
	if f.Limit > 0 {
		args["limit"] = f.Limit
	}
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.SQL("JobList"), args)
		if err != nil {
			return fmt.Errorf("list jobs: %w", err)
		}
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByName[Job]); err != nil {
			return fmt.Errorf("list jobs: %w", err)
		}
		return nil
	})
	return list, err
}

// Events returns a job's timeline after event afterID (0: from the start), oldest
// first, at most limit entries (0: 1,000). ErrNotFound when there is no such job.
func (s *Store) Events(ctx context.Context, id, afterID int64, limit int) (list []Event, err error) {
	if limit <= 0 {
		limit = 1000
	}
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := get(ctx, tx, id); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, queries.SQL("JobEvents"), pgx.StrictNamedArgs{"job_id": id, "after_id": afterID, "limit": limit})
		if err != nil {
			return fmt.Errorf("events of job %d: %w", id, err)
		}
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByName[Event]); err != nil {
			return fmt.Errorf("events of job %d: %w", id, err)
		}
		return nil
	})
	return list, err
}
