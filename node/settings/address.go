package settings

import (
	"net/url"
	"regexp"
	"strings"
)

// keywordPassword matches a password in a keyword/value connection string, quoted or not.
var keywordPassword = regexp.MustCompile(`(?i)\b((?:ssl)?password)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)`)

// WithoutPassword returns a connection string without its password, or notShown if the string cannot be
// parsed.
func WithoutPassword(dsn string) string {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return keywordPassword.ReplaceAllString(dsn, "$1=...")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return notShown
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "password") {
			query.Del(name)
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}

const notShown = "(not shown: not a URL)"

// WithoutUser returns the URL of a Redis server without user and password. In such a URL the user is often
// the password.
func WithoutUser(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Opaque != "" {
		return notShown
	}
	u.User = nil
	query := u.Query()
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	u.RawQuery = query.Encode()
	return u.String()
}

// hidden returns a placeholder for a secret that is set.
func hidden(secret string) string {
	if secret == "" {
		return ""
	}
	return setNotShown
}
