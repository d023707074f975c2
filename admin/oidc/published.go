package oidc

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/belfryhq/belfry/internal/printer"
)

const (
	againAfter = 5 * time.Second // a failure is the answer for so long
	knownFor   = time.Hour       // and what was published, before it is asked for again
)

// signatures are the algorithms of tokens that only the provider can sign: neither none, nor one
// whose key is the client's secret.
var signatures = []string{
	goidc.RS256, goidc.RS384, goidc.RS512, goidc.ES256, goidc.ES384, goidc.ES512, goidc.PS256, goidc.PS384, goidc.PS512, goidc.EdDSA,
}

// published is what the provider says of itself.
type published struct {
	provider    *goidc.Provider
	endpoint    oauth2.Endpoint
	keys        *goidc.RemoteKeySet // which keeps them
	algorithms  []string
	namesIssuer bool // every answer names its issuer
	at          time.Time
}

// published is what the provider has published. One at a time asks, for all.
func (p *Provider) published(ctx context.Context) (*published, *RefusedError) {
	if known, failure := p.remembered(); known != nil || failure != nil {
		return known, failure
	}
	select {
	case p.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, away(ctx.Err())
	}
	defer func() { <-p.asking }()
	if known, failure := p.remembered(); known != nil || failure != nil { // somebody has asked meanwhile
		return known, failure
	}
	found, err := p.discover(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failure, p.failedAt = away(err), p.now()
	} else {
		p.known, p.failure = found, nil
	}
	if p.known != nil { // from before, if need be
		return p.known, nil
	}
	return nil, p.failure
}

// renewed is what the provider has published now, if what it had published is not from a moment ago: a
// token was not good by that.
func (p *Provider) renewed(ctx context.Context, before *published) (*published, *RefusedError) {
	p.mu.Lock()
	if p.known == before && p.now().Sub(before.at) >= againAfter {
		before.at = time.Time{}
	}
	p.mu.Unlock()
	return p.published(ctx)
}

// remembered is what was said, if it was said lately; nil, nil: ask.
func (p *Provider) remembered() (*published, *RefusedError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.known != nil && p.now().Sub(p.known.at) < knownFor:
		return p.known, nil
	case p.failure == nil || p.now().Sub(p.failedAt) >= againAfter:
		return nil, nil
	case p.known != nil:
		return p.known, nil
	}
	return nil, p.failure
}

func away(err error) *RefusedError {
	return &RefusedError{Why: Away, Text: "the provider does not answer as it should; try again later, or sign in by name and password", Err: err}
}

// discover asks the provider.
func (p *Provider) discover(ctx context.Context) (*published, error) {
	ctx = goidc.ClientContext(ctx, p.client)
	found, err := goidc.NewProvider(ctx, p.config.Issuer)
	if err != nil {
		return nil, errors.New(printer.OneLine(err.Error(), 500)) // which may have all of a page in it
	}
	var more struct {
		Keys       string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
		Methods    []string `json:"token_endpoint_auth_methods_supported"`
		Names      bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, err
	}
	at := found.Endpoint()
	info := found.UserInfoEndpoint() // "": there is none
	for _, one := range []struct {
		name, url string
		asked     bool
	}{
		{"authorization_endpoint", at.AuthURL, true}, {"token_endpoint", at.TokenURL, true}, {"jwks_uri", more.Keys, true}, {"userinfo_endpoint", info, p.config.Userinfo && info != ""},
	} {
		if one.asked && !private(one.url) {
			return nil, fmt.Errorf("the provider's %s is %q; allowed values: https://…, or http:// on this machine", one.name, printer.OneLine(one.url, 100))
		}
	}
	at.AuthStyle = oauth2.AuthStyleInHeader // what holds where nothing is said
	if len(more.Methods) > 0 && !slices.Contains(more.Methods, "client_secret_basic") {
		at.AuthStyle = oauth2.AuthStyleInParams
	}
	algorithms := slices.DeleteFunc(more.Algorithms, func(name string) bool { return !slices.Contains(signatures, name) })
	if len(algorithms) == 0 {
		algorithms = []string{goidc.RS256} // which every provider has
	}
	return &published{found, at, goidc.NewRemoteKeySet(ctx, more.Keys), algorithms, more.Names, p.now()}, nil
}

// watched keeps apart keys that could not be had and a signature that is not good.
type watched struct {
	keys *goidc.RemoteKeySet
	away error
}

// VerifySignature implements goidc.KeySet.
func (w *watched) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := w.keys.VerifySignature(ctx, token)
	var call *url.Error
	if errors.As(err, &call) || ctx.Err() != nil {
		w.away = err
	}
	return payload, err
}
