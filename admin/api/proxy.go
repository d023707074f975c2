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

// ProxyConfig names a proxy in front of the API, whose headers are believed. A request is the
// proxy's if it comes from one of its addresses and has its secret; the same headers of anybody
// else are as if they were not there.
type ProxyConfig struct {
	// Addresses are those that the proxy connects from, or their networks: 10.0.0.7, 10.1.0.0/16.
	// None: there is no proxy.
	Addresses []string `mapstructure:"addresses"`
	// SecretFile has the secret that the proxy sends, of 32 or more visible ASCII characters, in
	// its first line.
	SecretFile string `mapstructure:"secret_file"`
	// SecretHeader is the header that the secret is in.
	SecretHeader string `mapstructure:"secret_header"`
	// UserHeader is the header in which the proxy says who asks, once it has made sure. Empty:
	// it does not.
	UserHeader string `mapstructure:"user_header"`
	// RoleHeader is the header with what gives that user a role: groups, separated by commas.
	RoleHeader string `mapstructure:"role_header"`
	// Roles are GROUP=ROLE. The highest counts; who has none may do nothing.
	Roles []string `mapstructure:"roles"`
}

// headerName is what a header may be called.
var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,100}$`)

// proxyUser is what a user may be called: headers have no agreed form of anything else.
var proxyUser = regexp.MustCompile(`^[!-~](?:[ -~]{0,98}[!-~])?$`)

// refusedHeaders say something else already.
var refusedHeaders = []string{"Authorization", "Cookie", "Host", forwardedFor}

const (
	forwardedFor = "X-Forwarded-For"
	minSecret    = 32
)

// proxyProblem is what is wrong with a setting of api.proxy.
func proxyProblem(key, format string, args ...any) error {
	return fmt.Errorf("api.proxy."+key+": "+format, args...)
}

// validate checks each setting by itself.
func (p ProxyConfig) validate() error {
	var errs []error
	bad := func(key, format string, args ...any) { errs = append(errs, proxyProblem(key, format, args...)) }
	for _, address := range p.Addresses {
		if _, err := networkOf(address); err != nil {
			bad("addresses", "%q is not allowed; allowed values: addresses and networks, as 10.0.0.7 or 10.1.0.0/16, and not all there are", text.OneLine(address, 60))
		}
	}
	headers := []struct{ key, name string }{{"secret_header", p.SecretHeader}, {"user_header", p.UserHeader}, {"role_header", p.RoleHeader}}
	for i, h := range headers {
		taken := slices.ContainsFunc(headers[:i], func(o struct{ key, name string }) bool { return strings.EqualFold(o.name, h.name) })
		if h.name != "" && (!headerName.MatchString(h.name) || taken || slices.ContainsFunc(refusedHeaders, func(s string) bool { return strings.EqualFold(s, h.name) })) {
			bad(h.key, "%q is not allowed; allowed values: a name of a header that nothing else has, and none of %s", text.OneLine(h.name, 60), strings.Join(refusedHeaders, ", "))
		}
	}
	_, err := parseGroupRoles("api.proxy.roles", p.Roles)
	return errors.Join(append(errs, err)...)
}

// together checks what goes with what, where the API is served.
func (p ProxyConfig) together(publicURL string) error {
	names := p.UserHeader != "" || p.RoleHeader != "" || len(p.Roles) > 0
	switch {
	case len(p.Addresses) == 0 && (p.SecretFile != "" || names):
		return proxyProblem("addresses", "are none; allowed values: those that the proxy connects from, or no other setting of api.proxy")
	case len(p.Addresses) == 0:
		return nil
	case p.SecretFile == "":
		return proxyProblem("secret_file", "is empty; allowed values: the file with the secret that the proxy sends in %s", p.SecretHeader)
	case p.SecretHeader == "":
		return proxyProblem("secret_header", "is empty; allowed values: the name of the header with the proxy's secret")
	case names && (p.UserHeader == "" || p.RoleHeader == "" || len(p.Roles) == 0):
		return proxyProblem("user_header", "user_header, role_header and roles go together; allowed values: all three, or none: then the proxy does not say who asks")
	case publicURL == "":
		return errors.New("api.public_url: is empty; allowed values: where people reach the proxy, as https://belfry.example.com")
	}
	return nil
}

// networkOf reads an address or a network.
func networkOf(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil || network.Bits() == 0 || network.Addr().Is4In6() {
		return netip.Prefix{}, errors.New("no network")
	}
	return network.Masked(), nil
}

// Proxy is a ProxyConfig that is in force. The zero value is none.
type Proxy struct {
	config   ProxyConfig
	networks []netip.Prefix
	secret   [sha256.Size]byte
	roles    groupRoles
}

// TrustedProxy reads the secret of a configuration that Validate lets pass; nil: there is no
// proxy.
func (c Config) TrustedProxy() (*Proxy, error) {
	if len(c.Proxy.Addresses) == 0 {
		return nil, nil //nolint:nilnil // there is none
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
		return nil, fmt.Errorf("api.proxy.secret_file: the first line of %s is no secret; allowed values: %d or more visible ASCII characters", c.Proxy.SecretFile, minSecret)
	}
	p.secret = sha256.Sum256([]byte(line))
	return p, nil
}

// CheckSecrets reads the secret files of the proxy and of the OpenID Connect provider if the API is
// served. An invalid configuration is reported by Validate only.
func (c Config) CheckSecrets() error {
	if c.Listen == "" || c.Validate() != nil {
		return nil
	}
	_, badProxy := c.TrustedProxy()
	_, badProvider := c.Provider()
	return errors.Join(badProxy, badProvider)
}

// sent reports whether a request comes from the proxy. The hashes are compared, in a time that
// says nothing of either.
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

// errProxyUser is a proxy that names nobody properly. What a client added to its headers is one
// way there.
var errProxyUser = errors.New("the proxy has to name one user, of up to 100 visible ASCII characters, and their groups, each in one header: api.proxy.user_header and api.proxy.role_header")

// errProxyRole is a user whose groups have no role.
var errProxyRole = errors.New("none of the groups that the proxy names has a role here (api.proxy.roles)")

// identity is whom the proxy names; false: nobody.
func (p *Proxy) identity(req *http.Request) (who access.Identity, named bool, err error) {
	if p == nil || p.config.UserHeader == "" || !p.sent(req) {
		return who, false, nil
	}
	users, groups := req.Header.Values(p.config.UserHeader), req.Header.Values(p.config.RoleHeader)
	if len(users) == 0 {
		return who, false, nil
	}
	name := users[0]
	if len(users) > 1 || len(groups) > 1 || !proxyUser.MatchString(name) {
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

// client is the address that a request was sent from: what the proxy says it had it from, or the
// peer. Of a chain the last that is not the proxy's own; what stands before that may be made up.
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

// hopOf is an address of X-Forwarded-For, which may have a port.
func hopOf(text string) (netip.Addr, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone(""), nil
	}
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return address.Unmap().WithZone(""), err
}

// remote is the address of the peer.
func remote(req *http.Request) (netip.Addr, error) {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return netip.Addr{}, err
	}
	address, err := netip.ParseAddr(host)
	return address.Unmap().WithZone(""), err
}

// keyOfAddress is how an address counts. Who has one of IPv6 has a network of them.
func keyOfAddress(address netip.Addr) string {
	if network, err := address.Prefix(64); err == nil && address.Is6() {
		return network.String()
	}
	return address.String()
}

// inTheClear reports whether a request came in the clear from beyond this machine, and not from
// the proxy: its token, if it has one, was read on the way.
func (p *Proxy) inTheClear(req *http.Request) bool {
	if p == nil || req.TLS != nil || p.sent(req) { // without a proxy it is not served like that
		return false
	}
	address, err := remote(req)
	return err == nil && !address.IsLoopback()
}
