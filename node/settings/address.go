package settings

import (
	"net/url"
	"regexp"
	"strings"
)

// keywordPassword finds a password in a keyword/value connection string, quoted
// or not.
var keywordPassword = regexp.MustCompile(`(?i)\b((?:ssl)?password)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)`)

// WithoutPassword returns a connection string that may be shown. What cannot be
// taken apart is not shown at all.
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

// WithoutUser returns the URL of a Redis server as it may be shown: there, what
// looks like a user is often the password.
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

// ParseProblem says what kind of thing is wrong with a connection string and
// repeats none of it: what cannot be parsed cannot be redacted with certainty.
func ParseProblem(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "`: "); i >= 0 {
		text = text[i+len("`: "):]
	}
	text, _, _ = strings.Cut(text, " (")
	text = strings.Replace(text, "failed to ", "cannot ", 1)
	return "is no connection string (" + text + "); write it as postgres://user:password@host:5432/database"
}

// hidden stands for a secret: that there is one may be shown.
func hidden(secret string) string {
	if secret == "" {
		return ""
	}
	return setNotShown
}
