package schedule

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

var (
	// ErrNotFound reports that there is no schedule of the given name.
	ErrNotFound = db.NewError(db.KindNotFound, "no such schedule")
	// ErrLocked reports that another session, a firing perhaps, kept the schedule's row
	// locked for so long that the act was given up. Nothing changed.
	ErrLocked = db.NewError(db.KindConflict, "the schedule is locked by another session")
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
	return fmt.Sprintf(
		"schedule %s is defined in the database; remove it there first, or give the one in the configuration file another name", e.Name)
}

// Kind returns db.KindConflict.
func (*SourceError) Kind() db.Kind { return db.KindConflict }

// mapError translates a PostgreSQL error by SQLSTATE and schema. Bad input is a
// *job.InvalidError, a database that does not answer job.ErrUnreachable.
func mapError(err error) error {
	if errors.Is(err, job.ErrUnreachable) || errors.Is(err, job.ErrTooSlow) {
		return err // package job's
	}
	return job.TranslateError(err, ErrLocked, "belfry.schedules")
}

// transient reports an error of the server that may pass by the next tick, independent of the schedule: a
// shutdown, a standby, a lock, a shortage, a timeout, or an internal error.
func transient(err error) bool {
	class := db.ClassOf(err)
	return class.Passes() && class != db.Unprepared || class == db.Internal
}

// OwnFault reports an error of the schedule and not of the database: the same occurrence fails again until
// the schedule, or the rows that its query reads, are changed.
func OwnFault(err error) bool {
	var fault *faultError
	var invalid *job.InvalidError
	var pg *pgconn.PgError
	return errors.As(err, &fault) || errors.As(err, &invalid) || errors.As(err, &pg) && !transient(err)
}

// faultError is a fault of a schedule, its query or a row of it.
type faultError struct{ cause error }

func (e *faultError) Error() string { return e.cause.Error() }
func (e *faultError) Unwrap() error { return e.cause }

func faultf(format string, args ...any) error {
	return &faultError{fmt.Errorf(format, args...)}
}

// queryFault translates an error of the operator's query. Each is a fault of the schedule, also one that is transient
// elsewhere: a function can raise any SQLSTATE, and the fault is tried again.
func (s Schedule) queryFault(err error) error {
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
		return err
	case db.ClassOf(err) == db.TooSlow:
		return faultf("query: took longer than %s", s.QueryTimeout)
	}
	return faultf("query: %s (SQLSTATE %s)", pg.Message, pg.Code)
}

// roleFault translates the failure to become a role, guardFault the failure of that role to create a
// function. user and database are quoted.
func roleFault(err error, role, user string) error {
	var pg *pgconn.PgError
	name := pgx.Identifier{role}.Sanitize()
	switch {
	case !errors.As(err, &pg):
		return err
	case db.ClassOf(err) == db.Forbidden:
		return faultf("query_role: %s may not become %s; run: GRANT %s TO %s", user, name, name, user)
	case pg.Code == db.BadParameter:
		return faultf("query_role: %s is not a role of this server; run: CREATE ROLE %s; GRANT %s TO %s", name, name, name, user)
	}
	return err
}

func guardFault(err error, role, database string) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && db.ClassOf(err) == db.Forbidden {
		name := pgx.Identifier{role}.Sanitize()
		return faultf("query_role: %s may not make the temporary function that keeps a query to its role (%s); run: GRANT "+
			"TEMPORARY ON DATABASE %s TO %s",
			name, pg.Message, database, name)
	}
	return err
}
