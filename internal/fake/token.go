package fake

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/hkdf"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"time"
)

// derive makes size bytes from a secret, by HKDF.
func derive(secret []byte, info string, size int) []byte {
	out, err := hkdf.Key(sha256.New, secret, nil, "belfry fake "+info, size)
	if err != nil {
		panic(err) // sizes are written out in the source
	}
	return out
}

// claims are the parts of a JSON Web Token that providers look at.
type claims struct {
	Issuer   string          `json:"iss"`
	Audience json.RawMessage `json:"aud"`
	IssuedAt int64           `json:"iat"`
	Expires  int64           `json:"exp"`
	Scope    string          `json:"scope"`
	Subject  string          `json:"sub"`

	keyID string
}

// errToken is any token that no provider would take.
var errToken = errors.New("the token is not signed by the key")

// openToken splits a token and verifies its signature.
func openToken(token, algorithm string, verify func(digest, signature []byte) bool) (claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}, errToken
	}
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}
	var c claims
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !decodePart(parts[0], &header) || !decodePart(parts[1], &c) || header.Algorithm != algorithm {
		return claims{}, errToken
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if !verify(digest[:], signature) {
		return claims{}, errToken
	}
	c.keyID = header.KeyID
	return c, nil
}

func decodePart(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, into) == nil
}

// byEC verifies ES256.
func byEC(key *ecdsa.PublicKey) func(digest, signature []byte) bool {
	return func(digest, signature []byte) bool {
		if len(signature) != 64 {
			return false
		}
		r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
		return ecdsa.Verify(key, digest, r, s)
	}
}

// byRSA verifies RS256.
func byRSA(key *rsa.PublicKey) func(digest, signature []byte) bool {
	return func(digest, signature []byte) bool {
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest, signature) == nil
	}
}

// within reports whether an instant in seconds is no farther from now than d.
func within(now time.Time, seconds int64, d time.Duration) bool {
	return now.Sub(time.Unix(seconds, 0)).Abs() <= d
}
