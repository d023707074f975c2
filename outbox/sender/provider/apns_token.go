package provider

import (
	"crypto/ecdsa"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	apnsTokenUse = 40 * time.Minute // Apple rejects a token that is older than an hour
	apnsTokenGap = 20 * time.Minute // Apple rejects more frequent changes
)

// apnsTokens stores the provider token, which authorizes all calls.
type apnsTokens struct {
	key           *ecdsa.PrivateKey
	keyID, teamID string
	now           func() time.Time

	mu      sync.Mutex
	current string
	issued  time.Time
}

// get returns the token to use.
func (t *apnsTokens) get() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != "" && t.now().Sub(t.issued) < apnsTokenUse {
		return t.current, nil
	}
	return t.sign()
}

// replace returns a token other than used, which Apple reported as expired, or the wait until the token may be
// replaced.
func (t *apnsTokens) replace(used string) (string, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != used {
		return t.current, 0 // another call has replaced it
	}
	if wait := t.issued.Add(apnsTokenGap).Sub(t.now()); wait > 0 {
		return "", wait
	}
	token, err := t.sign()
	if err != nil {
		return "", apnsTokenGap
	}
	return token, 0
}

// sign creates a new token. The caller holds mu.
func (t *apnsTokens) sign() (string, error) {
	now := t.now()
	claim := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": t.teamID, "iat": now.Unix()})
	claim.Header = map[string]any{"alg": "ES256", "kid": t.keyID} // without typ, like Apple's example
	token, err := claim.SignedString(t.key)
	if err != nil {
		return "", err
	}
	t.current, t.issued = token, now
	return token, nil
}
