package api

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/access"

	"github.com/belfryhq/belfry/admin/oidc"
)

// The paths of signing in through the provider: where a browser begins, and where the provider
// sends it back to.
const (
	oidcPath     = loginPath + "/oidc"
	callbackPath = oidcPath + "/callback"
)

// returnTo is the parameter with the way back.
const returnTo = "return_to"

// maxPending bounds the cookie of a sign-in that has begun.
const maxPending = 3000

// Provider returns who signs people in, of a configuration that Validate lets pass; nil: nobody
// does but belfry itself.
func (c Config) Provider() (*oidc.Provider, error) {
	if c.OIDC.Issuer == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	at, err := publicOf(c.PublicURL)
	if err != nil {
		return nil, err
	}
	return oidc.New(c.OIDC, at.url(callbackPath))
}

// CheckOIDC tries the file with the secret for the provider, where the API is served. What
// Validate has to say of the configuration is not said again.
func (c Config) CheckOIDC() error {
	if sound := c.Validate() == nil; c.Listen == "" || !sound || c.OIDC.Issuer == "" {
		return nil
	}
	return c.OIDC.Check()
}

// errNoProvider is a sign-in through a provider that there is not.
const errNoProvider = "there is no provider to sign in through (api.oidc.issuer)"

// toProvider sends a browser to the provider. It guesses nothing, and is not counted.
func (h *Handler) toProvider(w http.ResponseWriter, req *http.Request) *Problem {
	if h.OIDC == nil {
		return problemf(http.StatusNotFound, errNoProvider)
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	way := query.Get(returnTo)
	if err != nil || len(query) > 1 || len(query) == 1 && len(query[returnTo]) != 1 || way != "" && !oidc.Path(way) {
		p := problemf(http.StatusUnprocessableEntity, "the request was not understood; nothing was done")
		p.Errors = []Fault{{"query." + returnTo, "allowed values: a path of belfry's own of up to 1000 characters, below api.public_url, as /api/v1/jobs; nothing else in the query"}}
		return p
	}
	cookie, location, err := h.OIDC.Begin(req.Context(), way)
	if err != nil {
		return h.notSignedIn(req.Context(), err, h.Proxy.client(req))
	}
	http.SetCookie(w, h.cookieNamed(req, h.pendingName(req), cookie, time.Now().Add(oidc.Lifetime)))
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusFound)
	return nil
}

// fromProvider opens a session for whom the provider names. Whatever comes of it, the sign-in has
// ended.
func (h *Handler) fromProvider(w http.ResponseWriter, req *http.Request) *Problem {
	if h.OIDC == nil {
		return problemf(http.StatusNotFound, errNoProvider)
	}
	from, ctx := h.Proxy.client(req), context.WithoutCancel(req.Context())
	if wait := h.signIns.addresses.bad(from); wait > 0 {
		return tooMany(wait, "too many sign-ins from this address were refused").problem()
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return problemf(http.StatusBadRequest, "the query is malformed")
	}
	cookie, has := cookieNamed(req, h.pendingName(req), maxPending)
	if has {
		http.SetCookie(w, h.cookieNamed(req, h.pendingName(req), "", time.Unix(1, 0)))
	}
	person, err := h.OIDC.Finish(ctx, cookie, query)
	if err != nil {
		return h.notSignedIn(ctx, err, from)
	}
	who := access.Admission{Name: person.Name, Role: person.Role, Identity: person.Identity, State: person.State}
	opened, err := h.Sessions.Admit(ctx, who, from)
	switch {
	case errors.Is(err, access.ErrReplayed):
		return h.notSignedIn(ctx, &oidc.RefusedError{Why: oidc.Stray, Text: access.ErrReplayed.Error()}, from)
	case errors.Is(err, access.ErrNotAdmitted):
		return h.notSignedIn(ctx, &oidc.RefusedError{Why: oidc.Nobody, Text: err.Error(), Name: person.Name}, from)
	case err != nil:
		return h.unanswered(err).problem()
	}
	h.signIns.names.good(who.UserName())
	h.opened(ctx, w, req, opened, from)
	switch {
	case person.ReturnTo != "":
		w.Header().Set("Location", h.public.url(person.ReturnTo))
		w.WriteHeader(http.StatusSeeOther)
	case forPeople(req):
		answerPage(w, http.StatusOK, "You are signed in", html.EscapeString(fmt.Sprintf("As %s, %s, until %s.", opened.Name, opened.Role, opened.ExpiresAt.UTC().Format(time.RFC3339))))
	default:
		respond(w, http.StatusOK, "application/json", SignedIn{opened.Name, opened.Role, opened.ExpiresAt})
	}
	return nil
}

// notSignedIn is the problem of a sign-in through the provider that came to nothing. Whom the
// provider has named counts by name, and loses what sessions there are with the role.
func (h *Handler) notSignedIn(ctx context.Context, err error, from string) *Problem {
	refused := new(oidc.RefusedError)
	if !errors.As(err, &refused) {
		return h.unanswered(err).problem()
	}
	if h.signIns.refusals.Allow() {
		h.Log.Warn().Err(err).Str("detail", from).Msg("sign-in through the provider refused")
	}
	if refused.Identity != "" {
		if err := h.Sessions.Dismiss(ctx, refused.Identity); err != nil {
			h.Log.Warn().Err(err).Msg("cannot end the sessions of somebody without a role")
		}
	}
	if refused.Name != "" {
		if wait := h.count(ctx, access.Admission{Name: refused.Name}.UserName(), from); wait > 0 {
			return tooMany(wait, "too many sign-ins by this name were refused").problem()
		}
	}
	p := problemf(map[oidc.Why]int{
		oidc.Stray: http.StatusBadRequest, oidc.Denied: http.StatusForbidden, oidc.Untrusted: http.StatusForbidden, oidc.Nobody: http.StatusForbidden,
		oidc.Unset: http.StatusInternalServerError, oidc.Away: http.StatusServiceUnavailable,
	}[refused.Why], refused.Text)
	if p.Status == http.StatusServiceUnavailable {
		p.with("Retry-After", fmt.Sprint(int(retryAfter.Seconds())))
	}
	return p
}

// pendingName is what the cookie of a sign-in that has begun is called.
func (h *Handler) pendingName(req *http.Request) string { return h.cookieName(req) + "-oidc" }

// signInLabel is what the button says.
func (h *Handler) signInLabel() string { return "Sign in with " + h.OIDC.Label() }

// forPeople reports whether a browser shows the answer to a person.
func forPeople(req *http.Request) bool {
	return strings.Contains(strings.Join(req.Header.Values("Accept"), ","), "text/html")
}

// page answers a person with a problem, and with the way to begin again.
func (h *Handler) page(w http.ResponseWriter, p *Problem) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	content := html.EscapeString(p.Detail)
	for _, fault := range p.Errors {
		content += html.EscapeString(" " + fault.Location + ": " + fault.Message)
	}
	if h.OIDC != nil && h.Sessions != nil && p.Status != http.StatusTooManyRequests {
		content += fmt.Sprintf(`</div><div><a href="%s">%s</a>`, html.EscapeString(h.public.path+oidcPath), html.EscapeString(h.signInLabel()))
	}
	answerPage(w, p.Status, p.Title, content)
}
