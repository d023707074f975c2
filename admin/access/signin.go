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
	// ErrSignIn reports invalid credentials, without the reason.
	ErrSignIn = errors.New("the name or the password is wrong, or the link is used or expired")
	// ErrSession reports the cookie of an unknown or ended session.
	ErrSession = errors.New("the session is unknown or has ended; sign in again")

	errPasswordHash = errors.New("is not an argon2id hash within belfry's limits")
	errBusy         = errors.New("too many users sign in at this moment")
)

// maxChecks limits concurrent password checks of a process. Each needs 19 MiB.
const maxChecks = 4

// checkWait is the maximum time that a sign-in waits for a slot.
const checkWait = 5 * time.Second

// Sessions signs users in and out. It is safe for concurrent use. It writes to the database, which must not
// be a standby.
type Sessions struct {
	db             *pgxpool.Pool
	lifetime, idle time.Duration
	slots          chan struct{}
	dummy          passwordHash // for unknown names
	batches        sessionBatches
}

// NewSessions returns a Sessions. A session ends after lifetime, and idle after its last request.
func NewSessions(pool *pgxpool.Pool, lifetime, idle time.Duration) (*Sessions, error) {
	dummy, err := dummyHash()
	return &Sessions{db: pool, lifetime: lifetime, idle: idle, slots: make(chan struct{}, maxChecks), dummy: dummy}, err
}

// Opened is a new session with the secret of its cookie.
type Opened struct {
	Identity

	ExpiresAt time.Time
	Secret    string
}

// SignIn opens a session by name and password. address is the client's address. The error of invalid
// credentials is ErrSignIn; its duration does not reveal whether the name exists.
func (s *Sessions) SignIn(ctx context.Context, name, password, address string) (Opened, error) {
	kept, err := s.storedHash(ctx, name)
	if err != nil {
		return Opened{}, err
	}
	hash, err := parsePasswordHash(kept)
	somebody := err == nil
	if !somebody {
		hash = s.dummy
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

// storedHash returns the hash of a user's password, or "" if no user may sign in by that name.
func (s *Sessions) storedHash(ctx context.Context, name string) (kept string, err error) {
	err = db.InTx(ctx, s.db, db.Options{Policies: true, Limit: tokenLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.userPassword, pgx.StrictNamedArgs{"name": name}).Scan(&kept)
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("find a user: %w", err)
	}
	return kept, nil
}

// matches checks a password. The number of concurrent checks is limited.
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

// Exchange opens a session by the secret of a sign-in link and deletes the link.
func (s *Sessions) Exchange(ctx context.Context, link, address string) (Opened, error) {
	hash := sha256.Sum256([]byte(link))
	return s.open(ctx, queries.sessionExchange, pgx.StrictNamedArgs{"link": hash[:]}, "link", "", address)
}

// open opens a session and records its event in one transaction. Zero rows of statement are ErrSignIn.
func (s *Sessions) open(ctx context.Context, statement string, args pgx.StrictNamedArgs, via, upgrade, address string) (o Opened,
	err error) {
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

// openTx opens a session and records its event in the caller's transaction. It adds the parameters of every
// session to args.
func (s *Sessions) openTx(ctx context.Context, tx pgx.Tx, statement string, args pgx.StrictNamedArgs,
	via, upgrade, address string) (o Opened, err error) {
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
	_, err = tx.Exec(ctx, queries.userSignedIn,
		pgx.StrictNamedArgs{"name": o.Name, "password": orNull(upgrade), "id": id, "via": via, "address": address})
	o.Secret, o.User = secret, true
	return o, err
}

// Find returns the identity of a session's cookie, or ErrSession. It records the use of the session once a
// minute.
func (s *Sessions) Find(ctx context.Context, secret string) (Identity, error) {
	who, id, unmarked, err := s.find(ctx, secret)
	if err == nil && unmarked {
		if err = s.exec(ctx, queries.sessionUse, pgx.StrictNamedArgs{"id": id}); err != nil {
			return Identity{}, fmt.Errorf("mark a session as used: %w", err)
		}
	}
	return who, err
}

func (s *Sessions) find(ctx context.Context, secret string) (who Identity, id int64, unmarked bool, err error) {
	hash := sha256.Sum256([]byte(secret))
	err = db.InTx(ctx, s.db, db.Options{Policies: true, Limit: tokenLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.sessionFind, pgx.StrictNamedArgs{"sha256": hash[:], "idle": s.idle}).Scan(&id, &who.Name,
			&who.Role, &unmarked)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Identity{}, 0, false, ErrSession
	case err != nil:
		return Identity{}, 0, false, fmt.Errorf("find a session: %w", err)
	}
	who.User = true
	return who, id, unmarked, nil
}

// SignOut ends the session of a cookie, if there is one.
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

// newSecret returns a random secret and its hash.
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
