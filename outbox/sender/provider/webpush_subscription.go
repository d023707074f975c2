package provider

import (
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// subscription is a browser's PushSubscription, the address of a channel.
type subscription struct {
	endpoint *url.URL
	public   *ecdh.PublicKey
	secret   []byte
}

// parseSubscription parses an address. Its errors do not quote it.
func parseSubscription(address string, allowHTTP bool) (subscription, error) {
	var raw struct {
		Endpoint string `json:"endpoint"`
		Keys     struct {
			P256dh string `json:"p256dh"`
			Auth   string `json:"auth"`
		} `json:"keys"`
	}
	if err := json.Unmarshal([]byte(address), &raw); err != nil {
		return subscription{}, errors.New(`address is not a subscription; allowed values: JSON as {"endpoint": "https://…", "keys": {"p256dh": "…", "auth": "…"}}`)
	}
	endpoint, err := parseURL(raw.Endpoint, allowHTTP)
	if err != nil {
		return subscription{}, fmt.Errorf("endpoint: %w", err)
	}
	point, err := decodeBase64URL(raw.Keys.P256dh)
	if err != nil {
		return subscription{}, errors.New("keys.p256dh is not base64url")
	}
	public, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		return subscription{}, errors.New("keys.p256dh is not an uncompressed point of P-256")
	}
	secret, err := decodeBase64URL(raw.Keys.Auth)
	if err != nil || len(secret) != authBytes {
		return subscription{}, fmt.Errorf("keys.auth is not %d bytes in base64url", authBytes)
	}
	return subscription{endpoint: endpoint, public: public, secret: secret}, nil
}

// audience returns the origin of the push service (RFC 8292 §2, RFC 6454 §6.1).
func (s subscription) audience() string {
	usual := map[string]string{"https": ":443", "http": ":80"}[s.endpoint.Scheme]
	return s.endpoint.Scheme + "://" + strings.TrimSuffix(strings.ToLower(s.endpoint.Host), usual)
}

// decodeBase64URL decodes base64url with or without padding. It also accepts the standard alphabet, which some
// libraries write.
func decodeBase64URL(text string) ([]byte, error) {
	text = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(text, "="))
	return base64.RawURLEncoding.DecodeString(text)
}
