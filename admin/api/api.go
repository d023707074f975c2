package api

import (
	"context"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
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
	turns         *turns
	stopTurns     *turns // of acts that stop something, by operation and identity
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
	h := &Handler{Options: c, mux: http.NewServeMux(), stops: make(map[string]bool), public: at, streams: newStreams(), turns: newTurns(c.Env.DB), stopTurns: newStopTurns()}
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

// ServeHTTP answers a request. It is safe for concurrent use. It applies the rules of every request,
// for programs, pages and recipients; serve finds out whose it is.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	req.Body = http.MaxBytesReader(w, req.Body, maxBody)
	if h.Observe != nil {
		n := &noted{ResponseWriter: w, answered: Answered{Method: req.Method}, began: time.Now()}
		w, req = n, req.WithContext(context.WithValue(req.Context(), notedKey{}, n))
		defer func() { h.Observe(n.end()) }() // also if the handler panics to cut a stream off
	}
	defer h.recovered(w)
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	if h.public.secure(req) {
		header.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if h.Proxy.inTheClear(req) {
		problemf(http.StatusForbidden, "without TLS this is served to this machine and through the proxy of api.proxy; go to "+h.public.url("")).write(w)
		return
	}
	req = h.public.stripped(req)
	if h.Unsubscribe != nil && strings.HasPrefix(req.URL.EscapedPath(), unsubscribePath) {
		h.recipient(w, req)
		return
	}
	if h.sites.Check(req) != nil {
		problemf(http.StatusForbidden, h.public.otherSite()).write(w)
		return
	}
	h.serve(w, req)
}

// recovered is deferred: it answers a panic with 500 and logs it.
func (h *Handler) recovered(w http.ResponseWriter) {
	switch cause := recover(); cause {
	case nil:
	case http.ErrAbortHandler:
		panic(cause)
	default:
		h.panicked(cause)
		problemf(http.StatusInternalServerError, "belfry's log has the error").write(w)
	}
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

// serve routes a request: to the document, to signing in, to the pages, or to an operation. It
// authenticates before it tells whether an operation has that path, so that anonymous clients
// cannot discover routes.
func (h *Handler) serve(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == Prefix+"/openapi.json" && req.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(h.document())
		return
	}
	if h.signsInOrOut(w, req) {
		return
	}
	if h.pages != nil && !strings.HasPrefix(req.URL.Path, "/api/") {
		h.pages.ServeHTTP(w, req)
		return
	}
	_, pattern := h.mux.Handler(req)
	who, err := h.authenticated(h.reserve(h.stops[pattern]), req, false)
	if err != nil {
		problemOf(route{}, err).write(w)
		return
	}
	escaped := req.URL.EscapedPath()
	if !strings.HasPrefix(escaped, "/") || path.Clean(escaped) != escaped {
		problemf(http.StatusNotFound, "there is nothing at this path").write(w)
		return
	}
	if pattern == "" {
		h.lost(w, req)
		return
	}
	h.mux.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), callerKey{}, &Caller{who, req})))
}

// lost answers for a path, or a method, that there is not.
func (h *Handler) lost(w http.ResponseWriter, req *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch} {
		other := req.Clone(req.Context())
		other.Method = method
		if _, pattern := h.mux.Handler(other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		problemf(http.StatusNotFound, "there is nothing at this path").write(w)
		return
	}
	list := strings.Join(allowed, ", ")
	problemf(http.StatusMethodNotAllowed, "allowed methods: "+list).with("Allow", list).write(w)
}

// callerKey is where the context of a request has its *Caller.
type callerKey struct{}

// operate decodes a request for an operation, has Do or Stream run it, and encodes the answer.
func (h *Handler) operate(o operation.Operation, r route, w http.ResponseWriter, req *http.Request) {
	Note(req, o.Name, o.Item() != nil)
	c, problem := h.callOf(o, r, req)
	if problem != nil {
		problem.write(w)
		return
	}
	if o.Item() != nil {
		h.follow(r, w, req, c)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.turns.within + o.Limit() + writeSlack)) // one of a test has none
	out, err := h.Do(req.Context(), c)
	switch {
	case out.Replay != nil:
		out.Replay.write(w, out.Result)
	case err != nil && req.Context().Err() != nil && c.reads(): // the client is gone
	case err != nil:
		p := problemOf(r, err)
		p.Result = out.Result
		p.write(w)
	default:
		if link := h.nextPage(r, req, out.Result); link != "" {
			w.Header().Set("Link", link)
		}
		tagged(w, out.Result)
		respond(w, http.StatusOK, "application/json", out.Result)
	}
}

// callOf decodes a request for an operation. It reads no body of a caller who may not run it.
func (h *Handler) callOf(o operation.Operation, r route, req *http.Request) (c Call, problem *Problem) {
	c.Operation = o
	c.Caller, _ = req.Context().Value(callerKey{}).(*Caller)
	if err := h.allowed(c); err != nil {
		return c, problemOf(r, err)
	}
	if o.Changes {
		if c.Key, problem = keyOf(req); problem != nil {
			return c, problem
		}
		if c.Match, problem = matchOf(req); problem != nil {
			return c, problem
		}
	}
	c.Input, problem = inputOf(o, r, req)
	return c, problem
}
