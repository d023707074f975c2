package api

import (
	"cmp"
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
	"github.com/belfryhq/belfry/internal/text"
)

// The paths of a sign-in through the provider: the start, and the redirect URI.
const (
	oidcPath     = loginPath + "/oidc"
	callbackPath = oidcPath + "/callback"
)

// returnTo is the query parameter with the path to return to.
const returnTo = "return_to"

// maxPending limits the length of the cookie of a pending sign-in.
const maxPending = 3000

// Provider signs users in and maps their groups to roles.
type Provider struct {
	*oidc.Provider

	config oidc.Config
	roles  groupRoles
}

// Provider returns the provider of a valid configuration, or nil if none is configured.
func (c Config) Provider() (*Provider, error) {
	if c.OIDC.Issuer == "" {
		return nil, nil //nolint:nilnil // none is configured
	}
	at, err := publicOf(c.PublicURL)
	if err != nil {
		return nil, err
	}
	roles, err := parseGroupRoles("api.oidc.roles", c.OIDC.Roles)
	if err != nil {
		return nil, err
	}
	provider, err := oidc.New(c.OIDC, at.url(callbackPath))
	return &Provider{provider, c.OIDC, roles}, err
}

// admission checks the groups of a user.
func (p *Provider) admission(person oidc.Person) (access.Admission, error) {
	who := access.Admission{Name: person.Name, Identity: person.Identity, State: person.State}
	for _, group := range person.Groups {
		who.Role = max(who.Role, p.roles[group])
	}
	if who.Role == 0 {
		return who, &oidc.RefusedError{
			Status: http.StatusForbidden, Name: person.Name, Identity: person.Identity,
			Text: fmt.Sprintf("none of your groups has a role in belfry (api.oidc.roles); the claim %q (api.oidc.groups_claim) has: %s",
				p.config.GroupsClaim, cmp.Or(text.OneLine(strings.Join(person.Groups, ", "), 300), "none")),
		}
	}
	return who, nil
}

// errNoProvider is the problem of a sign-in through a provider if none is configured.
const errNoProvider = "no OpenID Connect provider is configured (api.oidc.issuer)"

// toProvider redirects a browser to the provider. The request is not a guess and is not counted.
func (h *Handler) toProvider(w http.ResponseWriter, req *http.Request) *Problem {
	if h.OIDC == nil {
		return problemf(http.StatusNotFound, errNoProvider)
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	path := query.Get(returnTo)
	if err != nil || len(query) > 1 || len(query) == 1 && len(query[returnTo]) != 1 || path != "" && !oidc.LocalPath(path) {
		p := problemf(http.StatusUnprocessableEntity, "the request was not understood; nothing was done")
		p.Errors = []Fault{{"query." + returnTo,
			"allowed values: a path of up to 1000 characters below api.public_url, such as /api/v1/jobs; no other parameters"}}
		return p
	}
	cookie, location, err := h.OIDC.Begin(req.Context(), path)
	if err != nil {
		return h.notSignedIn(req.Context(), err, h.Proxy.client(req))
	}
	http.SetCookie(w, h.cookieNamed(req, h.pendingName(req), cookie, time.Now().Add(oidc.Lifetime)))
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusFound)
	return nil
}

// fromProvider opens a session for the user whom the provider has authenticated. It always deletes
// the cookie of the sign-in.
func (h *Handler) fromProvider(w http.ResponseWriter, req *http.Request) *Problem {
	if h.OIDC == nil {
		return problemf(http.StatusNotFound, errNoProvider)
	}
	from, ctx := h.Proxy.client(req), context.WithoutCancel(req.Context())
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return problemf(http.StatusBadRequest, "the query is malformed")
	}
	cookie, has := cookieNamed(req, h.pendingName(req), maxPending)
	if has {
		http.SetCookie(w, h.cookieNamed(req, h.pendingName(req), "", time.Unix(1, 0)))
	}
	if err := h.OIDC.Pending(cookie, query); err != nil { // not a guess: another site's page may send it
		return h.notSignedIn(ctx, err, from)
	}
	if wait := h.signIns.addresses.bad(from); wait > 0 {
		return tooMany(wait, "too many sign-ins from this address were refused").problem()
	}
	person, err := h.OIDC.Finish(ctx, cookie, query)
	if err != nil {
		return h.notSignedIn(ctx, err, from)
	}
	who, err := h.OIDC.admission(person)
	if err != nil {
		return h.notSignedIn(ctx, err, from)
	}
	opened, err := h.Sessions.Admit(ctx, who, from)
	switch {
	case errors.Is(err, access.ErrReplayed):
		return h.notSignedIn(ctx, &oidc.RefusedError{Status: http.StatusBadRequest, Text: err.Error()}, from)
	case errors.Is(err, access.ErrNotAdmitted):
		return h.notSignedIn(ctx, &oidc.RefusedError{Status: http.StatusForbidden, Text: err.Error(), Name: person.Name}, from)
	case err != nil:
		return h.credentialsUnchecked(err).problem()
	}
	h.signIns.names.good(who.UserName())
	h.opened(ctx, w, req, opened, from)
	switch {
	case person.ReturnTo != "":
		w.Header().Set("Location", h.public.url(person.ReturnTo))
		w.WriteHeader(http.StatusSeeOther)
	case forPeople(req):
		answerPage(w, http.StatusOK, "You are signed in",
			html.EscapeString(fmt.Sprintf("As %s, %s, until %s.", opened.Name, opened.Role, opened.ExpiresAt.UTC().Format(time.RFC3339))))
	default:
		respond(w, http.StatusOK, "application/json", SignedIn{opened.Name, opened.Role, opened.ExpiresAt})
	}
	return nil
}

// notSignedIn returns the problem of a failed sign-in through the provider. A user whom the
// provider has named is counted by that name and loses existing sessions.
func (h *Handler) notSignedIn(ctx context.Context, err error, from string) *Problem {
	refused, is := errors.AsType[*oidc.RefusedError](err)
	if !is {
		return h.credentialsUnchecked(err).problem()
	}
	if h.signIns.refusals.Allow() {
		h.Log.Warn().Err(err).Str("detail", from).Msg("sign-in through the provider refused")
	}
	if refused.Identity != "" {
		if err := h.Sessions.Dismiss(ctx, refused.Identity); err != nil {
			h.Log.Warn().Err(err).Msg("cannot end the sessions of a user without a role")
		}
	}
	if refused.Name != "" {
		if wait := h.count(ctx, access.Admission{Name: refused.Name}.UserName(), from); wait > 0 {
			return tooMany(wait, "too many sign-ins by this name were refused").problem()
		}
	}
	p := problemf(refused.Status, refused.Text)
	if p.Status == http.StatusServiceUnavailable {
		p.with("Retry-After", fmt.Sprint(int(retryAfter.Seconds())))
	}
	return p
}

// pendingName returns the name of the cookie of a pending sign-in.
func (h *Handler) pendingName(req *http.Request) string { return h.cookieName(req) + "-oidc" }

// signInLabel returns the label of the sign-in button.
func (h *Handler) signInLabel() string { return "Sign in with " + h.OIDC.config.Label }

// forPeople reports whether the client is a browser.
func forPeople(req *http.Request) bool {
	return strings.Contains(strings.Join(req.Header.Values("Accept"), ","), "text/html")
}

// page renders a problem as HTML with a link to sign in again.
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
