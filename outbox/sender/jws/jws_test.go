package jws_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender/jws"
)

// A token's signature is the two halves of 32 bytes each, over the first two parts as
// they stand.
func TestES256_VerifiesWithThePublicKey(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for range 50 {
		token, err := jws.ES256(key, map[string]string{"alg": "ES256"}, map[string]int{"iat": 1})
		require.NoError(t, err)
		parts := strings.Split(token, ".")
		require.Len(t, parts, 3)
		head, err := base64.RawURLEncoding.DecodeString(parts[0])
		require.NoError(t, err)
		require.JSONEq(t, `{"alg":"ES256"}`, string(head))
		signature, err := base64.RawURLEncoding.DecodeString(parts[2])
		require.NoError(t, err)
		require.Len(t, signature, 64)
		digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
		require.True(t, ecdsa.Verify(&key.PublicKey, digest[:], r, s))
	}
}

func TestES256_RefusesAnotherCurve(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	_, err = jws.ES256(key, map[string]string{}, map[string]string{})
	require.ErrorContains(t, err, "allowed is P-256")
}
