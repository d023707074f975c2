package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
)

// public is where people reach the API: api.public_url in its parts. The zero value is
// where a request says that it was sent to.
type public struct {
	scheme, host string
	path         string // "/a/b"; "": the root
}

// errPublicURL is an api.public_url that cannot be used.
var errPublicURL = errors.New("allowed values: https://HOST[:PORT][/PATH], or http:// with localhost, 127.0.0.1 or [::1], without user, query and fragment; or empty")

// publicOf takes an api.public_url apart.
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

// What an api.public_url may be made of.
var (
	publicHost = regexp.MustCompile(`^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$`)
	publicPath = regexp.MustCompile(`^(?:/[A-Za-z0-9._~-]+)*/?$`)
)

// origin is what a browser calls it; "": not known.
func (p public) origin() string {
	if p.host == "" {
		return ""
	}
	return p.scheme + "://" + p.host
}

// url is the address of a path there; "": not known.
func (p public) url(at string) string {
	if p.host == "" {
		return ""
	}
	return p.origin() + p.path + at
}

// secure reports whether a browser reaches the API by TLS, whatever stands in between.
func (p public) secure(req *http.Request) bool { return p.scheme == "https" || req.TLS != nil }

// stripped returns a request without the path that begins every address. A request without it stays
// as it is: a proxy may have removed it, and this machine needs none.
func (p public) stripped(req *http.Request) *http.Request {
	if p.path == "" || !strings.HasPrefix(req.URL.EscapedPath(), p.path+"/") {
		return req
	}
	own, to := *req, *req.URL
	to.Path, to.RawPath = strings.TrimPrefix(to.Path, p.path), strings.TrimPrefix(to.RawPath, p.path)
	own.URL = &to
	return &own
}

// sites returns the protection against requests that a browser sends for the page of another site.
func (p public) sites() (*http.CrossOriginProtection, error) {
	protection := http.NewCrossOriginProtection()
	if p.host == "" {
		return protection, nil
	}
	return protection, protection.AddTrustedOrigin(p.origin())
}

// otherSite is the error of a request from the page of another site.
func (p public) otherSite() string {
	text := "a page of another site asked for this; if it was belfry's own, api.public_url has to be the address that the browser shows"
	if p.host != "" {
		text += ", which is " + p.origin() + " here"
	}
	return text
}
