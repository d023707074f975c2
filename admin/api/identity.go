package api

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/admin"
)

// authenticated finds out who asks, or why nothing is done for them. A token that is given
// decides; without one, whom the proxy names, and then the cookie of a session. again: it was
// found out before, for the same request, which is no use of the session.
func (h *Handler) authenticated(by *Reserve, req *http.Request, again bool) (admin.Identity, *Problem) {
	from := h.Proxy.client(req)
	who, err := h.identified(by, req, again)
	switch {
	case err == nil:
		h.lockout.good(from)
		return who, nil
	case errors.Is(err, errProxyUser), errors.Is(err, errProxyRole):
		return who, problemf(http.StatusForbidden, err.Error())
	case !nobody(err):
		return who, h.unanswered(err)
	}
	if wait := h.lockout.bad(from); wait > 0 {
		return who, tooMany(wait, "too many requests from this address had no good token")
	}
	challenge, detail := `Bearer realm="belfry"`, err.Error()
	if errors.Is(err, admin.ErrToken) {
		challenge += `, error="invalid_token"`
	}
	return who, problemf(http.StatusUnauthorized, detail).with("WWW-Authenticate", challenge)
}

// errNoCredentials is a request with neither a token nor a session.
var errNoCredentials = errors.New("give a token: Authorization: Bearer belfry_…; `belfry tokens create` makes one; or sign in: POST /api/v1/login")

// nobody reports an error of a request that is nobody's, rather than of the database.
func nobody(err error) bool {
	return errors.Is(err, admin.ErrToken) || errors.Is(err, admin.ErrSession) || errors.Is(err, errNoCredentials)
}

func (h *Handler) identified(by *Reserve, req *http.Request, again bool) (admin.Identity, error) {
	if token, given := bearer(req); given {
		return by.Authenticate(req.Context(), token)
	}
	if who, named, err := h.Proxy.identity(req); named || err != nil {
		return who, err
	}
	if secret, given := h.cookie(req); given && by.Sessions != nil && len(req.Header.Values("Authorization")) == 0 {
		if again {
			return by.Sessions.Look(req.Context(), secret)
		}
		return by.Sessions.Find(req.Context(), secret)
	}
	return admin.Identity{}, errNoCredentials
}

// unanswered is the problem of a database that did not say who asks.
func (h *Handler) unanswered(err error) *Problem {
	h.Log.Warn().Err(err).Msg("cannot look up who asks")
	p := problemOf(route{}, err)
	if p.Status < http.StatusInternalServerError {
		p = problemf(http.StatusInternalServerError, "belfry's log has the error")
	}
	return p
}

func tooMany(wait time.Duration, detail string) *Problem {
	return problemf(http.StatusTooManyRequests, detail).with("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

// bearer is the token of a request; false: none that could be one.
func bearer(req *http.Request) (string, bool) {
	values := req.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

// peer is the address that a request comes from.
func peer(req *http.Request) string {
	address, err := remote(req)
	if err != nil {
		return req.RemoteAddr
	}
	return keyOfAddress(address)
}

// maxKeys bounds what a lockout keeps.
const maxKeys = 4096

// lockout bounds failures by a key: the address that they come from, the name that they are
// for. What is good is let through, and ends the row.
type lockout struct {
	inARow int           // failures that are let through
	every  time.Duration // and then one
	said   func(key string)
	now    func() time.Time

	mu   sync.Mutex
	keys map[string]*failures
}

// failures are those of one key.
type failures struct {
	limit *rate.Limiter
	said  bool
}

func newLockout(inARow int, every time.Duration, said func(key string)) *lockout {
	return &lockout{inARow: inARow, every: every, said: said, now: time.Now, keys: make(map[string]*failures)}
}

// bad counts a failure; it returns how long the key is locked out. It tells said when that
// begins.
func (l *lockout) bad(key string) time.Duration {
	wait, begins := l.count(key)
	if begins {
		l.said(key)
	}
	return wait
}

func (l *lockout) count(key string) (wait time.Duration, begins bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, known := l.keys[key]
	if !known {
		if len(l.keys) >= maxKeys {
			for any := range l.keys {
				delete(l.keys, any)
				break
			}
		}
		f = &failures{limit: rate.NewLimiter(rate.Every(l.every), l.inARow)}
		l.keys[key] = f
	}
	now := l.now()
	if f.limit.AllowN(now, 1) {
		f.said = f.said && f.limit.TokensAt(now) < float64(l.inARow)/2
		return 0, false
	}
	begins, f.said = !f.said, true
	return time.Duration((1 - f.limit.TokensAt(now)) * float64(l.every)), begins
}

func (l *lockout) good(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
}
