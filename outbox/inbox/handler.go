package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
)

// Prefix begins every path.
const Prefix = "/v1"

// unavailableFor is the Retry-After of a response during a database outage.
const unavailableFor = 5 * time.Second

// Handler serves the notification centre. It is safe for concurrent use, except Handle.
type Handler struct {
	config   Config
	keys     map[string]verifier
	store    *Store
	limiter  *limiter
	flights  *flights
	log      zerolog.Logger
	mux      *http.ServeMux
	document []byte
	marked   func(channelID int64) // may be nil
}

// New returns the handler of a valid configuration. It reads the files of keys.
func New(c Config, store *Store, log zerolog.Logger) (*Handler, error) {
	keys, err := c.verifiers()
	if err != nil {
		return nil, err
	}
	h := &Handler{config: c, keys: keys, store: store, limiter: newLimiter(c), flights: newFlights(c), log: log, mux: http.NewServeMux()}
	h.document, err = h.register()
	return h, err
}

// Handle adds a route, before the first request. The route's handler calls Reader or Authenticate. Headers of CORS and
// of security are set before it runs.
func (h *Handler) Handle(pattern string, route http.Handler) { h.mux.Handle(pattern, route) }

// OnMark has f called after a reader has marked notifications. It is set before the first request.
func (h *Handler) OnMark(f func(channelID int64)) { h.marked = f }

// Reader returns the channel of a request's token, and when the token expires. It counts the request against the
// rate limit of the channel. Refuse answers the error.
func (h *Handler) Reader(r *http.Request) (channelID int64, expires time.Time, err error) {
	return h.Authenticate(r.Context(), tokenOf(r))
}

// tokenOf returns the token of a request, or "".
func tokenOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Authenticate is Reader for a token that is not in the header Authorization.
func (h *Handler) Authenticate(ctx context.Context, token string) (channelID int64, expires time.Time, err error) {
	v, leave, err := h.enter(ctx, token)
	if err == nil {
		leave()
	}
	return v.channel, v.expires, err
}

// visit is a request of a reader.
type visit struct {
	channel int64
	expires time.Time // the token
	flight  *flight
}

// enter authenticates a request, which is in flight until leave is called.
func (h *Handler) enter(ctx context.Context, token string) (v visit, leave func(), err error) {
	if token == "" {
		return v, nil, errNoToken
	}
	var subject string
	now := time.Now()
	if subject, v.expires, err = h.config.verify(h.keys, token, now); err != nil {
		return v, nil, err
	}
	if wait := h.limiter.take(subject, now); wait > 0 {
		return v, nil, &limitError{"too many requests of this reader", wait}
	}
	if v.flight, leave, err = h.flights.enter(ctx, subject); err != nil {
		return v, nil, err
	}
	if h.config.Subject == SubjectID {
		v.channel, err = strconv.ParseInt(subject, 10, 64)
	} else if v.channel, err = h.store.ChannelID(ctx, subject); errors.Is(err, channels.ErrNoChannel) {
		err = errSubject
	}
	if err != nil {
		leave()
	}
	return v, leave, err
}

// AllowsOrigin reports whether pages of an origin may read responses. A WebSocket has to check it by itself.
func (h *Handler) AllowsOrigin(origin string) bool { return h.config.allows(origin) }

// limitError rejects a request beyond a limit of its reader.
type limitError struct {
	text string
	wait time.Duration
}

func (e *limitError) Error() string { return e.text }

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.recovered(w)
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	if h.preflight(w, r) {
		return
	}
	if _, pattern := h.mux.Handler(r); pattern == "" {
		h.notFound(w, r)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// preflight sets the headers of CORS. It answers a preflight request, and reports whether it did.
func (h *Handler) preflight(w http.ResponseWriter, r *http.Request) bool {
	header, origin := w.Header(), r.Header.Get("Origin")
	header.Add("Vary", "Origin")
	allowed := origin != "" && h.config.allows(origin)
	if allowed {
		header.Set("Access-Control-Allow-Origin", origin)
		header.Set("Access-Control-Expose-Headers", "Retry-After")
	}
	if origin == "" || r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	if !allowed {
		write(w, problem(http.StatusForbidden, "pages of this origin are not allowed (inbox.origins)"))
		return true
	}
	header.Set("Access-Control-Allow-Methods", "GET, POST, PUT")
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID")
	header.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// notFound answers a request without a route.
func (h *Handler) notFound(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := h.mux.Handler(other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		write(w, problem(http.StatusNotFound, "there is nothing at this path"))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	write(w, problem(http.StatusMethodNotAllowed, "allowed methods: "+strings.Join(allowed, ", ")))
}

// recovered is deferred: it answers a panic with 500 and logs it.
func (h *Handler) recovered(w http.ResponseWriter) {
	switch cause := recover(); cause {
	case nil:
	case http.ErrAbortHandler:
		panic(cause)
	default:
		h.log.Error().Str("reason", fmt.Sprint(cause)).Bytes("detail", debug.Stack()).Msg("panic in a request of a reader")
		write(w, problem(http.StatusInternalServerError, internal))
	}
}

// internal is the detail of an error that clients must not see.
const internal = "belfry's log has the error"

// Refuse answers an error of Reader, Authenticate or the store with a problem.
func (h *Handler) Refuse(w http.ResponseWriter, err error) { write(w, h.problemOf(err)) }

// problemOf returns the problem of an error, and logs an error that clients must not see.
func (h *Handler) problemOf(err error) error {
	var bad tokenError
	var limited *limitError
	kind := db.KindOf(err)
	switch {
	case errors.As(err, &bad):
		challenge := "Bearer"
		if bad != errNoToken {
			challenge = `Bearer error="invalid_token"`
		}
		return withHeader(problem(http.StatusUnauthorized, string(bad)), "WWW-Authenticate", challenge)
	case errors.As(err, &limited):
		return after(http.StatusTooManyRequests, limited.Error(), limited.wait)
	case errors.Is(err, errMarks):
		return after(http.StatusServiceUnavailable, err.Error(), maxQueue)
	case errors.Is(err, context.Canceled): // the client is gone
		return problem(http.StatusServiceUnavailable, "the request was cancelled")
	case errors.Is(err, channels.ErrPreference):
		return problem(http.StatusUnprocessableEntity, "a category or a medium is unknown; GET "+Prefix+"/inbox/preferences lists all")
	case kind == db.KindInvalid: // such as a NUL character
		return problem(http.StatusUnprocessableEntity, "a value is not a valid text")
	case kind == db.KindUnavailable, kind == db.KindTooSlow, kind == db.KindStandby, kind == db.KindConflict:
		h.log.Warn().Err(err).Msg("a reader's request failed; it can be repeated")
		return after(http.StatusServiceUnavailable, "the database does not answer now", unavailableFor)
	}
	h.log.Error().Err(err).Msg("a reader's request failed")
	return problem(http.StatusInternalServerError, internal)
}

// problem returns an error in the format of RFC 9457, as the operators' API has it.
func problem(status int, detail string) huma.StatusError {
	return &huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail}
}

func after(status int, detail string, wait time.Duration) error {
	return withHeader(problem(status, detail), "Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

func withHeader(err error, name, value string) error {
	return huma.ErrorWithHeaders(err, http.Header{name: {value}})
}

// write answers with a problem.
func write(w http.ResponseWriter, err error) {
	var headers huma.HeadersError
	if errors.As(err, &headers) {
		for name, values := range headers.GetHeaders() {
			w.Header()[name] = values
		}
	}
	var p huma.StatusError
	errors.As(err, &p)
	text, _ := json.Marshal(p) //nolint:errchkjson // texts and a number
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.GetStatus())
	_, _ = w.Write(append(text, '\n'))
}
