package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/printer"
)

const (
	answerTime = 10 * time.Second // a step of a sign-in waits for the provider
	skew       = time.Minute      // clocks may differ by so much
	maxAnswer  = 1 << 20          // bytes of an answer of the provider
	atOnce     = 8                // connections to the provider
)

// Provider signs people in. It is safe for concurrent use.
type Provider struct {
	config   Config
	redirect string
	roles    map[string]operation.Role
	client   *http.Client
	within   time.Duration
	now      func() time.Time
	asking   chan struct{} // one at a time asks for what is published

	mu       sync.Mutex
	known    *published
	failure  *RefusedError // of the last question, at failedAt
	failedAt time.Time
}

// Person is somebody whom the provider has named.
type Person struct {
	// Name is what they are called there.
	Name string
	Role operation.Role
	// Identity is the issuer and the subject: of one person, whatever the name.
	Identity string
	// State is of this sign-in alone; 43 characters.
	State string
	// ReturnTo is a path of belfry's own; "": none was asked for.
	ReturnTo string
}

// New returns the provider of a configuration that Validate and Together let pass. redirect is
// where it sends people back to, an absolute URL. Nothing is asked of it yet.
func New(c Config, redirect string) (*Provider, error) {
	if err := errors.Join(c.Validate(), c.Check()); err != nil {
		return nil, err
	}
	p := &Provider{config: c, redirect: redirect, roles: make(map[string]operation.Role), within: answerTime, now: time.Now, asking: make(chan struct{}, 1)}
	for _, text := range c.Roles {
		group, role, err := access.GroupRole(text)
		if err != nil {
			return nil, problem("roles", "%w", err)
		}
		p.roles[group] = max(p.roles[group], role)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxConnsPerHost: atOnce, MaxIdleConnsPerHost: 1,
		IdleConnTimeout: time.Minute, TLSHandshakeTimeout: answerTime, MaxResponseHeaderBytes: maxAnswer,
	}
	p.client = &http.Client{
		Transport: bounded{transport}, Timeout: answerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a code is for nobody else
	}
	return p, nil
}

// bounded cuts long answers off, and makes an error of one that is none.
type bounded struct{ next *http.Transport }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= http.StatusInternalServerError || res.StatusCode == http.StatusTooManyRequests {
		_ = res.Body.Close() // it was not read
		return nil, errors.New("answered " + res.Status)
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, maxAnswer), res.Body}
	return res, nil
}

// Label is what the provider is called where people choose.
func (p *Provider) Label() string { return p.config.Label }

// Close gives connections back that are idle.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// Begin begins a sign-in: the value of the browser's cookie, and where it is sent to. returnTo is
// a Path, or "". The error is a *RefusedError, if the provider does not answer.
func (p *Provider) Begin(ctx context.Context, returnTo string) (cookie, location string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.within) // who hangs up makes nobody else wait
	defer cancel()
	at, refused := p.published(ctx)
	if refused != nil {
		return "", "", refused
	}
	one := begin(p.now(), returnTo)
	c := p.oauth(at, "")
	return one.cookie(), c.AuthCodeURL(one.made(forState), goidc.Nonce(one.made(forNonce)), oauth2.S256ChallengeOption(one.made(forVerifier))), nil
}

// Finish finishes the sign-in of a cookie with the query that the provider has sent its browser
// back with. The error is a *RefusedError. Whatever comes of it, the cookie is to be deleted.
func (p *Provider) Finish(ctx context.Context, cookie string, query url.Values) (Person, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.within) // who hangs up makes nobody else wait
	defer cancel()
	one, code, refused := p.returned(cookie, query)
	if refused != nil {
		return Person{}, refused
	}
	at, refused := p.published(ctx)
	if refused != nil {
		return Person{}, refused
	}
	if at.namesIssuer && !query.Has("iss") {
		return Person{}, stray("the provider's answer does not say whose it is; begin again")
	}
	raw, access, refused := p.exchange(ctx, at, one, code)
	if refused != nil {
		return Person{}, refused
	}
	token, own, refused := p.verified(ctx, at, one, raw)
	if refused != nil && refused.Why == Untrusted && refused.Err != nil { // it may sign otherwise by now
		if later, _ := p.renewed(ctx, at); later != nil && later != at {
			at = later
			token, own, refused = p.verified(ctx, at, one, raw)
		}
	}
	if refused != nil {
		return Person{}, refused
	}
	all, refused := p.userinfo(ctx, at, token, access, own)
	if refused != nil {
		return Person{}, refused
	}
	person, refused := p.person(all, identityOf(p.config.Issuer, token.Subject))
	if refused != nil {
		return Person{}, refused
	}
	person.State, person.ReturnTo = one.made(forState), one.returnTo
	return person, nil
}

// returned makes sure that an answer is one to this browser's own question, and from whom it was
// asked.
func (p *Provider) returned(cookie string, query url.Values) (one pending, code string, refused *RefusedError) {
	for _, name := range []string{"state", "code", "error", "iss"} {
		if len(query[name]) > 1 {
			return one, "", stray("the provider's answer has %s twice; begin again", name)
		}
	}
	one, ok := resumed(cookie)
	switch {
	case !ok:
		return one, "", stray("this sign-in was not begun in this browser, or at another address than belfry's public one, or too long ago; begin again")
	case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(one.made(forState))) != 1:
		return one, "", stray("this is the answer to another sign-in than the last one of this browser; begin again")
	case !one.live(p.now()):
		return one, "", stray("this sign-in took longer than %d minutes; begin again", int(Lifetime.Minutes()))
	case query.Has("iss") && query.Get("iss") != p.config.Issuer:
		return one, "", stray("the answer is of another provider than the one that was asked (api.oidc.issuer); begin again")
	case query.Get("error") == "access_denied":
		return one, "", &RefusedError{Why: Denied, Text: "the sign-in was given up, or the provider does not allow it"}
	case query.Has("error"):
		said := printer.OneLine(query.Get("error")+" "+query.Get("error_description"), 200)
		return one, "", &RefusedError{Why: Denied, Text: "the provider does not sign you in: " + said}
	case query.Get("code") == "":
		return one, "", stray("the provider's answer has no code; begin again")
	}
	return one, query.Get("code"), nil
}

func stray(format string, args ...any) *RefusedError {
	return &RefusedError{Why: Stray, Text: fmt.Sprintf(format, args...)}
}

func (p *Provider) oauth(at *published, secret string) oauth2.Config {
	return oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: secret, Endpoint: at.endpoint, RedirectURL: p.redirect,
		Scopes: slices.Concat([]string{goidc.ScopeOpenID}, slices.DeleteFunc(slices.Clone(p.config.Scopes), func(s string) bool { return s == goidc.ScopeOpenID })),
	}
}

// exchange hands the code over for an ID token, and an access token.
func (p *Provider) exchange(ctx context.Context, at *published, one pending, code string) (string, *oauth2.Token, *RefusedError) {
	secret, err := p.config.secret()
	if err != nil {
		return "", nil, &RefusedError{Why: Unset, Text: "belfry cannot read its secret for the provider", Err: err}
	}
	c := p.oauth(at, secret)
	if secret == "" {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams // a public client only says who it is
	}
	token, err := c.Exchange(goidc.ClientContext(ctx, p.client), code, oauth2.VerifierOption(one.made(forVerifier)))
	var said *oauth2.RetrieveError
	switch {
	case err == nil:
	case errors.As(err, &said) && said.ErrorCode == "invalid_grant":
		return "", nil, stray("the provider does not take the code: it was used, has expired, or is another browser's; begin again")
	case errors.As(err, &said) && said.ErrorCode != "":
		return "", nil, &RefusedError{Why: Unset, Text: "the provider refuses belfry itself: " + printer.OneLine(said.ErrorCode, 60) + " (api.oidc.client_id, client_secret)", Err: errors.New(printer.OneLine(said.ErrorDescription, 200))}
	default:
		return "", nil, away(err)
	}
	raw, is := token.Extra("id_token").(string)
	if !is || raw == "" {
		return "", nil, &RefusedError{Why: Untrusted, Text: "the provider's answer has no ID token"}
	}
	return raw, token, nil
}

// verified makes sure that an ID token is the issuer's, for this client and for this sign-in.
func (p *Provider) verified(ctx context.Context, at *published, one pending, raw string) (*goidc.IDToken, claims, *RefusedError) {
	untrusted := func(text string, err error) (*goidc.IDToken, claims, *RefusedError) {
		return nil, nil, &RefusedError{Why: Untrusted, Text: text, Err: err}
	}
	keys := &watched{keys: at.keys}
	token, err := goidc.NewVerifier(p.config.Issuer, keys, &goidc.Config{
		ClientID: p.config.ClientID, SupportedSigningAlgs: at.algorithms, Now: func() time.Time { return p.now().Add(-skew) },
	}).Verify(ctx, raw)
	var expired *goidc.TokenExpiredError
	switch {
	case keys.away != nil:
		return nil, nil, away(keys.away)
	case errors.As(err, &expired):
		return untrusted(fmt.Sprintf("the provider's ID token expired at %s, and it is %s by belfry's clock; one of the clocks may be wrong", clock(expired.Expiry), clock(p.now())), nil)
	case err != nil:
		return untrusted("the provider's ID token is not good; belfry's log says why", err)
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(one.made(forNonce))) != 1:
		return untrusted("the provider's ID token is for another sign-in (nonce)", nil)
	case token.Subject == "":
		return untrusted("the provider's ID token names nobody (sub)", nil)
	}
	all := make(claims)
	if err := token.Claims(&all); err != nil {
		return untrusted("the provider's ID token cannot be read", err)
	}
	party, given := all["azp"]
	if given && party != p.config.ClientID || !given && len(token.Audience) > 1 {
		return untrusted("the provider's ID token was made for another client (azp)", nil)
	}
	return token, all, nil
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
