package provider

import (
	"crypto/ecdsa"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	apnsTokenUse = 40 * time.Minute // Apple refuses a token that is older than an hour
	apnsTokenGap = 20 * time.Minute // and one that is replaced more often than this
)

// apnsTokens keeps the provider token, with which all calls say who sends.
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

// replace returns another token than used, which Apple called expired, or how long to
// wait until there may be one.
func (t *apnsTokens) replace(used string) (string, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != used {
		return t.current, 0 // another call was faster
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

// sign makes a new token. The caller holds mu.
func (t *apnsTokens) sign() (string, error) {
	now := t.now()
	claim := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": t.teamID, "iat": now.Unix()})
	claim.Header = map[string]any{"alg": "ES256", "kid": t.keyID} // as Apple shows it, without typ
	token, err := claim.SignedString(t.key)
	if err != nil {
		return "", err
	}
	t.current, t.issued = token, now
	return token, nil
}
