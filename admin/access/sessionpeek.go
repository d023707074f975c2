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

// gathering is how long questions whose session a cookie is wait for others.
const gathering = 50 * time.Millisecond

// sessionLooks has the questions of many that come at about the same time answered by one
// statement, as those of hundreds of pages that are open.
type sessionLooks struct {
	mu   sync.Mutex
	next *sessionRound // which gathers; nil: nobody has asked
}

// sessionRound is one statement.
type sessionRound struct {
	asked [][]byte // hashes
	done  chan struct{}

	found map[[sha256.Size]byte]Identity // once it is done
	err   error
}

// Look is Find for what goes on without its user, such as a stream that was begun before: it does
// not keep the session from ending unused. It waits a moment for others that ask.
func (s *Sessions) Look(ctx context.Context, secret string) (Identity, error) {
	hash := sha256.Sum256([]byte(secret))
	r := s.joinRound(hash[:])
	select {
	case <-r.done:
	case <-ctx.Done():
		return Identity{}, ctx.Err()
	}
	if r.err != nil {
		return Identity{}, fmt.Errorf("look a session up: %w", r.err)
	}
	who, good := r.found[hash]
	if !good {
		return Identity{}, ErrSession
	}
	return who, nil
}

// joinRound adds a question to those that are asked next.
func (s *Sessions) joinRound(hash []byte) *sessionRound {
	s.looks.mu.Lock()
	defer s.looks.mu.Unlock()
	r := s.looks.next
	if r == nil {
		r = &sessionRound{done: make(chan struct{})}
		s.looks.next = r
		time.AfterFunc(gathering, func() { s.askRound(r) })
	}
	r.asked = append(r.asked, hash)
	return r
}

// askRound asks for all that have come until now.
func (s *Sessions) askRound(r *sessionRound) {
	defer close(r.done)
	s.looks.mu.Lock()
	s.looks.next = nil
	s.looks.mu.Unlock()
	r.found = make(map[[sha256.Size]byte]Identity, len(r.asked))
	r.err = db.InTx(context.Background(), s.db, db.Options{Policies: true, Limit: tokenLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.sessionsLook, pgx.StrictNamedArgs{"sha256": r.asked, "idle": s.idle})
		if err != nil {
			return err
		}
		var hash []byte
		who := Identity{User: true}
		_, err = pgx.ForEachRow(rows, []any{&hash, &who.Name, &who.Role}, func() error {
			r.found[[sha256.Size]byte(hash)] = who
			return nil
		})
		return err
	})
}
