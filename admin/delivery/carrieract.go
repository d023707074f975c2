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

// SubjectTransport is the subject in belfry.events of rebuilds and drains of a carrier.
const SubjectTransport = "transport"

// QueueState is the state of one of the two queues in the database, with or without a carrier.
type QueueState struct {
	Name       string     `json:"name" db:"name"`               // activities or bulk
	Transport  string     `json:"transport" db:"transport"`     // of the last push; "" before the first
	Dispatcher string     `json:"dispatcher" db:"dispatcher"`   // the relay that pushed last
	LeadsUntil *time.Time `json:"leads_until" db:"leads_until"` // null means that no relay pushes
	Epoch      string     `json:"epoch" db:"epoch"`             // a UUID
	EpochAt    *time.Time `json:"epoch_at" db:"epoch_at"`       // the start of the epoch
	LastPush   int64      `json:"last_push" db:"last_push"`     // made
	// Queued is the number of QUEUED messages. QueueCounts+1 means more than QueueCounts.
	Queued int64 `json:"queued" db:"queued"`
	// Oldest is the time since the oldest message became QUEUED, in nanoseconds; null without one.
	Oldest *time.Duration `json:"oldest" db:"oldest"`
}

// QueueCounts is the maximum count of QUEUED messages of a queue.
const QueueCounts = 10_000

// QueueStates returns both queues: activities, then bulk. QUEUED messages are counted up to
// QueueCounts.
func QueueStates(ctx context.Context, pool *pgxpool.Pool) ([]QueueState, error) {
	return readQueues(ctx, pool, new(int64(QueueCounts+1)))
}

// CountQueues is QueueStates with a full count, which reads all QUEUED messages.
func CountQueues(ctx context.Context, pool *pgxpool.Pool) ([]QueueState, error) {
	return readQueues(ctx, pool, nil)
}

func readQueues(ctx context.Context, pool *pgxpool.Pool, most *int64) (list []QueueState, err error) {
	err = operation.SnapshotTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		list, err = queueStates(ctx, tx, most)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read queued messages: %w", err)
	}
	return list, nil
}

func queueStates(ctx context.Context, tx pgx.Tx, most *int64) ([]QueueState, error) {
	return db.All[QueueState](ctx, tx, queries.queueStates, pgx.StrictNamedArgs{"most": most})
}

// RebuildQueues makes the dispatcher push all QUEUED messages again, in bounded pushes, while delivery
// continues. Ids in the carrier stay valid. It returns the number of messages, and records the act
// (I14). If no carrier was ever used, it does nothing. agree receives the number of messages; its error
// cancels the rebuild. Nil means that every number is accepted.
func RebuildQueues(ctx context.Context, pool *pgxpool.Pool, act job.Act, agree func(queued int64) error) (queued int64, err error) {
	var refused error
	err = operation.StepTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		begun, err := db.Column[string](ctx, tx, queries.queuesRebuild)
		if err != nil {
			return err
		}
		if queued = 0; len(begun) > 0 {
			states, err := queueStates(ctx, tx, nil)
			if err != nil {
				return err
			}
			for _, q := range states {
				queued += q.Queued
			}
		}
		if agree != nil {
			if refused = agree(queued); refused != nil {
				return refused
			}
		}
		if len(begun) == 0 {
			return nil
		}
		_, err = recordTransport(ctx, tx, "rebuilt", "", &queued, act)
		return err
	})
	if refused != nil {
		return 0, refused
	}
	if err != nil {
		return 0, fmt.Errorf("rebuild the carrier: %w", err)
	}
	return queued, nil
}

// TakeBackQueued returns QUEUED messages to PENDING, in bounded steps of one transaction each, and
// returns their number. Ids in a carrier stay valid. It does nothing while a relay pushes, and skips
// locked rows; a second call continues.
// observe, unless nil, is called after each step. The act is one event, written with the first
// step that changes a message.
func TakeBackQueued(ctx context.Context, pool *pgxpool.Pool, act job.Act, observe func(taken int64)) (taken int64, err error) {
	var event int64
	for {
		var n int64
		err := operation.StepTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
			var err error
			if n, err = outbox.UnservedTx(ctx, tx, outbox.MaxBatch); err != nil || n == 0 {
				return err
			}
			if event != 0 {
				tag, err := tx.Exec(ctx, queries.transportRecordMore, pgx.StrictNamedArgs{"id": event, "messages": n})
				if err != nil || tag.RowsAffected() == 1 {
					return err
				}
			}
			event, err = recordTransport(ctx, tx, "drained", "", &n, act)
			return err
		})
		if err != nil {
			return taken, fmt.Errorf("take back queued messages: %w", err)
		}
		if taken += n; n == 0 {
			return taken, nil
		}
		if observe != nil {
			observe(taken)
		}
	}
}

// RecordEmptied records that a carrier of that transport was emptied.
func RecordEmptied(ctx context.Context, pool *pgxpool.Pool, transport string, act job.Act) error {
	err := operation.StepTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := recordTransport(ctx, tx, "emptied", transport, nil, act)
		return err
	})
	if err != nil {
		return fmt.Errorf("record that the carrier was emptied: %w", err)
	}
	return nil
}

// recordTransport writes an event; "" means the transports of the queues.
func recordTransport(ctx context.Context, tx pgx.Tx, kind, transport string, messages *int64, act job.Act) (id int64, err error) {
	err = tx.QueryRow(ctx, queries.transportRecord, pgx.StrictNamedArgs{
		"kind": kind, "transport": transport, "messages": messages, "actor": act.Actor, "reason": act.Reason,
	}).Scan(&id)
	return id, err
}
