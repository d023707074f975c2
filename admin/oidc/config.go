package oidc

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
)

// Config describes the provider. DefaultConfig has the defaults.
type Config struct {
	// Issuer is the issuer URL exactly as the provider writes it. Empty disables sign-in by a provider.
	Issuer string `mapstructure:"issuer"`
	// ClientID is belfry's client id at the provider.
	ClientID string `mapstructure:"client_id"`
	// ClientSecretFile contains the client's secret in its first line. It is read at each sign-in.
	// Empty is a public client, which uses PKCE alone.
	ClientSecretFile string `mapstructure:"client_secret_file"`
	// Scopes are requested in addition to openid.
	Scopes []string `mapstructure:"scopes"`
	// NameClaim is the claim with the user's name. A dot selects a member of an object: a.b.
	NameClaim string `mapstructure:"name_claim"`
	// GroupsClaim is the claim with the user's groups, a string or a list of strings.
	GroupsClaim string `mapstructure:"groups_claim"`
	// Userinfo also queries the userinfo endpoint for the two claims. The ID token takes precedence.
	Userinfo bool `mapstructure:"userinfo"`
	// Roles map groups to roles, each as GROUP=ROLE. The highest role counts. Users without a role
	// are refused. Package api reads them.
	Roles []string `mapstructure:"roles"`
	// Label names the provider on the sign-in page: "Sign in with LABEL".
	Label string `mapstructure:"label"`
}

// DefaultConfig returns the configuration that config.yaml documents, without a provider.
func DefaultConfig() Config {
	return Config{Scopes: []string{"profile", "email"}, NameClaim: "preferred_username", GroupsClaim: "groups", Roles: []string{},
		Label: "single sign-on"}
}

// problems are invalid settings.
type problems []error

func (p *problems) check(valid bool, key, format string, args ...any) {
	if !valid {
		*p = append(*p, fmt.Errorf("api.oidc."+key+": "+format, args...))
	}
}

// Validate returns all invalid settings, each with its key path.
func (c Config) Validate() error {
	var all problems
	issuer, err := url.Parse(c.Issuer)
	all.check(c.Issuer == "" || err == nil && secure(issuer) && visible(c.Issuer, 1, 1000) && !strings.ContainsAny(c.Issuer, "?#"),
		"issuer", "%q is not allowed; allowed values: https://HOST[:PORT][/PATH] exactly as the provider writes it, or http:// "+
			"with localhost or a loopback address, without user, query and fragment; or empty", text.OneLine(c.Issuer, 100))
	all.check(visible(c.ClientID, 0, 255), "client_id", "%q is not allowed; allowed values: up to 255 visible ASCII characters",
		text.OneLine(c.ClientID, 60))
	for _, scope := range c.Scopes {
		all.check(visible(scope, 1, 255) && !strings.ContainsAny(scope, `"\`), "scopes",
			"%q is not allowed; allowed values: scopes of the provider, such as profile, email or groups", text.OneLine(scope, 60))
	}
	for key, claim := range map[string]string{"name_claim": c.NameClaim, "groups_claim": c.GroupsClaim} {
		all.check(visible(claim, 1, 255), key,
			"%q is not allowed; allowed values: the name of a claim, such as groups, or a path, such as realm_access.roles", text.OneLine(claim, 60))
	}
	all.check(c.Label != "" && c.Label == text.OneLine(c.Label, 60) && c.Label == strings.TrimSpace(c.Label), "label",
		"%q is not allowed; allowed values: a line of 1 to 60 characters", text.OneLine(c.Label, 60))
	return errors.Join(all...)
}

// ValidateServed returns all settings that a process with the API lacks. publicURL is api.public_url.
func (c Config) ValidateServed(publicURL string) error {
	var all problems
	if c.Issuer == "" && c.ClientID == "" && c.ClientSecretFile == "" && len(c.Roles) == 0 {
		return nil
	}
	all.check(c.Issuer != "", "issuer",
		"is empty; allowed values: the issuer URL of the provider, such as https://login.example.com, or no client_id, "+
			"client_secret_file and roles")
	all.check(c.ClientID != "", "client_id", "is empty; allowed values: belfry's client id at the provider")
	all.check(len(c.Roles) > 0, "roles", "is empty and no user could sign in; allowed values: one or more GROUP=ROLE")
	all.check(publicURL != "", "issuer",
		"is set and api.public_url is empty; allowed values of api.public_url: the URL to which the provider redirects users, "+
			"such as https://belfry.example.com")
	return errors.Join(all...)
}

// Secret returns the client's secret, or "" for a public client. It reads ClientSecretFile.
func (c Config) Secret() (string, error) {
	if c.ClientSecretFile == "" {
		return "", nil
	}
	content, err := os.ReadFile(c.ClientSecretFile)
	if err != nil {
		return "", fmt.Errorf("api.oidc.client_secret_file: %w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	if line = strings.TrimRight(line, "\r"); !visible(line, 1, 1000) {
		return "", fmt.Errorf(
			"api.oidc.client_secret_file: the first line of %s is not a secret; allowed values: 1 to 1000 visible ASCII characters",
			c.ClientSecretFile)
	}
	return line, nil
}

// visible reports whether text has least to most characters, all of them visible ASCII characters.
func visible(text string, least, most int) bool {
	return len(text) >= least && len(text) <= most && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}

// secure reports whether traffic to u is protected by TLS or stays on this machine.
func secure(u *url.URL) bool {
	address, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && address.IsLoopback()
	return u.User == nil && u.Hostname() != "" && (u.Scheme == "https" || u.Scheme == "http" && local)
}
