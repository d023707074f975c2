package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	vapidTokenLife = 12 * time.Hour // a push service rejects more than 24 h (RFC 8292 §2)
	// maxAudiences limits the cache of tokens, because the audiences come from addresses.
	vapidMaxAudiences = 256
)

// vapid creates the tokens that identify the sender to push services (RFC 8292).
type vapid struct {
	key     *ecdsa.PrivateKey
	public  string // base64url; the browsers' applicationServerKey
	subject string
	now     func() time.Time

	mu     sync.Mutex
	tokens map[string]vapidToken // by audience
}

type vapidToken struct {
	authorization string
	until         time.Time // time of its replacement, before it expires
}

func newVAPID(key *ecdsa.PrivateKey, subject string, now func() time.Time) (*vapid, error) {
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("read the public key of VAPID: %w", err)
	}
	return &vapid{
		key: key, public: base64.RawURLEncoding.EncodeToString(point), subject: subject,
		now: now, tokens: map[string]vapidToken{},
	}, nil
}

// authorization returns the header for a push service. A token is reused for half its lifetime.
func (v *vapid) authorization(audience string) (string, error) {
	now := v.now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if t, ok := v.tokens[audience]; ok && now.Before(t.until) {
		return t.authorization, nil
	}
	claims := jwt.MapClaims{"aud": audience, "exp": now.Add(vapidTokenLife).Unix(), "sub": v.subject}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodES256, claims).SignedString(v.key)
	if err != nil {
		return "", err
	}
	if len(v.tokens) >= vapidMaxAudiences {
		clear(v.tokens)
	}
	t := vapidToken{authorization: "vapid t=" + signed + ", k=" + v.public, until: now.Add(vapidTokenLife / 2)}
	v.tokens[audience] = t
	return t.authorization, nil
}

// parseVAPIDKey parses a VAPID private key: the 32 bytes of the scalar in base64url. Its errors do not quote it.
func parseVAPIDKey(text string) (*ecdsa.PrivateKey, error) {
	scalar, err := decodeBase64URL(text)
	if err != nil || len(scalar) != 32 {
		return nil, errors.New("is not a key; allowed values: 32 bytes in base64url")
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar)
	if err != nil {
		return nil, errors.New("is not a P-256 private key")
	}
	return key, nil
}
