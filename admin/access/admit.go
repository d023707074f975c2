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
	// ErrReplayed: the sign-in has opened its session already.
	ErrReplayed = errors.New("this sign-in was finished before; begin again")
	// ErrNotAdmitted: the user is disabled, or somebody else has the name.
	ErrNotAdmitted = errors.New("may not sign in here")
)

// providerPrefix begins the names of those whom a provider signs in: no local user and no token
// has such a name.
const providerPrefix = "oidc:"

// byProvider is the reason of what a sign-in changes.
const byProvider = "by the provider"

// Admission is somebody whom a provider has signed in.
type Admission struct {
	// Name is what they are called there, 1 to 100 visible ASCII characters, with spaces between
	// them. The user's name begins with oidc:, and stays the one of the first sign-in.
	Name string
	Role operation.Role
	// Identity is the provider's own name of itself and of them, which is never somebody else's.
	Identity string
	// State is of this sign-in alone, and opens one session. Up to 255 characters.
	State string
}

// UserName is what the user is called at the first sign-in.
func (a Admission) UserName() string { return providerPrefix + a.Name }

// Admit opens a session for whom a provider has signed in; the user is made at the first sign-in,
// and has the role of today. ErrReplayed and ErrNotAdmitted tell of one that is refused. address
// is where they come from.
func (s *Sessions) Admit(ctx context.Context, a Admission, address string) (o Opened, err error) {
	who := pgx.StrictNamedArgs{"name": a.UserName(), "role": a.Role.String(), "identity": a.Identity, "reason": byProvider}
	err = db.InTx(ctx, s.db, db.Options{Policies: true, Limit: tokenLimit}, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.requestForget, pgx.StrictNamedArgs{"who": providerPrefix, "key": a.State}); err != nil {
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

// Dismiss ends the sessions of whom the provider gives no role any more.
func (s *Sessions) Dismiss(ctx context.Context, identity string) error {
	return s.exec(ctx, queries.sessionDismiss, pgx.StrictNamedArgs{"identity": identity, "reason": byProvider})
}

// notAdmitted says why there is nobody to open a session for.
func notAdmitted(ctx context.Context, tx pgx.Tx, a Admission) error {
	var name string
	err := tx.QueryRow(ctx, queries.userOfIdentity, pgx.StrictNamedArgs{"identity": a.Identity}).Scan(&name)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%s %w: another account of the provider has signed in by this name; `belfry users remove` frees it", a.UserName(), ErrNotAdmitted)
	case err != nil:
		return err
	}
	return fmt.Errorf("%s %w: the user is disabled; `belfry users enable` changes that", name, ErrNotAdmitted)
}

// ofProvider refuses to change what is the provider's to say of a user.
func ofProvider(param, name, what string) error {
	if !strings.HasPrefix(name, providerPrefix) {
		return nil
	}
	return operation.Invalid(param, "%s has %s; allowed values: users without %s before the name", text.OneLine(name, 110), what, providerPrefix)
}
