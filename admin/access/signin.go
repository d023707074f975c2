package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
)

// Errors of signing in; compare with errors.Is.
var (
	// ErrSignIn is the one answer to a name and password, or a link, that are not good.
	ErrSignIn = errors.New("name and password do not belong to anybody who may sign in, or the link is used or expired")
	// ErrSession reports a cookie that is no session's, or not any more.
	ErrSession = errors.New("the session is unknown or has ended; sign in again")

	errPasswordHash = errors.New("is no argon2id hash that belfry checks passwords by")
	errBusy         = errors.New("too many people sign in at this moment")
)

// checking is how many passwords a process checks at once: each takes 19 MiB.
const checking = 4

// checkWait is how long a sign-in waits for others.
const checkWait = 5 * time.Second

// Sessions signs people in and out. It is safe for concurrent use. Its statements write: a
// standby will not do.
type Sessions struct {
	db             *pgxpool.Pool
	lifetime, idle time.Duration
	slots          chan struct{}
	nobody         passwordHash // at today's cost, of whom no password is
	looks          sessionLooks
}

// NewSessions returns Sessions of which each ends after lifetime, and when it was not used for
// so long as idle.
func NewSessions(pool *pgxpool.Pool, lifetime, idle time.Duration) (*Sessions, error) {
	nobody, err := nobodysHash()
	return &Sessions{db: pool, lifetime: lifetime, idle: idle, slots: make(chan struct{}, checking), nobody: nobody}, err
}

// Opened is a session that was opened, with the secret of its cookie.
type Opened struct {
	Identity

	ExpiresAt time.Time
	Secret    string
}

// SignIn opens a session by name and password; ErrSignIn, if they are not good, which takes the
// same time whatever is wrong with them. address is where they come from.
func (s *Sessions) SignIn(ctx context.Context, name, password, address string) (Opened, error) {
	kept, err := s.kept(ctx, name)
	if err != nil {
		return Opened{}, err
	}
	hash, err := parsePasswordHash(kept)
	somebody := err == nil
	if !somebody {
		hash = s.nobody
	}
	good, err := s.matches(ctx, hash, password)
	switch {
	case err != nil:
		return Opened{}, err
	case !good || !somebody:
		return Opened{}, ErrSignIn
	}
	upgrade := ""
	if !hash.current() {
		today, err := newPasswordHash(password)
		if err != nil {
			return Opened{}, err
		}
		upgrade = today.String()
	}
	return s.open(ctx, queries.sessionOpen, pgx.StrictNamedArgs{"name": name, "password": kept}, "password", upgrade, address)
}

// kept is the hash of somebody's password; "": nobody may sign in by that name.
func (s *Sessions) kept(ctx context.Context, name string) (kept string, err error) {
	err = db.InTx(ctx, s.db, db.Options{Policies: true, Limit: tokenLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.userPassword, pgx.StrictNamedArgs{"name": name}).Scan(&kept)
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("look a user up: %w", err)
	}
	return kept, nil
}

// matches checks a password, a few at a time.
func (s *Sessions) matches(ctx context.Context, h passwordHash, password string) (bool, error) {
	waiting := time.NewTimer(checkWait)
	defer waiting.Stop()
	select {
	case s.slots <- struct{}{}:
	case <-waiting.C:
		return false, &operation.UnavailableError{Err: errBusy}
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-s.slots }()
	return len(password) <= 4*maxPassword && h.matches(password), nil
}

// Exchange opens a session by the secret of a link, which ends by it.
func (s *Sessions) Exchange(ctx context.Context, link, address string) (Opened, error) {
	hash := sha256.Sum256([]byte(link))
	return s.open(ctx, queries.sessionExchange, pgx.StrictNamedArgs{"link": hash[:]}, "link", "", address)
}

// open opens a session in one transaction with its event; ErrSignIn, if nobody may.
func (s *Sessions) open(ctx context.Context, statement string, args pgx.StrictNamedArgs, via, upgrade, address string) (o Opened, err error) {
	err = db.InTx(ctx, s.db, db.Options{Policies: true, Limit: tokenLimit}, func(ctx context.Context, tx pgx.Tx) error {
		o, err = s.openTx(ctx, tx, statement, args, via, upgrade, address)
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Opened{}, ErrSignIn
	case err != nil:
		return Opened{}, fmt.Errorf("sign in: %w", err)
	}
	return o, nil
}

// openTx opens a session, with its event, in the caller's transaction. The statement's parameters
// are args, and those of every session.
func (s *Sessions) openTx(ctx context.Context, tx pgx.Tx, statement string, args pgx.StrictNamedArgs, via, upgrade, address string) (o Opened, err error) {
	secret, hash, err := newSecret()
	if err != nil {
		return o, err
	}
	args["sha256"], args["address"], args["lifetime"] = hash, address, s.lifetime
	var id int64
	if err := tx.QueryRow(ctx, statement, args).Scan(&id, &o.Name, &o.Role, &o.ExpiresAt); err != nil {
		return o, err
	}
	if _, err := tx.Exec(ctx, queries.sessionPrune, pgx.StrictNamedArgs{"name": o.Name}); err != nil {
		return o, err
	}
	_, err = tx.Exec(ctx, queries.userSignedIn, pgx.StrictNamedArgs{"name": o.Name, "password": orNull(upgrade), "id": id, "via": via, "address": address})
	o.Secret, o.User = secret, true
	return o, err
}

// Find tells whose session a cookie is; ErrSession, if nobody's. It is recorded, once a minute,
// that the session is used.
func (s *Sessions) Find(ctx context.Context, secret string) (Identity, error) {
	who, id, unmarked, err := s.look(ctx, secret)
	if err == nil && unmarked {
		if err = s.exec(ctx, queries.sessionUse, pgx.StrictNamedArgs{"id": id}); err != nil {
			return Identity{}, fmt.Errorf("mark a session as used: %w", err)
		}
	}
	return who, err
}

func (s *Sessions) look(ctx context.Context, secret string) (who Identity, id int64, unmarked bool, err error) {
	hash := sha256.Sum256([]byte(secret))
	err = db.InTx(ctx, s.db, db.Options{Policies: true, Limit: tokenLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.sessionFind, pgx.StrictNamedArgs{"sha256": hash[:], "idle": s.idle}).Scan(&id, &who.Name, &who.Role, &unmarked)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Identity{}, 0, false, ErrSession
	case err != nil:
		return Identity{}, 0, false, fmt.Errorf("look a session up: %w", err)
	}
	who.User = true
	return who, id, unmarked, nil
}

// SignOut ends the session of a cookie. One that is nobody's has ended.
func (s *Sessions) SignOut(ctx context.Context, secret string) error {
	hash := sha256.Sum256([]byte(secret))
	return s.exec(ctx, queries.sessionClose, pgx.StrictNamedArgs{"sha256": hash[:]})
}

// LockedOut records that too many passwords of a name were wrong.
func (s *Sessions) LockedOut(ctx context.Context, name, address string) error {
	return s.exec(ctx, queries.userLockedOut, pgx.StrictNamedArgs{"name": name, "address": address})
}

// KnownFrom reports whether a name signed in from an address in the last 30 days.
func (s *Sessions) KnownFrom(ctx context.Context, name, address string) (known bool, err error) {
	err = db.InTx(ctx, s.db, db.Options{Limit: tokenLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.userKnownFrom, pgx.StrictNamedArgs{"name": name, "address": address}).Scan(&known)
	})
	return known, err
}

func (s *Sessions) exec(ctx context.Context, statement string, args pgx.StrictNamedArgs) error {
	return db.InTx(ctx, s.db, db.Options{Policies: true, Limit: tokenLimit}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, statement, args)
		return err
	})
}

// newSecret draws a secret and its hash.
func newSecret() (secret string, hash []byte, err error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return "", nil, err
	}
	secret = base64.RawURLEncoding.EncodeToString(random)
	sum := sha256.Sum256([]byte(secret))
	return secret, sum[:], nil
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
