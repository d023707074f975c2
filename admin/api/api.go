package api

import (
	"context"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels/unsubscribe"
)

// Options are what the API serves, and to whom.
type Options struct {
	// Operations are those that are served.
	Operations []operation.Operation
	// Env is what they work with; actor and role are those of each request.
	Env operation.Env
	// Authenticate tells whose a token is. An error that is not access.ErrToken is one of
	// the database.
	Authenticate func(ctx context.Context, token string) (access.Identity, error)
	// Sessions signs people in; nil: nobody signs in here.
	Sessions *access.Sessions
	// Stops is what the operations that stop something are done by; nil: as all others.
	Stops *Reserve
	// ReadOnly refuses whatever changes something.
	ReadOnly bool
	// PublicURL is Config.PublicURL.
	PublicURL string
	// Proxy is the one whose headers are believed; nil: none is.
	Proxy *Proxy
	// OIDC signs people in beside Sessions, which then are not nil; nil: nobody else does.
	OIDC *Provider
	// Unsubscribe reads the links of recipients, who have no token; nil: none is answered.
	Unsubscribe *unsubscribe.Links
	// Pages returns the handler of all paths outside of /api, which runs operations by this API.
	// at is the path that begins every address. Nil means that there are no pages.
	Pages func(api *Handler, at string) http.Handler
	// Observe is told of each request that was answered, from many goroutines; nil: nobody is.
	Observe func(Answered)
	Log     zerolog.Logger
}

// Reserve does what Env, Authenticate and Sessions of Options do, on connections that only requests
// to stop something take (operation.Operation.Stops): however much is asked for, a stop is done at once.
type Reserve struct {
	Env          operation.Env
	Authenticate func(ctx context.Context, token string) (access.Identity, error)
	Sessions     *access.Sessions // as those of Options
}

const (
	// writeSlack is how much longer than its operation an answer may take to be written.
	writeSlack = 15 * time.Second
	// looksEvery is between the looks that all streams share. With the look itself it is less than
	// the second within which a page has what others did; what is done here is seen at once.
	looksEvery = 750 * time.Millisecond
)

// Handler is the API.
type Handler struct {
	Options
	mux           *http.ServeMux
	stops         map[string]bool // patterns of mux
	document      func() []byte   // made for the first request of it
	lockout       *lockout        // of requests without a good token or session, by address
	signIns       signIns
	public        public
	sites         *http.CrossOriginProtection
	streams       *streams
	limiter       *limiter
	stopLimiter   *limiter // of acts that stop something, by operation and identity
	unsubscribing unsubscribing
	pages         http.Handler // nil: there are none
}

// New returns the API. It panics if two operations have one route, or if the PublicURL is
// none that Config.Validate lets pass.
func New(c Options) *Handler {
	at, err := publicOf(c.PublicURL)
	if err != nil {
		panic(err)
	}
	h := &Handler{Options: c, mux: http.NewServeMux(), stops: make(map[string]bool), public: at, streams: newStreams(), limiter: newLimiter(c.Env.DB), stopLimiter: newStopLimiter()}
	h.lockout = newLockout(20, 6*time.Second, func(from string) {
		h.Log.Warn().Str("detail", from).Msg("too many requests of the API without a good token from one address")
	})
	h.signIns, h.unsubscribing = h.newSignIns(), h.newUnsubscribing()
	if h.Env.Watches == nil {
		h.Env.Watches = jobs.NewWatches(looksEvery)
	}
	h.document = sync.OnceValue(func() []byte { return Document(c.Operations) })
	for _, o := range operation.WithQuestions(c.Operations) {
		r := routeOf(o)
		pattern := r.method + " " + Prefix + r.path
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { h.operate(o, r, w, req) })
		h.stops[pattern] = o.Stops
	}
	if h.sites, err = at.sites(); err != nil {
		panic(err)
	}
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

func (h *Handler) panicked(cause any) {
	h.Log.Error().Interface("reason", cause).Bytes("detail", debug.Stack()).Msg("panic in an operation of the API")
}

// reserve returns the connections and sessions for a request.
func (h *Handler) reserve(stops bool) *Reserve {
	if stops && h.Stops != nil {
		return h.Stops
	}
	return &Reserve{Env: h.Env, Authenticate: h.Authenticate, Sessions: h.Sessions}
}
