package fake

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"strings"
	"time"
)

// claims has the claims of a JSON Web Token that providers check.
type claims struct {
	KeyID    string `json:"kid"` // of the header
	Issuer   string `json:"iss"`
	Audience string `json:"aud"`
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	Scope    string `json:"scope"`
}

// openToken parses a token and verifies its signature with a key. The type of the key determines the
// algorithm.
func openToken(token string, key crypto.PublicKey) (c claims, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, false
	}
	var texts [3][]byte
	for i, part := range parts {
		var err error
		if texts[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			return c, false
		}
	}
	digest, signature := sha256.Sum256([]byte(parts[0]+"."+parts[1])), texts[2]
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		r, s := new(big.Int).SetBytes(signature[:len(signature)/2]), new(big.Int).SetBytes(signature[len(signature)/2:])
		ok = ecdsa.Verify(key, digest[:], r, s)
	case *rsa.PublicKey:
		ok = rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], signature) == nil
	}
	return c, ok && json.Unmarshal(texts[0], &c) == nil && json.Unmarshal(texts[1], &c) == nil
}

// within reports whether an instant in Unix seconds is at most d from now.
func within(now time.Time, seconds int64, d time.Duration) bool {
	return now.Sub(time.Unix(seconds, 0)).Abs() <= d
}
