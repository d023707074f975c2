package job

import (
	_ "embed"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/sqlfile"
)

//go:embed queries.sql
var queriesSQL string

var queries = sqlfile.MustParse(queriesSQL)

// Job is one row of belfry.jobs: one bulk-notification request and how far it
// got. Instants are the database's, in UTC.
type Job struct {
	ID             int64             `json:"id" db:"id"`
	GroupID        *uuid.UUID        `json:"group_id" db:"group_id"` // nil: not in a group
	Type           string            `json:"type" db:"type"`
	Category       string            `json:"category" db:"category"`
	Title          string            `json:"title" db:"title"`
	Body           string            `json:"body" db:"body"`
	Data           json.RawMessage   `json:"data" db:"data"`
	Audience       channels.Audience `json:"audience" db:"audience"`
	Lane           string            `json:"lane" db:"lane"`
	Priority       int               `json:"priority" db:"priority"` // higher is more urgent
	ScheduleAt     time.Time         `json:"schedule_at" db:"schedule_at"`
	DeliverAt      *time.Time        `json:"deliver_at" db:"deliver_at"` // nil: deliver at once
	IdempotencyKey *string           `json:"idempotency_key" db:"idempotency_key"`
	RequestedBy    string            `json:"requested_by" db:"requested_by"`

	Status        Status     `json:"status" db:"status"`
	Cursor        string     `json:"cursor" db:"cursor"` // empty: before the first recipient
	Bound         *string    `json:"bound" db:"bound"`   // nil: not frozen yet; empty: there was no recipient
	Fence         int64      `json:"fence" db:"fence"`   // the last run's fencing token; 0: never claimed
	Runner        string     `json:"runner" db:"runner"` // empty unless RUNNING
	HeartbeatAt   *time.Time `json:"heartbeat_at" db:"heartbeat_at"`
	Attempts      int        `json:"attempts" db:"attempts"` // claims since enqueue, resume or retry, interrupted ones not counted
	LastError     string     `json:"last_error" db:"last_error"`
	Chunks        int64      `json:"chunks" db:"chunks"`                 // committed
	ChannelsRead  int64      `json:"channels_read" db:"channels_read"`   // keys examined, matching or not
	ChannelsTotal *int64     `json:"channels_total" db:"channels_total"` // estimate of the keys to examine; nil: not begun
	RowsWritten   int64      `json:"rows_written" db:"rows_written"`
	CreatedAt     time.Time  `json:"created_at" db:"created_at"`
	StartedAt     *time.Time `json:"started_at" db:"started_at"`
	FinishedAt    *time.Time `json:"finished_at" db:"finished_at"`
}

// Event is one entry of a job's timeline, written by the database in the same
// transaction as the change it records.
type Event struct {
	ID     int64           `json:"id" db:"id"`
	JobID  int64           `json:"job_id" db:"job_id"`
	At     time.Time       `json:"at" db:"at"`
	Kind   string          `json:"kind" db:"kind"`
	Actor  string          `json:"actor" db:"actor"`
	Reason string          `json:"reason" db:"reason"`
	Detail json.RawMessage `json:"detail" db:"detail"`
}

// The kinds of Event.
const (
	EventEnqueued        = "enqueued"
	EventClaimed         = "claimed"          // a runner took the due job
	EventResumed         = "resumed"          // a runner took over a stale run
	EventInterrupted     = "interrupted"      // a runner stopped and handed the job back
	EventAborted         = "aborted"          // by an operator
	EventFinished        = "finished"         // PROCESSED
	EventFailed          = "failed"           // gave up; the reason is the error
	EventResumeRequested = "resume_requested" // an operator resumed an aborted job
	EventRetryRequested  = "retry_requested"  // an operator retried a failed job
)
