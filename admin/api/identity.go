package api

import (
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/admin"
)

// authenticated finds out who asks, or why nothing is done for them.
func (h *Handler) authenticated(req *http.Request) (admin.Identity, *Problem) {
	from := peer(req)
	token, given := bearer(req)
	err := admin.ErrToken
	if given {
		var who admin.Identity
		if who, err = h.Authenticate(req.Context(), token); err == nil {
			h.lockout.good(from)
			return who, nil
		}
	}
	if !errors.Is(err, admin.ErrToken) {
		h.Log.Warn().Err(err).Msg("cannot look a token up")
		p := problemOf(route{}, err)
		if p.Status < http.StatusInternalServerError {
			p = problemf(http.StatusInternalServerError, "belfry's log has the error")
		}
		return admin.Identity{}, p
	}
	if wait := h.lockout.bad(from); wait > 0 {
		return admin.Identity{}, problemf(http.StatusTooManyRequests, "too many requests from this address had no good token").
			with("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	challenge, detail := `Bearer realm="belfry"`, "give a token: Authorization: Bearer belfry_…; `belfry tokens create` makes one"
	if given {
		challenge, detail = challenge+`, error="invalid_token"`, admin.ErrToken.Error()
	}
	return admin.Identity{}, problemf(http.StatusUnauthorized, detail).with("WWW-Authenticate", challenge)
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

// peer is the address that a request comes from. Who has one of IPv6 has a network of them.
func peer(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	address, err := netip.ParseAddr(host)
	if err != nil || address.Unmap().Is4() {
		return host
	}
	network, err := address.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return network.String()
}

const (
	failuresInARow = 20
	failureEvery   = 6 * time.Second
	maxPeers       = 4096
)

// lockout bounds the requests without a good token, by the address they come from. A good
// token is let through, and ends the row.
type lockout struct {
	log zerolog.Logger
	now func() time.Time

	mu    sync.Mutex
	peers map[string]*failures
}

// failures are those of one address.
type failures struct {
	limit *rate.Limiter
	said  bool
}

func newLockout(log zerolog.Logger) *lockout {
	return &lockout{log: log, now: time.Now, peers: make(map[string]*failures)}
}

// bad counts a failure; it returns how long the address is locked out.
func (l *lockout) bad(from string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, known := l.peers[from]
	if !known {
		if len(l.peers) >= maxPeers {
			for any := range l.peers {
				delete(l.peers, any)
				break
			}
		}
		f = &failures{limit: rate.NewLimiter(rate.Every(failureEvery), failuresInARow)}
		l.peers[from] = f
	}
	now := l.now()
	if f.limit.AllowN(now, 1) {
		f.said = f.said && f.limit.TokensAt(now) < failuresInARow/2
		return 0
	}
	if !f.said {
		f.said = true
		l.log.Warn().Str("detail", from).Msg("too many requests of the API without a good token from one address")
	}
	return time.Duration((1 - f.limit.TokensAt(now)) * float64(failureEvery))
}

func (l *lockout) good(from string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.peers, from)
}
