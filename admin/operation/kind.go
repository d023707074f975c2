package operation

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// UnknownOutcomeError reports an act during which the connection to the database was lost. The act may have
// taken effect. The text advises to check that, unless Err has its own advice.
type UnknownOutcomeError struct{ Err error }

// Error returns the text of Err and the advice.
func (e *UnknownOutcomeError) Error() string {
	if errors.As(e.Err, new(*AdvisedError)) || errors.As(e.Err, new(*UnavailableError)) || errors.As(e.Err, new(*job.FlaggedError)) {
		return e.Err.Error()
	}
	return e.Err.Error() + "; it may have taken effect: check before you repeat it"
}

// Kind returns db.KindUnknown.
func (*UnknownOutcomeError) Kind() db.Kind { return db.KindUnknown }

func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// UnlessUnknown wraps the error of an act that may have taken effect. An act had no effect if it did not reach
// the server, or if the server returned the error, unless the server ended the connection: that may have
// happened after the commit.
func UnlessUnknown(err error) error {
	var connect *pgconn.ConnectError
	silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || db.ClassOf(err) == db.Unreachable
	if err == nil || !silent || db.Code(err) != "" && !db.Terminated(err) || errors.As(err, &connect) || pgconn.SafeToRetry(err) {
		return err
	}
	return &UnknownOutcomeError{err}
}

// AfterCommit wraps the error of reading the result of a committed act, with the way to read it. It returns nil
// for nil.
func AfterCommit(err error, advice string) error {
	if err == nil {
		return nil
	}
	return &UnknownOutcomeError{Advise(err, advice)}
}

// DeniedError reports an operation that requires a higher role. Nothing was done.
type DeniedError struct {
	Operation  string
	Has, Needs Role
}

// Error names the required role.
func (e *DeniedError) Error() string {
	return e.Operation + " needs the role " + e.Needs.String() + "; this is " + e.Has.String()
}

// Kind returns db.KindDenied.
func (*DeniedError) Kind() db.Kind { return db.KindDenied }
