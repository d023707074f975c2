package api

import (
	"context"
	"errors"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/oidc"
	"github.com/belfryhq/belfry/channels/unsubscribe"
)

// Options are what the API serves, and to whom.
type Options struct {
	// Operations are those that are served.
	Operations []admin.Operation
	// Env is what they work with; actor and role are those of each request.
	Env admin.Env
	// Authenticate tells whose a token is. An error that is not admin.ErrToken is one of
	// the database.
	Authenticate func(ctx context.Context, token string) (admin.Identity, error)
	// Sessions signs people in; nil: nobody signs in here.
	Sessions *admin.Sessions
	// Stops is what the operations that stop something are done by; nil: as all others.
	Stops *Reserve
	// ReadOnly refuses whatever changes something.
	ReadOnly bool
	// PublicURL is Config.PublicURL.
	PublicURL string
	// Proxy is the one whose headers are believed; nil: none is.
	Proxy *Proxy
	// OIDC signs people in beside Sessions, which then are not nil; nil: nobody else does.
	OIDC *oidc.Provider
	// Unsubscribe reads the links of recipients, who have no token; nil: none is answered.
	Unsubscribe *unsubscribe.Links
	// Pages makes what answers outside of /api, for people, of this API and of the path that
	// begins every address; it asks the API as whoever asks it. nil: nothing does.
	Pages func(api http.Handler, at string) http.Handler
	// Observe is told of each request that was answered, from many goroutines; nil: nobody is.
	Observe func(Answered)
	Log     zerolog.Logger
}

// Reserve does what Env, Authenticate and Sessions of Options do, on connections that only requests
// to stop something take (admin.Operation.Stops): however much is asked for, a stop is done at once.
type Reserve struct {
	Env          admin.Env
	Authenticate func(ctx context.Context, token string) (admin.Identity, error)
	Sessions     *admin.Sessions // as those of Options
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
	mux       *http.ServeMux
	stops     map[string]bool // patterns of mux
	document  func() []byte   // made when it is first asked for, and once
	lockout   *lockout        // of requests without a good token or session, by address
	signIns   signIns
	public    public
	streams   *streams
	turns     *turns
	stopTurns *turns       // of what stops something, by operation and identity
	pages     http.Handler // nil: there are none
	outer     http.Handler
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
	h.signIns = h.newSignIns()
	if h.Env.Watches == nil {
		h.Env.Watches = admin.NewWatches(looksEvery)
	}
	h.document = sync.OnceValue(func() []byte { return Document(c.Operations) })
	for _, o := range admin.WithQuestions(c.Operations) {
		r := routeOf(o)
		pattern := r.method + " " + Prefix + r.path
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { h.operate(o, r, w, req) })
		h.stops[pattern] = o.Stops
	}
	own, err := at.sites(http.HandlerFunc(h.serve))
	if err != nil {
		panic(err)
	}
	if c.Pages != nil {
		h.pages = c.Pages(h, at.path)
	}
	h.outer = h.recovering(h.observed(h.private(at.stripped(h.recipients(own)))))
	return h
}

// ServeHTTP answers a request. It is safe for concurrent use.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) { h.outer.ServeHTTP(w, req) }

// Document returns the OpenAPI document of operations.
func Document(operations []admin.Operation) []byte {
	d := newDocument()
	for _, o := range admin.WithQuestions(operations) {
		d.open.AddOperation(d.describe(o, routeOf(o)))
	}
	d.describeSignIn()
	return d.json()
}

// recovering answers a panic with 500 and one line of the log, and sets what every answer has.
func (h *Handler) recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			switch cause := recover(); cause {
			case nil:
			case http.ErrAbortHandler:
				panic(cause)
			default:
				h.panicked(cause)
				problemf(http.StatusInternalServerError, "belfry's log has the error").write(w)
			}
		}()
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		header.Set("Referrer-Policy", "no-referrer")
		if h.public.secure(req) {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		req.Body = http.MaxBytesReader(w, req.Body, maxBody)
		next.ServeHTTP(w, req)
	})
}

// private refuses what goes past the proxy in the clear.
func (h *Handler) private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if h.Proxy.inTheClear(req) {
			problemf(http.StatusForbidden, "without TLS this is served to this machine and through the proxy of api.proxy; go to "+h.public.url("")).write(w)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// errPanicked is what a stream ends with whose operation panicked.
var errPanicked = errors.New("the operation panicked")

func (h *Handler) panicked(cause any) {
	h.Log.Error().Interface("reason", cause).Bytes("detail", debug.Stack()).Msg("panic in an operation of the API")
}

// failed has the log tell of what is nobody's to see.
func (h *Handler) failed(o admin.Operation, who admin.Identity, err error, p *Problem) {
	h.Log.Warn().Err(err).Str("detail", o.Name+" for "+who.Key()).Str("reason", string(p.Kind)).Msg("operation of the API did not succeed")
}

// reserve is what a request is answered by.
func (h *Handler) reserve(stops bool) *Reserve {
	if stops && h.Stops != nil {
		return h.Stops
	}
	return &Reserve{Env: h.Env, Authenticate: h.Authenticate, Sessions: h.Sessions}
}

// serve finds out who asks, and then for what: who is nobody learns of no route.
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
	who, problem := h.authenticated(h.reserve(h.stops[pattern]), req, req.Context().Value(unattendedKey{}) != nil)
	if problem != nil {
		problem.write(w)
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
	h.mux.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), identityKey{}, who)))
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

// unattendedKey is where a context says that nobody asks by hand.
type unattendedKey struct{}

// Unattended returns a context for requests within the process that a page makes by itself, again
// and again: they are no use of a session, which would never end otherwise.
func Unattended(ctx context.Context) context.Context {
	return context.WithValue(ctx, unattendedKey{}, true)
}

// Stays says of a request that its answer lasts as long as somebody reads it.
func Stays(req *http.Request) { note(req, "", true) }

// identityKey is where a request's context has who asks.
type identityKey struct{}

// asking is a request that may be answered.
type asking struct {
	who   admin.Identity
	in    any
	once  admin.Request // zero: without a key
	looks bool          // nothing is changed
}

// asked reads a request for an operation, or says why it is not answered.
func (h *Handler) asked(o admin.Operation, r route, req *http.Request) (a asking, problem *Problem) {
	a.who, _ = req.Context().Value(identityKey{}).(admin.Identity)
	if h.ReadOnly && o.Changes {
		return a, problemf(http.StatusForbidden, "this belfry is read-only (api.read_only): nothing is changed through it")
	}
	if err := o.Allowed(a.who.Role); err != nil {
		return a, problemOf(r, err)
	}
	key, keyed, problem := keyOf(req)
	if problem != nil && o.Changes {
		return a, problem
	}
	read := fingerprintOf(req, o, a.who.Role)
	if a.in, problem = inputOf(o, r, req); problem != nil {
		return a, problem
	}
	if problem := matched(o, a.in, req); problem != nil {
		return a, problem
	}
	a.looks = !o.Changes || admin.Plans(a.in) && !keyed
	if keyed && o.Changes {
		a.once = admin.Request{Who: a.who.Key(), Key: key, Fingerprint: [32]byte(read.Sum(nil))}
	}
	return a, nil
}

// operate runs an operation for a request.
func (h *Handler) operate(o admin.Operation, r route, w http.ResponseWriter, req *http.Request) {
	note(req, o.Name, o.Item() != nil)
	a, problem := h.asked(o, r, req)
	if problem != nil {
		problem.write(w)
		return
	}
	if o.Item() != nil {
		h.follow(o, r, w, req, a.who, a.in)
		return
	}
	stops := o.Stops && !a.looks
	turns, turn := h.turns, a.who.Key()
	if stops {
		turns, turn = h.stopTurns, o.Name+" "+turn // an abort that waits for a lock keeps no halt from being done
	}
	leave, problem := turns.soon(req.Context(), turn)
	if problem != nil {
		problem.write(w)
		return
	}
	defer leave()
	limit := o.Limit()
	ends := http.NewResponseController(w) // one of a test has no deadlines
	_ = ends.SetWriteDeadline(time.Now().Add(limit + writeSlack))
	ctx := req.Context()
	if !a.looks {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	env := h.reserve(stops).Env
	env.Actor, env.Role = a.who.Name, a.who.Role
	keep := func(int, any, *Problem) {}
	if a.once.Key != "" {
		if !h.begin(ctx, env.DB, w, o, a.once, limit+writeSlack) {
			return
		}
		keep = func(status int, answer any, p *Problem) { h.finish(ctx, env.DB, a.once, o, status, answer, p) }
	}
	out, err := o.Run(ctx, &env, a.in)
	if err != nil {
		if req.Context().Err() != nil && a.looks {
			return // nobody listens any more
		}
		p := problemOf(r, err)
		p.Result = out
		if p.Status >= http.StatusInternalServerError {
			h.failed(o, a.who, err, p)
		}
		keep(p.Status, p, p)
		p.write(w)
		return
	}
	keep(http.StatusOK, out, nil)
	if link := h.nextPage(r, req, out); link != "" {
		w.Header().Set("Link", link)
	}
	tagged(w, out)
	respond(w, http.StatusOK, "application/json", out)
}
