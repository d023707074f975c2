package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/belfryhq/belfry/admin/access"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// Limits of concurrent lookups of credentials that this process did not find valid recently.
const (
	// recently is the time since the last lookup of valid credentials.
	recently = time.Hour
	// maxRecent is the maximum number of recent credentials.
	maxRecent = 4096
	// maxQueue is the maximum number of waiting lookups of an address.
	maxQueue = 30
	// maxPeeks is the maximum number of lookups of an address for background requests, which share statements.
	maxPeeks = 128
)

// lookups limits the concurrent lookups of credentials, so that requests with unknown credentials do not use up
// the database connections. Credentials that were valid recently do not wait for them. lookups decides when
// credentials are looked up, and never whether they are valid.
type lookups struct {
	own   *limiter // by address
	peeks *limiter // by address; for background requests
	all   *limiter // of all addresses together
	// stop and stops are own and all for the reserved connections. Recent credentials also wait for stop, by
	// credentials, so that one caller does not use up these connections.
	stop, stops *limiter

	mu     sync.Mutex
	recent map[credentials]time.Time // last valid lookup
}

// credentials is the hash of a token or of a session's secret.
type credentials [sha256.Size]byte

// newLookups limits the lookups of unknown credentials to a third of the pool's connections and to one reserved
// connection.
func newLookups(pool *pgxpool.Pool) *lookups {
	limit := func(own int) *limiter {
		return &limiter{own: own, within: maxWait, by: make(map[string]*identitySlots)}
	}
	l := &lookups{own: limit(2), peeks: limit(maxPeeks), all: limit(2), stop: limit(1), stops: limit(1),
		recent: make(map[credentials]time.Time)}
	if pool != nil {
		l.all.own = max(1, int(pool.Config().MaxConns)/3)
	}
	return l
}

// lookUp looks credentials up by find. stops selects the reserved connections. An error of a lookup that was not
// allowed is a *RefusedError.
func (h *Handler) lookUp(req *http.Request, secret string, stops, background bool,
	find func(context.Context, string) (access.Identity, error)) (access.Identity, error) {
	hash := credentials(sha256.Sum256([]byte(secret)))
	leave, err := h.enterLookup(req, hash, stops, background)
	if err != nil {
		return access.Identity{}, err
	}
	defer leave()
	who, err := find(req.Context(), secret)
	h.lookups.note(hash, err)
	return who, err
}

// enterLookup waits until credentials may be looked up. Requests with unknown credentials from an address that is
// locked out do not wait.
func (h *Handler) enterLookup(req *http.Request, hash credentials, stops, background bool) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(req.Context(), maxWait)
	defer cancel()
	l := h.lookups
	known := l.known(hash)
	own, all := l.own, l.all
	switch {
	case stops && known:
		if leave = l.stop.wait(ctx, string(hash[:])); leave == nil {
			return nil, errManyLookups()
		}
		return leave, nil
	case known:
		return func() {}, nil
	case stops:
		own, all = l.stop, l.stops
	case background:
		own, all = l.peeks, nil
	}
	address := h.Proxy.client(req)
	most, lockedFor := own.own+maxQueue, h.lockout.remaining(address)
	if lockedFor > 0 {
		most = own.own
	}
	leaveOwn := own.join(ctx, address, most)
	if leaveOwn == nil {
		if lockedFor > 0 {
			return nil, tooMany(lockedFor, errLockedOut)
		}
		return nil, errManyLookups()
	}
	if all == nil {
		return leaveOwn, nil
	}
	leaveAll := all.wait(ctx, "")
	if leaveAll == nil {
		leaveOwn()
		return nil, refused(http.StatusServiceUnavailable, db.KindUnavailable,
			"too many requests with unknown credentials; nothing was done").again(retryAfter)
	}
	return func() { leaveAll(); leaveOwn() }, nil
}

// errLockedOut is the text for an address that is locked out.
const errLockedOut = "too many requests from this address had no good token"

func errManyLookups() *RefusedError {
	return tooMany(retryAfter, "too many concurrent requests with unknown credentials from this address")
}

// known reports whether credentials were valid recently.
func (l *lookups) known(hash credentials) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, known := l.recent[hash]
	return known && time.Since(at) < recently
}

// note records the result of a lookup. An error of the database changes nothing.
func (l *lookups) note(hash credentials, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, access.ErrToken), errors.Is(err, access.ErrSession):
		delete(l.recent, hash)
		return
	case err != nil:
		return
	}
	if _, known := l.recent[hash]; !known && len(l.recent) >= maxRecent {
		for any := range l.recent {
			delete(l.recent, any)
			break
		}
	}
	l.recent[hash] = time.Now()
}
