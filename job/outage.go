package job

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/cursor"
)

// outageError is a constraint that refuses everybody's rows: a CHECK or trigger that somebody
// has added, a partition that is missing. No recipient is to blame, and it lasts until
// somebody fixes it, as a shortage does.
type outageError struct{ cause error }

func (e outageError) Error() string {
	return "everybody's rows are refused alike; the fault is not the recipients': " + e.cause.Error()
}
func (e outageError) Unwrap() error { return e.cause }

// constraint names what an integrity constraint violation (class 23) is of. The message does
// not count: it may name the row.
type constraint struct{ code, schema, table, name string }

func violated(err error) (c constraint, ok bool) {
	var own writerError
	var pg *pgconn.PgError
	if errors.As(err, &own) || !errors.As(err, &pg) || !strings.HasPrefix(pg.Code, "23") {
		return constraint{}, false
	}
	return constraint{pg.Code, pg.SchemaName, pg.TableName, pg.ConstraintName}, true
}

// probeKeys bounds how many keys a probe reads: few of them may be recipients.
const probeKeys = 10 * maxSkipsInARow

// errProbed rolls a probe back.
var errProbed = errors.New("probed")

// outage decides, before a recipient is skipped for a constraint, whether that refuses
// everybody: so it is when the next recipients, as many as would be too many skips in a row,
// or all there are when nobody has got a row yet, are refused by it too. It writes their
// rows one by one and rolls everything back. Where one goes through, the constraint may have
// been fixed since the fault, so the recipient is tried again: over reports that it is
// refused no more, once for each recipient. If it still is, recipients up to the sound one
// are skipped without another look.
func (u *run) outage(ctx context.Context, fault faultError) (over bool, err error) {
	keyset := u.kind.keyset
	kind, ok := violated(fault.cause)
	if !ok || u.poison.sound != nil && keyset.Compare(fault.step.next, *u.poison.sound) < 0 {
		return false, nil
	}
	refused, sound, ended := 1, false, false
	after := fault.step.next
	err = u.inTx(ctx, false, func(ctx context.Context, tx pgx.Tx) error {
		for keys := 0; keys < probeKeys && refused < maxSkipsInARow && !sound && !ended; keys++ {
			s, err := u.try(ctx, tx, after)
			other, same := violated(err)
			switch same = same && other == kind; {
			case err != nil && (retryable(err) || s.read == 0):
				return err
			case s.read == 0:
				ended = true
			case same:
				refused++
			case err != nil || s.matched > 0:
				sound = true
			}
			after = s.next
		}
		if sound && !u.poison.triedAgain(keyset, fault.step.next) {
			switch _, err := u.try(ctx, tx, u.after); {
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
	case over:
		u.poison.again = &fault.step.next
	case sound:
		u.poison.sound = &after
	case refused >= maxSkipsInARow, ended && refused > 1 && u.job.RowsWritten == 0:
		return false, outageError{fault.cause}
	}
	return over, nil
}

// try writes the rows of the recipient after a key, checks what would be checked at COMMIT,
// and takes it back.
func (u *run) try(ctx context.Context, tx pgx.Tx, after cursor.Position) (s step, err error) {
	nested, err := tx.Begin(ctx)
	if err != nil {
		return step{}, fmt.Errorf("begin probe: %w", err)
	}
	if s, err = u.walker.step(ctx, nested, u.job, after, 1); err == nil && s.matched > 0 {
		_, err = nested.Exec(ctx, queries.SQL("ProbeConstraints"))
	}
	if errBack := nested.Rollback(ctx); errBack != nil {
		return step{}, fmt.Errorf("end probe: %w", errBack)
	}
	return s, err
}
