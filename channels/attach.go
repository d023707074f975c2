package channels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Attached is how an attached relation stands.
type Attached struct {
	Relation   string          `json:"relation"`
	ExternalID string          `json:"external_id"`   // the column
	Columns    json.RawMessage `json:"columns"`       // what each column of a channel is made of
	Filled     int64           `json:"rows_filled"`   // rows brought over so far
	Unusable   int64           `json:"rows_unusable"` // rows looked at so far that have no usable external id
	Rows       int64           `json:"rows"`          // the planner's estimate; 0: unknown
	AttachedAt time.Time       `json:"attached_at"`
	FilledAt   *time.Time      `json:"filled_at"`   // nil: rows are left to be brought over
	VerifiedAt *time.Time      `json:"verified_at"` // nil: never
	Exists     bool            `json:"exists"`      // the relation is there
	Following  bool            `json:"following"`   // its triggers are there and enabled
	// Changes lists what has changed at the relation so that its rows cannot be followed.
	Changes []string `json:"changes"`
	// Missed counts writes whose channel could not be written, to 100,000, since the last
	// verify; MissedBy has the SQLSTATEs of the errors.
	Missed   int64    `json:"missed"`
	MissedBy []string `json:"missed_by"`
}

// Drift is what a step over an attached relation, or all of them, found: rows without a
// channel or with another one, and active channels without a row. Unusable rows have no
// external id of 1 to 200 characters, or NULL, and no channel.
type Drift struct {
	Rows      int64 `json:"rows"` // looked at
	Missing   int64 `json:"missing"`
	Different int64 `json:"different"`
	Strays    int64 `json:"strays"`
	Unusable  int64 `json:"unusable"`
}

// None reports whether the channels are in step.
func (d Drift) None() bool { return d.Missing+d.Different+d.Strays == 0 }

// AttachOptions are the limits of bringing over and verifying. The zero value is usable.
type AttachOptions struct {
	BatchSize int         // rows a transaction; 0 means 2,000
	DryRun    bool        // Verify only counts
	By        By          // who verifies
	Progress  func(Drift) // after each transaction, with the sums so far
}

const (
	// stepLock is how long a step waits for channels that a writer holds before it gives
	// them up and takes fewer: well below deadlock_timeout, so that it is never the
	// application's transaction that PostgreSQL ends.
	stepLock = 200 * time.Millisecond
	// triggerLock is how long the lock for the triggers is waited for at a time: so long
	// the application's writers wait behind it.
	triggerLock = 500 * time.Millisecond
	// stepDeadline bounds one transaction.
	stepDeadline = time.Minute
	// pauseBetween is what is left to others between two tries.
	pauseBetween = time.Second
)

// Attach has belfry.channels follow a table of the application: triggers on it keep the
// channels in step with every write from now on, in the writer's own transaction. Backfill
// brings over what was there before. A row that is deleted leaves its channel, inactive
// and without addresses, attributes and location.
//
// Only the owner of the schema belfry may: whoever reads the relation for it executes the code
// of its types and policies. Repeating it goes on; with other columns it begins anew. A field that is not allowed is
// ErrAttachment, and so is another relation that is attached already. Missing rights are
// ErrRights, with the GRANTs. The lock for the triggers is asked for half a second at a time until
// ctx ends: writers wait no longer behind it.
func (s *Store) Attach(ctx context.Context, db Beginner, a Attachment, by By) error {
	f, err := s.examine(ctx, db, a)
	if err != nil {
		return err
	}
	for {
		err = s.act(ctx, db, triggerLock, by, func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, queries.attachmentSet, pgx.StrictNamedArgs{
				"id": f.id, "schema": f.schema, "name": f.name, "key": f.key, "key_type": f.keyType, "columns": f.columns, "names": f.names,
			})
			if err != nil {
				return err
			}
			set, err := pgx.CollectRows(rows, pgx.RowTo[bool])
			if err != nil {
				return err
			}
			if len(set) == 0 {
				return fmt.Errorf("%w: relation: another one is attached; `belfry channels detach` first", ErrAttachment)
			}
			_, err = tx.Exec(ctx, queries.attachmentFollow)
			return err
		})
		if !waits(err) {
			return attachProblem("attach", a.Relation, err)
		}
		if err := lifecycle.Pause(ctx, pauseBetween); err != nil {
			return fmt.Errorf("channels: attach %s: its writers never let go for the moment that the triggers need; try again when no transaction is open for long: %w", a.Relation, err)
		}
	}
}

// Attached returns how the attached relation stands; nil: none is.
func (s *Store) Attached(ctx context.Context, q Querier) (*Attached, error) {
	rows, err := q.Query(ctx, queries.attachmentRead)
	if err != nil {
		return nil, fmt.Errorf("channels: read the attachment: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Attached, err error) {
		err = row.Scan(&a.Relation, &a.ExternalID, &a.Columns, &a.Filled, &a.Unusable, &a.Rows, &a.AttachedAt, &a.FilledAt, &a.VerifiedAt,
			&a.Exists, &a.Following, &a.Changes, &a.Missed, &a.MissedBy)
		return a, err
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// faults returns what is wrong with an attached relation.
func (a Attached) faults() (list []Fault) {
	add := func(fatal bool, problem, remedy string) {
		list = append(list, Fault{Problem: problem, Remedy: remedy, Fatal: fatal})
	}
	if !a.Exists {
		add(true, a.Relation+", which it follows, does not exist any more", "`belfry channels detach`, then attach the new one")
		return list
	}
	for _, c := range a.Changes {
		add(true, a.Relation+" cannot be followed: "+c,
			"repeat `belfry channels attach` with the table as it is now, which brings all rows over again, or undo the change; then `belfry channels verify`")
	}
	if !a.Following {
		add(true, "is not kept in step with "+a.Relation+": its triggers are missing or disabled",
			"ALTER TABLE "+a.Relation+" ENABLE TRIGGER USER, or attach it again; then `belfry channels verify`")
	}
	if a.FilledAt == nil {
		add(false, fmt.Sprintf("%d rows of %s are brought over, and some are left", a.Filled, a.Relation), "repeat `belfry channels attach`, which goes on")
	}
	if a.Missed > 0 {
		add(false, fmt.Sprintf("%d writes of %s were not followed (SQLSTATE %s)", a.Missed, a.Relation, strings.Join(a.MissedBy, ", ")),
			"`belfry channels verify`, which repairs what differs")
	}
	return list
}

// changed returns an error if the relation has changed so that a step would read other
// columns than those that were attached.
func (a Attached) changed() error {
	if len(a.Changes) == 0 {
		return nil
	}
	return fmt.Errorf("%s cannot be followed: %s; repeat `belfry channels attach` with the table as it is now, or undo the change", a.Relation, strings.Join(a.Changes, "; "))
}

// Backfill brings over what the attached relation had before it was attached, in steps of
// a transaction each, in the order of the external id, and keeps how far it came in
// belfry.attachments: after a crash, or beside another process that does the same, it goes
// on from there. It locks no row of the application, and channels for one step only.
// Attached.FilledAt is set when all is done; repeating it then does nothing.
func (s *Store) Backfill(ctx context.Context, db Beginner, o AttachOptions) (sum Drift, err error) {
	err = s.eachStep(ctx, db, o, func(ctx context.Context, tx pgx.Tx, size int) (done bool, d Drift, err error) {
		rows, err := tx.Query(ctx, queries.attachmentLock)
		if err != nil {
			return false, d, err
		}
		at, err := pgx.CollectRows(rows, pgx.RowTo[*string])
		if err != nil || len(at) == 0 {
			return true, d, err
		}
		next, d, err := stepRows(ctx, tx, at[0], size, true)
		if err != nil {
			return false, d, err
		}
		_, err = tx.Exec(ctx, queries.attachmentMove, pgx.StrictNamedArgs{"next": next, "looked": d.Rows, "unusable": d.Unusable})
		return next == nil, d, err
	}, &sum)
	return sum, attachProblem("bring over", "the attached relation", err)
}

// Verify compares every row of the attached relation with its channel, and every active
// channel with its row, and repairs what differs, unless o.DryRun. It finds nothing unless
// a write went around the triggers (a session with session_replication_role = replica, a
// restore, a disabled trigger) or was not followed (Attached.Missed).
func (s *Store) Verify(ctx context.Context, db Beginner, o AttachOptions) (sum Drift, err error) {
	a, err := s.Attached(ctx, db)
	if err != nil {
		return sum, err
	}
	if a == nil {
		return sum, ErrNotAttached
	}
	if err := a.changed(); err != nil {
		return sum, attachProblem("verify", a.Relation, err)
	}
	var missed []int64 // those of writes that end later stay
	if err := db.QueryRow(ctx, queries.attachmentMisses).Scan(&missed); err != nil {
		return sum, attachProblem("verify", a.Relation, err)
	}
	var after *string
	err = s.eachStep(ctx, db, o, func(ctx context.Context, tx pgx.Tx, size int) (bool, Drift, error) {
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
	err = s.eachStep(ctx, db, o, func(ctx context.Context, tx pgx.Tx, size int) (bool, Drift, error) {
		var looked int64
		var d Drift
		var next *int64
		err := tx.QueryRow(ctx, queries.attachmentStrays, pgx.StrictNamedArgs{"after": low, "rows": size, "repair": !o.DryRun}).Scan(&looked, &d.Strays, &next)
		if err == nil && next != nil {
			low = *next
		}
		return looked == 0, d, err
	}, &sum)
	if err == nil && !o.DryRun {
		err = s.act(ctx, db, stepLock, o.By, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, queries.attachmentVerified, pgx.StrictNamedArgs{"misses": missed})
			return err
		})
	}
	return sum, attachProblem("verify", a.Relation, err)
}

// UnlistedPlatforms returns up to ten platforms of active channels that belfry.platforms
// does not list, so that no audience can name them. It reads all channels.
func (s *Store) UnlistedPlatforms(ctx context.Context, q Querier) (names []string, err error) {
	if err := q.QueryRow(ctx, queries.platformsUnlisted).Scan(&names); err != nil {
		return nil, fmt.Errorf("channels: read the platforms: %w", err)
	}
	return names, nil
}

// Detach takes the triggers off the attached relation and forgets it; the channels stay.
// Only the relation's owner may. It returns which one it was.
func (s *Store) Detach(ctx context.Context, db Beginner, by By) (relation string, err error) {
	a, err := s.Attached(ctx, db)
	if err != nil {
		return "", err
	}
	if a == nil {
		return "", ErrNotAttached
	}
	for {
		err = s.act(ctx, db, triggerLock, by, func(ctx context.Context, tx pgx.Tx) error {
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

// stepRows is one step over rows.
func stepRows(ctx context.Context, tx pgx.Tx, after *string, size int, repair bool) (next *string, d Drift, err error) {
	err = tx.QueryRow(ctx, queries.attachmentStep, pgx.StrictNamedArgs{"after": after, "rows": size, "repair": repair}).
		Scan(&d.Rows, &d.Missing, &d.Different, &d.Unusable, &next)
	return next, d, err
}

// eachStep runs steps until one is the last. One that a writer keeps waiting is repeated
// with fewer rows; a single row holds nothing that a writer could wait for.
func (s *Store) eachStep(ctx context.Context, db Beginner, o AttachOptions, do func(context.Context, pgx.Tx, int) (bool, Drift, error), sum *Drift) error {
	full := o.BatchSize
	if full <= 0 {
		full = 2000
	}
	for size := full; ; {
		var done bool
		var d Drift
		err := s.step(ctx, db, stepLock, func(ctx context.Context, tx pgx.Tx) (err error) {
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

// act runs one transaction of an act, whose event says by whom.
func (s *Store) act(ctx context.Context, db Beginner, lock time.Duration, by By, do func(context.Context, pgx.Tx) error) error {
	return s.step(ctx, db, lock, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.actorSet, pgx.StrictNamedArgs{"actor": by.Actor, "reason": by.Reason}); err != nil {
			return err
		}
		return do(ctx, tx)
	})
}

// step runs one transaction.
func (s *Store) step(ctx context.Context, db Beginner, lock time.Duration, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepDeadline)
	defer cancel()
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.attachmentBegin); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, queries.attachmentLimits, pgx.StrictNamedArgs{"lock_timeout_ms": lock.Milliseconds()}); err != nil {
			return err
		}
		return do(ctx, tx)
	})
}

// waits reports whether a transaction gave way to another: a lock it did not get, or a
// deadlock.
func waits(err error) bool {
	class := db.ClassOf(err)
	return class == db.Locked || class == db.Conflict
}

// lacksRight reports that the user lacks a right.
func lacksRight(err error) bool { return db.ClassOf(err) == db.Forbidden }

// attachProblem adds the operation, and the remedy where rights are missing.
func attachProblem(operation, relation string, err error) error {
	switch {
	case err == nil || errors.Is(err, ErrAttachment) || errors.Is(err, ErrRights):
		return err
	case lacksRight(err) && operation == "detach":
		return fmt.Errorf("channels: detach %s: only its owner may drop triggers: run it as the owner, or GRANT the owner's role to this user: %w", relation, err)
	case lacksRight(err):
		return fmt.Errorf("channels: %s %s: it takes SELECT and, to attach, TRIGGER on the relation, what `belfry roles --for operate` prints and, to attach, ownership of the schema belfry, and no policy that hides rows: %w", operation, relation, err)
	}
	return fmt.Errorf("channels: %s %s: %w", operation, relation, err)
}
