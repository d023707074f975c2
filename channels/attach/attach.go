package attach

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Drift counts the differences between the attached table and belfry.channels: rows without a channel,
// rows with a different channel, and active channels without a row. Unusable rows have no channel,
// because their external id is NULL, empty or longer than 200 characters.
type Drift struct {
	Rows      int64 `json:"rows"` // compared
	Missing   int64 `json:"missing"`
	Different int64 `json:"different"`
	Strays    int64 `json:"strays"`
	Unusable  int64 `json:"unusable"`
}

// None reports whether there are no differences.
func (d Drift) None() bool { return d.Missing+d.Different+d.Strays == 0 }

// Options are the limits of Backfill and Verify. The zero value is usable.
type Options struct {
	BatchSize int         // rows per transaction; 0 means 2,000
	DryRun    bool        // Verify only counts
	By        channels.By // the actor of Verify
	Progress  func(Drift) // after each transaction, with the sums so far
}

const (
	// stepLock is the lock timeout of a step. It is well below deadlock_timeout, so that PostgreSQL
	// never aborts the application's transaction to resolve a deadlock.
	stepLock = 200 * time.Millisecond
	// triggerLock is the lock timeout for creating or dropping the triggers. Writers of the
	// application queue behind the lock for at most this time.
	triggerLock = 500 * time.Millisecond
	// stepDeadline bounds one transaction.
	stepDeadline = time.Minute
	// pauseBetween is the pause between two attempts, in which writers run.
	pauseBetween = time.Second
)

// Attach creates triggers on a table of the application that write its channels from now on, in the
// writer's own transaction. Existing rows need a Backfill afterwards. If the same table is attached already,
// Attach replaces its columns; changed columns restart the Backfill.
//
// Only the owner of the schema belfry may attach, because later reads of the table run code of its types and
// policies. An invalid field, or another attached table, is ErrTable. Missing rights are ErrRights, with the
// GRANTs. Attach waits for the lock for half a second at a time until ctx ends.
func Attach(ctx context.Context, store *channels.Store, pool channels.Beginner, a Table, by channels.By) error {
	f, err := examine(ctx, store, pool, a)
	if err != nil {
		return err
	}
	for {
		err = act(ctx, pool, triggerLock, by, func(ctx context.Context, tx pgx.Tx) error {
			set, err := db.Column[bool](ctx, tx, queries.attachmentSet, pgx.StrictNamedArgs{
				"id": f.id, "schema": f.schema, "name": f.name, "key": f.key, "key_type": f.keyType, "columns": f.columns, "names": f.names,
			})
			if err != nil {
				return err
			}
			if len(set) == 0 {
				return fmt.Errorf("%w: relation: another one is attached; `belfry channels detach` first", ErrTable)
			}
			_, err = tx.Exec(ctx, queries.attachmentFollow)
			return err
		})
		if !waits(err) {
			return attachProblem("attach", a.Relation, err)
		}
		if err := lifecycle.Pause(ctx, pauseBetween); err != nil {
			return fmt.Errorf(
				"channels: attach %s: its writers never let go for the moment that the triggers need; try again when no transaction "+
					"is open for long: %w", a.Relation, err)
		}
	}
}

// Backfill writes the channels of the rows that the table had before Attach, one transaction per step, in the
// order of the external id. The position is stored in belfry.attachments, so that a repeated Backfill resumes
// after a crash, and several processes can share the work. It locks no row of the application, and channels
// for one step only. Status.FilledAt is set at the end; a further Backfill has no effect.
func Backfill(ctx context.Context, pool channels.Beginner, o Options) (sum Drift, err error) {
	err = eachStep(ctx, pool, o, func(ctx context.Context, tx pgx.Tx, size int) (done bool, d Drift, err error) {
		at, err := db.Column[*string](ctx, tx, queries.attachmentLock)
		if err != nil || len(at) == 0 {
			return true, d, err
		}
		next, d, err := stepRows(ctx, tx, at[0], size, true)
		if err != nil {
			return false, d, err
		}
		_, err = tx.Exec(ctx, queries.attachmentMove, pgx.StrictNamedArgs{"next": next, "compared": d.Rows, "unusable": d.Unusable})
		return next == nil, d, err
	}, &sum)
	return sum, attachProblem("bring over", "the attached relation", err)
}

// Verify compares every row of the attached table with its channel and every active channel with its row,
// and repairs differences, unless o.DryRun is set. Differences come from writes without the triggers (a session
// with session_replication_role = replica, a restore, a disabled trigger) and from missed writes (Status.Missed).
func Verify(ctx context.Context, pool channels.Beginner, o Options) (sum Drift, err error) {
	a, err := Read(ctx, pool)
	if err != nil {
		return sum, err
	}
	if a == nil {
		return sum, ErrNotAttached
	}
	if err := a.changed(); err != nil {
		return sum, attachProblem("verify", a.Relation, err)
	}
	var missed []int64 // writes that commit later remain
	if err := pool.QueryRow(ctx, queries.attachmentMisses).Scan(&missed); err != nil {
		return sum, attachProblem("verify", a.Relation, err)
	}
	var after *string
	err = eachStep(ctx, pool, o, func(ctx context.Context, tx pgx.Tx, size int) (bool, Drift, error) {
		next, d, err := stepRows(ctx, tx, after, size, !o.DryRun)
		if err == nil {
			after = next
		}
		return next == nil, d, err
	}, &sum)
	if err != nil {
		return sum, attachProblem("verify", a.Relation, err)
	}
	low := int64(math.MinInt64)
	err = eachStep(ctx, pool, o, func(ctx context.Context, tx pgx.Tx, size int) (bool, Drift, error) {
		var compared int64
		var d Drift
		var next *int64
		err := tx.QueryRow(ctx, queries.attachmentStrays,
			pgx.StrictNamedArgs{"after": low, "rows": size, "repair": !o.DryRun}).Scan(&compared, &d.Strays, &next)
		if err == nil && next != nil {
			low = *next
		}
		return compared == 0, d, err
	}, &sum)
	if err == nil && !o.DryRun {
		err = act(ctx, pool, stepLock, o.By, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, queries.attachmentVerified, pgx.StrictNamedArgs{"misses": missed})
			return err
		})
	}
	return sum, attachProblem("verify", a.Relation, err)
}

// Detach drops the triggers of the attached table and returns its name. The channels remain. Only the
// table's owner may detach it.
func Detach(ctx context.Context, pool channels.Beginner, by channels.By) (relation string, err error) {
	a, err := Read(ctx, pool)
	if err != nil {
		return "", err
	}
	if a == nil {
		return "", ErrNotAttached
	}
	for {
		err = act(ctx, pool, triggerLock, by, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, queries.attachmentDrop)
			return err
		})
		if !waits(err) {
			return a.Relation, attachProblem("detach", a.Relation, err)
		}
		if err := lifecycle.Pause(ctx, pauseBetween); err != nil {
			return "", fmt.Errorf("channels: detach %s: its writers never let go for the moment that it needs: %w", a.Relation, err)
		}
	}
}

// stepRows runs one step over rows after an external id. A nil next means that it was the last one.
func stepRows(ctx context.Context, tx pgx.Tx, after *string, size int, repair bool) (next *string, d Drift, err error) {
	err = tx.QueryRow(ctx, queries.attachmentStep, pgx.StrictNamedArgs{"after": after, "rows": size, "repair": repair}).
		Scan(&d.Rows, &d.Missing, &d.Different, &d.Unusable, &next)
	return next, d, err
}

// eachStep runs steps until do reports the last one. It repeats a step that timed out on a writer's lock with
// fewer rows. A step of one row holds no lock while it waits.
func eachStep(ctx context.Context, pool channels.Beginner, o Options, do func(context.Context, pgx.Tx, int) (bool, Drift, error),
	sum *Drift) error {
	full := o.BatchSize
	if full <= 0 {
		full = 2000
	}
	for size := full; ; {
		var done bool
		var d Drift
		err := step(ctx, pool, stepLock, func(ctx context.Context, tx pgx.Tx) (err error) {
			done, d, err = do(ctx, tx, size)
			return err
		})
		if waits(err) {
			if size == 1 {
				if err := lifecycle.Pause(ctx, pauseBetween); err != nil {
					return err
				}
			}
			size = max(1, size/4)
			continue
		}
		if err != nil {
			return err
		}
		sum.Rows, sum.Missing, sum.Different = sum.Rows+d.Rows, sum.Missing+d.Missing, sum.Different+d.Different
		sum.Strays, sum.Unusable = sum.Strays+d.Strays, sum.Unusable+d.Unusable
		if o.Progress != nil {
			o.Progress(*sum)
		}
		if done {
			return nil
		}
		size = min(full, size*2)
	}
}

// act runs one transaction whose event has the actor and the reason.
func act(ctx context.Context, pool channels.Beginner, lock time.Duration, by channels.By, do func(context.Context, pgx.Tx) error) error {
	return step(ctx, pool, lock, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.actorSet, pgx.StrictNamedArgs{"actor": by.Actor, "reason": by.Reason}); err != nil {
			return err
		}
		return do(ctx, tx)
	})
}

// step runs one transaction within stepDeadline.
func step(ctx context.Context, pool channels.Beginner, lock time.Duration, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepDeadline)
	defer cancel()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.attachmentBegin); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, queries.attachmentLimits, pgx.StrictNamedArgs{"lock_timeout_ms": lock.Milliseconds()}); err != nil {
			return err
		}
		return do(ctx, tx)
	})
}

// waits reports whether err is a lock timeout or a deadlock.
func waits(err error) bool {
	class := db.ClassOf(err)
	return class == db.Locked || class == db.Conflict
}

// lacksRight reports whether err is a missing right.
func lacksRight(err error) bool { return db.ClassOf(err) == db.Forbidden }

// attachProblem adds the operation to an error, and the remedy if rights are missing.
func attachProblem(operation, relation string, err error) error {
	switch {
	case err == nil || errors.Is(err, ErrTable) || errors.Is(err, ErrRights):
		return err
	case lacksRight(err) && operation == "detach":
		return fmt.Errorf(
			"channels: detach %s: only its owner may drop triggers: run it as the owner, or GRANT the owner's role to this user: %w", relation, err)
	case lacksRight(err):
		return fmt.Errorf(
			"channels: %s %s: it takes SELECT and, to attach, TRIGGER on the relation, what `belfry roles --for operate` prints "+
				"and, to attach, ownership of the schema belfry, and no policy that hides rows: %w", operation, relation, err)
	}
	return fmt.Errorf("channels: %s %s: %w", operation, relation, err)
}
