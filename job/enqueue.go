package job

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job/governor"
)

// Spec is a request for one job. Zero values mean the database's defaults: the default lane, priority 0,
// scheduled now, delivered at once, requested by the session's user, everyone as the audience.
type Spec struct {
	Type             string // a registered job type: inbox, push, or the user's own
	Category         string // popular_content, question_content, operator_notice, or the user's own
	Title            string // 1 to 200 characters; a template, as the body: see package outbox/compose
	Body             string // up to 10,000 characters
	Data             json.RawMessage
	Variants         json.RawMessage // titles and bodies by locale: {"ko": {"title": "…", "body": "…"}}
	Route            []string        // the media of its messages, in order of use; nil means the category's route
	Audience         channels.Audience
	Lane             string
	Priority         int        // -1000 to 1000, higher is more urgent
	ScheduleAt       *time.Time // not before this instant; nil means now
	DeliverAt        *time.Time // messages are due then; nil means at once
	ExpiresAt        *time.Time // a job not started by then is EXPIRED; nil means never
	MaxRecipients    *int       // the walk stops before it writes more rows; nil means the category's ceiling
	MaxRowsPerSecond *int       // the rows that its walk writes per second at most; 0 means no limit, nil the runner's setting
	NeedsApproval    bool       // a second person must approve it; false means as the category requires
	IdempotencyKey   string     // with the type, makes a repeated enqueue return the first job
	GroupID          *uuid.UUID
	RequestedBy      string
}

// MostRecipients is the highest ceiling that a job can have.
const MostRecipients = 2_000_000_000

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
		return nil, &InvalidError{Column: "priority",
			Message: fmt.Sprintf("belfry.jobs.priority: %d is not allowed; allowed values: -1000 to 1000, higher is more urgent", s.Priority)}
	}
	if s.MaxRecipients != nil && (*s.MaxRecipients < 1 || *s.MaxRecipients > MostRecipients) {
		return nil, &InvalidError{Column: "max_recipients",
			Message: fmt.Sprintf("belfry.jobs.max_recipients: %d is not allowed; allowed values: null (the category's ceiling), 1 to %d",
				*s.MaxRecipients, MostRecipients)}
	}
	if n := s.MaxRowsPerSecond; n != nil && (*n < 0 || *n > governor.MostRowsPerSecond) {
		return nil, &InvalidError{Column: "max_rows_per_second",
			Message: fmt.Sprintf("belfry.jobs.max_rows_per_second: %d is not allowed; "+
				"allowed values: null (the runner's setting), 0 (no limit) to %d", *n, governor.MostRowsPerSecond)}
	}
	if s.Data != nil && !json.Valid(s.Data) {
		return nil, &InvalidError{Column: "data",
			Message: "belfry.jobs.data: is not valid JSON; allowed values: JSON objects of up to 16384 bytes"}
	}
	if s.Variants != nil && !json.Valid(s.Variants) {
		return nil, &InvalidError{Column: "variants",
			Message: "belfry.jobs.variants: is not valid JSON; " +
				`allowed values: JSON objects of up to 131072 bytes, as {"ko": {"title": "…", "body": "…"}}`}
	}
	return pgx.StrictNamedArgs{
		"variants": optional(string(s.Variants)), "route": s.Route,
		"category": s.Category, "title": s.Title, "body": s.Body, "audience": string(encoded), "data": optional(string(s.Data)),
		"schedule_at": s.ScheduleAt, "deliver_at": s.DeliverAt, "expires_at": s.ExpiresAt, "lane": optional(s.Lane), "priority": s.Priority,
		"max_recipients": s.MaxRecipients, "max_rows_per_second": s.MaxRowsPerSecond, "needs_approval": s.NeedsApproval,
		"idempotency_key": optional(s.IdempotencyKey),
		"requested_by":    optional(s.RequestedBy),
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
	if err := tx.QueryRow(ctx, queries.jobEnqueue, args).Scan(&id); err != nil {
		return 0, fmt.Errorf("enqueue: %w", mapEnqueued(err))
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
	ids, err := db.Column[int64](ctx, tx, queries.jobEnqueueGroup, args)
	if err != nil {
		return nil, fmt.Errorf("enqueue group: %w", mapEnqueued(err))
	}
	return ids, nil
}

// Enqueue is EnqueueTx in a transaction of its own. When the error is
// ErrUnreachable the job may have been enqueued: repeat with an IdempotencyKey.
func (s *Store) Enqueue(ctx context.Context, spec Spec) (id int64, err error) {
	err = s.enqueues(ctx, func(ctx context.Context, tx pgx.Tx) error {
		id, err = EnqueueTx(ctx, tx, spec)
		return err
	})
	return id, err
}

// EnqueueGroup is EnqueueGroupTx in a transaction of its own.
func (s *Store) EnqueueGroup(ctx context.Context, types []string, spec Spec) (ids []int64, err error) {
	err = s.enqueues(ctx, func(ctx context.Context, tx pgx.Tx) error {
		ids, err = EnqueueGroupTx(ctx, tx, types, spec)
		return err
	})
	return ids, err
}
