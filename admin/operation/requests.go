package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// MaxAnswer is the size limit, in bytes, of a stored response.
const MaxAnswer = 64 << 10

// requestLimit bounds the statements about one request.
const requestLimit = 10 * time.Second

// Request is an act with an idempotency key. A repeated request within 24 hours is not executed again. Each
// identity has its own keys.
type Request struct {
	Who, Key string
	// Fingerprint is the SHA-256 of the request's content.
	Fingerprint [32]byte
}

// RequestState is the stored state of a key.
type RequestState struct {
	// New means that the caller executes the request, and then calls Answer or GiveBack.
	New bool
	// Same means that the stored request has the same content.
	Same bool
	// Status is the status of the response, and Answer its body if it was stored. Status 0 means that the
	// request has no response yet; if it is also Over, its outcome is unknown.
	Status int
	Answer []byte
	Over   bool
}

// Begin claims the key in a transaction that commits before the act begins. If the process crashes, the key's
// outcome is unknown, rather than the key free. within is the longest duration of the act.
func (r Request) Begin(ctx context.Context, pool *pgxpool.Pool, within time.Duration) (s RequestState, err error) {
	err = db.InTx(ctx, pool, db.Options{Policies: true, Limit: requestLimit}, func(ctx context.Context, tx pgx.Tx) error {
		if err := r.Expire(ctx, tx); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, queries.requestBegin, r.args(pgx.StrictNamedArgs{"fingerprint": r.Fingerprint[:], "seconds": within.Seconds()}))
		if err != nil {
			return err
		}
		if s.New = tag.RowsAffected() == 1; s.New {
			return nil
		}
		err = tx.QueryRow(ctx, queries.requestRead, r.args(pgx.StrictNamedArgs{"fingerprint": r.Fingerprint[:]})).Scan(&s.Same,
			&s.Status, &s.Answer, &s.Over)
		if errors.Is(err, pgx.ErrNoRows) { // given back a moment ago: treat it as in progress
			s.Same = true
			return nil
		}
		return err
	})
	if err != nil {
		return RequestState{}, fmt.Errorf("the key of a request: %w", err)
	}
	return s, nil
}

// Expire deletes the stored request of the key, and up to 100 others, if they are more than 24 hours old.
func (r Request) Expire(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, queries.requestExpire, r.args(nil))
	return err
}

// Answer stores the response. A nil answer stores only the status.
func (r Request) Answer(ctx context.Context, pool *pgxpool.Pool, status int, answer []byte) error {
	return r.settle(ctx, pool, queries.requestAnswer, pgx.StrictNamedArgs{"status": status, "answer": answer})
}

// GiveBack frees the key of a request that had no effect.
func (r Request) GiveBack(ctx context.Context, pool *pgxpool.Pool) error {
	return r.settle(ctx, pool, queries.requestGiveBack, nil)
}

func (r Request) settle(ctx context.Context, pool *pgxpool.Pool, statement string, args pgx.StrictNamedArgs) error {
	err := db.InTx(ctx, pool, db.Options{Policies: true, Limit: requestLimit}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, statement, r.args(args))
		return err
	})
	if err != nil {
		return fmt.Errorf("the key of a request: %w", err)
	}
	return nil
}

func (r Request) args(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
	args := pgx.StrictNamedArgs{"who": r.Who, "key": r.Key}
	for name, value := range more {
		args[name] = value
	}
	return args
}
