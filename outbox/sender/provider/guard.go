package provider

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// errBlocked is the guard's refusal.
var errBlocked = errors.New("private address")

// guard decides which addresses may be dialled.
type guard struct{ allowed []netip.Prefix }

// newGuard returns a guard with exceptions.
func newGuard(allowed []string) (g guard, err error) {
	for i, text := range allowed {
		prefix, err := parsePrefix(text)
		if err != nil {
			return guard{}, fmt.Errorf("allow_addresses[%d]: %w", i, err)
		}
		g.allowed = append(g.allowed, prefix)
	}
	return g, nil
}

// permitsHost reports whether a URL's host may be dialled. It permits names, which it does not resolve.
func (g guard) permitsHost(host string) bool {
	if host == "localhost" {
		return g.permits(netip.AddrFrom4([4]byte{127, 0, 0, 1})) || g.permits(netip.IPv6Loopback())
	}
	addr, err := netip.ParseAddr(host)
	return err != nil || g.permits(addr)
}

// control is the Control function of a net.Dialer. It checks the resolved address before connect.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", errBlocked, err)
	}
	if !g.permits(at.Addr()) {
		return errBlocked
	}
	return nil
}

func (g guard) permits(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	inside := func(p netip.Prefix) bool { return p.Contains(addr) }
	if slices.ContainsFunc(g.allowed, inside) {
		return true
	}
	// An IPv6-only host reaches IPv4 by NAT64: check the embedded IPv4 address.
	if nat64.Contains(addr) {
		raw := addr.As16()
		return g.permits(netip.AddrFrom4([4]byte(raw[12:])))
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return false
	}
	return addr.IsValid() && !slices.ContainsFunc(specialAddresses, inside)
}

//nolint:gochecknoglobals // constants of RFC 6052 and RFC 4291
var (
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
	globalUnicast = netip.MustParsePrefix("2000::/3")
)

// specialAddresses are the addresses that are not hosts of the public internet, by the IANA registries of
// special-purpose addresses, and the metadata services of clouds. The public part of IPv6 is 2000::/3, which
// excludes loopback, unique-local, link-local, multicast and all mapped IPv4 addresses except NAT64.
var specialAddresses = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // shared by carriers; a cloud's metadata at 100.100.100.200
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("168.63.129.16/32"), // a cloud's own agent
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local; metadata at 169.254.169.254
	netip.MustParsePrefix("172.16.0.0/12"),    // private
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments; a cloud's metadata at 192.0.0.192
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),   // private
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("224.0.0.0/4"),      // multicast
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, broadcast
	netip.MustParsePrefix("2001::/23"),        // protocol assignments, Teredo
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4: an IPv4 address inside
	netip.MustParsePrefix("3fff::/20"),        // documentation
}
