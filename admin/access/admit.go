package access

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// Errors of a sign-in through a provider; compare with errors.Is.
var (
	// ErrReplayed reports that the sign-in has already opened its session.
	ErrReplayed = errors.New("this sign-in was finished before; begin again")
	// ErrNotAdmitted reports that the user is disabled, or that another user has the name.
	ErrNotAdmitted = errors.New("may not sign in here")
)

// providerPrefix begins the names of the provider's users. Local users and tokens cannot have such names.
const providerPrefix = "oidc:"

// byProvider is the reason in the events of a sign-in through a provider.
const byProvider = "by the provider"

// Admission is a user whom a provider has authenticated.
type Admission struct {
	// Name is the user's name at the provider, 1 to 100 visible ASCII characters, with spaces between them.
	// belfry prefixes it with oidc: and retains the name of the first sign-in.
	Name string
	Role operation.Role
	// Identity identifies the provider and the user. It never changes and is never reassigned.
	Identity string
	// State identifies the sign-in, which opens one session at most. Up to 255 characters.
	State string
}

// UserName returns the name of a user created by the first sign-in.
func (a Admission) UserName() string { return providerPrefix + a.Name }

// Admit opens a session for a user whom a provider has authenticated. The first sign-in creates the user, and
// each sign-in sets the role. address is the client's address. Errors are ErrReplayed, ErrNotAdmitted and
// errors of the database.
func (s *Sessions) Admit(ctx context.Context, a Admission, address string) (o Opened, err error) {
	who := pgx.StrictNamedArgs{"name": a.UserName(), "role": a.Role.String(), "identity": a.Identity, "reason": byProvider}
	err = db.InTx(ctx, s.db, db.Options{Policies: true, Limit: tokenLimit}, func(ctx context.Context, tx pgx.Tx) error {
		if err := (operation.Request{Who: providerPrefix, Key: a.State}).Expire(ctx, tx); err != nil {
			return err
		}
		once, err := tx.Exec(ctx, queries.signInOnce, pgx.StrictNamedArgs{"state": a.State})
		switch {
		case err != nil:
			return err
		case once.RowsAffected() == 0:
			return ErrReplayed
		}
		for _, statement := range []string{queries.userMeet, queries.userRole} {
			if _, err := tx.Exec(ctx, statement, who); err != nil {
				return err
			}
		}
		o, err = s.openTx(ctx, tx, queries.sessionAdmit, pgx.StrictNamedArgs{"identity": a.Identity}, "oidc", "", address)
		if errors.Is(err, pgx.ErrNoRows) {
			return notAdmitted(ctx, tx, a)
		}
		return err
	})
	if err != nil {
		return Opened{}, fmt.Errorf("sign in: %w", err)
	}
	return o, nil
}

// Dismiss ends the sessions of a user who has no role at the provider any more.
func (s *Sessions) Dismiss(ctx context.Context, identity string) error {
	return s.exec(ctx, queries.sessionDismiss, pgx.StrictNamedArgs{"identity": identity, "reason": byProvider})
}

// notAdmitted returns the reason why no session was opened.
func notAdmitted(ctx context.Context, tx pgx.Tx, a Admission) error {
	var name string
	err := tx.QueryRow(ctx, queries.userOfIdentity, pgx.StrictNamedArgs{"identity": a.Identity}).Scan(&name)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%s %w: another account of the provider has signed in by this name; `belfry users remove` frees it",
			a.UserName(), ErrNotAdmitted)
	case err != nil:
		return err
	}
	return fmt.Errorf("%s %w: the user is disabled; `belfry users enable` changes that", name, ErrNotAdmitted)
}

// ofProvider returns an error if the provider manages the user. what completes the error: "has no password".
func ofProvider(param, name, what string) error {
	if !strings.HasPrefix(name, providerPrefix) {
		return nil
	}
	return operation.Invalid(param, "%s has %s; allowed values: users without %s before the name", text.OneLine(name, 110), what,
		providerPrefix)
}
