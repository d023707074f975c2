package access

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// batchDelay is the time that a batch waits for further lookups.
const batchDelay = 50 * time.Millisecond

// sessionBatches combines concurrent session lookups into one statement, such as the lookups of hundreds of
// open pages.
type sessionBatches struct {
	mu   sync.Mutex
	next *sessionBatch // the batch that accepts lookups, or nil
}

// sessionBatch is one statement.
type sessionBatch struct {
	hashes [][]byte
	done   chan struct{}

	found map[[sha256.Size]byte]Identity // valid after done is closed
	err   error
}

// Peek is Find without extending the session, for requests that the user did not send, such as an open
// stream. It waits for batchDelay to share its statement with other lookups.
func (s *Sessions) Peek(ctx context.Context, secret string) (Identity, error) {
	hash := sha256.Sum256([]byte(secret))
	r := s.joinBatch(hash[:])
	select {
	case <-r.done:
	case <-ctx.Done():
		return Identity{}, ctx.Err()
	}
	if r.err != nil {
		return Identity{}, fmt.Errorf("find a session: %w", r.err)
	}
	who, good := r.found[hash]
	if !good {
		return Identity{}, ErrSession
	}
	return who, nil
}

// joinBatch adds a lookup to the next batch.
func (s *Sessions) joinBatch(hash []byte) *sessionBatch {
	s.batches.mu.Lock()
	defer s.batches.mu.Unlock()
	r := s.batches.next
	if r == nil {
		r = &sessionBatch{done: make(chan struct{})}
		s.batches.next = r
		time.AfterFunc(batchDelay, func() { s.runBatch(r) })
	}
	r.hashes = append(r.hashes, hash)
	return r
}

// runBatch queries the sessions of a batch.
func (s *Sessions) runBatch(r *sessionBatch) {
	defer close(r.done)
	s.batches.mu.Lock()
	s.batches.next = nil
	s.batches.mu.Unlock()
	r.found = make(map[[sha256.Size]byte]Identity, len(r.hashes))
	r.err = db.InTx(context.Background(), s.db,
		db.Options{Policies: true, Limit: tokenLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
			var hash []byte
			who := Identity{User: true}
			args := pgx.StrictNamedArgs{"sha256": r.hashes, "idle": s.idle}
			return db.Each(ctx, tx, queries.sessionsPeek, args, []any{&hash, &who.Name, &who.Role}, func() error {
				r.found[[sha256.Size]byte(hash)] = who
				return nil
			})
		})
}
