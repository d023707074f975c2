package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/belfryhq/belfry/internal/text"
)

// Endpoint is an address that a process serves. The API has one, and the notification centre another.
type Endpoint struct {
	Section  string // begins the keys of the configuration: api
	ProxyKey string // the key of Proxies
	Path     string // begins the paths
	Listen   string // HOST:PORT, or :PORT for all addresses; empty means none
	TLS      TLS
	Proxies  []string // the addresses and networks of proxies
	Streams  int      // how many connections are expected in addition to the usual number
}

// Validate returns the first problem of the address and its protection, with its key.
func (e Endpoint) Validate() error {
	if e.Listen == "" {
		return nil
	}
	key := func(name, format string, args ...any) error {
		return fmt.Errorf(e.Section+"."+name+": "+format, args...)
	}
	if !isAddress(e.Listen) {
		return key("listen", "%q is not allowed; allowed values: HOST:PORT with a port of 0 to 65535, such as 127.0.0.1:8470 or "+
			":8470, or empty for none", e.Listen)
	}
	host, _, _ := net.SplitHostPort(e.Listen)
	switch {
	case e.TLS.CertFile != "" && e.TLS.KeyFile == "":
		return key("tls.key_file", "is empty; allowed values: the file with the key of %s.tls.cert_file", e.Section)
	case e.TLS.CertFile == "" && e.TLS.KeyFile != "":
		return key("tls.cert_file", "is empty; allowed values: the file with the certificate of %s.tls.key_file", e.Section)
	case e.TLS.CertFile == "" && len(e.Proxies) == 0 && !loopback(host):
		return key("tls.cert_file", "is empty, and %[1]s.listen %[2]s is beyond this machine, where tokens do not travel in the clear; "+
			"allowed values: the file with a certificate, and %[1]s.tls.key_file with its key, the proxy in front of it "+
			"(%[3]s), or an %[1]s.listen of 127.0.0.1:PORT or [::1]:PORT", e.Section, e.Listen, e.ProxyKey)
	}
	return nil
}

// ValidateProxies returns the problems of the proxies, each with its key.
func (e Endpoint) ValidateProxies() error {
	var errs []error
	for _, address := range e.Proxies {
		if _, err := networkOf(address); err != nil {
			errs = append(errs, fmt.Errorf("%s: %q is not allowed; allowed values: addresses and networks, such as 10.0.0.7 or 10.1.0.0/16, "+
				"except networks of all addresses", e.ProxyKey, text.OneLine(address, 60)))
		}
	}
	return errors.Join(errs...)
}

// RequireTLS rejects requests that came without TLS, except from this machine and from the proxies.
func (e Endpoint) RequireTLS(h http.Handler) http.Handler {
	proxies := e.networks()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		address, err := remote(req)
		trusted := func(n netip.Prefix) bool { return n.Contains(address) }
		if req.TLS == nil && err == nil && !address.IsLoopback() && !slices.ContainsFunc(proxies, trusted) {
			problemf(http.StatusForbidden, "requests without TLS are accepted only from this machine and from the proxy ("+e.ProxyKey+")").write(w)
			return
		}
		h.ServeHTTP(w, req)
	})
}

// networks returns the networks of the proxies. Invalid ones are left out.
func (e Endpoint) networks() (list []netip.Prefix) {
	for _, proxy := range e.Proxies {
		if network, err := networkOf(proxy); err == nil {
			list = append(list, network)
		}
	}
	return list
}

// isAddress reports whether a text is HOST:PORT.
func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	n, bad := strconv.Atoi(port)
	return err == nil && bad == nil && n >= 0 && n <= 65535
}

// loopback reports whether a host is this machine. Except localhost (RFC 6761), names are not, because they
// may resolve to any address.
func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
