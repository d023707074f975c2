package oidc

import "time"

// SetClock replaces the clock and the deadline of a step before the first sign-in.
func (p *Provider) SetClock(now func() time.Time, timeout time.Duration) {
	p.now, p.timeout = now, timeout
}

// ClientTimeout returns the deadline of each request.
func (p *Provider) ClientTimeout() time.Duration { return p.client.Timeout }

// Find returns a claim.
func Find(all map[string]any, path string) (any, bool) { return claims(all).find(path) }

// ParseCookie returns the return path of a cookie.
func ParseCookie(cookie string) (returnTo string, ok bool) {
	_, returnTo, ok = parseCookie(cookie)
	return returnTo, ok
}
