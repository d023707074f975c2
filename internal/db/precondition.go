package db

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Precondition is the version of an object that a change expects, as If-Match of HTTP. A transaction checks
// it under a lock of the object and before any other statement ([Options].If), so that only one of two
// changes that expect the same version succeeds.
type Precondition struct {
	// Subject and Name identify the object as its events do; a job is "job" and its id.
	Subject, Name string
	// Versions are the accepted versions. Without any, no version is accepted.
	Versions []int64
	// Exists accepts every version of an object that exists.
	Exists bool
}

// StaleError reports that an object does not meet a precondition. The transaction was rolled back.
type StaleError struct {
	Subject, Name string
	Version       int64 // the present version
	Missing       bool  // the object does not exist
}

// Error names the object and its version.
func (e *StaleError) Error() string {
	if e.Missing {
		return fmt.Sprintf("there is no %s %s; nothing was done", e.Subject, e.Name)
	}
	return fmt.Sprintf("%s %s has changed and has version %d now; nothing was done", e.Subject, e.Name, e.Version)
}

// Check locks the object until the end of the transaction and returns a *StaleError if it does not
// meet the precondition. A nil precondition is met.
func (p *Precondition) Check(ctx context.Context, tx pgx.Tx) error {
	if p == nil {
		return nil
	}
	var version *int64
	if err := tx.QueryRow(ctx, queries.versionLock, pgx.StrictNamedArgs{"subject": p.Subject, "name": p.Name}).Scan(&version); err != nil {
		return err
	}
	switch {
	case version == nil:
		return &StaleError{Subject: p.Subject, Name: p.Name, Missing: true}
	case !p.Exists && !slices.Contains(p.Versions, *version):
		return &StaleError{Subject: p.Subject, Name: p.Name, Version: *version}
	}
	return nil
}

// release deletes the row that Check inserted if there was no row to lock.
func (p *Precondition) release(ctx context.Context, tx pgx.Tx) error {
	if p == nil {
		return nil
	}
	_, err := tx.Exec(ctx, queries.versionUnlock, pgx.StrictNamedArgs{"subject": p.Subject, "name": p.Name})
	return err
}
