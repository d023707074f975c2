package operation

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/job"
)

// UnknownOutcomeError is the error of an act during which the database went silent: it may
// have taken effect all the same, which its text says unless Err has its own advice.
type UnknownOutcomeError struct{ Err error }

// Error is that of what cut the act short, and the advice.
func (e *UnknownOutcomeError) Error() string {
	if errors.As(e.Err, new(*AdvisedError)) || errors.As(e.Err, new(*UnavailableError)) || errors.As(e.Err, new(*job.FlaggedError)) {
		return e.Err.Error()
	}
	return e.Err.Error() + "; it may have taken effect all the same: check before you repeat it"
}

// Kind returns errkind.Unknown.
func (*UnknownOutcomeError) Kind() errkind.Kind { return errkind.Unknown }

func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// UnlessUnknown tells an act that may have taken effect from one that has not. What the server
// itself answered, and what never reached it, has not.
func UnlessUnknown(err error) error {
	var connect *pgconn.ConnectError
	silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || db.ClassOf(err) == db.Unreachable
	if err == nil || !silent || db.Code(err) != "" || errors.As(err, &connect) || pgconn.SafeToRetry(err) {
		return err
	}
	return &UnknownOutcomeError{err}
}

// DeniedError is an operation that needs a higher role than the one that asks. Nothing was done.
type DeniedError struct {
	Operation  string
	Has, Needs Role
}

// Error names the role that is needed.
func (e *DeniedError) Error() string {
	return e.Operation + " needs the role " + e.Needs.String() + "; this is " + e.Has.String()
}

// Kind returns errkind.Denied.
func (*DeniedError) Kind() errkind.Kind { return errkind.Denied }
