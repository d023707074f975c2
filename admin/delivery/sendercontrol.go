package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// SubjectSender is the subject in belfry.events of acts on senders.
const SubjectSender = "sender"

// SenderState is the state of a sender for operators.
type SenderState struct {
	Name string `json:"name" db:"name"`
	// The settings of an operator; null means the configured value. Relays apply them within about a second.
	RatePerSecond *float64   `json:"rate_per_second" db:"rate_per_second"`
	Concurrency   *int       `json:"concurrency" db:"concurrency"`
	PausedAt      *time.Time `json:"paused_at" db:"paused_at"` // null unless it is paused
	PausedBy      string     `json:"paused_by" db:"paused_by"`
	PauseReason   string     `json:"pause_reason" db:"pause_reason"`
	// Relays is the number of live relays with this sender.
	Relays int `json:"relays" db:"relays"`
	// InForce lists the different limits of live relays at their last heartbeat, without the name. With
	// several, the configurations differ, or a relay has not applied a change yet.
	InForce []outbox.SenderLimits `json:"in_force" db:"in_force"`
	// The sums of its live relays at their last heartbeat.
	Medium          string   `json:"medium" db:"medium"`     // "" without a relay
	Breakers        []string `json:"breakers" db:"breakers"` // each state once: closed, half_open, off, open
	Waiting         int      `json:"waiting" db:"waiting"`   // composed messages in the queues of relays
	Calling         int      `json:"calling" db:"calling"`   // calls in progress
	SentPerSecond   float64  `json:"sent_per_second" db:"sent_per_second"`
	FailedPerSecond float64  `json:"failed_per_second" db:"failed_per_second"`
	// Held is the number of messages of jobs that wait for a paused sender: due messages of jobs that begin with its
	// medium. It is null unless the sender is paused, and if another live sender of the medium is not.
	Held *int64 `json:"held" db:"-"`
	// Version is the id of the event of the newest act on it; 0 before the first.
	Version int64 `json:"version" db:"version"`
}

// ResourceVersion returns Version. It makes a SenderState a versioned result of an operation.
func (s SenderState) ResourceVersion() (version int64, one bool) { return s.Version, true }

// PausedSince returns PausedAt and the subject and name of the events.
func (s SenderState) PausedSince() (since *time.Time, subject, name string) {
	return s.PausedAt, SubjectSender, s.Name
}

// RelayState is the state of a relay at its last heartbeat.
type RelayState struct {
	Name        string    `json:"name" db:"name"`
	StartedAt   time.Time `json:"started_at" db:"started_at"`
	HeartbeatAt time.Time `json:"heartbeat_at" db:"heartbeat_at"`
	Senders     []string  `json:"senders" db:"senders"`
	Media       []string  `json:"media" db:"media"`         // of its senders
	InFlight    int       `json:"in_flight" db:"in_flight"` // messages
	Transport   string    `json:"transport" db:"transport"` // the source of its messages
	Live        bool      `json:"live" db:"live"`
}

// SenderStates returns the senders of live relays, the senders with settings of an operator, and the first
// 1,000 relays, each by name. A relay is live if its last heartbeat is younger than alive by the database's
// clock.
func SenderStates(ctx context.Context, pool *pgxpool.Pool, alive time.Duration) (senders []SenderState, relays []RelayState, err error) {
	err = operation.SnapshotTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		if senders, err = senderStates(ctx, tx, "", alive); err != nil {
			return err
		}
		relays, err = db.All[RelayState](ctx, tx, queries.relayStates, pgx.StrictNamedArgs{"seconds": alive.Seconds()})
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("senders: %w", err)
	}
	return senders, relays, nil
}

func senderStates(ctx context.Context, tx pgx.Tx, name string, alive time.Duration) ([]SenderState, error) {
	return db.All[SenderState](ctx, tx, queries.senderStates, pgx.StrictNamedArgs{"name": name, "seconds": alive.Seconds()})
}

// SenderChange overrides the configured limits of a sender.
type SenderChange struct {
	// Rate and Slots specify which limit is set; a nil value restores the configured limit.
	Rate, Slots   bool
	RatePerSecond *float64 // over all relays together
	Concurrency   *int     // of each relay
}

// SetSender changes a sender's limits while relays run, which apply them within about a second. Any name is
// accepted, because the database does not have a list of senders. Invalid values are a *job.InvalidError. The
// act is recorded (I14).
func SetSender(ctx context.Context, pool *pgxpool.Pool, name string, c SenderChange, alive time.Duration,
	act job.Act) (SenderState, error) {
	return senderAct(ctx, pool, name, alive, act, queries.senderSet, pgx.StrictNamedArgs{
		"name": name, "rate": c.Rate, "slots": c.Slots, "rate_per_second": c.RatePerSecond, "concurrency": c.Concurrency,
	})
}

// PauseSender stops a sender: no relay calls its provider until it is resumed, and its messages wait.
// Calls in progress are finished. It does not change a paused sender. Errors are as for SetSender.
func PauseSender(ctx context.Context, pool *pgxpool.Pool, name string, alive time.Duration, act job.Act) (SenderState, error) {
	return senderAct(ctx, pool, name, alive, act, queries.senderPause,
		pgx.StrictNamedArgs{"name": name, "actor": act.Actor, "reason": act.Reason})
}

// ResumeSender resumes a paused sender. It does not change a running one. Errors are as for SetSender.
func ResumeSender(ctx context.Context, pool *pgxpool.Pool, name string, alive time.Duration, act job.Act) (SenderState, error) {
	return senderAct(ctx, pool, name, alive, act, queries.senderResume, pgx.StrictNamedArgs{"name": name})
}

func senderAct(ctx context.Context, pool *pgxpool.Pool, name string, alive time.Duration, act job.Act, statement string,
	args pgx.StrictNamedArgs) (s SenderState, err error) {
	err = operation.ChangeTx(ctx, pool, act, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.operatorAct, pgx.StrictNamedArgs{"actor": act.Actor, "reason": act.Reason}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statement, args)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("sender %s: %w", name, err)
	}
	// The act is committed: it does not depend on the rows of relays.
	err = operation.SnapshotTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		list, err := senderStates(ctx, tx, name, alive)
		if err == nil && len(list) > 0 {
			s = list[0]
		}
		return err
	})
	if err != nil {
		return s, fmt.Errorf("sender %s: the change is made, and its state cannot be read: %w", name, err)
	}
	return s, nil
}
