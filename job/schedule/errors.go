package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

var (
	// ErrNotFound reports that there is no schedule of the given name.
	ErrNotFound = errors.New("no such schedule")
	// ErrLocked reports that another session, a firing perhaps, kept the schedule's row
	// locked for so long that the act was given up. Nothing changed.
	ErrLocked = errors.New("the schedule is locked by another session")
)

// SourceError reports that a definition was refused because the schedule of that name
// comes from elsewhere. Nothing changed.
type SourceError struct {
	Name string
	Is   Source // where the schedule that exists comes from
}

// Error names the schedule and what to do.
func (e *SourceError) Error() string {
	if e.Is == FromConfig {
		return fmt.Sprintf("schedule %s is defined in the configuration file; change it there, or take it out there and remove it first", e.Name)
	}
	return fmt.Sprintf("schedule %s is defined in the database; remove it there first, or give the one in the configuration file another name", e.Name)
}

// SQLSTATE codes that decide something here.
const (
	codeBadText       = "22021"
	codeBadJSONText   = "22P05"
	codeLockTimeout   = "55P03"
	codeQueryCanceled = "57014"
	codeReadOnly      = "25006"
	codeNoPrivilege   = "42501"
	codeBadParameter  = "22023"
)

// mapError translates a PostgreSQL error by SQLSTATE and schema. Bad input is a
// *job.InvalidError, a database that does not answer job.ErrUnreachable.
func mapError(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, job.ErrUnreachable):
		return err
	case errors.As(err, &pg):
		if message, refused := db.Refusal(pg); refused {
			return &job.InvalidError{Column: pg.ColumnName, Message: message, Hint: pg.Hint}
		}
		switch {
		case pg.Code == codeBadText, pg.Code == codeBadJSONText:
			return &job.InvalidError{Message: "belfry.schedules: a text " + pg.Message + "; allowed values: UTF-8 without NUL"}
		case pg.Code == codeLockTimeout:
			return fmt.Errorf("%w: %w", ErrLocked, err)
		case gone(pg.Code):
			return fmt.Errorf("%w: %w", job.ErrUnreachable, err)
		}
		return db.Explain(err)
	case lost(err):
		return job.Unreachable(err)
	}
	return err
}

// gone reports a server that ends, refuses or has lost the connection.
func gone(code string) bool {
	switch code {
	case "57P01", "57P02", "57P03", "57P05", "53300", "25P03", "25P04":
		return true
	}
	return strings.HasPrefix(code, "08")
}

// lost reports an error of the connection itself rather than of the server's answer.
func lost(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// transient reports an answer of the server that may be another one at the next tick,
// whatever the schedule says: it goes away, is a standby now, is locked, out of
// resources or out of time.
func transient(code string) bool {
	switch code {
	case "40001", "40P01", codeLockTimeout, codeQueryCanceled, codeReadOnly:
		return true
	}
	return gone(code) || strings.HasPrefix(code, "53") || strings.HasPrefix(code, "58") || strings.HasPrefix(code, "XX")
}

// ownFault reports an error that is the schedule's and not the database's: the same
// occurrence fails the same way until somebody changes something, if only the rows that
// its query reads.
func ownFault(err error) bool {
	var fault *faultError
	var invalid *job.InvalidError
	var pg *pgconn.PgError
	return errors.As(err, &fault) || errors.As(err, &invalid) || errors.As(err, &pg) && !transient(pg.Code)
}

// faultError is what is wrong with a schedule, its query or a row of it.
type faultError struct{ cause error }

func (e *faultError) Error() string { return e.cause.Error() }
func (e *faultError) Unwrap() error { return e.cause }

func faultf(format string, args ...any) error {
	return &faultError{fmt.Errorf(format, args...)}
}

// queryFault words an error of the operator's query. What is transient elsewhere is
// the query's own here, when it takes too long or wants to write.
func (s Schedule) queryFault(err error) error {
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
		return err
	case pg.Code == codeQueryCanceled:
		return faultf("query: took longer than %s", s.QueryTimeout)
	case pg.Code != codeReadOnly && transient(pg.Code):
		return err
	}
	return faultf("query: %s (SQLSTATE %s)", pg.Message, pg.Code)
}

// roleFault words that a role cannot be become, and guardFault that it can make no
// function. user and database are quoted.
func roleFault(err error, role, user string) error {
	var pg *pgconn.PgError
	name := pgx.Identifier{role}.Sanitize()
	switch {
	case !errors.As(err, &pg):
		return err
	case pg.Code == codeNoPrivilege:
		return faultf("query_role: %s may not become %s; run: GRANT %s TO %s", user, name, name, user)
	case pg.Code == codeBadParameter:
		return faultf("query_role: %s is not a role of this server; run: CREATE ROLE %s; GRANT %s TO %s", name, name, name, user)
	}
	return err
}

func guardFault(err error, role, database string) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codeNoPrivilege {
		name := pgx.Identifier{role}.Sanitize()
		return faultf("query_role: %s may not make the temporary function that keeps a query to its role (%s); run: GRANT TEMPORARY ON DATABASE %s TO %s",
			name, pg.Message, database, name)
	}
	return err
}
