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

// MaxAnswer is the most of an answer, in bytes, that is kept for a request that is repeated.
const MaxAnswer = 64 << 10

// requestLimit bounds the statements about one request.
const requestLimit = 10 * time.Second

// Request is an act that may be repeated by its key, for 24 hours, without being done again.
// A key is that of one identity: others have keys of their own.
type Request struct {
	Who, Key string
	// Fingerprint is the SHA-256 of what is asked for.
	Fingerprint [32]byte
}

// RequestState is what is known of the request of a key.
type RequestState struct {
	// New tells that it is the caller's to do, and then to Answer or to GiveBack.
	New bool
	// Same tells that it asked for the same.
	Same bool
	// Status was answered, and Answer, if it is kept. 0: it has not answered yet; and if it is
	// Over all the same, nobody knows whether it took effect.
	Status int
	Answer []byte
	Over   bool
}

// Begin claims the request's key, in a transaction that is committed before anything is done: a
// process that dies then leaves a key whose outcome is not known, and not one that is free.
// within is how long the act may take.
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
		err = tx.QueryRow(ctx, queries.requestRead, r.args(pgx.StrictNamedArgs{"fingerprint": r.Fingerprint[:]})).Scan(&s.Same, &s.Status, &s.Answer, &s.Over)
		if errors.Is(err, pgx.ErrNoRows) { // given back a moment ago: as if it were still under way
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

// Answer keeps what was answered; nil: the answer is not kept, only its status.
func (r Request) Answer(ctx context.Context, pool *pgxpool.Pool, status int, answer []byte) error {
	return r.settle(ctx, pool, queries.requestAnswer, pgx.StrictNamedArgs{"status": status, "answer": answer})
}

// GiveBack frees the key of a request that did nothing.
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
