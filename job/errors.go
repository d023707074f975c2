package job

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
)

var (
	// ErrNotFound reports that there is no job, or no group, with the given id.
	ErrNotFound = db.NewError(db.KindNotFound, "no such job")
	// ErrNoSkips reports that a job has no skipped recipient to try again.
	ErrNoSkips = db.NewError(db.KindConflict, "no recipient was skipped")
	// ErrUnreachable reports that the database did not answer: the connection was refused, lost or timed
	// out. A transaction in progress may or may not be committed; read the job's row.
	ErrUnreachable = db.ErrUnreachable
	// errNoAnswer is an ErrUnreachable: the database did not respond within the deadline, because it is slow
	// or cut off.
	errNoAnswer error = noAnswerError{}
	// ErrTooSlow reports that the server ended a statement or a transaction at its timeout. Nothing changed.
	ErrTooSlow = db.NewError(db.KindTooSlow, "the statement took too long")
	// ErrLocked reports that another session locked a row for longer than the operation waits.
	// Nothing changed. Errors of acts name the object and the session.
	ErrLocked = db.NewError(db.KindConflict, "a row is locked by another session")
	// ErrKeyHeld reports that a request waited too long for another open transaction that has enqueued the
	// same idempotency key, or locks a row that the request needs. Nothing was enqueued.
	ErrKeyHeld = errors.New(
		"another open transaction has the idempotency key, or locks a row that this request needs; nothing was done: end that " +
			"transaction, or repeat the request with the same key after its end")
	// errMoved reports that a chunk's guard matched no row. Read the job's row for the reason.
	errMoved = errors.New("the job moved under the run")
	// errRunOver reports that the job no longer belongs to this run: it was aborted, taken over under a
	// higher fence, or deleted. The chunk in progress was rolled back.
	errRunOver = errors.New("the run is over")
)

type noAnswerError struct{}

func (noAnswerError) Error() string        { return "the database did not answer in time" }
func (noAnswerError) Is(target error) bool { return target == ErrUnreachable }
func (noAnswerError) Kind() db.Kind        { return db.KindUnavailable }

// TranslateOutage wraps an error of an unreachable or unresponsive database in ErrUnreachable, a timeout of
// the server in ErrTooSlow, and a lock timeout in locked. It adds the remedy if a pooler has lost a
// statement. Other errors stay as they are.
func TranslateOutage(err, locked error) error {
	switch class := db.ClassOf(err); {
	case class == db.Unreachable && !errors.Is(err, ErrUnreachable):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	case class == db.NoAnswer:
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	case class == db.TooSlow:
		return fmt.Errorf("%w: %w", ErrTooSlow, err)
	case class == db.Locked:
		return fmt.Errorf("%w: %w", locked, err)
	}
	return db.Explain(err)
}

// InvalidError is invalid input that the database rejected. Nothing was written.
type InvalidError struct {
	Column  string // the invalid column of belfry.jobs, or "" if unknown
	Message string // names the column and the allowed values
	Hint    string // a suggestion; may be empty
}

// Error returns the message and the hint.
func (e *InvalidError) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}

// Kind returns db.KindInvalid.
func (*InvalidError) Kind() db.Kind { return db.KindInvalid }

// WrongStatusError reports an act on a job whose status does not allow it. Nothing changed.
type WrongStatusError struct {
	JobID  int64
	Act    string   // "abort", "resume" or "retry"
	Status Status   // the job's status
	Needs  []Status // the statuses that allow the act
	// Delivered means that the status allows the act, but no message is left for an abort to hold.
	Delivered bool
}

// Error names the job, its status and the required statuses.
func (e *WrongStatusError) Error() string {
	var needs []string
	for _, s := range e.Needs {
		needs = append(needs, string(s))
	}
	if e.Delivered {
		return fmt.Sprintf("job %d is %s and has no message left to send; %s needs a job that is %s, or messages that are left",
			e.JobID, e.Status, e.Act, strings.Join(needs, " or "))
	}
	return fmt.Sprintf("job %d is %s; %s needs a job that is %s", e.JobID, e.Status, e.Act, strings.Join(needs, " or "))
}

// Kind returns db.KindConflict.
func (*WrongStatusError) Kind() db.Kind { return db.KindConflict }

// mapError translates a PostgreSQL error by SQLSTATE, schema and constraint into
// this package's errors and leaves any other error as it is.
func mapError(err error) error {
	var own writerError
	if errors.As(err, &own) || errors.Is(err, ErrLocked) {
		return err
	}
	return TranslateError(err, ErrLocked, "belfry.jobs")
}

// mapEnqueued is mapError for enqueue requests.
func mapEnqueued(err error) error {
	if errors.Is(err, ErrKeyHeld) {
		return err
	}
	return TranslateError(err, ErrKeyHeld, "belfry.jobs")
}

// TranslateError translates an error of PostgreSQL by its SQLSTATE and schema. A violation of belfry's own
// constraints on table, and a text that the encoding rejects, is an *InvalidError. If table is empty, the
// statement writes rows that belfry generates: then only a violation that names a column is invalid input,
// and the others stay PostgreSQL's errors. For other errors see TranslateOutage. A nil error stays nil.
func TranslateError(err, locked error, table string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return TranslateOutage(err, locked)
	}
	if message, refused := db.Refusal(pg); refused && (table != "" || pg.ColumnName != "") {
		return &InvalidError{Column: pg.ColumnName, Message: message, Hint: pg.Hint}
	}
	if table != "" && (pg.Code == db.BadText || pg.Code == db.BadJSONText) {
		return &InvalidError{Message: table + ": a text " + pg.Message + "; allowed values: UTF-8 without NUL"}
	}
	return TranslateOutage(err, locked)
}

// laneTaken reports that another runner claimed a job of the same lane first (I4).
func laneTaken(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == db.UniqueViolation && pg.ConstraintName == "jobs_one_running_per_lane"
}

// timedOut reports that a chunk took too long, on the server or in the runner: a
// smaller one may fit.
func timedOut(err error) bool {
	class := db.ClassOf(err)
	return class == db.TooSlow || class == db.NoAnswer
}

// writerError is an error of a Writer that is neither PostgreSQL's nor due to a
// lost connection or a deadline: a retry cannot fix it, whatever it wraps.
type writerError struct{ cause error }

func (e writerError) Error() string { return e.cause.Error() }
func (e writerError) Unwrap() error { return e.cause }

// contractError is a violation of the contract of Source or Writer about keys or counts. No recipient causes
// it, and a retry cannot fix it.
type contractError struct{ cause error }

func (e contractError) Error() string { return e.cause.Error() }
func (e contractError) Unwrap() error { return e.cause }

// judgeWriter marks a Writer's own errors. While the connection is open and the context valid, only
// PostgreSQL's errors keep their type.
func judgeWriter(ctx context.Context, tx pgx.Tx, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) || tx.Conn().IsClosed() || ctx.Err() != nil {
		return err
	}
	return writerError{err}
}

// retryable reports whether the same chunk may succeed when it is tried again: serialisation failures,
// deadlocks, timeouts, lost connections, a server that shuts down or starts up, resources that run out and
// come back, prepared statements that a pooler has lost, and a constraint that rejects all rows. All other
// errors (data exceptions, other constraint violations, errors of triggers, missing relations, a Writer's
// own errors) would recur.
func retryable(err error) bool {
	var own writerError
	if errors.As(err, &own) {
		return false
	}
	if errors.As(err, new(refusedForAllError)) || errors.Is(err, errMoved) {
		return true
	}
	return db.ClassOf(err).Passes() || errors.Is(err, ErrUnreachable)
}

// shortage reports whether an administrator has to intervene, which takes longer than a deadlock: the server
// is out of disk space, memory, connections or files, is read-only, or has a constraint that rejects all
// rows, or another session keeps a row or a table locked.
func shortage(err error) bool {
	if errors.As(err, new(refusedForAllError)) {
		return true
	}
	class := db.ClassOf(err)
	return retryable(err) && (class == db.Shortage || class == db.ReadOnly || class == db.Locked || db.Code(err) == db.TooManyConnections)
}
