package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// lockHoldersTimeout bounds the query for lock holders. The caller's own statement has failed by then.
const lockHoldersTimeout = 2 * time.Second

// LockHolder is a session whose open transaction locks a row or a table. A PID of 0 is a prepared transaction.
type LockHolder struct {
	PID         int32      `db:"pid"`
	Role        string     `db:"role"`
	Application string     `db:"application"`
	Since       *time.Time `db:"since"`    // start of its transaction; nil if the caller may not read it
	Prepared    string     `db:"prepared"` // identifier of a prepared transaction
	Locked      string     `db:"locked"`   // table, such as "belfry.jobs"; "" for a row
	Waits       bool       `db:"waits"`    // for a lock of the table; PostgreSQL lets all others queue behind it
}

// String returns the session's number, role, application and age, such as "session 4711 of app_web
// (psql), in a transaction since 2026-01-31 09:00:00Z".
func (h LockHolder) String() string {
	if h.PID == 0 {
		return "a prepared transaction"
	}
	text := fmt.Sprintf("session %d of %s", h.PID, h.Role)
	if h.Application != "" {
		text += " (" + h.Application + ")"
	}
	if h.Since != nil {
		text += ", in a transaction since " + h.Since.UTC().Format(time.DateTime) + "Z"
	}
	if h.Waits {
		text += ", which waits for its lock before all others"
	}
	return text
}

// Remedy returns the statement that ends the holder's lock.
func (h LockHolder) Remedy() string {
	if h.PID == 0 {
		return "ROLLBACK PREPARED '" + strings.ReplaceAll(h.Prepared, "'", "''") + "' ends it"
	}
	//sql:allow text for people
	return fmt.Sprintf("SELECT pg_terminate_backend(%d) ends the session", h.PID)
}

// DescribeHolders returns what is locked and by whom, such as "job 17 by session 4711 of app_web (psql)".
func DescribeHolders(list []LockHolder) string {
	var names []string
	for _, h := range list {
		name := fmt.Sprintf("%s by %s", h.Locked, h)
		if h.Prepared != "" {
			name += " (" + h.Remedy() + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// LockHolders returns the sessions that lock a table of schema belfry, or the row of it with a name, or any row if name
// is empty. It returns none if several sessions share the row's lock, if the role may not read the table, or if the
// database does not answer.
func LockHolders(ctx context.Context, on beginner, table, name string) (list []LockHolder) {
	statement := strings.ReplaceAll(queries.lockHolders, "{{table}}", pgx.Identifier{"belfry", table}.Sanitize())
	_ = InTx(context.WithoutCancel(ctx), on,
		Options{Limit: lockHoldersTimeout, Reads: true}, func(ctx context.Context, tx pgx.Tx) (err error) {
			if list, err = holders(ctx, tx, queries.tableHolders, pgx.StrictNamedArgs{"tables": []string{table}}); err != nil || len(list) > 0 {
				return err
			}
			list, err = holders(ctx, tx, statement, pgx.StrictNamedArgs{"name": name})
			return err
		})
	return list
}

// TableHolders returns the sessions that keep tables of schema belfry locked against writes, those that wait for such a
// lock, and those for which these wait; without names, of all its tables. It returns none if the database does not answer.
func TableHolders(ctx context.Context, on beginner, tables ...string) (list []LockHolder) {
	_ = InTx(context.WithoutCancel(ctx), on,
		Options{Limit: lockHoldersTimeout, Reads: true}, func(ctx context.Context, tx pgx.Tx) (err error) {
			list, err = holders(ctx, tx, queries.tableHolders, pgx.StrictNamedArgs{"tables": tables})
			return err
		})
	return list
}

func holders(ctx context.Context, tx pgx.Tx, statement string, args pgx.StrictNamedArgs) ([]LockHolder, error) {
	rows, err := tx.Query(ctx, statement, args)
	if err != nil {
		return nil, fmt.Errorf("sessions that lock an object: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[LockHolder])
}

// LockedError reports that a transaction gave up waiting for the lock of an object.
type LockedError struct {
	Object  string       // such as "lane default"
	Holders []LockHolder // empty if they could not be determined
	Err     error
}

// Error names the object and the sessions that lock it.
func (e *LockedError) Error() string {
	if len(e.Holders) == 0 {
		return e.Object + " is locked by another session; nothing was changed"
	}
	var names, remedies []string
	for _, h := range e.Holders {
		names, remedies = append(names, h.String()), append(remedies, h.Remedy())
	}
	return fmt.Sprintf("%s is locked by %s; nothing was changed; %s", e.Object, strings.Join(names, " and "), strings.Join(remedies, ", "))
}

// Unwrap returns the error of the transaction.
func (e *LockedError) Unwrap() error { return e.Err }

// ExplainLock wraps an error of the class Locked in a *LockedError for an object: the row of a table
// of schema belfry with a name, or any row of the table if name is empty. Other errors stay as they
// are.
func ExplainLock(ctx context.Context, on beginner, err error, object, table, name string) error {
	if ClassOf(err) != Locked {
		return err
	}
	return &LockedError{Object: object, Holders: LockHolders(ctx, on, table, name), Err: err}
}

// HeldError adds to an error of the class Locked who holds the lock.
type HeldError struct {
	Err error
	By  string // sessions, and how to end them
}

// Error appends the sessions to the error.
func (e *HeldError) Error() string { return fmt.Sprintf("%v: %s", e.Err, e.By) }

// Unwrap returns the error without the sessions.
func (e *HeldError) Unwrap() error { return e.Err }

// NameHolders wraps an error of the class Locked that names no session in a *HeldError: with the sessions that lock tables
// of schema belfry, or else with those whose open transactions have locked or changed rows for the longest time. Other
// errors stay as they are, and all if there are none or the database does not answer.
func NameHolders(ctx context.Context, on beginner, err error) error {
	if _, named := errors.AsType[*HeldError](err); named || ClassOf(err) != Locked {
		return err
	}
	if locked, ok := errors.AsType[*LockedError](err); ok && len(locked.Holders) > 0 {
		return err
	}
	by := DescribeHolders(TableHolders(ctx, on))
	if by == "" {
		var list []LockHolder
		_ = InTx(context.WithoutCancel(ctx), on,
			Options{Limit: lockHoldersTimeout, Reads: true}, func(ctx context.Context, tx pgx.Tx) (err error) {
				list, err = holders(ctx, tx, queries.rowWriters, nil)
				return err
			})
		if by = DescribeHolders(list); by == "" {
			return err
		}
		by = "open transactions hold " + by
	}
	//sql:allow text for people
	return &HeldError{Err: err, By: by + "; SELECT pg_terminate_backend(number) ends a session"}
}
