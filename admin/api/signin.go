package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/admin"
)

// The paths of signing in and out.
const (
	loginPath  = Prefix + "/login"
	logoutPath = Prefix + "/logout"
)

// SignedIn is the answer to a sign-in. The cookie beside it is the session.
type SignedIn struct {
	Name      string     `json:"name"`
	Role      admin.Role `json:"role"`
	ExpiresAt time.Time  `json:"expires_at"`
}

// signIns bounds the sign-ins that are refused: by the address that they come from, and by
// name, whether or not it is anybody's.
type signIns struct {
	addresses, names *lockout
	events           *rate.Limiter // of lockouts, whatever is guessed
	refusals         *rate.Limiter // lines of the log about the provider
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

// signsInOrOut answers what is about a session rather than an operation; false: it is not.
func (h *Handler) signsInOrOut(w http.ResponseWriter, req *http.Request) bool {
	answers := map[string]map[string]func(http.ResponseWriter, *http.Request) *Problem{
		loginPath:    {http.MethodGet: h.waysIn, http.MethodPost: h.signIn},
		logoutPath:   {http.MethodPost: h.signOut},
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
	case h.Sessions == nil && (req.URL.Path != loginPath || req.Method != http.MethodGet):
		problem = problemf(http.StatusForbidden, "nobody signs in here: this belfry is read-only (api.read_only), and writes no sessions; use a token")
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

// WaysIn is how people sign in here.
type WaysIn struct {
	// As is who asks; null: nobody, or somebody whose token or session is not good.
	As *SignedInAs `json:"as"`
	// Password tells whether POST /login takes names and passwords.
	Password bool `json:"password"`
	// Provider is the other way; null: there is none.
	Provider *WayIn `json:"provider"`
}

// SignedInAs is who a request is from.
type SignedInAs struct {
	Name string     `json:"name"`
	Role admin.Role `json:"role"`
}

// WayIn is a button: what it says, and where it leads to.
type WayIn struct {
	Label string `json:"label"`
	Path  string `json:"path"`
}

// waysIn tells whoever asks. It is no use of a session.
func (h *Handler) waysIn(w http.ResponseWriter, req *http.Request) *Problem {
	ways := WaysIn{Password: h.Sessions != nil}
	switch who, err := h.identified(h.reserve(false), req, true); {
	case err == nil:
		ways.As = &SignedInAs{who.Name, who.Role}
	case errors.Is(err, errNoCredentials):
	case nobody(err):
		if wait := h.lockout.bad(h.Proxy.client(req)); wait > 0 {
			return tooMany(wait, "too many requests from this address had no good token")
		}
	case errors.Is(err, errProxyUser), errors.Is(err, errProxyRole):
		return problemf(http.StatusForbidden, err.Error())
	default:
		return h.unanswered(err)
	}
	if h.Sessions != nil && h.OIDC != nil {
		ways.Provider = &WayIn{h.signInLabel(), h.public.path + oidcPath}
	}
	respond(w, http.StatusOK, "application/json", ways)
	return nil
}

// signIn opens a session by {"name", "password"} or {"link"}. A session that the request has
// ends by it.
func (h *Handler) signIn(w http.ResponseWriter, req *http.Request) *Problem {
	given, problem := credentialsOf(req)
	if problem != nil {
		return problem
	}
	from, ctx := h.Proxy.client(req), context.WithoutCancel(req.Context())
	if wait := h.signIns.addresses.bad(from); wait > 0 {
		return tooMany(wait, "too many sign-ins from this address were refused")
	}
	name := given["name"]
	opened, err := h.open(ctx, given, from)
	switch locked := new(lockedError); {
	case errors.As(err, &locked):
		return tooMany(locked.wait, locked.Error())
	case errors.Is(err, admin.ErrSignIn):
		return problemf(http.StatusUnauthorized, admin.ErrSignIn.Error()).with("WWW-Authenticate", `Bearer realm="belfry"`)
	case err != nil:
		return h.unanswered(err)
	}
	h.signIns.names.good(name)
	h.opened(ctx, w, req, opened, from)
	respond(w, http.StatusOK, "application/json", SignedIn{opened.Name, opened.Role, opened.ExpiresAt})
	return nil
}

// opened gives the browser its new session, and ends the one that it had.
func (h *Handler) opened(ctx context.Context, w http.ResponseWriter, req *http.Request, opened admin.Opened, from string) {
	h.signIns.addresses.good(from)
	if before, has := h.cookie(req); has {
		if err := h.Sessions.SignOut(ctx, before); err != nil {
			h.Log.Warn().Err(err).Msg("cannot end the session before")
		}
	}
	http.SetCookie(w, h.cookieOf(req, opened.Secret, opened.ExpiresAt))
}

// lockedError is a name by which nobody signs in for a while.
type lockedError struct{ wait time.Duration }

func (*lockedError) Error() string {
	return "too many sign-ins by this name were refused; `belfry users link` makes a link that signs in all the same"
}

// open opens a session by what was given. Each attempt by a name counts before its password is
// looked at: many at once are no way around.
func (h *Handler) open(ctx context.Context, given map[string]string, from string) (admin.Opened, error) {
	if link, by := given["link"]; by {
		return h.Sessions.Exchange(ctx, link, from)
	}
	if wait := h.count(ctx, given["name"], from); wait > 0 {
		// Who guesses elsewhere does not keep somebody out from where they work.
		if known, err := h.Sessions.KnownFrom(ctx, given["name"], from); err != nil || !known {
			return admin.Opened{}, errors.Join(err, &lockedError{wait})
		}
	}
	return h.Sessions.SignIn(ctx, given["name"], given["password"], from)
}

// count counts a sign-in by a name, and records when a lockout begins; it returns how long the
// name is locked out.
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
func credentialsOf(req *http.Request) (map[string]string, *Problem) {
	fields, problem := bodyOf(req)
	if problem != nil {
		return nil, problem
	}
	given, text := make(map[string]string), true
	for name, raw := range fields {
		var value string
		text = text && json.Unmarshal(raw, &value) == nil && !slices.Contains([]byte(value), 0) && len(value) <= maxCredential
		given[name] = value
	}
	names := slices.Sorted(maps.Keys(given))
	if !text || req.URL.RawQuery != "" || !slices.Equal(names, []string{"link"}) && !slices.Equal(names, []string{"name", "password"}) {
		return nil, problemf(http.StatusUnprocessableEntity, `allowed: {"name": …, "password": …} or {"link": …}, each a text of up to 4000 bytes, and no query`)
	}
	return given, nil
}

// maxCredential is how many bytes a name, a password or a link may have.
const maxCredential = 4000

// signOut ends the session of the request's cookie, if it has one.
func (h *Handler) signOut(w http.ResponseWriter, req *http.Request) *Problem {
	secret, has := h.cookie(req)
	if has {
		if err := h.Sessions.SignOut(context.WithoutCancel(req.Context()), secret); err != nil {
			return h.unanswered(err)
		}
	}
	http.SetCookie(w, h.cookieOf(req, "", time.Unix(1, 0)))
	respond(w, http.StatusOK, "application/json", struct{}{})
	return nil
}

// cookieName binds the cookie to the host and, where it can be, to TLS.
func (h *Handler) cookieName(req *http.Request) string {
	switch {
	case !h.public.secure(req):
		return "belfry"
	case h.public.path == "":
		return "__Host-belfry"
	}
	return "__Secure-belfry"
}

// cookieOf is the cookie of a session.
func (h *Handler) cookieOf(req *http.Request, secret string, expires time.Time) *http.Cookie {
	return h.cookieNamed(req, h.cookieName(req), secret, expires)
}

// cookieNamed is a cookie of belfry's. SameSite=Lax lets a link of elsewhere lead to a page; what
// changes something is refused to other sites by more than that.
func (h *Handler) cookieNamed(req *http.Request, name, value string, expires time.Time) *http.Cookie {
	path := h.public.path
	if path == "" {
		path = "/"
	}
	return &http.Cookie{ //nolint:gosec // Secure wherever a browser comes by TLS; without it the API is this machine's
		Name: name, Value: value, Path: path, Expires: expires,
		HttpOnly: true, Secure: h.public.secure(req), SameSite: http.SameSiteLaxMode,
	}
}

// cookie is the secret of the request's session. Two are one too many: one of them is not of
// here.
func (h *Handler) cookie(req *http.Request) (secret string, has bool) {
	return cookieNamed(req, h.cookieName(req), 100)
}

// cookieNamed is the value of the request's one cookie of that name, of so many bytes at most.
func cookieNamed(req *http.Request, name string, most int) (value string, has bool) {
	list := req.CookiesNamed(name)
	if len(list) != 1 || list[0].Value == "" || len(list[0].Value) > most {
		return "", false
	}
	return list[0].Value, true
}
