package oidc

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Lifetime is how long a sign-in may take, and its cookie is kept.
const Lifetime = 10 * time.Minute

// maxReturn is how long the way back may be.
const maxReturn = 1000

// pending is a sign-in that has begun, as its browser's cookie has it.
type pending struct {
	secret   string // of 32 random bytes
	begun    time.Time
	returnTo string
}

func encoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

// begin draws the secret of a sign-in.
func begin(now time.Time, returnTo string) pending {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	return pending{encoding().EncodeToString(random), now, returnTo}
}

// cookie is the value of the cookie.
func (p pending) cookie() string {
	return p.secret + "." + strconv.FormatInt(p.begun.Unix(), 10) + "." + encoding().EncodeToString([]byte(p.returnTo))
}

// resumed reads a cookie; false: it is none.
func resumed(cookie string) (p pending, ok bool) {
	parts := strings.Split(cookie, ".")
	if len(parts) != 3 {
		return pending{}, false
	}
	secret, err := encoding().DecodeString(parts[0])
	seconds, notTime := strconv.ParseInt(parts[1], 10, 64)
	way, notWay := encoding().DecodeString(parts[2])
	p = pending{parts[0], time.Unix(seconds, 0), string(way)}
	return p, err == nil && notTime == nil && notWay == nil && len(secret) == 32 && p.cookie() == cookie && (p.returnTo == "" || Path(p.returnTo))
}

// What is made of the secret. Two of them say nothing of the third.
const (
	forState    = "state"
	forNonce    = "nonce"
	forVerifier = "verifier"
)

// made is what of a sign-in the provider is shown: 43 characters, of the secret and of all that
// the cookie says beside it.
func (p pending) made(purpose string) string {
	mac := hmac.New(sha256.New, []byte(p.secret))
	mac.Write([]byte("belfry oidc " + purpose + "\x00" + p.cookie()))
	return encoding().EncodeToString(mac.Sum(nil))
}

// live reports whether the sign-in may still be finished.
func (p pending) live(now time.Time) bool {
	return now.Before(p.begun.Add(Lifetime)) && p.begun.Before(now.Add(time.Minute)) // nodes' clocks differ
}

// Path reports whether a text is a path of belfry's own that people may be sent to, with its query.
// It stands behind the public URL: no other host can be meant by it.
func Path(text string) bool {
	if len(text) > maxReturn || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") ||
		strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == '\\' }) {
		return false
	}
	u, err := url.Parse(text)
	return err == nil && u.Host == "" && u.Scheme == "" && u.User == nil && !strings.Contains(u.Path, "/../") && !strings.HasSuffix(u.Path, "/..") && !strings.Contains(u.Path, "\\")
}
