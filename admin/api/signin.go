package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"

	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/db"
)

// The paths of signing in and out.
const (
	loginPath  = Prefix + "/login"
	logoutPath = Prefix + "/logout"
)

// SignedIn is the response to a sign-in. A cookie of the response has the session.
type SignedIn struct {
	Name      string         `json:"name"`
	Role      operation.Role `json:"role"`
	ExpiresAt time.Time      `json:"expires_at"`
}

// signIns limits refused sign-ins by address and by name, whether or not a user has the name.
type signIns struct {
	addresses, names *lockout
	events           *rate.Limiter // recorded lockouts
	refusals         *rate.Limiter // log lines about the provider
}

func (h *Handler) newSignIns() signIns {
	return signIns{
		addresses: newLockout(20, 6*time.Second, func(from string) {
			h.Log.Warn().Str("detail", from).Msg("too many refused sign-ins from one address")
		}),
		names:  newLockout(10, 30*time.Second, func(string) {}),
		events: rate.NewLimiter(rate.Every(time.Minute), 10),

		refusals: rate.NewLimiter(rate.Every(time.Second), 30),
	}
}

// serveSession answers requests to sign in and out. It returns false for all other requests.
func (h *Handler) serveSession(w http.ResponseWriter, req *http.Request) bool {
	answers := map[string]map[string]func(http.ResponseWriter, *http.Request) *Problem{
		loginPath:    {http.MethodGet: h.answerOptions, http.MethodPost: h.answerSignIn},
		logoutPath:   {http.MethodPost: h.answerSignOut},
		oidcPath:     {http.MethodGet: h.toProvider},
		callbackPath: {http.MethodGet: h.fromProvider},
	}[req.URL.Path]
	if answers == nil {
		return false
	}
	answer, allowed := answers[req.Method]
	var problem *Problem
	switch {
	case !allowed:
		list := strings.Join(slices.Sorted(maps.Keys(answers)), ", ")
		problem = problemf(http.StatusMethodNotAllowed, "allowed methods: "+list).with("Allow", list)
	case h.Sessions == nil && answers[http.MethodPost] == nil:
		problem = h.withoutSessions().problem()
	default:
		problem = answer(w, req)
	}
	switch {
	case problem == nil:
	case answers[http.MethodPost] == nil && forPeople(req):
		h.page(w, problem)
	default:
		problem.write(w)
	}
	return true
}

// withoutSessions returns the error of a sign-in or a sign-out without Options.Sessions.
func (h *Handler) withoutSessions() *RefusedError {
	return refused(http.StatusForbidden, db.KindDenied,
		"signing in is disabled: this belfry is read-only (api.read_only) and stores no sessions; use a token")
}

// LoginOptions lists the enabled ways to sign in.
type LoginOptions struct {
	// As is the sender of the request; null if it has no credentials, or bad ones.
	As *SignedInAs `json:"as"`
	// Password reports whether POST /login accepts names and passwords.
	Password bool `json:"password"`
	// Provider is the OpenID Connect provider, or null if none is configured.
	Provider *LoginProvider `json:"provider"`
}

// SignedInAs is the sender of a request.
type SignedInAs struct {
	Name string         `json:"name"`
	Role operation.Role `json:"role"`
}

// LoginProvider is the text and the path of a sign-in button.
type LoginProvider struct {
	Label string `json:"label"`
	Path  string `json:"path"`
}

// LoginOptions returns the ways to sign in. The request does not extend its session.
func (h *Handler) LoginOptions(req *http.Request) (options LoginOptions, err error) {
	who, err := h.Caller(req, true)
	if err != nil {
		return options, err
	}
	if who != nil {
		options.As = &SignedInAs{who.Name, who.Role}
	}
	options.Password = h.Sessions != nil
	if h.Sessions != nil && h.OIDC != nil {
		options.Provider = &LoginProvider{h.signInLabel(), h.public.path + oidcPath}
	}
	return options, nil
}

func (h *Handler) answerOptions(w http.ResponseWriter, req *http.Request) *Problem {
	options, err := h.LoginOptions(req)
	if err != nil {
		return problemOf(route{}, err)
	}
	respond(w, http.StatusOK, "application/json", options)
	return nil
}

// Credentials are a name and a password, or a sign-in link.
type Credentials struct{ Name, Password, Link string }

// maxCredential is the maximum length of a name, a password or a link in bytes.
const maxCredential = 4000

func (c Credentials) valid() bool {
	for _, text := range []string{c.Name, c.Password, c.Link} {
		if len(text) > maxCredential || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return false
		}
	}
	return true
}

// SignIn opens a session for the sender of a request, and ends the one that the request has. It sets
// the cookie of the new session. An error is a *RefusedError.
func (h *Handler) SignIn(w http.ResponseWriter, req *http.Request, given Credentials) (SignedIn, error) {
	switch {
	case h.Sessions == nil:
		return SignedIn{}, h.withoutSessions()
	case !given.valid():
		return SignedIn{}, badCredentials()
	}
	from, ctx := h.Proxy.client(req), context.WithoutCancel(req.Context())
	if wait := h.signIns.addresses.bad(from); wait > 0 {
		return SignedIn{}, tooMany(wait, "too many sign-ins from this address were refused")
	}
	opened, err := h.open(ctx, given, from)
	switch locked := new(lockedError); {
	case errors.As(err, &locked):
		return SignedIn{}, tooMany(locked.wait, locked.Error())
	case errors.Is(err, access.ErrSignIn):
		e := refused(http.StatusUnauthorized, db.KindDenied, access.ErrSignIn.Error())
		e.challenge = `Bearer realm="belfry"`
		return SignedIn{}, e
	case err != nil:
		return SignedIn{}, h.credentialsUnchecked(err)
	}
	h.signIns.names.good(given.Name)
	h.opened(ctx, w, req, opened, from)
	return SignedIn{opened.Name, opened.Role, opened.ExpiresAt}, nil
}

func (h *Handler) answerSignIn(w http.ResponseWriter, req *http.Request) *Problem {
	given, problem := credentialsOf(req)
	if problem != nil {
		return problem
	}
	who, err := h.SignIn(w, req, given)
	if err != nil {
		return problemOf(route{}, err)
	}
	respond(w, http.StatusOK, "application/json", who)
	return nil
}

// opened gives the browser its new session, and ends the one that it had.
func (h *Handler) opened(ctx context.Context, w http.ResponseWriter, req *http.Request, opened access.Opened, from string) {
	h.signIns.addresses.good(from)
	if before, has := h.cookie(req); has {
		if err := h.Sessions.SignOut(ctx, before); err != nil {
			h.Log.Warn().Err(err).Msg("cannot end the session before")
		}
	}
	http.SetCookie(w, h.cookieOf(req, opened.Secret, opened.ExpiresAt))
}

// lockedError rejects a name that is locked out.
type lockedError struct{ wait time.Duration }

func (*lockedError) Error() string {
	return "too many sign-ins by this name were refused; `belfry users link` creates a link that signs in nevertheless"
}

// open opens a session by credentials. Each attempt by a name counts before its password is
// checked, so that many at once do not get around the limit.
func (h *Handler) open(ctx context.Context, given Credentials, from string) (access.Opened, error) {
	if given.Link != "" {
		return h.Sessions.Exchange(ctx, given.Link, from)
	}
	if wait := h.count(ctx, given.Name, from); wait > 0 {
		// Guesses from elsewhere do not lock a user out of an address where the user has signed in.
		if known, err := h.Sessions.KnownFrom(ctx, given.Name, from); err != nil || !known {
			return access.Opened{}, errors.Join(err, &lockedError{wait})
		}
	}
	return h.Sessions.SignIn(ctx, given.Name, given.Password, from)
}

// count counts a sign-in by a nameand records the beginning of a lockout. It returns the remaining lockout of
// the name.
func (h *Handler) count(ctx context.Context, name, from string) time.Duration {
	wait, begins := h.signIns.names.count(name)
	if begins {
		h.Log.Warn().Str("detail", from).Msg("too many refused sign-ins by one name")
		if h.signIns.events.Allow() {
			if err := h.Sessions.LockedOut(ctx, name, from); err != nil {
				h.Log.Warn().Err(err).Msg("cannot record a lockout")
			}
		}
	}
	return wait
}

// credentialsOf reads {"name", "password"} or {"link"}, all texts.
func credentialsOf(req *http.Request) (given Credentials, problem *Problem) {
	fields, problem := bodyOf(req)
	if problem != nil {
		return given, problem
	}
	names, text := slices.Sorted(maps.Keys(fields)), true
	for name, into := range map[string]*string{"name": &given.Name, "password": &given.Password, "link": &given.Link} {
		text = text && (fields[name] == nil || json.Unmarshal(fields[name], into) == nil)
	}
	if !text || req.URL.RawQuery != "" || !slices.Equal(names, []string{"link"}) && !slices.Equal(names, []string{"name", "password"}) {
		return given, badCredentials().problem()
	}
	return given, nil
}

func badCredentials() *RefusedError {
	return refused(http.StatusUnprocessableEntity, db.KindInvalid,
		`allowed: {"name": …, "password": …} or {"link": …}, each a text of up to 4000 bytes, and no query`)
}

// SignOut ends the session of the request's cookie, if it has one, and clears the cookie. An error is
// a *RefusedError.
func (h *Handler) SignOut(w http.ResponseWriter, req *http.Request) error {
	if h.Sessions == nil {
		return h.withoutSessions()
	}
	if secret, has := h.cookie(req); has {
		leave, err := h.enterLookup(req, credentials(sha256.Sum256([]byte(secret))), false, false)
		if err != nil {
			return err
		}
		defer leave()
		if err := h.Sessions.SignOut(context.WithoutCancel(req.Context()), secret); err != nil {
			return h.credentialsUnchecked(err)
		}
	}
	http.SetCookie(w, h.cookieOf(req, "", time.Unix(1, 0)))
	return nil
}

func (h *Handler) answerSignOut(w http.ResponseWriter, req *http.Request) *Problem {
	if err := h.SignOut(w, req); err != nil {
		return problemOf(route{}, err)
	}
	respond(w, http.StatusOK, "application/json", struct{}{})
	return nil
}

// cookieName returns the name of the session cookie. Its prefix binds the cookie to TLS and to the host, if
// possible.
func (h *Handler) cookieName(req *http.Request) string {
	switch {
	case !h.public.secure(req):
		return "belfry"
	case h.public.path == "":
		return "__Host-belfry"
	}
	return "__Secure-belfry"
}

// cookieOf returns the cookie of a session.
func (h *Handler) cookieOf(req *http.Request, secret string, expires time.Time) *http.Cookie {
	return h.cookieNamed(req, h.cookieName(req), secret, expires)
}

// cookieNamed returns a cookie of belfry. SameSite=Lax allows links from other sites to pages. Other
// cross-site requests are also rejected by their headers.
func (h *Handler) cookieNamed(req *http.Request, name, value string, expires time.Time) *http.Cookie {
	path := h.public.path
	if path == "" {
		path = "/"
	}
	return &http.Cookie{ //nolint:gosec // Secure if the browser uses TLS; without TLS the API is local
		Name: name, Value: value, Path: path, Expires: expires,
		HttpOnly: true, Secure: h.public.secure(req), SameSite: http.SameSiteLaxMode,
	}
}

// cookie returns the secret of the request's session. Of two cookies one may be another site's; then it
// returns neither.
func (h *Handler) cookie(req *http.Request) (secret string, has bool) {
	return cookieNamed(req, h.cookieName(req), 100)
}

// cookieNamed returns the value of the request's only cookie with that name, up to most bytes long.
func cookieNamed(req *http.Request, name string, most int) (value string, has bool) {
	list := req.CookiesNamed(name)
	if len(list) != 1 || list[0].Value == "" || len(list[0].Value) > most {
		return "", false
	}
	return list[0].Value, true
}
