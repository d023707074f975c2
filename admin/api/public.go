package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
)

// public is a parsed api.public_url. The zero value means that the address is taken from each request.
type public struct {
	scheme, host string
	path         string // such as "/a/b"; empty for the root
}

// errPublicURL describes the allowed values of api.public_url.
var errPublicURL = errors.New(
	"allowed values: https://HOST[:PORT][/PATH], or http:// with localhost, 127.0.0.1 or [::1], without user, query and fragment; or empty")

// publicOf parses an api.public_url.
func publicOf(line string) (public, error) {
	if line == "" {
		return public{}, nil
	}
	u, err := url.Parse(line)
	if err != nil || line != text.OneLine(line, 500) || u.User != nil || strings.ContainsAny(line, "?#") ||
		!publicHost.MatchString(u.Host) || !publicPath.MatchString(u.Path) || path.Clean("/"+u.Path) != "/"+strings.Trim(u.Path, "/") ||
		u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return public{}, fmt.Errorf("api.public_url: %q is not allowed; %w", text.OneLine(line, 100), errPublicURL)
	}
	host := strings.TrimSuffix(strings.ToLower(u.Host), map[string]string{"https": ":443", "http": ":80"}[u.Scheme]) // as browsers write it
	return public{u.Scheme, host, strings.TrimSuffix(u.Path, "/")}, nil
}

// The allowed hosts and paths of an api.public_url.
var (
	publicHost = regexp.MustCompile(`^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$`)
	publicPath = regexp.MustCompile(`^(?:/[A-Za-z0-9._~-]+)*/?$`)
)

// origin returns the origin of the public URL, or "" if none is configured.
func (p public) origin() string {
	if p.host == "" {
		return ""
	}
	return p.scheme + "://" + p.host
}

// url returns the public URL of a path, or "" if none is configured.
func (p public) url(at string) string {
	if p.host == "" {
		return ""
	}
	return p.origin() + p.path + at
}

// secure reports whether the browser's connection has TLS, which a proxy may terminate.
func (p public) secure(req *http.Request) bool { return p.scheme == "https" || req.TLS != nil }

// stripPrefix returns a request without the path of the public URL. A request without that path is returned
// unchanged: a proxy may have removed it, and local requests do not need it.
func (p public) stripPrefix(req *http.Request) *http.Request {
	at := req.URL.EscapedPath()
	if p.path == "" || at != p.path && !strings.HasPrefix(at, p.path+"/") {
		return req
	}
	own, to := *req, *req.URL
	to.Path, to.RawPath = cmp.Or(strings.TrimPrefix(to.Path, p.path), "/"), strings.TrimPrefix(to.RawPath, p.path)
	own.URL = &to
	return &own
}

// csrf returns the protection against cross-site requests of browsers.
func (p public) csrf() (*http.CrossOriginProtection, error) {
	protection := http.NewCrossOriginProtection()
	if p.host == "" {
		return protection, nil
	}
	return protection, protection.AddTrustedOrigin(p.origin())
}

// downgraded reports whether a page without TLS on the host of a public URL with TLS changes something:
// http.CrossOriginProtection compares hosts only.
func (p public) downgraded(req *http.Request) bool {
	safe := req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions
	return !safe && p.scheme == "https" && strings.EqualFold(req.Header.Get("Origin"), "http://"+p.host)
}

// crossSite returns the error text of a cross-site request.
func (p public) crossSite() string {
	text := "cross-site requests are not allowed; if this page is belfry's own, set api.public_url to the address that the browser shows"
	if p.host != "" {
		text += ", which is " + p.origin() + " here"
	}
	return text
}
