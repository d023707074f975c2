package db

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Expectation is what somebody saw of a thing when they decided to change it. It travels in the
// context of the act, and the first transaction that may write holds to it, under the lock of
// the thing's row and before anything else: of two acts that expect the same version one is
// done, and nobody gets between the look and the act.
type Expectation struct {
	// Subject and Name are those of the thing's events; of a job "job" and its id.
	Subject, Name string
	// Versions are those that will do. None: none will.
	Versions []int64
	// Exists asks only that there is such a thing, whatever its version.
	Exists bool

	met bool // a transaction that held to it was committed: what follows is the same act
}

// StaleError reports a thing that is not as an act expects it. Nothing was done.
type StaleError struct {
	Subject, Name string
	Version       int64 // what it is
	Missing       bool  // there is no such thing
}

// Error names the thing and its version.
func (e *StaleError) Error() string {
	if e.Missing {
		return fmt.Sprintf("there is no %s %s; nothing was done", e.Subject, e.Name)
	}
	return fmt.Sprintf("%s %s was changed since, and has the version %d; nothing was done", e.Subject, e.Name, e.Version)
}

type expectationKey struct{}

// Expecting returns a context whose act holds to an expectation. It is for one goroutine.
func Expecting(ctx context.Context, e *Expectation) context.Context {
	return context.WithValue(ctx, expectationKey{}, e)
}

// Expected reports whether an act has an expectation that is still to be held to.
func Expected(ctx context.Context) bool {
	e, _ := ctx.Value(expectationKey{}).(*Expectation)
	return e != nil && !e.met
}

// Expect holds the transaction to the expectation of its context, if there is one: InTx does so
// by itself. Another version, or nothing there, is a *StaleError.
func Expect(ctx context.Context, tx pgx.Tx) error {
	e, _ := ctx.Value(expectationKey{}).(*Expectation)
	if e == nil || e.met {
		return nil
	}
	var version *int64
	if err := tx.QueryRow(ctx, queries.versionLock, pgx.StrictNamedArgs{"subject": e.Subject, "name": e.Name}).Scan(&version); err != nil {
		return err
	}
	switch {
	case version == nil:
		return &StaleError{Subject: e.Subject, Name: e.Name, Missing: true}
	case !e.Exists && !slices.Contains(e.Versions, *version):
		return &StaleError{Subject: e.Subject, Name: e.Name, Version: *version}
	}
	return nil
}

// expected ends what Expect began, once the act is done: a row that is there only to be locked goes.
func expected(ctx context.Context, tx pgx.Tx) error {
	e, _ := ctx.Value(expectationKey{}).(*Expectation)
	if e == nil || e.met {
		return nil
	}
	_, err := tx.Exec(ctx, queries.versionUnlock, pgx.StrictNamedArgs{"subject": e.Subject, "name": e.Name})
	return err
}

// meets notes that a transaction which held to the expectation was committed.
func meets(ctx context.Context) {
	if e, _ := ctx.Value(expectationKey{}).(*Expectation); e != nil {
		e.met = true
	}
}
