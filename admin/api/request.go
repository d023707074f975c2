package api

// This file processes an HTTP request from ServeHTTP to respond. The execution of the operation is in do.go.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
)

// ServeHTTP answers a request. It is safe for concurrent use. It applies the rules of every request, for
// programs, pages and recipients; serve authenticates.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	req.Body = http.MaxBytesReader(w, req.Body, maxBody)
	if h.Observe != nil {
		n := &recorder{ResponseWriter: w, answered: Answered{Method: req.Method}, began: time.Now()}
		w, req = n, req.WithContext(context.WithValue(req.Context(), recorderKey{}, n))
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
	if h.Proxy.needsTLS(req) {
		problemf(http.StatusForbidden,
			"requests without TLS are accepted only from this machine and from the proxy (api.proxy); use "+h.public.url("")).write(w)
		return
	}
	req = h.public.stripPrefix(req)
	if h.Unsubscribe != nil && strings.HasPrefix(req.URL.EscapedPath(), unsubscribePath) {
		h.unsubscribe(w, req)
		return
	}
	if h.csrf.Check(req) != nil || h.public.downgraded(req) {
		problemf(http.StatusForbidden, h.public.crossSite()).write(w)
		return
	}
	h.serve(w, req)
}

// recovered is deferred: it answers a panic with 500 and logs it.
func (h *Handler) recovered(w http.ResponseWriter) {
	switch cause := recover(); cause {
	case nil:
	case http.ErrAbortHandler:
		AbortResponse()
	default:
		h.logPanic(cause)
		problemf(http.StatusInternalServerError, "belfry's log has the error").write(w)
	}
}

// serve routes a request to the document, to signing in, to the pages, or to an operation. It authenticates
// before it routes to operations, so that anonymous clients cannot discover routes.
func (h *Handler) serve(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == Prefix+"/openapi.json" && req.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(h.document())
		return
	}
	if h.serveSession(w, req) {
		return
	}
	if h.pages != nil && !strings.HasPrefix(req.URL.Path, "/api/") {
		h.pages.ServeHTTP(w, req)
		return
	}
	_, pattern := h.mux.Handler(req)
	who, err := h.authenticated(req, h.stops[pattern], false)
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
		h.notFound(w, req)
		return
	}
	h.mux.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), callerKey{}, &Caller{who, req})))
}

// authenticated returns the identity of a request, or a *RefusedError. A token decides, if there is
// one; then the user whom the proxy names; then the cookie of a session, which background requests do
// not extend. stops selects the reserved connections.
func (h *Handler) authenticated(req *http.Request, stops, background bool) (access.Identity, error) {
	who, err := h.identified(req, stops, background)
	if err != nil {
		return who, h.unauthenticated(req, err)
	}
	h.lockout.good(h.Proxy.client(req))
	return who, nil
}

// identified returns the identity of a request's credentials.
func (h *Handler) identified(req *http.Request, stops, background bool) (access.Identity, error) {
	by := h.reserve(stops)
	if token, given := bearer(req); given {
		return h.lookUp(req, token, stops, false, by.Authenticate)
	}
	if who, named, err := h.Proxy.identity(req); named || err != nil {
		return who, err
	}
	if secret, given := h.cookie(req); given && by.Sessions != nil && len(req.Header.Values("Authorization")) == 0 {
		if background {
			return h.lookUp(req, secret, stops, true, by.Sessions.Peek)
		}
		return h.lookUp(req, secret, stops, false, by.Sessions.Find)
	}
	return access.Identity{}, errNoCredentials
}

// callerKey is the key of a request's *Caller in its context.
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
		h.serveStream(r, w, req, c, func(item any) any { return item })
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(
		time.Now().Add(h.limiter.within + o.Limit() + writeSlack)) // the writers of tests support none
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

// maxBody is the maximum size of a request's body in bytes.
const maxBody = 1 << 20

// Limits of a problem, which unknown names and long values would make larger than the request.
const (
	maxFaults  = 20
	maxMessage = 1000 // characters
)

// parsedRequest is a request that is being parsed into the input of an operation, with its first faults.
type parsedRequest struct {
	op     operation.Operation
	route  route
	in     any
	faults []Fault
}

// inputOf parses a request into the input of an operation. The problem lists the first faults.
func inputOf(o operation.Operation, r route, req *http.Request) (any, *Problem) {
	read := &parsedRequest{op: o, route: r, in: o.NewInput()}
	for _, p := range o.Params() {
		if r.in[p.Name] == inPath {
			read.note(inPath, p.Name, setText(p, read.in, req.PathValue(p.Name)))
		}
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "the query is malformed: "+err.Error())
	}
	read.takeQuery(query)
	if o.Changes {
		fields, problem := bodyOf(req)
		if problem != nil {
			return nil, problem
		}
		read.takeBody(fields)
	} else if req.ContentLength != 0 {
		return nil, problemf(http.StatusBadRequest, "this takes no body")
	}
	if len(read.faults) > 0 {
		p := problemf(http.StatusUnprocessableEntity, "the request was not understood; nothing was done")
		p.Kind, p.Errors = db.KindInvalid, read.faults
		return nil, p
	}
	return read.in, nil
}

func (r *parsedRequest) note(at place, name string, err error) {
	if err != nil && len(r.faults) < maxFaults {
		r.faults = append(r.faults, Fault{at.location(text.OneLine(name, 60)), text.OneLine(err.Error(), maxMessage)})
	}
}

// param returns the parameter with a name at a place, and notes a fault if there is none.
func (r *parsedRequest) param(at place, name string) (operation.Param, bool) {
	if len(r.faults) == maxFaults {
		return operation.Param{}, false
	}
	var names []string
	for _, p := range r.op.Params() {
		switch {
		case r.route.in[p.Name] != at:
		case p.Name == name:
			return p, true
		default:
			names = append(names, p.Name)
		}
	}
	if at == inQuery && r.route.pager() != "" {
		names = append(names, pageToken)
	}
	if len(names) == 0 {
		r.note(at, name, fmt.Errorf("is not known; this operation has no parameters in the %s", at))
	} else {
		r.note(at, name, fmt.Errorf("is not known; allowed: %s%s", strings.Join(names, ", "), keys.Hint(name, names)))
	}
	return operation.Param{}, false
}

func (r *parsedRequest) takeQuery(query url.Values) {
	r.takeToken(query)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		p, known := r.param(inQuery, name)
		if !known {
			continue
		}
		if values := query[name]; len(values) > 1 && !p.Repeated {
			r.note(inQuery, name, errTwice)
			continue
		}
		for _, text := range query[name] {
			if err := setText(p, r.in, text); err != nil {
				r.note(inQuery, name, err)
				break
			}
		}
	}
}

func (r *parsedRequest) takeBody(fields map[string]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		p, known := r.param(inBody, name)
		if !known {
			continue
		}
		err := p.SetJSON(r.in, fields[name])
		if bytes.Contains(fields[name], []byte(`\u0000`)) {
			err = errNUL
		}
		r.note(inBody, name, err)
	}
}

// errTwice rejects a repeated parameter.
var errTwice = errors.New("is given more than once")

// errNUL rejects a text that PostgreSQL cannot store.
var errNUL = errors.New("is not a text; allowed values: UTF-8 without NUL")

// setText sets a parameter to a text of the URL.
func setText(p operation.Param, in any, text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return errNUL
	}
	return p.Set(in, text)
}

// bodyOf parses the fields of a body, which must be unique. A request without a body has no fields.
func bodyOf(req *http.Request) (map[string]json.RawMessage, *Problem) {
	if req.ContentLength == 0 && len(req.TransferEncoding) == 0 {
		return nil, nil
	}
	kind, params, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") ||
		req.Header.Get("Content-Encoding") != "" {
		return nil, problemf(http.StatusUnsupportedMediaType,
			"allowed Content-Type: application/json, in UTF-8 and not compressed").with("Accept", "application/json")
	}
	body, err := io.ReadAll(req.Body)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, problemf(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is too large; allowed: up to %d bytes", maxBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problemf(http.StatusRequestTimeout, "the body did not arrive in time")
	case err != nil:
		return nil, problemf(http.StatusBadRequest, "the body ended early")
	}
	fields, err := operation.FieldsOf(body)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "the body is no JSON object: "+err.Error())
	}
	return fields, nil
}

// respond writes a JSON answer.
func respond(w http.ResponseWriter, status int, contentType string, v any) {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false) // texts are as on the command line; no browser takes this for HTML
	text.Must(v, e.Encode(v))
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // an error means that the client is gone
}

// notFound responds to an unknown path or method.
func (h *Handler) notFound(w http.ResponseWriter, req *http.Request) {
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
