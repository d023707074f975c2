// Package errkind classifies errors by their meaning for the caller, so that the command line can
// choose an exit code and the API a status without a list of every error of belfry.
//
// An error has a kind if it, or an error that it wraps, has a method Kind() errkind.Kind. The outermost kind
// applies. [Of] also classifies the errors of PostgreSQL and of the network. Sentinel errors are made by
// [New]. The design follows upspin's errors package and gRPC's codes.
package errkind

import (
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
)

// Kind is the meaning of an error for the caller of an operation.
type Kind string

// The kinds. Every error has one.
const (
	Failed      Kind = "failed"      // any other error; repeating the operation does not help
	Invalid     Kind = "invalid"     // the input is invalid; nothing was done
	NotFound    Kind = "not found"   // the object does not exist
	Conflict    Kind = "conflict"    // the state of the object does not allow the operation now
	Stale       Kind = "stale"       // the object has changed since the caller read it; nothing was done
	Held        Kind = "held"        // another process holds a lock; a later attempt can succeed
	Denied      Kind = "denied"      // the caller's role in belfry does not allow the operation
	Forbidden   Kind = "forbidden"   // the role in the database lacks a privilege
	Standby     Kind = "standby"     // the server is read-only
	Unavailable Kind = "unavailable" // the database, or another server, does not answer
	TooSlow     Kind = "too slow"    // the operation exceeded its deadline
	Unknown     Kind = "unknown"     // the operation may or may not have taken effect
)

// New returns an error with a text and a kind, for a sentinel that callers compare by errors.Is.
func New(kind Kind, text string) error { return &sentinel{kind, text} }

type sentinel struct {
	kind Kind
	text string
}

func (e *sentinel) Error() string { return e.text }
func (e *sentinel) Kind() Kind    { return e.kind }

// classKinds has the kind of each class of database errors.
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

// Of returns the kind of an error, which must not be nil.
func Of(err error) Kind {
	class := db.ClassOf(err)
	var kinded interface {
		error
		Kind() Kind
	}
	isKinded := errors.As(err, &kinded)
	switch {
	case isKinded && kinded.Kind() == Unknown:
		return Unknown
	case errors.As(err, new(*db.StaleError)):
		return Stale
	case class == db.ReadOnly: // also the reason of a refused connection
		return Standby
	case isKinded:
		return kinded.Kind()
	case errors.As(err, new(*pgconn.ConnectError)), errors.As(err, new(*net.OpError)):
		return Unavailable
	case class == db.Unreachable && db.Code(err) == "": // an EOF may be a file's
		return Failed
	}
	return classKinds[class]
}
