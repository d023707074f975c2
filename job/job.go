package job

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/channels"
)

// Job is one row of belfry.jobs: one bulk-notification request and how far it
// got. Instants are the database's, in UTC.
type Job struct {
	ID             int64             `json:"id" db:"id"`
	GroupID        *uuid.UUID        `json:"group_id" db:"group_id"` // nil: not in a group
	Type           string            `json:"type" db:"type"`
	Category       string            `json:"category" db:"category"`
	Title          string            `json:"title" db:"title"`
	Body           string            `json:"body" db:"body" mask:"text"`
	Data           json.RawMessage   `json:"data" db:"data" mask:"text"`
	Variants       json.RawMessage   `json:"variants" db:"variants" mask:"text"` // titles and bodies by locale; {}: none
	Route          []string          `json:"route" db:"route" nullable:"true"`   // the media of its messages, in the order of attempts
	Audience       channels.Audience `json:"audience" db:"audience"`
	Lane           string            `json:"lane" db:"lane"`
	Priority       int               `json:"priority" db:"priority"` // higher is more urgent
	ScheduleAt     time.Time         `json:"schedule_at" db:"schedule_at"`
	DeliverAt      *time.Time        `json:"deliver_at" db:"deliver_at"` // nil: deliver at once
	ExpiresAt      *time.Time        `json:"expires_at" db:"expires_at"` // not started by then: EXPIRED; nil: never
	IdempotencyKey *string           `json:"idempotency_key" db:"idempotency_key"`
	RequestedBy    string            `json:"requested_by" db:"requested_by"`

	// NeedsApproval means that a second person must approve it; see AwaitsApprovalSince.
	NeedsApproval bool `json:"needs_approval" db:"needs_approval"`
	// MaxRecipients is the most rows that the walk may write; nil: no ceiling.
	MaxRecipients *int `json:"max_recipients" db:"max_recipients"`

	// Settings of this job's walk; nil: the runner's own.
	MaxRowsPerSecond *int     `json:"max_rows_per_second" db:"max_rows_per_second"` // 0: no limit
	DutyCycle        *float64 `json:"duty_cycle" db:"duty_cycle"`                   // share of time spent in chunks
	ChunkTargetMS    *int     `json:"chunk_target_ms" db:"chunk_target_ms"`
	MaxChunkRows     *int     `json:"max_chunk_rows" db:"max_chunk_rows"`
	HealthChecks     *bool    `json:"health_checks" db:"health_checks"`
	MaxSkips         *int     `json:"max_skips" db:"max_skips"`

	Status        Status     `json:"status" db:"status"`
	Cursor        string     `json:"cursor" db:"cursor"` // empty: before the first recipient
	Bound         *string    `json:"bound" db:"bound"`   // nil: not frozen yet; empty: there was no recipient
	Fence         int64      `json:"fence" db:"fence"`   // the last run's fencing token; 0: never claimed
	Runner        string     `json:"runner" db:"runner"` // empty unless RUNNING
	HeartbeatAt   *time.Time `json:"heartbeat_at" db:"heartbeat_at"`
	BackendPID    *int32     `json:"backend_pid" db:"backend_pid"` // the run's server connection; nil: not RUNNING, or a pooler hides it
	BackendStart  *time.Time `json:"backend_start" db:"backend_start"`
	Attempts      int        `json:"attempts" db:"attempts"`   // claims since enqueue, resume or retry, interrupted ones not counted
	Takeovers     int        `json:"takeovers" db:"takeovers"` // runs lost in a row since the last committed chunk
	LastError     string     `json:"last_error" db:"last_error" mask:"text"`
	Chunks        int64      `json:"chunks" db:"chunks"`                 // committed
	ChannelsRead  int64      `json:"channels_read" db:"channels_read"`   // keys examined, matching or not
	ChannelsTotal *int64     `json:"channels_total" db:"channels_total"` // estimate of the keys to examine; nil: not begun
	// The accounts: what was read either matched or was out of audience, and what
	// matched was written, declined by the Writer, or skipped.
	ChannelsMatched int64 `json:"channels_matched" db:"channels_matched"`
	RowsWritten     int64 `json:"rows_written" db:"rows_written"`
	Declined        int64 `json:"declined" db:"declined"`
	Skipped         int64 `json:"skipped" db:"skipped"` // waiting in job_skips
	// Throttle is the rule that holds the walk back now; empty: full speed.
	Throttle       string     `json:"throttle" db:"throttle"`
	ThrottleDetail string     `json:"throttle_detail" db:"throttle_detail"`
	ThrottledMS    int64      `json:"throttled_ms" db:"throttled_ms"` // held back, in all
	Recalled       int64      `json:"recalled" db:"recalled"`         // rows taken back after they were written
	Erased         int64      `json:"erased" db:"erased"`             // rows of people who were forgotten
	RecalledAt     *time.Time `json:"recalled_at" db:"recalled_at"`
	CreatedAt      time.Time  `json:"created_at" db:"created_at"`
	StartedAt      *time.Time `json:"started_at" db:"started_at"`
	// Arrival is the number of the job's notifications, in the order in which jobs were first claimed; 0: never.
	Arrival    int64      `json:"arrival" db:"arrival"`
	FinishedAt *time.Time `json:"finished_at" db:"finished_at"`
	// WalkedAt is set when the walk is complete, also while the job is ABORTED: no runner has anything to do
	// about it.
	WalkedAt *time.Time `json:"walked_at" db:"walked_at"`
	// Revision counts corrections of the content or the audience since the walk began.
	Revision int `json:"revision" db:"revision"`
	// AwaitsApprovalSince is since when it waits for a second person: it is not claimed and no
	// message of it goes out. nil: it does not.
	AwaitsApprovalSince *time.Time `json:"awaits_approval_since" db:"awaits_approval_since"`
	// The approval in force; nil and empty: none. It is for ApprovedCount recipients, and the walk
	// writes ApprovedRecipients rows at most.
	ApprovedAt         *time.Time `json:"approved_at" db:"approved_at"`
	ApprovedBy         string     `json:"approved_by" db:"approved_by"`
	ApprovedCount      *int       `json:"approved_count" db:"approved_count"`
	ApprovedRecipients *int       `json:"approved_recipients" db:"approved_recipients"`
	// Version is that of what people decided about the job: the id of the event of the newest
	// act on it; 0: there was none.
	Version int64 `json:"version" db:"version"`
}

// ResourceVersion returns Version. It makes a Job a versioned result of an operation.
func (j Job) ResourceVersion() (version int64, one bool) { return j.Version, true }

// Total is how many keys the walk examines, and whether that is known: the planner's
// estimate is of a table as it was last analysed, and one that is less than what was read
// already says nothing.
func (j Job) Total() (keys int64, known bool) {
	if j.ChannelsTotal == nil || *j.ChannelsTotal <= 0 || *j.ChannelsTotal < j.ChannelsRead {
		return 0, false
	}
	return *j.ChannelsTotal, true
}

// Event is one entry of a job's timeline, written by the database in the same
// transaction as the change it records.
type Event struct {
	ID     int64           `json:"id" db:"id"`
	JobID  int64           `json:"job_id" db:"job_id"`
	At     time.Time       `json:"at" db:"at"`
	Kind   string          `json:"kind" db:"kind"`
	Actor  string          `json:"actor" db:"actor"`
	Reason string          `json:"reason" db:"reason" mask:"reason"`
	Detail json.RawMessage `json:"detail" db:"detail" mask:"keys"`
}

// The kinds of Event that Go code distinguishes.
const (
	EventClaimed     = "claimed"     // a runner took the due job
	EventResumed     = "resumed"     // a runner took over a dead or stale run
	EventInterrupted = "interrupted" // a runner stopped and handed the job back
	EventPreempted   = "preempted"   // handed back for a more urgent job of its lane
	EventLanePaused  = "lane_paused" // handed back because its lane was paused
	EventHalted      = "halted"      // handed back because everything was halted
	EventAborted     = "aborted"     // by an operator, by a relay whose sender fails it, or because it would have passed max_recipients
	EventFinished    = "finished"    // PROCESSED
	EventFailed      = "failed"      // gave up; the reason is the error
	EventExpired     = "expired"     // did not start before expires_at
	EventChanged     = "changed"     // an operator changed the job's content or settings
	EventApproved    = "approved"    // a second person approved it
	EventThrottled   = "throttled"   // the walk slowed down or paused; the reason is the rule
	EventReleased    = "released"    // the walk is at full speed again
	EventRecalled    = "recalled"    // an operator took rows back
)
