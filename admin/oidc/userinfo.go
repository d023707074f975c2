package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/belfryhq/belfry/internal/printer"
)

// sources are claims, first those of the ID token: what it says is not said otherwise by the rest.
type sources []claims

// at finds a claim in the first source that has it.
func (s sources) at(path string) (any, bool) {
	for _, c := range s {
		if v, has := c.at(path); has {
			return v, true
		}
	}
	return nil, false
}

// deny reports whether any source says false of a claim.
func (s sources) deny(name string) bool {
	for _, c := range s {
		if fmt.Sprint(c[name]) == "false" {
			return true
		}
	}
	return false
}

// lack begins what is said of a claim that no source has.
func (s sources) lack() string {
	if len(s) > 1 {
		return "neither the ID token nor the userinfo endpoint has a claim"
	}
	return "the ID token has no claim"
}

// elsewhere is where else such a claim may be.
func (s sources) elsewhere() string {
	if len(s) > 1 {
		return ""
	}
	return ", or the provider's userinfo endpoint has it (api.oidc.userinfo)"
}

// userinfo adds to the claims of an ID token those of the userinfo endpoint, if they are asked for
// and one that is needed is missing. An answer for another subject is refused: nothing else ties it
// to who signs in (OpenID Connect Core, 5.3.2).
func (p *Provider) userinfo(ctx context.Context, at *published, token *goidc.IDToken, access *oauth2.Token, all claims) (sources, *RefusedError) {
	_, name := all.at(p.config.NameClaim)
	_, groups := all.at(p.config.GroupsClaim)
	if !p.config.Userinfo || name && groups {
		return sources{all}, nil
	}
	if at.provider.UserInfoEndpoint() == "" {
		return nil, &RefusedError{Why: Unset, Text: "the provider has no userinfo endpoint to ask for what its ID token lacks (api.oidc.userinfo)"}
	}
	info, err := at.provider.UserInfo(goidc.ClientContext(ctx, p.client), oauth2.StaticTokenSource(access))
	if err != nil {
		return nil, &RefusedError{
			Why:  Away,
			Text: "the provider's userinfo endpoint does not answer as it should (api.oidc.userinfo); try again later, or sign in by name and password",
			Err:  errors.New(printer.OneLine(err.Error(), 500)), // which may have all of a page in it
		}
	}
	if subtle.ConstantTimeCompare([]byte(info.Subject), []byte(token.Subject)) != 1 {
		return nil, &RefusedError{Why: Untrusted, Text: "the provider's userinfo is of somebody else than its ID token (sub)"}
	}
	more := make(claims)
	if err := info.Claims(&more); err != nil {
		return nil, &RefusedError{Why: Untrusted, Text: "the provider's userinfo cannot be read", Err: err}
	}
	return sources{all, more}, nil
}
