package admin

import (
	"context"
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox"
)

// Kind is what an error of an operation means to whoever asked for it, whatever shows it:
// an exit code, a status of HTTP.
type Kind string

// The kinds. Every error has one.
const (
	Failed      Kind = "failed"      // anything else: the same fails the same way
	Invalid     Kind = "invalid"     // the input: nothing was done
	NotFound    Kind = "not found"   // what it names does not exist
	Conflict    Kind = "conflict"    // the state of things does not allow it now
	Stale       Kind = "stale"       // it was changed since the caller saw it: nothing was done
	Held        Kind = "held"        // others work on it: trying again later helps
	Denied      Kind = "denied"      // who asks has too little a role
	Forbidden   Kind = "forbidden"   // the role in the database lacks a right
	Standby     Kind = "standby"     // the server takes no rows
	Unavailable Kind = "unavailable" // the database, or a server beside it, does not answer
	TooSlow     Kind = "too slow"    // it was ended after its time
	Unknown     Kind = "unknown"     // an act may or may not have taken effect
)

// kinds has the kind of each error that others compare with; the first that fits counts.
var kinds = []struct {
	err  error
	kind Kind
}{
	{job.ErrNotFound, NotFound},
	{schedule.ErrNotFound, NotFound},
	{channels.ErrNoSegment, NotFound},
	{channels.ErrNoChannel, NotFound},
	{channels.ErrNoCategory, NotFound},
	{delivery.ErrNoMessage, NotFound},
	{ErrNoToken, NotFound},
	{ErrTokenExists, Conflict},
	{ErrNoUser, NotFound},
	{ErrUserExists, Conflict},
	{ErrNoSession, NotFound},
	{channels.ErrAudience, Invalid},
	{channels.ErrPreference, Invalid},
	{job.ErrNoSkips, Conflict},
	{job.ErrLocked, Conflict},
	{schedule.ErrLocked, Conflict},
	{channels.ErrSegmentExists, Conflict},
	{channels.ErrCategoryExists, Conflict},
	{channels.ErrNotOwn, Conflict},
	{channels.ErrNotAttached, Conflict},
	{channels.ErrRights, Forbidden},
	{delivery.ErrRecallStopped, Conflict},
	{outbox.ErrRowsLocked, Conflict},
	{delivery.ErrStillSent, Conflict},
	{delivery.ErrPruned, Conflict},
	{outbox.ErrNotAdopted, Conflict},
	{job.ErrTooSlow, TooSlow},
	{job.ErrUnreachable, Unavailable},
}

// classKinds has the kind of each class of the database's errors.
var classKinds = map[db.Class]Kind{
	db.Other:       Failed,
	db.Unreachable: Unavailable,
	db.Refused:     Unavailable,
	db.NoAnswer:    TooSlow,
	db.TooSlow:     TooSlow,
	db.Locked:      Conflict,
	db.Conflict:    Conflict,
	db.Shortage:    Unavailable,
	db.ReadOnly:    Standby,
	db.Unprepared:  Unavailable,
	db.Invalid:     Invalid,
	db.Violation:   Conflict,
	db.Raised:      Failed,
	db.Forbidden:   Forbidden,
	db.Missing:     Failed,
	db.Internal:    Failed,
}

// KindOf returns the kind of an error that is not nil.
func KindOf(err error) Kind {
	var connect *pgconn.ConnectError
	var network *net.OpError
	told, class := new(ToldError), db.ClassOf(err)
	switch {
	case errors.As(err, new(*UnknownOutcomeError)):
		return Unknown
	case errors.As(err, new(*DeniedError)):
		return Denied
	case errors.As(err, new(*StaleError)), errors.As(err, new(*db.StaleError)):
		return Stale
	case errors.As(err, new(*HeldError)):
		return Held
	case errors.As(err, new(*UnavailableError)):
		return Unavailable
	case errors.As(err, &told):
		return told.Kind
	case class == db.ReadOnly: // also of a connection that was refused for it
		return Standby
	case errors.As(err, &connect):
		return Unavailable
	}
	for _, known := range kinds {
		if errors.Is(err, known.err) {
			return known.kind
		}
	}
	switch {
	case errors.As(err, new(*InvalidError)), errors.As(err, new(*job.InvalidError)), errors.As(err, new(*delivery.DeadFilterError)):
		return Invalid
	case errors.As(err, new(*job.WrongStatusError)), errors.As(err, new(*job.NotAwaitingError)), errors.As(err, new(*job.OwnJobError)), errors.As(err, new(*job.CountError)), errors.As(err, new(*job.YoungerError)), errors.As(err, new(*schedule.SourceError)), errors.As(err, new(*delivery.AuditTypeError)):
		return Conflict
	case errors.As(err, &network):
		return Unavailable
	case class == db.Unreachable && db.Code(err) == "": // an EOF may be a file's
		return Failed
	}
	return classKinds[class]
}

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

func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// outcome tells an act that may have taken effect from one that has not. What the server
// itself answered, and what never reached it, has not.
func outcome(err error) error {
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
