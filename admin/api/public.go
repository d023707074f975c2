package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/belfryhq/belfry/internal/printer"
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
func publicOf(text string) (public, error) {
	if text == "" {
		return public{}, nil
	}
	u, err := url.Parse(text)
	if err != nil || text != printer.OneLine(text, 500) || u.User != nil || strings.ContainsAny(text, "?#") ||
		!publicHost.MatchString(u.Host) || !publicPath.MatchString(u.Path) || path.Clean("/"+u.Path) != "/"+strings.Trim(u.Path, "/") ||
		u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return public{}, fmt.Errorf("api.public_url: %q is not allowed; %w", printer.OneLine(text, 100), errPublicURL)
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

// stripped serves below the path what next serves at the root, and at the root too: a proxy
// may have taken the path off already, and this machine needs none.
func (p public) stripped(next http.Handler) http.Handler {
	if p.path == "" {
		return next
	}
	below := http.StripPrefix(p.path, next)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.EscapedPath(), p.path+"/") {
			below.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// sites refuses what the page of another site has a browser do.
func (p public) sites(next http.Handler) (http.Handler, error) {
	protection := http.NewCrossOriginProtection()
	if p.host != "" {
		if err := protection.AddTrustedOrigin(p.origin()); err != nil {
			return nil, err
		}
	}
	said := "a page of another site asked for this; if it was belfry's own, api.public_url has to be the address that the browser shows"
	if p.host != "" {
		said += ", which is " + p.origin() + " here"
	}
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problemf(http.StatusForbidden, said).write(w)
	}))
	return protection.Handler(next), nil
}
