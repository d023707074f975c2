// Package jws signs the short JSON Web Tokens with which a sender proves to a provider
// who it is: compact serialisation, ES256 (RFC 7515, RFC 7518 §3.4), and nothing else.
// Web Push (VAPID) and APNs ask for exactly this.
package jws

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
)

// fieldBytes is the length of each half of a P-256 signature.
const fieldBytes = 32

// ES256 returns header.claims.signature. The header and the claims are what json.Marshal
// makes of them; the header must say "alg":"ES256". The key must be on P-256.
func ES256(key *ecdsa.PrivateKey, header, claims any) (string, error) {
	if bits := key.Curve.Params().BitSize; bits != 8*fieldBytes {
		return "", fmt.Errorf("sign a token with ES256: the key is on a curve of %d bits; allowed is P-256", bits)
	}
	head, err := json.Marshal(header)
	if err != nil {
		return "", fmt.Errorf("encode a token's header: %w", err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode a token's claims: %w", err)
	}
	signed := encode(head) + "." + encode(body)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return signed + "." + encode(halves(r, s)), nil
}

// halves puts the two numbers of a signature side by side, each in its full length.
func halves(r, s *big.Int) []byte {
	signature := make([]byte, 2*fieldBytes)
	r.FillBytes(signature[:fieldBytes])
	s.FillBytes(signature[fieldBytes:])
	return signature
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
