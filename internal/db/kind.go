package db

import (
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// Kind is the meaning of an error for the caller of an operation. The command line chooses an exit code by it,
// the API a status. An error has a kind if it, or an error that it wraps, has a method Kind() db.Kind; the
// outermost kind applies. The design follows upspin's errors package and gRPC's codes.
type Kind string

// The kinds. Every error has one.
const (
	KindFailed      Kind = "failed"      // any other error; repeating the operation does not help
	KindInvalid     Kind = "invalid"     // the input is invalid; nothing was done
	KindNotFound    Kind = "not found"   // the object does not exist
	KindConflict    Kind = "conflict"    // the state of the object does not allow the operation now
	KindStale       Kind = "stale"       // the object has changed since the caller read it; nothing was done
	KindHeld        Kind = "held"        // another process holds a lock; a later attempt can succeed
	KindDenied      Kind = "denied"      // the caller's role in belfry does not allow the operation
	KindForbidden   Kind = "forbidden"   // the role in the database lacks a privilege
	KindStandby     Kind = "standby"     // the server is read-only
	KindUnavailable Kind = "unavailable" // the database, or another server, does not answer
	KindTooSlow     Kind = "too slow"    // the operation exceeded its deadline
	KindUnknown     Kind = "unknown"     // the operation may or may not have taken effect
)

// ErrUnreachable is job.ErrUnreachable, also for packages that job imports.
var ErrUnreachable = NewError(KindUnavailable, "database unreachable")

// NewError returns an error with a text and a kind, for a sentinel that callers compare by errors.Is.
func NewError(kind Kind, text string) error { return &sentinel{kind, text} }

type sentinel struct {
	kind Kind
	text string
}

func (e *sentinel) Error() string { return e.text }
func (e *sentinel) Kind() Kind    { return e.kind }

// classKinds has the kind of each class of database errors.
var classKinds = map[Class]Kind{
	Other:       KindFailed,
	Unreachable: KindUnavailable,
	Refused:     KindUnavailable,
	NoAnswer:    KindTooSlow,
	TooSlow:     KindTooSlow,
	Locked:      KindConflict,
	Conflict:    KindConflict,
	Shortage:    KindUnavailable,
	ReadOnly:    KindStandby,
	Unprepared:  KindUnavailable,
	Invalid:     KindInvalid,
	Violation:   KindConflict,
	Raised:      KindFailed,
	Forbidden:   KindForbidden,
	Missing:     KindFailed,
	Internal:    KindFailed,
}

// KindOf returns the kind of an error, which must not be nil.
func KindOf(err error) Kind {
	class := ClassOf(err)
	var kinded interface {
		error
		Kind() Kind
	}
	isKinded := errors.As(err, &kinded)
	switch {
	case isKinded && kinded.Kind() == KindUnknown:
		return KindUnknown
	case errors.As(err, new(*StaleError)):
		return KindStale
	case class == ReadOnly: // also the reason of a refused connection
		return KindStandby
	case isKinded:
		return kinded.Kind()
	case errors.As(err, new(*pgconn.ConnectError)), errors.As(err, new(*net.OpError)):
		return KindUnavailable
	case Code(err) == programLimit: // of a row or a result that belfry reads or makes, and no value of the caller's
		return KindFailed
	case class == Unreachable && Code(err) == "": // an EOF may be a file's
		return KindFailed
	}
	return classKinds[class]
}
