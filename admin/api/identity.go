package api

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/admin/access"

	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/db"
)

// unauthenticated returns the error of a request whose identity is not known, and counts it.
func (h *Handler) unauthenticated(req *http.Request, err error) *RefusedError {
	var early *RefusedError
	switch {
	case errors.As(err, &early): // before the lookup
		return early
	case errors.Is(err, errProxyUser), errors.Is(err, errProxyRole):
		return refused(http.StatusForbidden, db.KindDenied, err.Error())
	case !invalidCredentials(err):
		return h.credentialsUnchecked(err)
	}
	if wait := h.lockout.bad(h.Proxy.client(req)); wait > 0 {
		return tooMany(wait, errLockedOut)
	}
	e := refused(http.StatusUnauthorized, db.KindDenied, err.Error())
	if e.challenge = `Bearer realm="belfry"`; errors.Is(err, access.ErrToken) {
		e.challenge += `, error="invalid_token"`
	}
	return e
}

// errNoCredentials is a request with neither a token nor a session.
var errNoCredentials = errors.New(
	"give a token: Authorization: Bearer belfry_…; `belfry tokens create` makes one; or sign in: POST /api/v1/login")

// invalidCredentials reports whether err is an authentication error rather than an error of the database.
func invalidCredentials(err error) bool {
	return errors.Is(err, access.ErrToken) || errors.Is(err, access.ErrSession) || errors.Is(err, errNoCredentials)
}

// credentialsUnchecked returns the error of a request whose credentials the database could not check.
func (h *Handler) credentialsUnchecked(err error) *RefusedError {
	h.Log.Warn().Err(err).Msg("cannot check the credentials of a request")
	p := problemOf(route{}, concealed(err))
	if p.Status < http.StatusInternalServerError {
		return refused(http.StatusInternalServerError, db.KindFailed, "belfry's log has the error")
	}
	e := refused(p.Status, p.Kind, p.Detail)
	if p.header != nil {
		e.After = retryAfter
	}
	return e
}

func tooMany(wait time.Duration, text string) *RefusedError {
	return refused(http.StatusTooManyRequests, db.KindUnavailable, text).again(wait)
}

// Caller returns the authenticated sender of a request for a page, or nil if it has no credentials or
// bad ones. With background, the request does not extend its session: a page sends it without the
// person. An error is a *RefusedError, such as after too many bad credentials of one address.
func (h *Handler) Caller(req *http.Request, background bool) (*Caller, error) {
	return h.caller(req, false, background)
}

// StopCaller is Caller on the reserved connections, for a page of an operation that stops something.
func (h *Handler) StopCaller(req *http.Request) (*Caller, error) {
	return h.caller(req, true, false)
}

func (h *Handler) caller(req *http.Request, stops, background bool) (*Caller, error) {
	who, err := h.identified(req, stops, background)
	switch {
	case err == nil:
		h.lockout.good(h.Proxy.client(req))
		return &Caller{who, req}, nil
	case errors.Is(err, errNoCredentials): // such as the first request of a browser
		return nil, nil
	}
	if err := h.unauthenticated(req, err); err.Status != http.StatusUnauthorized {
		return nil, err
	}
	return nil, nil
}

// bearer returns the bearer token of a request, and whether it has one.
func bearer(req *http.Request) (string, bool) {
	values := req.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

// peer returns the address of the connection's other end.
func peer(req *http.Request) string {
	address, err := remote(req)
	if err != nil {
		return req.RemoteAddr
	}
	return keyOfAddress(address)
}

// maxKeys limits the keys of a lockout.
const maxKeys = 4096

// lockout limits failures by key, such as the client's address or a user name. A success resets the key.
type lockout struct {
	inARow int           // failures before the limit applies
	every  time.Duration // interval of one more failure
	report func(key string)
	now    func() time.Time

	mu   sync.Mutex
	keys map[string]*failures
}

// failures is the state of one key.
type failures struct {
	limit    *rate.Limiter
	reported bool
}

func newLockout(inARow int, every time.Duration, report func(key string)) *lockout {
	return &lockout{inARow: inARow, every: every, report: report, now: time.Now, keys: make(map[string]*failures)}
}

// bad counts a failure and returns the remaining lockout of the key. It calls report when a lockout begins.
func (l *lockout) bad(key string) time.Duration {
	wait, begins := l.count(key)
	if begins {
		l.report(key)
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
		f.reported = f.reported && f.limit.TokensAt(now) < float64(l.inARow)/2
		return 0, false
	}
	begins, f.reported = !f.reported, true
	return time.Duration((1 - f.limit.TokensAt(now)) * float64(l.every)), begins
}

// remaining returns the remaining lockout of a key. Zero means that the key is not locked out.
func (l *lockout) remaining(key string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, known := l.keys[key]
	if !known {
		return 0
	}
	return time.Duration(max(0, 1-f.limit.TokensAt(l.now())) * float64(l.every))
}

func (l *lockout) good(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
}
