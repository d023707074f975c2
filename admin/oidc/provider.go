package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/belfryhq/belfry/internal/text"
)

const (
	// Lifetime limits the duration of a sign-in and of its cookie.
	Lifetime = 10 * time.Minute

	answerTimeout = 10 * time.Second // for one call, and for all calls of one step
	clockSkew     = time.Minute      // tolerated difference of clocks
	maxAnswer     = 1 << 20          // bytes of a response
)

// Provider signs users in. It is safe for concurrent use.
type Provider struct {
	config    Config
	redirect  string
	client    *http.Client
	timeout   time.Duration
	now       func() time.Time
	discovery atomic.Pointer[discovery]
}

// discovery is the discovery document of the provider.
type discovery struct {
	provider *goidc.Provider
	fetched  time.Time
	oauth    oauth2.Config // without the secret

	AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	SendsIssuer bool     `json:"authorization_response_iss_parameter_supported"`
}

// Person is a user whom the provider has authenticated.
type Person struct {
	Name   string
	Groups []string
	// Identity is the issuer and the subject. It never changes, unlike Name.
	Identity string
	// State identifies the sign-in; 43 characters.
	State string
	// ReturnTo is the argument of Begin.
	ReturnTo string
}

// RefusedError is the error of a failed sign-in.
type RefusedError struct {
	// Status is the HTTP status of the response.
	Status int
	// Text is for the user and contains no secrets.
	Text string
	// Name and Identity are those of the Person. They are empty unless the ID token was valid.
	Name, Identity string
	// Err is the cause for the log, or nil.
	Err error
}

// Error implements error. The text is for the log.
func (r *RefusedError) Error() string {
	if r.Err != nil {
		return r.Text + ": " + text.OneLine(r.Err.Error(), 500) // it may contain a whole HTML page
	}
	return r.Text
}

func refuse(status int, err error, format string, args ...any) *RefusedError {
	return &RefusedError{Status: status, Text: fmt.Sprintf(format, args...), Err: err}
}

func unavailable(err error, what string) *RefusedError {
	return refuse(http.StatusServiceUnavailable, err,
		"%s does not respond as expected; try again later, or sign in with a name and password", what)
}

// New returns the provider of a valid configuration. redirect is the absolute URL of the callback.
// New does not contact the provider.
func New(c Config, redirect string) (*Provider, error) {
	_, err := c.Secret()
	if err := errors.Join(c.Validate(), err); err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport:     bounded{&http.Transport{Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: 8, IdleConnTimeout: time.Minute}},
		Timeout:       answerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a redirect could leak the code
	}
	return &Provider{config: c, redirect: redirect, client: client, timeout: answerTimeout, now: time.Now}, nil
}

// bounded refuses requests without TLS, truncates long responses, and refuses a switch of protocols, after which
// the body of the response is the connection, and outlasts the context.
type bounded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	if !secure(req.URL) {
		return nil, errors.New("the URL is not allowed; allowed values: https://…, or http:// on this machine")
	}
	res, err := b.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		_ = res.Body.Close() // nothing of it is needed
		return nil, fmt.Errorf("the response is %s", res.Status)
	}
	res.Body = http.MaxBytesReader(nil, res.Body, maxAnswer)
	return res, nil
}

// Close closes idle connections.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// Begin starts a sign-in. It returns the value of the browser's cookie, which is valid for Lifetime,
// and the URL to redirect the browser to. returnTo is a LocalPath or "". Errors are *RefusedError.
func (p *Provider) Begin(ctx context.Context, returnTo string) (cookie, location string, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	d, err := p.discover(ctx)
	if err != nil {
		return "", "", err
	}
	cookie = newCookie(p.now(), returnTo)
	return cookie, d.oauth.AuthCodeURL(derive(cookie, "state"), goidc.Nonce(derive(cookie, "nonce")),
		oauth2.S256ChallengeOption(derive(cookie, "verifier"))), nil
}

// Finish completes the sign-in of cookie with the query of the provider's redirect. The caller
// deletes the cookie in any case. Errors are *RefusedError.
func (p *Provider) Finish(ctx context.Context, cookie string, query url.Values) (Person, error) {
	if err := p.Pending(cookie, query); err != nil {
		return Person{}, err
	}
	ctx, cancel := context.WithTimeout(goidc.ClientContext(ctx, p.client), p.timeout)
	defer cancel()
	d, err := p.discover(ctx)
	if err != nil {
		return Person{}, err
	}
	switch {
	case query.Get("iss") != p.config.Issuer && (query.Has("iss") || d.SendsIssuer):
		return Person{}, refuse(http.StatusBadRequest, nil, "this response is not from the provider of api.oidc.issuer; sign in again")
	case query.Has("error") || query.Get("code") == "":
		return Person{}, refuse(http.StatusForbidden, nil, "the provider refused the sign-in: %s",
			text.OneLine(query.Get("error")+" "+query.Get("error_description"), 200))
	}
	access, err := p.exchange(ctx, d, derive(cookie, "verifier"), query.Get("code"))
	if err != nil {
		return Person{}, err
	}
	token, all, err := p.verify(ctx, d, derive(cookie, "nonce"), fmt.Sprint(access.Extra("id_token")))
	if err != nil {
		return Person{}, err
	}
	if p.config.Userinfo {
		more := make(claims)
		info, err := d.provider.UserInfo(ctx, oauth2.StaticTokenSource(access))
		if err != nil {
			return Person{}, unavailable(err, "the provider's userinfo endpoint (api.oidc.userinfo)")
		}
		if info.Subject != token.Subject || info.Claims(&more) != nil { // OpenID Connect Core, 5.3.2
			return Person{}, refuse(http.StatusForbidden, nil, "the provider's userinfo has another subject than its ID token (sub)")
		}
		maps.Copy(more, all)
		all = more
	}
	name, groups, err := all.read(p.config.NameClaim, p.config.GroupsClaim)
	identity := strconv.Quote(p.config.Issuer) + " " + strconv.Quote(token.Subject)
	if err != nil {
		return Person{}, &RefusedError{Status: http.StatusForbidden, Text: err.Error(), Name: name, Identity: identity}
	}
	_, returnTo, _ := parseCookie(cookie)
	return Person{name, groups, identity, derive(cookie, "state"), returnTo}, nil
}

// Pending refuses a response to no sign-in of this browser, such as a request that another site's page has
// made. It does not call the provider.
func (p *Provider) Pending(cookie string, query url.Values) error {
	begun, _, ok := parseCookie(cookie)
	switch {
	case !ok || p.now().Sub(begun).Abs() >= Lifetime:
		return refuse(http.StatusBadRequest, nil,
			"this browser has no pending sign-in: it took longer than %d minutes, or was started in another browser or at another "+
				"address than belfry's public URL; sign in again", int(Lifetime.Minutes()))
	case !hmac.Equal([]byte(query.Get("state")), []byte(derive(cookie, "state"))):
		return refuse(http.StatusBadRequest, nil,
			"this response belongs to another sign-in than the last one of this browser; sign in again")
	}
	return nil
}

// discover returns the discovery document of the provider.
func (p *Provider) discover(ctx context.Context) (*discovery, error) {
	if d := p.discovery.Load(); d != nil && p.now().Sub(d.fetched) < time.Hour {
		return d, nil
	}
	provider, err := goidc.NewProvider(goidc.ClientContext(ctx, p.client), p.config.Issuer)
	if err != nil {
		return nil, unavailable(err, "the provider")
	}
	endpoint := provider.Endpoint()
	if at, err := url.Parse(endpoint.AuthURL); err != nil || !secure(at) {
		return nil, unavailable(
			fmt.Errorf("authorization_endpoint %q is not allowed; allowed values: https://…, or http:// on this machine",
				endpoint.AuthURL), "the provider")
	}
	scopes := slices.Compact(slices.Sorted(slices.Values(append([]string{goidc.ScopeOpenID}, p.config.Scopes...))))
	d := &discovery{provider: provider, fetched: p.now(),
		oauth: oauth2.Config{ClientID: p.config.ClientID, Endpoint: endpoint, RedirectURL: p.redirect, Scopes: scopes}}
	_ = provider.Claims(d) // the defaults are safe
	p.discovery.Store(d)
	return d, nil
}

// exchange exchanges the code for tokens.
func (p *Provider) exchange(ctx context.Context, d *discovery, verifier, code string) (*oauth2.Token, error) {
	c := d.oauth
	var err error
	if c.ClientSecret, err = p.config.Secret(); err != nil {
		return nil, refuse(http.StatusInternalServerError, err, "belfry cannot read its client secret")
	}
	c.Endpoint.AuthStyle = oauth2.AuthStyleInHeader // the default of OpenID Connect
	if c.ClientSecret == "" || len(d.AuthMethods) > 0 && !slices.Contains(d.AuthMethods, "client_secret_basic") {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	token, err := c.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	answer, answered := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case err == nil:
		return token, nil
	case answered && answer.ErrorCode == "invalid_grant":
		return nil, refuse(http.StatusBadRequest, nil,
			"the provider refused the code: it was used before, has expired or belongs to another browser; sign in again")
	case answered && answer.ErrorCode != "":
		return nil, refuse(http.StatusInternalServerError, errors.New(answer.ErrorDescription),
			"the provider refused belfry's client: %s (api.oidc.client_id, client_secret_file)", text.OneLine(answer.ErrorCode, 60))
	}
	return nil, unavailable(err, "the provider")
}

// verify checks that the issuer made an ID token for this client and this sign-in, and returns its claims.
func (p *Provider) verify(ctx context.Context, d *discovery, nonce, raw string) (*goidc.IDToken, claims, error) {
	token, err := d.provider.Verifier(&goidc.Config{ClientID: p.config.ClientID, Now: func() time.Time {
		return p.now().Add(
			-clockSkew)
	}}).Verify(ctx, raw)
	all := make(claims)
	if err == nil {
		err = token.Claims(&all)
	}
	expired, late := errors.AsType[*goidc.TokenExpiredError](err)
	party, given := all["azp"]
	switch {
	case late:
		return nil, nil, refuse(http.StatusForbidden, nil,
			"the provider's ID token expired at %s, and belfry's clock is at %s; one of the clocks may be wrong",
			expired.Expiry.UTC().Format(time.RFC3339), p.now().UTC().Format(time.RFC3339))
	case err != nil:
		p.discovery.CompareAndSwap(d, nil) // the provider may have changed its algorithms or the URL of its keys
		return nil, nil, refuse(http.StatusForbidden, err,
			"the provider's ID token is missing or cannot be verified; see belfry's log for the reason")
	case !hmac.Equal([]byte(token.Nonce), []byte(nonce)) || token.Subject == "":
		return nil, nil, refuse(http.StatusForbidden, nil, "the provider's ID token is for another sign-in (nonce) or has no subject (sub)")
	case len(token.Subject) > 255: // OpenID Connect Core, 2
		return nil, nil, refuse(http.StatusForbidden, nil, "the provider's ID token has a subject (sub) of more than 255 characters")
	case given && party != p.config.ClientID || !given && len(token.Audience) > 1:
		return nil, nil, refuse(http.StatusForbidden, nil, "the provider's ID token is for another client (azp)")
	}
	return token, all, nil
}

// newCookie returns the cookie of a new sign-in: SECRET.TIME.RETURN_TO.
func newCookie(now time.Time, returnTo string) string {
	return oauth2.GenerateVerifier() + "." + strconv.FormatInt(now.Unix(), 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(returnTo))
}

// parseCookie returns the start and the return path of a sign-in.
func parseCookie(cookie string) (begun time.Time, returnTo string, ok bool) {
	parts := strings.Split(cookie, ".")
	if len(parts) != 3 {
		return time.Time{}, "", false
	}
	seconds, err := strconv.ParseInt(parts[1], 10, 64)
	path, malformed := base64.RawURLEncoding.DecodeString(parts[2])
	return time.Unix(seconds, 0), string(path), err == nil && malformed == nil && (len(path) == 0 || LocalPath(string(path)))
}

// derive returns the state, nonce or verifier of a sign-in, 43 characters. Values of one purpose
// reveal neither the cookie nor the values of another purpose.
func derive(cookie, purpose string) string {
	mac := hmac.New(sha256.New, []byte(cookie))
	mac.Write([]byte(purpose))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// LocalPath reports whether text is an absolute path, possibly with a query, that browsers resolve
// below belfry's public URL and never on another host.
func LocalPath(text string) bool {
	if !visible(text, 1, 1000) || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") || strings.Contains(text, `\`) {
		return false
	}
	u, err := url.Parse(text)
	return err == nil && !strings.Contains(u.Path+"/", "/../") && !strings.Contains(u.Path, `\`)
}

// userName matches allowed user names. They are ASCII, so that no two names look alike.
var userName = regexp.MustCompile(`^[!-~](?:[ -~]{0,98}[!-~])?$`)

// claims are the claims of an ID token or of the userinfo endpoint.
type claims map[string]any

// find returns the claim at a path of names separated by dots. A name may itself contain dots,
// such as a URL or a client id; the longest name that exists is taken.
func (c claims) find(path string) (any, bool) {
	if v, has := c[path]; has {
		return v, true
	}
	for i := len(path) - 1; i > 0; i-- {
		if inner, is := c[path[:i]].(map[string]any); is && path[i] == '.' {
			if v, has := claims(inner).find(path[i+1:]); has {
				return v, true
			}
		}
	}
	return nil, false
}

// read returns the name and the groups of a user. An error may have a name.
func (c claims) read(nameClaim, groupsClaim string) (name string, groups []string, err error) {
	const missing = "the provider returned no claim %q for your %s (api.oidc.%[2]s_claim); it may require another scope " +
		"(api.oidc.scopes), a setting of the provider or api.oidc.userinfo"
	value, has := c.find(nameClaim)
	name, _ = value.(string)
	switch {
	case !has:
		return "", nil, fmt.Errorf(missing, nameClaim, "name")
	case !userName.MatchString(name):
		return "", nil, fmt.Errorf(
			"the claim %q (api.oidc.name_claim) is not a name; allowed values: 1 to 100 visible ASCII characters", nameClaim)
	case nameClaim == "email" && fmt.Sprint(c["email_verified"]) == "false":
		return "", nil, errors.New("the provider has not verified your email address, which would be your name (api.oidc.name_claim)")
	}
	value, has = c.find(groupsClaim)
	if !has {
		return name, nil, fmt.Errorf(missing, groupsClaim, "groups")
	}
	list, is := value.([]any)
	if !is {
		list = []any{value}
	}
	for _, group := range list {
		if group, is := group.(string); is {
			groups = append(groups, group)
		}
	}
	return name, groups, nil
}
