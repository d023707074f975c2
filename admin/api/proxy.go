package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/access"

	"github.com/belfryhq/belfry/internal/text"
)

// ProxyConfig describes a trusted proxy in front of the API. A request is the proxy's if it comes from one of
// its addresses and contains its secret. The proxy's headers are ignored in all other requests.
type ProxyConfig struct {
	// Addresses are the source addresses or networks of the proxy: 10.0.0.7, 10.1.0.0/16. Empty means that
	// there is no proxy.
	Addresses []string `mapstructure:"addresses"`
	// SecretFile contains the proxy's secret in its first line, 32 or more visible ASCII characters.
	SecretFile string `mapstructure:"secret_file"`
	// SecretHeader is the header with the secret.
	SecretHeader string `mapstructure:"secret_header"`
	// UserHeader is the header with the name of the user whom the proxy has authenticated. Empty if the proxy
	// authenticates no users.
	UserHeader string `mapstructure:"user_header"`
	// RoleHeader is the header with the user's groups, separated by commas.
	RoleHeader string `mapstructure:"role_header"`
	// Roles map groups to roles, each as GROUP=ROLE. The highest role counts. Users without a role are
	// rejected.
	Roles []string `mapstructure:"roles"`
}

// headerName matches allowed header names.
var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,100}$`)

// proxyUser matches allowed user names. Headers have no common encoding of other characters.
var proxyUser = regexp.MustCompile(`^[!-~](?:[ -~]{0,98}[!-~])?$`)

// scheduleName matches the requesters of schedules' jobs. belfry.jobs lets them use the schedules' idempotency keys.
var scheduleName = regexp.MustCompile(`(?i)^schedule `)

// refusedHeaders have a meaning of their own.
var refusedHeaders = []string{"Authorization", "Cookie", "Host", forwardedFor}

const (
	forwardedFor = "X-Forwarded-For"
	minSecret    = 32
)

// proxyProblem returns the error of a setting of api.proxy.
func proxyProblem(key, format string, args ...any) error {
	return fmt.Errorf("api.proxy."+key+": "+format, args...)
}

// validate checks each setting by itself.
func (p ProxyConfig) validate() error {
	var errs []error
	bad := func(key, format string, args ...any) { errs = append(errs, proxyProblem(key, format, args...)) }
	errs = append(errs, Endpoint{ProxyKey: "api.proxy.addresses", Proxies: p.Addresses}.ValidateProxies())
	headers := []struct{ key, name string }{{"secret_header", p.SecretHeader}, {"user_header", p.UserHeader}, {"role_header", p.RoleHeader}}
	for i, h := range headers {
		taken := slices.ContainsFunc(headers[:i], func(o struct{ key, name string }) bool { return strings.EqualFold(o.name, h.name) })
		if h.name != "" &&
			(!headerName.MatchString(h.name) || taken ||
				slices.ContainsFunc(refusedHeaders, func(s string) bool { return strings.EqualFold(s, h.name) })) {
			bad(h.key, "%q is not allowed; allowed values: the name of a header that no other setting has, except %s",
				text.OneLine(h.name, 60), strings.Join(refusedHeaders, ", "))
		}
	}
	_, err := parseGroupRoles("api.proxy.roles", p.Roles)
	return errors.Join(append(errs, err)...)
}

// together checks combinations of settings if the API is served.
func (p ProxyConfig) together(publicURL string) error {
	names := p.UserHeader != "" || p.RoleHeader != "" || len(p.Roles) > 0
	switch {
	case len(p.Addresses) == 0 && (p.SecretFile != "" || names):
		return proxyProblem("addresses", "is empty; allowed values: the source addresses of the proxy, or no other setting of api.proxy")
	case len(p.Addresses) == 0:
		return nil
	case p.SecretFile == "":
		return proxyProblem("secret_file", "is empty; allowed values: the file with the secret that the proxy sends in %s", p.SecretHeader)
	case p.SecretHeader == "":
		return proxyProblem("secret_header", "is empty; allowed values: the name of the header with the proxy's secret")
	case names && (p.UserHeader == "" || p.RoleHeader == "" || len(p.Roles) == 0):
		return proxyProblem("user_header",
			"user_header, role_header and roles require each other; allowed values: all three, or none if the proxy authenticates no users")
	case publicURL == "":
		return errors.New("api.public_url: is empty; allowed values: the URL of the proxy, such as https://belfry.example.com")
	}
	return nil
}

// networkOf parses an address or a network.
func networkOf(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil || network.Bits() == 0 || network.Addr().Is4In6() {
		return netip.Prefix{}, errors.New("not a network")
	}
	return network.Masked(), nil
}

// Proxy is an active ProxyConfig.
type Proxy struct {
	config   ProxyConfig
	networks []netip.Prefix
	secret   [sha256.Size]byte
	roles    groupRoles
}

// TrustedProxy returns the proxy of a valid configuration, or nil if none is configured. It reads the secret.
func (c Config) TrustedProxy() (*Proxy, error) {
	if len(c.Proxy.Addresses) == 0 {
		return nil, nil //nolint:nilnil // none is configured
	}
	roles, err := parseGroupRoles("api.proxy.roles", c.Proxy.Roles)
	if err != nil {
		return nil, err
	}
	p := &Proxy{config: c.Proxy, roles: roles}
	for _, text := range c.Proxy.Addresses {
		network, err := networkOf(text)
		if err != nil {
			return nil, fmt.Errorf("api.proxy.addresses: %w", err)
		}
		p.networks = append(p.networks, network)
	}
	file, err := os.ReadFile(c.Proxy.SecretFile)
	if err != nil {
		return nil, proxyProblem("secret_file", "%w", err)
	}
	line, _, _ := strings.Cut(string(file), "\n")
	line = strings.TrimRight(line, "\r")
	if len(line) < minSecret || strings.ContainsFunc(line, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, fmt.Errorf(
			"api.proxy.secret_file: the first line of %s is not a secret; allowed values: %d or more visible ASCII characters",
			c.Proxy.SecretFile, minSecret)
	}
	p.secret = sha256.Sum256([]byte(line))
	return p, nil
}

// CheckSecrets reads the secret files of the proxy and of the OpenID Connect provider if the API is served.
// The configuration must be valid.
func (c Config) CheckSecrets() error {
	if c.Listen == "" {
		return nil
	}
	_, badProxy := c.TrustedProxy()
	_, badProvider := c.Provider()
	return errors.Join(badProxy, badProvider)
}

// sent reports whether a request comes from the proxy. It compares the hashes of the secrets in constant
// time.
func (p *Proxy) sent(req *http.Request) bool {
	if p == nil {
		return false
	}
	address, err := remote(req)
	given := req.Header.Values(p.config.SecretHeader)
	if err != nil || !p.has(address) || len(given) != 1 {
		return false
	}
	hash := sha256.Sum256([]byte(given[0]))
	return subtle.ConstantTimeCompare(hash[:], p.secret[:]) == 1
}

func (p *Proxy) has(address netip.Addr) bool {
	return slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// errProxyUser rejects missing, repeated or malformed headers of the proxy. A client may have added headers
// of its own.
var errProxyUser = errors.New(
	"the proxy must send one user name of up to 100 visible ASCII characters (api.proxy.user_header), which does not begin " +
		"with \"schedule \", and the user's groups (api.proxy.role_header), each in one header")

// errProxyRole rejects a user whose groups have no role.
var errProxyRole = errors.New("no role is mapped to any of the proxy's groups (api.proxy.roles)")

// identity returns the user whom the proxy names. named is false if the proxy names no user.
func (p *Proxy) identity(req *http.Request) (who access.Identity, named bool, err error) {
	if p == nil || p.config.UserHeader == "" || !p.sent(req) {
		return who, false, nil
	}
	users, groups := req.Header.Values(p.config.UserHeader), req.Header.Values(p.config.RoleHeader)
	if len(users) == 0 {
		return who, false, nil
	}
	name := users[0]
	if len(users) > 1 || len(groups) > 1 || !proxyUser.MatchString(name) || scheduleName.MatchString(name) {
		return who, false, errProxyUser
	}
	who = access.Identity{Name: name, Proxy: true}
	for group := range strings.SplitSeq(strings.Join(groups, ""), ",") {
		who.Role = max(who.Role, p.roles[strings.TrimSpace(group)])
	}
	if who.Role == 0 {
		return who, false, errProxyRole
	}
	return who, true, nil
}

// client returns the address of the client: the last address of the proxy's X-Forwarded-For that is not the
// proxy's own, or the peer. Earlier addresses may be forged.
func (p *Proxy) client(req *http.Request) string {
	if p.sent(req) {
		chain := strings.Split(strings.Join(req.Header.Values(forwardedFor), ","), ",")
		for _, text := range slices.Backward(chain) {
			address, err := hopOf(strings.TrimSpace(text))
			if err != nil {
				break
			}
			if !p.has(address) {
				return keyOfAddress(address)
			}
		}
	}
	return peer(req)
}

// hopOf parses an address of X-Forwarded-For, which may have a port.
func hopOf(text string) (netip.Addr, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone(""), nil
	}
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return address.Unmap().WithZone(""), err
}

// remote returns the address of the peer.
func remote(req *http.Request) (netip.Addr, error) {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return netip.Addr{}, err
	}
	address, err := netip.ParseAddr(host)
	return address.Unmap().WithZone(""), err
}

// keyOfAddress returns the lockout key of an address. The key of an IPv6 address is its /64 network, because
// one host can use all its addresses.
func keyOfAddress(address netip.Addr) string {
	if network, err := address.Prefix(64); err == nil && address.Is6() {
		return network.String()
	}
	return address.String()
}

// needsTLS reports whether a request is not allowed because it came without TLS from another machine that is not
// the proxy. Its token, if it has one, was readable on the way.
func (p *Proxy) needsTLS(req *http.Request) bool {
	if p == nil || req.TLS != nil || p.sent(req) { // without a proxy, Config.Validate allows no such listener
		return false
	}
	address, err := remote(req)
	return err == nil && !address.IsLoopback()
}
