package oidc

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/internal/printer"
)

// Config names the provider. DefaultConfig has every default.
type Config struct {
	// Issuer is the provider as it calls itself: https://HOST[/PATH], with or without the slash at
	// the end. Empty: there is none.
	Issuer string `mapstructure:"issuer"`
	// ClientID is what the provider calls belfry.
	ClientID string `mapstructure:"client_id"`
	// ClientSecret is what belfry shows for it. Empty, and no ClientSecretFile: a public client,
	// which has PKCE alone.
	ClientSecret string `mapstructure:"client_secret"`
	// ClientSecretFile has the secret in its first line. It is read at each sign-in.
	ClientSecretFile string `mapstructure:"client_secret_file"`
	// Scopes are asked for, beside openid.
	Scopes []string `mapstructure:"scopes"`
	// NameClaim is the claim of the ID token with what people are called. A dot leads into an
	// object: a.b.
	NameClaim string `mapstructure:"name_claim"`
	// GroupsClaim is the claim, a text or a list of them, that gives people a role.
	GroupsClaim string `mapstructure:"groups_claim"`
	// Userinfo has the provider's userinfo endpoint asked for these two claims where the ID token
	// lacks one of them.
	Userinfo bool `mapstructure:"userinfo"`
	// Roles are GROUP=ROLE. The highest counts; who has none may not sign in.
	Roles []string `mapstructure:"roles"`
	// Label is what the provider is called where people choose: "Sign in with LABEL".
	Label string `mapstructure:"label"`
}

// DefaultConfig is what config.yaml documents: no provider.
func DefaultConfig() Config {
	return Config{Scopes: []string{"profile", "email"}, NameClaim: "preferred_username", GroupsClaim: "groups", Roles: []string{}, Label: "single sign-on"}
}

// problem is what is wrong with a setting.
func problem(key, format string, args ...any) error {
	return fmt.Errorf("api.oidc."+key+": "+format, args...)
}

// Validate checks each setting by itself. It returns every problem at once, each with its key
// path, or nil.
func (c Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) { errs = append(errs, problem(key, format, args...)) }
	if c.Issuer != "" && (!private(c.Issuer) || strings.ContainsAny(c.Issuer, "?#")) {
		bad("issuer", "%q is not allowed; allowed values: https://HOST[:PORT][/PATH] exactly as the provider writes it, or http:// with localhost or an address of this machine, without user, query and fragment; or empty", printer.OneLine(c.Issuer, 100))
	}
	if !plain(c.ClientID, 0, 255) {
		bad("client_id", "%q is not allowed; allowed values: up to 255 visible ASCII characters", printer.OneLine(c.ClientID, 60))
	}
	if !plain(c.ClientSecret, 0, 1000) {
		bad("client_secret", "is not allowed; allowed values: up to 1000 visible ASCII characters")
	}
	if c.ClientSecret != "" && c.ClientSecretFile != "" {
		bad("client_secret_file", "is set beside api.oidc.client_secret; allowed values: one of them, or none for a public client")
	}
	for _, scope := range c.Scopes {
		if !plain(scope, 1, 255) || strings.ContainsAny(scope, `"\`) {
			bad("scopes", "%q is not allowed; allowed values: scopes that the provider knows, as profile, email, groups", printer.OneLine(scope, 60))
		}
	}
	for _, claim := range []struct{ key, name string }{{"name_claim", c.NameClaim}, {"groups_claim", c.GroupsClaim}} {
		if !plain(claim.name, 1, 255) {
			bad(claim.key, "%q is not allowed; allowed values: the name of a claim, as groups, or a path of names, as realm_access.roles", printer.OneLine(claim.name, 60))
		}
	}
	for _, text := range c.Roles {
		if _, _, err := access.GroupRole(text); err != nil {
			bad("roles", "%q is not allowed; allowed values: "+access.GroupRoles, printer.OneLine(text, 60))
		}
	}
	if c.Label == "" || c.Label != printer.OneLine(c.Label, 60) || c.Label != strings.TrimSpace(c.Label) {
		bad("label", "%q is not allowed; allowed values: a line of 1 to 60 characters", printer.OneLine(c.Label, 60))
	}
	return errors.Join(errs...)
}

// Together checks what goes with what, where people can sign in. publicURL is api.public_url.
func (c Config) Together(publicURL string) error {
	var errs []error
	bad := func(key, format string, args ...any) { errs = append(errs, problem(key, format, args...)) }
	others := c.ClientID != "" || c.ClientSecret != "" || c.ClientSecretFile != "" || len(c.Roles) > 0
	switch {
	case c.Issuer == "" && !others:
		return nil
	case c.Issuer == "":
		bad("issuer", "is empty; allowed values: the provider, as https://login.example.com, or none of client_id, client_secret, client_secret_file and roles")
	}
	if c.ClientID == "" {
		bad("client_id", "is empty; allowed values: what the provider calls belfry")
	}
	if len(c.Roles) == 0 {
		bad("roles", "are none, and nobody could sign in; allowed values: "+access.GroupRoles)
	}
	if publicURL == "" {
		errs = append(errs, errors.New("api.public_url: is empty, and the provider sends people back there; allowed values: where they reach belfry, as https://belfry.example.com"))
	}
	return errors.Join(errs...)
}

// Check tries the file with the client's secret.
func (c Config) Check() error {
	_, err := c.secret()
	return err
}

// secret is the client's; "": it has none.
func (c Config) secret() (string, error) {
	if c.ClientSecretFile == "" {
		return c.ClientSecret, nil
	}
	content, err := os.ReadFile(c.ClientSecretFile)
	if err != nil {
		return "", problem("client_secret_file", "%w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	if line = strings.TrimRight(line, "\r"); !plain(line, 1, 1000) {
		return "", problem("client_secret_file", "the first line of %s is no secret; allowed values: 1 to 1000 visible ASCII characters", c.ClientSecretFile)
	}
	return line, nil
}

// plain reports whether a text has so many characters, all visible and of ASCII.
func plain(text string, least, most int) bool {
	return len(text) >= least && len(text) <= most && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}

// private reports whether a text is a URL on whose way nobody reads along: https, or on this
// machine.
func private(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Hostname() == "" || u.Opaque != "" || !plain(text, 1, 1000) {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	here := u.Hostname() == "localhost" || err == nil && address.IsLoopback()
	return u.Scheme == "https" || u.Scheme == "http" && here
}
