package oidc

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/printer"
)

// called is what somebody may be called here: ASCII, so that no two names look alike.
var called = regexp.MustCompile(`^[!-~](?:[ -~]{0,98}[!-~])?$`)

// claims are those of an ID token, or of the userinfo endpoint.
type claims map[string]any

// at finds a claim by its name, or by a path of names. A name may have dots itself, as those that
// are URLs: the longest that there is counts.
func (c claims) at(path string) (any, bool) {
	if v, has := c[path]; has {
		return v, true
	}
	for i := len(path) - 1; i > 0; i-- {
		if path[i] != '.' {
			continue
		}
		inner, is := c[path[:i]].(map[string]any)
		if !is {
			continue
		}
		if v, has := claims(inner).at(path[i+1:]); has {
			return v, true
		}
	}
	return nil, false
}

// person makes somebody of the claims, or says which claim and setting do not let it.
func (p *Provider) person(all sources, identity string) (Person, *RefusedError) {
	c := p.config
	v, has := all.at(c.NameClaim)
	name, is := v.(string)
	switch {
	case !has:
		return Person{}, nobody(identity, "", "%s %q to call you by (api.oidc.name_claim); it may take another scope (api.oidc.scopes)%s", all.lack(), c.NameClaim, all.elsewhere())
	case !is || !called.MatchString(name):
		return Person{}, nobody(identity, "", "the claim %q is no name; allowed are 1 to 100 visible ASCII characters, or another claim (api.oidc.name_claim)", c.NameClaim)
	case c.NameClaim == "email" && all.deny("email_verified"):
		return Person{}, nobody(identity, "", "the provider has not verified your address, and the claim \"email\" would be your name here (api.oidc.name_claim)")
	}
	v, has = all.at(c.GroupsClaim)
	if !has {
		return Person{}, nobody(identity, name, "%s %q to give you a role by (api.oidc.groups_claim); it may take another scope (api.oidc.scopes), or a setting of the provider%s", all.lack(), c.GroupsClaim, all.elsewhere())
	}
	var groups []string
	switch v := v.(type) {
	case string:
		groups = []string{v}
	case []any:
		for _, one := range v {
			if group, is := one.(string); is {
				groups = append(groups, group)
			}
		}
	}
	var role operation.Role
	for _, group := range groups {
		role = max(role, p.roles[group])
	}
	if role == 0 {
		return Person{}, nobody(identity, name, "nothing in the claim %q (api.oidc.groups_claim) has a role here (api.oidc.roles); it has: %s", c.GroupsClaim, listed(groups))
	}
	return Person{Name: name, Role: role, Identity: identity}, nil
}

// listed shows groups to whom they are of.
func listed(groups []string) string {
	if len(groups) == 0 {
		return "nothing"
	}
	return printer.OneLine(strings.Join(groups, ", "), 300)
}

func nobody(identity, name, format string, args ...any) *RefusedError {
	return &RefusedError{Why: Nobody, Text: fmt.Sprintf(format, args...), Name: name, Identity: identity}
}

// identityOf joins issuer and subject so that no other pair is the same text.
func identityOf(issuer, subject string) string {
	return strconv.Quote(issuer) + " " + strconv.Quote(subject)
}
