package db

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// Class is what an error of the database means to whoever asked for something.
type Class string

// The classes. An error has one, or Other.
const (
	Other       Class = ""            // anything else: the same statement fails the same way
	Unreachable Class = "unreachable" // no statement reaches the server: it is away, ends, starts, or has no connection left
	Refused     Class = "login"       // it refuses the login: user, password, database
	NoAnswer    Class = "no answer"   // none came within the caller's deadline: it is slow, or cut off
	TooSlow     Class = "too slow"    // the server ended a statement, or a transaction, that took too long
	Locked      Class = "locked"      // another session keeps something locked
	Conflict    Class = "conflict"    // another transaction came in between: a deadlock, no serial order
	Shortage    Class = "shortage"    // room, memory or files have run out, and somebody has to bring them back
	ReadOnly    Class = "read-only"   // the server, or the transaction, takes no rows: a standby
	Unprepared  Class = "unprepared"  // a pooler has lost a prepared statement, or kept one of somebody else
	Invalid     Class = "invalid"     // no value that the type, the function or an index takes
	Violation   Class = "violation"   // a constraint
	Raised      Class = "raised"      // an error of a PL/pgSQL function: a plain RAISE EXCEPTION, above all
	Forbidden   Class = "forbidden"   // the role lacks a right
	Missing     Class = "missing"     // no such table, column, function or schema, or one of another type
	Internal    Class = "internal"    // the server's own: damaged data, or what it did not expect
)

// The SQLSTATEs that decide something by themselves.
const (
	featureNotSupported  = "0A000"
	BadText              = "22021" // a NUL or invalid UTF-8
	BadParameter         = "22023"
	BadJSONText          = "22P05" // \u0000 in JSON
	notNullViolation     = "23502"
	ForeignKeyViolation  = "23503"
	UniqueViolation      = "23505"
	checkViolation       = "23514"
	ExclusionViolation   = "23P01"
	NoSuchDatabase       = "3D000"
	SerializationFailure = "40001"
	TooManyConnections   = "53300"
	databaseExists       = "42P04"
	StartingUp           = "57P03" // or recovering, or stopping
)

// classes has the class of each SQLSTATE, or of all that begin so; the longest wins.
var classes = map[string]Class{
	"08": Unreachable,
	// A pooler's too many are its own 08P01.
	TooManyConnections: Unreachable, "57P": Unreachable,
	"28": Refused, NoSuchDatabase: Refused,
	// statement_timeout or an administrator; idle_in_transaction_session_timeout; transaction_timeout.
	"57014": TooSlow, "25P03": TooSlow, "25P04": TooSlow,
	"55P03": Locked, "55006": Locked,
	"40": Conflict,
	"53": Shortage, "58": Shortage,
	"25006": ReadOnly,
	"26000": Unprepared, "42P05": Unprepared,
	"22": Invalid, "54": Invalid,
	"23":    Violation,
	"P0":    Raised,
	"42501": Forbidden,
	"42P01": Missing, "42703": Missing, "42883": Missing, "42804": Missing, "42846": Missing, "3F000": Missing,
	"XX": Internal,
}

// ClassOf returns the class of an error. nil, what ctx's owner has cancelled, and what comes
// neither from the server nor from the connection are Other.
func ClassOf(err error) Class {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, ErrStandby):
		return ReadOnly
	case errors.Is(err, ErrStatementPooling):
		return Other
	case errors.As(err, &connect):
		if errors.As(connect, &pg) && (classOf(pg.Code) == Refused || classOf(pg.Code) == Forbidden) { // CONNECT is missing
			return Refused
		}
		return Unreachable
	case errors.As(err, &pg):
		return classOf(pg.Code)
	case errors.Is(err, context.DeadlineExceeded):
		return NoAnswer
	case disconnected(err):
		return Unreachable
	}
	return Other
}

func classOf(code string) Class {
	for n := len(code); n > 1; n-- {
		if c, ok := classes[code[:n]]; ok {
			return c
		}
	}
	return Other
}

// Code returns the SQLSTATE of the server's error in err; empty: there is none.
func Code(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return ""
	}
	return pg.Code
}

// MadeMeanwhile reports that a database was not created because another session was quicker.
func MadeMeanwhile(err error) bool {
	code := Code(err)
	return code == databaseExists || code == UniqueViolation // in pg_database
}

// Passes reports whether the same may succeed when it is tried again, with nothing changed
// in what was asked for.
func (c Class) Passes() bool {
	switch c {
	case Unreachable, Refused, NoAnswer, TooSlow, Locked, Conflict, Shortage, ReadOnly, Unprepared:
		return true
	case Other, Invalid, Violation, Raised, Forbidden, Missing, Internal:
	}
	return false
}

// OfRows reports whether the rows are to blame: others may be taken.
func (c Class) OfRows() bool { return c == Invalid || c == Violation || c == Raised }

// disconnected reports an error of the connection itself rather than of the server's answer.
func disconnected(err error) bool {
	var network net.Error // errors of the operating system and net.ErrClosed are some
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}
