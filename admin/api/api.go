package api

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels/unsubscribe"
)

// Options configure a Handler.
type Options struct {
	// Operations are the operations that the API serves.
	Operations []operation.Operation
	// Env is the environment of operations. Each call gets a copy with the caller's name and role.
	Env operation.Env
	// Authenticate returns the identity of a token. The error of an invalid token is access.ErrToken; every
	// other error is the database's.
	Authenticate func(ctx context.Context, token string) (access.Identity, error)
	// Sessions signs users in. Nil disables signing in.
	Sessions *access.Sessions
	// Stops has the reserved connections of operations that stop something. Nil means that they use the same
	// connections as all others.
	Stops *Reserve
	// ReadOnly rejects all operations that change something.
	ReadOnly bool
	// PublicURL is Config.PublicURL.
	PublicURL string
	// Proxy is the trusted proxy. Nil means that no proxy is trusted.
	Proxy *Proxy
	// OIDC is the OpenID Connect provider, or nil. It requires Sessions.
	OIDC *Provider
	// Unsubscribe verifies the unsubscribe links of recipients. Nil disables them.
	Unsubscribe *unsubscribe.Links
	// Pages returns the handler of all paths outside of /api, which runs operations by this API.
	// at is the path that begins every address. Nil means that there are no pages.
	Pages func(api *Handler, at string) http.Handler
	// Observe is called after each request, concurrently. It may be nil.
	Observe func(Answered)
	Log     zerolog.Logger
}

// Reserve valid Env, Authenticate and Sessions of Options on connections that are reserved for operations
// that stop something (operation.Operation.Stops), so that other requests never delay a stop.
type Reserve struct {
	Env          operation.Env
	Authenticate func(ctx context.Context, token string) (access.Identity, error)
	Sessions     *access.Sessions // like Options.Sessions
}

const (
	// writeSlack is the time to write a response after the operation's deadline.
	writeSlack = 15 * time.Second
	// PollInterval is the interval of the query that all streams of Env.Broadcaster share. Interval and query together take less
	// than a second, the maximum delay of other processes' changes on a page. Changes of this process are
	// visible immediately.
	PollInterval = 750 * time.Millisecond
)

// Handler is the API.
type Handler struct {
	Options
	mux           *http.ServeMux
	stops         map[string]bool // patterns of mux
	document      func() []byte   // rendered at its first request
	lockout       *lockout        // by address: requests without a valid token or session
	lookups       *lookups
	signIns       signIns
	public        public
	csrf          *http.CrossOriginProtection
	streams       *streams
	limiter       *limiter
	stopLimiter   *limiter // operations that stop something, by operation and identity
	partLimiter   *limiter // operations that stop a part of everything, all together
	unsubscribing unsubscribing
	pages         http.Handler // may be nil
}

// New returns the API. It panics if two operations have one route, or if Config.Validate would reject the
// PublicURL.
func New(c Options) *Handler {
	at := text.Must(publicOf(c.PublicURL))
	h := &Handler{Options: c, mux: http.NewServeMux(), stops: make(map[string]bool), public: at, streams: newStreams(),
		limiter: newLimiter(c.Env.DB), stopLimiter: newStopLimiter()}
	h.partLimiter = newPartLimiter(h.reserve(true).Env.DB)
	h.lockout = newLockout(20, 6*time.Second, func(from string) {
		h.Log.Warn().Str("detail", from).Msg("too many requests of the API without a good token from one address")
	})
	h.lookups = newLookups(c.Env.DB)
	h.signIns, h.unsubscribing = h.newSignIns(), h.newUnsubscribing()
	h.document = sync.OnceValue(func() []byte { return Document(c.Operations) })
	for _, o := range operation.WithQuestions(c.Operations) {
		r := routeOf(o)
		pattern := r.method + " " + Prefix + r.path
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { h.operate(o, r, w, req) })
		h.stops[pattern] = o.Stops
	}
	h.csrf = text.Must(at.csrf())
	if c.Pages != nil {
		h.pages = c.Pages(h, at.path)
	}
	return h
}

// Document returns the OpenAPI document of operations.
func Document(operations []operation.Operation) []byte {
	d := newDocument()
	for _, o := range operation.WithQuestions(operations) {
		d.open.AddOperation(d.describe(o, routeOf(o)))
	}
	d.describeSignIn()
	return d.json()
}

func (h *Handler) logPanic(cause any) {
	h.Log.Error().Str("reason", fmt.Sprint(cause)).Bytes("detail", debug.Stack()).Msg("panic in an operation of the API")
}

// reserve returns the connections and sessions for a request.
func (h *Handler) reserve(stops bool) *Reserve {
	if stops && h.Stops != nil {
		return h.Stops
	}
	return &Reserve{Env: h.Env, Authenticate: h.Authenticate, Sessions: h.Sessions}
}
