package job

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/internal/db"
)

// refusedForAllError reports a constraint that rejects the rows of all recipients, such as a new CHECK or
// trigger, or a missing partition. No recipient is the cause, and like a shortage it lasts until an
// administrator fixes it.
type refusedForAllError struct{ cause error }

func (e refusedForAllError) Error() string {
	return "the rows of all recipients are rejected, so no recipient is the cause: " + e.cause.Error()
}
func (e refusedForAllError) Unwrap() error { return e.cause }

// constraint identifies the cause of a rejected row: a constraint (class 23), or the place in a user's
// function that raises an error (class P0). The message is ignored, because it may contain the row.
type constraint struct{ code, schema, table, name string }

func violated(err error) (c constraint, ok bool) {
	var own writerError
	var pg *pgconn.PgError
	if errors.As(err, &own) || !errors.As(err, &pg) {
		return constraint{}, false
	}
	c = constraint{pg.Code, pg.SchemaName, pg.TableName, pg.ConstraintName}
	switch class := db.ClassOf(err); {
	case class == db.Violation:
		return c, true
	case class == db.Raised:
		if c.name == "" {
			c.name, _, _ = strings.Cut(pg.Where, "\n") // PL/pgSQL function f() line 3 at RAISE
		}
		return c, true
	}
	return constraint{}, false
}

// ofItself reports whether the row was rejected because it exists already. That is no evidence about other
// recipients.
func (c constraint) ofItself() bool {
	return c.code == db.UniqueViolation || c.code == db.ExclusionViolation
}

// probeKeys bounds the keys that a probe reads, because few of them may be recipients.
const probeKeys = 10 * maxSkipsInARow

// errProbed rolls a probe back.
var errProbed = errors.New("probed")

// refusesAll decides, before a recipient is skipped because of a constraint, whether the constraint rejects
// all recipients. That is so if it also rejects the next maxSkipsInARow recipients; or all remaining
// recipients and one that has a row already; or all recipients if none has a row. It writes their rows one
// by one and rolls everything back. Otherwise the constraint may have been fixed since the fault, so the
// recipient is tried again, once: over reports that it is no longer rejected. If it still is, recipients
// before the first accepted one are skipped without another probe.
func (u *run) refusesAll(ctx context.Context, fault faultError) (over bool, err error) {
	keyset := u.kind.keyset
	kind, ok := violated(fault.cause)
	if !ok || u.poison.sound != nil && keyset.Compare(fault.step.next, *u.poison.sound) < 0 {
		return false, nil
	}
	var all, sound, ended bool
	after := fault.step.next
	err = u.inTx(ctx, false, func(ctx context.Context, tx pgx.Tx) (err error) {
		refused := 1
		for keys := 0; keys < probeKeys && refused < maxSkipsInARow && !sound && !ended; keys++ {
			s, same, err := u.ask(ctx, tx, u.walker, after, kind)
			if err != nil {
				return err
			}
			switch {
			case s.read == 0:
				ended = true
				continue
			case same:
				refused++
			case s.matched > 0:
				sound = true
			}
			after = s.next
		}
		switch {
		case refused >= maxSkipsInARow:
			all = true
		case ended && u.job.RowsWritten == 0:
			all = refused > 1
		case ended:
			if all, err = u.refusesEarlier(ctx, tx, kind); err != nil {
				return err
			}
		}
		if !all && !u.poison.triedAgain(keyset, fault.step.next) {
			switch _, err := u.try(ctx, tx, u.walker, u.after); {
			case err == nil:
				over = true
			case retryable(err):
				return err
			}
		}
		return errProbed
	})
	switch {
	case !errors.Is(err, errProbed):
		return false, err
	case all:
		return false, refusedForAllError{fault.cause}
	case over:
		u.poison.again = &fault.step.next
	case sound, ended:
		u.poison.sound = &after
	}
	return over, nil
}

// refusesEarlier reports whether a constraint rejects a recipient that has a row already. Among the first
// recipients of the walk at most Skipped have no row, so the constraint rejects one with a row if it rejects
// more than Skipped of them. A row that is rejected as a duplicate passed the constraint, unless the
// constraint is checked after the keys, such as by an AFTER trigger. Then nothing is known, and the
// recipients count as the cause.
func (u *run) refusesEarlier(ctx context.Context, tx pgx.Tx, kind constraint) (bool, error) {
	if kind.ofItself() {
		return false, nil
	}
	var after cursor.Position
	walker, err := u.kind.open(ctx, tx, u.job, after, u.after)
	if err != nil {
		return false, fmt.Errorf("open walk: %w", err)
	}
	refused := int64(0)
	for range probeKeys {
		s, same, err := u.ask(ctx, tx, walker, after, kind)
		switch {
		case err != nil:
			return false, err
		case same:
			if refused++; refused > u.job.Skipped {
				return true, nil
			}
		case s.read == 0, s.matched > 0:
			return false, nil
		}
		after = s.next
	}
	return false, nil
}

// ask tries the recipient after a key, and reports whether the same constraint rejects it. A step that read
// nothing means that there is none.
func (u *run) ask(ctx context.Context, tx pgx.Tx, w walker, after cursor.Position, kind constraint) (s step, same bool, err error) {
	s, err = u.try(ctx, tx, w, after)
	if err != nil && (retryable(err) || s.read == 0) {
		return s, false, err
	}
	other, ok := violated(err)
	return s, ok && other == kind, nil
}

// try writes the rows of the recipient after a key, checks deferred constraints, and rolls back.
func (u *run) try(ctx context.Context, tx pgx.Tx, w walker, after cursor.Position) (s step, err error) {
	nested, err := tx.Begin(ctx)
	if err != nil {
		return step{}, fmt.Errorf("begin probe: %w", err)
	}
	if s, err = w.step(ctx, nested, u.job, after, 1); err == nil && s.matched > 0 {
		_, err = nested.Exec(ctx, queries.probeConstraints)
	}
	if errBack := nested.Rollback(ctx); errBack != nil {
		return step{}, fmt.Errorf("end probe: %w", errBack)
	}
	return s, err
}
