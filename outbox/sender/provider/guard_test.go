package provider

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// Invariant 3, address by address.
func TestGuard_Permits(t *testing.T) {
	t.Parallel()
	allowed := guard{allowed: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}}
	for text, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "172.32.0.1": true, "100.128.0.1": true, "2606:4700::1111": true, "2001:4860:4860::8888": true,
		"::ffff:8.8.8.8": true, "64:ff9b::8.8.8.8": true, "192.0.1.1": true,
		"0.0.0.0": false, "10.0.0.1": false, "100.64.0.1": false, "100.100.100.200": false, "127.0.0.1": false, "127.255.255.254": false,
		"169.254.169.254": false, "168.63.129.16": false, "172.16.0.1": false, "172.31.255.255": false, "192.0.0.192": false,
		"192.168.1.1": false, "198.18.0.1": false, "203.0.113.9": false, "224.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false, "64:ff9b::127.0.0.1": false,
		"64:ff9b::a9fe:a9fe": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2001::1": false, "2001:db8::1": false, "3fff::1": false,
		"::ffff:0:127.0.0.1": false, "5f00::1": false,
	} {
		require.Equal(t, want, guard{}.permits(netip.MustParseAddr(text)), text)
	}
	for text, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "10.2.0.1": false, "fd00:ec2::254": true, "fd00::1%eth0": true, "127.0.0.1": false,
	} {
		require.Equal(t, want, allowed.permits(netip.MustParseAddr(text)), text)
	}
	require.False(t, guard{}.permits(netip.Addr{}))
	require.ErrorIs(t, guard{}.control("tcp", "nonsense", nil), errBlocked)
}
