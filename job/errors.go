package job

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/errkind"
)

var (
	// ErrNotFound reports that there is no job, or no group, with the given id.
	ErrNotFound = errkind.New(errkind.NotFound, "no such job")
	// ErrNoSkips reports that a job has no skipped recipient to try again.
	ErrNoSkips = errkind.New(errkind.Conflict, "no recipient was skipped")
	// ErrUnreachable reports that the database did not answer: the connection was
	// refused, lost or timed out. What was being committed at that moment may or may
	// not be; the job's row says.
	ErrUnreachable = errkind.New(errkind.Unavailable, "database unreachable")
	// errNoAnswer is the ErrUnreachable of a database that did not answer within the
	// deadline: it is slow, or cut off.
	errNoAnswer error = noAnswerError{}
	// ErrTooSlow reports that the server ended a statement, or a transaction, that took too
	// long. Nothing changed.
	ErrTooSlow = errkind.New(errkind.TooSlow, "the statement took too long")
	// ErrLocked reports that another session locked a row for longer than the operation waits.
	// Nothing changed. Errors of acts name the object and the session.
	ErrLocked = errkind.New(errkind.Conflict, "a row is locked by another session")
	// ErrKeyHeld reports that a request of a job waited in vain for another transaction, which has
	// enqueued its idempotency key and not ended, or locks what the request needs. Nothing was enqueued.
	ErrKeyHeld = errors.New("another transaction that has not ended has the idempotency key, or locks what this needs; nothing was done: end that transaction, or repeat this with the same key when it has ended")
	// errMoved reports that a chunk's guard matched no row. The job's row says why.
	errMoved = errors.New("the job moved under the run")
	// errRunOver reports that the job is not this run's any more: aborted, taken over
	// under a higher fence, or deleted. The chunk in progress was rolled back.
	errRunOver = errors.New("the run is over")
)

type noAnswerError struct{}

func (noAnswerError) Error() string        { return "the database did not answer in time" }
func (noAnswerError) Is(target error) bool { return target == ErrUnreachable }
func (noAnswerError) Kind() errkind.Kind   { return errkind.Unavailable }

// Unanswered wraps an error of a database that cannot be reached, or was silent, in
// ErrUnreachable, of a statement that it ended in ErrTooSlow, and of a row that stayed
// locked in locked, and adds a remedy where a pooler has lost a statement. Any other error
// stays as it is.
func Unanswered(err, locked error) error {
	switch class := db.ClassOf(err); {
	case class == db.Unreachable:
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

// InvalidError is bad input that the database refused. Nothing was written.
type InvalidError struct {
	Column  string // the column of belfry.jobs at fault; empty: not known
	Message string // names the column and the allowed values
	Hint    string // how to get what was probably wanted; may be empty
}

// Error returns the message and the hint.
func (e *InvalidError) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}

// Kind returns errkind.Invalid.
func (*InvalidError) Kind() errkind.Kind { return errkind.Invalid }

// WrongStatusError reports an operator's act on a job whose status does not allow
// it. Nothing changed.
type WrongStatusError struct {
	JobID  int64
	Act    string   // "abort", "resume" or "retry"
	Status Status   // what the job is
	Needs  []Status // what the act starts from
	// Delivered tells that the status would do, but no message of the job is left to be
	// held by an abort.
	Delivered bool
}

// Error names the job, what it is and what the act needs.
func (e *WrongStatusError) Error() string {
	var needs []string
	for _, s := range e.Needs {
		needs = append(needs, string(s))
	}
	if e.Delivered {
		return fmt.Sprintf("job %d is %s and has no message left to send; %s needs a job that is %s, or messages that are left", e.JobID, e.Status, e.Act, strings.Join(needs, " or "))
	}
	return fmt.Sprintf("job %d is %s; %s needs a job that is %s", e.JobID, e.Status, e.Act, strings.Join(needs, " or "))
}

// Kind returns errkind.Conflict.
func (*WrongStatusError) Kind() errkind.Kind { return errkind.Conflict }

// mapError translates a PostgreSQL error by SQLSTATE, schema and constraint into
// this package's errors and leaves any other error as it is.
func mapError(err error) error {
	var own writerError
	if errors.As(err, &own) || errors.Is(err, ErrLocked) {
		return err
	}
	return Answered(err, ErrLocked, "belfry.jobs")
}

// mapEnqueued is mapError of a request of a job.
func mapEnqueued(err error) error {
	if errors.Is(err, ErrKeyHeld) {
		return err
	}
	return Answered(err, ErrKeyHeld, "belfry.jobs")
}

// Answered translates what PostgreSQL answered, by its SQLSTATE and schema: what a rule of
// belfry's refuses of the table that a statement writes is an *InvalidError, and so is a text that
// the encoding refuses. Where table is empty, the statement writes what belfry itself makes of
// rows: only a refusal that names a column is somebody's input then, and any other stays what the
// server said, for whoever has to tell one bad row from many. For the rest see Unanswered. A nil
// error stays nil.
func Answered(err, locked error, table string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return Unanswered(err, locked)
	}
	if message, refused := db.Refusal(pg); refused && (table != "" || pg.ColumnName != "") {
		return &InvalidError{Column: pg.ColumnName, Message: message, Hint: pg.Hint}
	}
	if table != "" && (pg.Code == db.BadText || pg.Code == db.BadJSONText) {
		return &InvalidError{Message: table + ": a text " + pg.Message + "; allowed values: UTF-8 without NUL"}
	}
	return Unanswered(err, locked)
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

// contractError is a broken word of a Source or Writer about keys or counts: no
// recipient's fault, and a retry cannot fix it.
type contractError struct{ cause error }

func (e contractError) Error() string { return e.cause.Error() }
func (e contractError) Unwrap() error { return e.cause }

// judgeWriter marks a Writer's own errors. While the connection lives and time is
// left, only PostgreSQL's errors are judged by what they are.
func judgeWriter(ctx context.Context, tx pgx.Tx, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) || tx.Conn().IsClosed() || ctx.Err() != nil {
		return err
	}
	return writerError{err}
}

// retryable reports whether the same chunk may succeed when it is tried again:
// serialisation failures, deadlocks, timeouts, lost connections, a server that
// shuts down or starts up, resources that run out and come back, prepared statements
// that a pooler has lost, and a constraint that refuses everybody. Everything else (data
// exceptions, other constraint violations, what triggers raise, missing relations, a
// Writer's own errors) fails the same way each time.
func retryable(err error) bool {
	var own writerError
	if errors.As(err, &own) {
		return false
	}
	if errors.As(err, new(outageError)) || errors.Is(err, errMoved) {
		return true
	}
	return db.ClassOf(err).Passes() || errors.Is(err, ErrUnreachable)
}

// shortage reports that the server lacks something that somebody has to bring back,
// which takes longer than a deadlock: room on its disk, memory, connections, files, leave
// to write, or a constraint that lets anybody's rows through.
func shortage(err error) bool {
	if errors.As(err, new(outageError)) {
		return true
	}
	class := db.ClassOf(err)
	return retryable(err) && (class == db.Shortage || class == db.ReadOnly || db.Code(err) == db.TooManyConnections)
}
