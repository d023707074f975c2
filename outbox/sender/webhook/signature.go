package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The header names of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

var (
	// ErrSignature is returned by Verify for a call that nobody who knows a secret made,
	// or whose body was changed.
	ErrSignature = errors.New("webhook signature does not match")
	// ErrTimestamp is returned by Verify for a call that is too old or ahead of its time.
	ErrTimestamp = errors.New("webhook timestamp is out of tolerance")
)

// Tolerance is how far a call's timestamp may be from the receiver's clock, as Standard
// Webhooks recommends.
const Tolerance = 5 * time.Minute

// Verify checks that a call was signed with one of the secrets (whsec_…) and is within
// the tolerance of now, either way. It is for receivers: give it the body as it arrived,
// byte by byte, before anything parses it. ErrSignature, ErrTimestamp, or an error that
// names a malformed secret.
func Verify(header http.Header, body []byte, now time.Time, tolerance time.Duration, secrets ...string) error {
	id, stamp := header.Get(headerID), header.Get(headerTimestamp)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || id == "" {
		return ErrSignature
	}
	matches := false
	for i, secret := range secrets {
		key, err := parseSecret(secret)
		if err != nil {
			return fmt.Errorf("secrets[%d]: %w", i, err)
		}
		want := mac(key, id, stamp, body)
		for signature := range strings.FieldsSeq(header.Get(headerSignature)) {
			text, isV1 := strings.CutPrefix(signature, "v1,")
			got, err := base64.StdEncoding.DecodeString(text)
			if isV1 && err == nil && hmac.Equal(got, want) {
				matches = true
			}
		}
	}
	if !matches {
		return ErrSignature
	}
	// The timestamp is the signer's own from here on.
	if seconds < now.Add(-tolerance).Unix() || seconds > now.Add(tolerance).Unix() {
		return ErrTimestamp
	}
	return nil
}

// sign returns the header's value: one signature for each key, in their order.
func sign(keys [][]byte, id, stamp string, body []byte) string {
	signatures := make([]string, 0, len(keys))
	for _, key := range keys {
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac(key, id, stamp, body)))
	}
	return strings.Join(signatures, " ")
}

func mac(key []byte, id, stamp string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(h, "%s.%s.", id, stamp) // a hash's Write does not fail
	_, _ = h.Write(body)
	return h.Sum(nil)
}

// parseSecret decodes a secret. The error does not quote it.
func parseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("is no secret; allowed is whsec_ followed by the base64 of 24 to 64 bytes")
	}
	return key, nil
}
