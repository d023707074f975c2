package db

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Class is the meaning of a database error for the caller.
type Class string

// The classes. An error has one, or Other.
const (
	Other       Class = ""            // anything else: the same statement fails the same way
	Unreachable Class = "unreachable" // no statement reaches the server: it is down, starting, stopping, or has no connection left
	Refused     Class = "login"       // the server rejects the login: user, password, database
	NoAnswer    Class = "no answer"   // no response within the caller's deadline: the server is slow or cut off
	TooSlow     Class = "too slow"    // the server ended a statement or a transaction at its timeout
	Locked      Class = "locked"      // another session holds a lock
	Conflict    Class = "conflict"    // a deadlock or a serialization failure
	Shortage    Class = "shortage"    // disk space, memory or files have run out, until an administrator intervenes
	ReadOnly    Class = "read-only"   // the server or the transaction is read-only, such as a standby
	Unprepared  Class = "unprepared"  // a pooler has lost a prepared statement, or confused it with another client's
	Invalid     Class = "invalid"     // a value that the type, the function or an index does not accept
	Violation   Class = "violation"   // a constraint
	Raised      Class = "raised"      // an error of a PL/pgSQL function: a plain RAISE EXCEPTION, above all
	Forbidden   Class = "forbidden"   // the role lacks a right
	Missing     Class = "missing"     // a table, column, function or schema does not exist or has another type
	Internal    Class = "internal"    // an internal error of the server, such as damaged data
)

// The SQLSTATEs that belfry handles individually.
const (
	featureNotSupported  = "0A000"
	BadText              = "22021" // a NUL or invalid UTF-8
	BadParameter         = "22023"
	BadJSONText          = "22P05" // \u0000 in JSON
	notNullViolation     = "23502"
	ForeignKeyViolation  = "23503"
	UniqueViolation      = "23505"
	checkViolation       = "23514"
	programLimit         = "54000"
	ExclusionViolation   = "23P01"
	NoSuchDatabase       = "3D000"
	SerializationFailure = "40001"
	TooManyConnections   = "53300"
	databaseExists       = "42P04"
	StartingUp           = "57P03" // or recovering, or stopping
)

// classes maps SQLSTATEs, or their prefixes, to classes. The longest prefix wins.
var classes = map[string]Class{
	"08": Unreachable,
	// A pooler reports too many connections as 08P01.
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

// waitedForRow matches the context of an error that ended a wait for the lock of a row, such as "while locking tuple (0,5)
// in relation "jobs"", in all languages. lock_timeout bounds each of the waits for sessions that share a lock, and not all
// of them together: statement_timeout ends these.
var waitedForRow = regexp.MustCompile(`^[^\n]*\(\d+,\d+\)`)

// Terminated reports whether the server ended the connection: by a shutdown, a crash, pg_terminate_backend or an
// idle timeout. A COMMIT in that moment may have taken effect.
func Terminated(err error) bool {
	code := Code(err)
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") && code != StartingUp
}

// ClassOf returns the class of an error. Other is returned for nil, for a cancelled context, and for errors
// that come neither from the server nor from the connection.
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
		if classOf(pg.Code) == TooSlow && waitedForRow.MatchString(pg.Where) {
			return Locked
		}
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

// Code returns the SQLSTATE of the server's error in err, or "" if there is none.
func Code(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return ""
	}
	return pg.Code
}

// MadeMeanwhile reports whether a database was not created because another session created it first.
func MadeMeanwhile(err error) bool {
	code := Code(err)
	return code == databaseExists || code == UniqueViolation // in pg_database
}

// Passes reports whether the same statement may succeed when it is repeated.
func (c Class) Passes() bool {
	switch c {
	case Unreachable, Refused, NoAnswer, TooSlow, Locked, Conflict, Shortage, ReadOnly, Unprepared:
		return true
	case Other, Invalid, Violation, Raised, Forbidden, Missing, Internal:
	}
	return false
}

// OfRows reports whether the rows are the cause, so that other rows may succeed.
func (c Class) OfRows() bool { return c == Invalid || c == Violation || c == Raised }

// disconnected reports whether err is an error of the connection and not a response of the server.
func disconnected(err error) bool {
	var network net.Error // errors of the operating system and net.ErrClosed are some
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, pgconn.ErrConnClosed) || pgconn.SafeToRetry(err)
}
