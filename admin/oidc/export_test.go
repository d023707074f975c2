package oidc

import "time"

// SetClock has another clock, and another deadline of a step, before the first sign-in.
func (p *Provider) SetClock(now func() time.Time, within time.Duration) {
	p.now, p.within = now, within
}

// At finds a claim.
func At(all map[string]any, path string) (any, bool) { return claims(all).at(path) }

// Resumed reports whether a text is a cookie of a sign-in, and reads the way back.
func Resumed(cookie string) (returnTo string, ok bool) {
	p, ok := resumed(cookie)
	return p.returnTo, ok
}
