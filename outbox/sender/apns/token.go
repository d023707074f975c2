package apns

import (
	"crypto/ecdsa"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	tokenUse = 40 * time.Minute // Apple refuses a token that is older than an hour
	tokenGap = 20 * time.Minute // and one that is replaced more often than this
)

// tokens keeps the provider token, with which all calls say who sends.
type tokens struct {
	key           *ecdsa.PrivateKey
	keyID, teamID string
	now           func() time.Time

	mu      sync.Mutex
	current string
	issued  time.Time
}

// get returns the token to use.
func (t *tokens) get() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != "" && t.now().Sub(t.issued) < tokenUse {
		return t.current, nil
	}
	return t.sign()
}

// replace returns another token than used, which Apple called expired, or how long to
// wait until there may be one.
func (t *tokens) replace(used string) (string, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != used {
		return t.current, 0 // another call was faster
	}
	if wait := t.issued.Add(tokenGap).Sub(t.now()); wait > 0 {
		return "", wait
	}
	token, err := t.sign()
	if err != nil {
		return "", tokenGap
	}
	return token, 0
}

// sign makes a new token. The caller holds mu.
func (t *tokens) sign() (string, error) {
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
