package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"regexp"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// APNsConfig sets how Apple devices are reached by the Apple Push Notification service:
// one HTTP/2 request per device token, with a provider token for authority.
//
//	POST /3/device/{token} ─► 200                                        accepted
//	                          410, BadDeviceToken                         invalid address
//	                          403 ExpiredProviderToken                    new token, once more
//	                          InvalidProviderToken, MissingProviderToken,
//	                          429, 500, 503, IdleTimeout                  retryable
//	                          other 4xx                                   permanent
//	                          no answer                                   unknown, see httpClient
//
// Requests, headers and reasons are those of Apple's "Sending notification requests to
// APNs" and "Handling notification responses from APNs".
//
// A channel's address is the device token in hexadecimal. The device is sent
//
//	{"aps": {"alert": {"title", "body"}, "sound": …}, "data": {…}, "key": "…"}
//
// where data is the message's data without its member aps: that one, an object, is merged
// into aps (badge, category, thread-id, …), except for alert.
//
// # Invariants
//
//  1. The idempotency key is apns-id and apns-collapse-id: a device that gets two attempts
//     of one message shows one notification. It stands in the payload as well, as key.
//  2. A provider token is used for at most 40 minutes (Apple refuses it after an hour)
//     and replaced at most once in 20 minutes (Apple refuses more often), also when Apple
//     calls it expired.
//  3. A message over 4,096 bytes is permanent, without a call.
//
// # What it does not promise
//
// That a message was shown: APNs answers when it has taken it, keeps one per device and
// collapse id while the device is away, and drops it after Expiration.
type APNsConfig struct {
	HTTP HTTPConfig `mapstructure:",squash"`
	// Endpoint is the service's URL. Builds from Xcode need
	// https://api.sandbox.push.apple.com. By http, HTTP/2 is spoken without TLS: for tests.
	Endpoint string `mapstructure:"endpoint"`
	// TeamID and KeyID are the ten characters that Apple gave to the team and to the key.
	TeamID string `mapstructure:"team_id"`
	KeyID  string `mapstructure:"key_id"`
	// Key is the content of the .p8 file: a P-256 private key in PEM.
	Key     string `mapstructure:"key"`
	KeyFile string `mapstructure:"key_file"`
	// Topic is the app's bundle id.
	Topic string `mapstructure:"topic"`
	// Priority is 10 (at once), 5 (when it suits the device's power) or 1.
	Priority int `mapstructure:"priority"`
	// Expiration is how long APNs keeps a message for a device that is away; 0: not at all.
	Expiration time.Duration `mapstructure:"expiration"`
	// Sound is played; empty: none.
	Sound string `mapstructure:"sound"`
}

// DefaultAPNs is Apple's production service, at once and for a day.
func DefaultAPNs() *APNsConfig {
	return &APNsConfig{Endpoint: "https://api.push.apple.com", Priority: 10, Expiration: 24 * time.Hour, Sound: "default"}
}

var (
	apnsIdentifier = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]{10}$`) })
	apnsTopic      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9.-]{1,255}$`) })
)

// validate implements Config.
func (c *APNsConfig) validate(p *sender.Problems) {
	check := p.Check
	_, err := parseURL(c.Endpoint, true)
	check(err == nil, "endpoint", "%v; allowed is a URL such as https://api.push.apple.com", err)
	check(apnsIdentifier().MatchString(c.TeamID), "team_id", "%q is not allowed; allowed are 10 letters and digits", c.TeamID)
	check(apnsIdentifier().MatchString(c.KeyID), "key_id", "%q is not allowed; allowed are 10 letters and digits", c.KeyID)
	check(c.Key != "" || c.KeyFile != "", "key", "is empty; allowed is the content of a .p8 file, or its name in key_file")
	check(c.Key == "" || c.KeyFile == "", "key", "is set, and so is key_file; allowed is one of them")
	if c.Key != "" {
		_, err := parseAPNsKey(c.Key)
		check(err == nil, "key", "%v", err)
	}
	check(apnsTopic().MatchString(c.Topic), "topic", "%q is not allowed; allowed is a bundle id: letters, digits, dots and hyphens", c.Topic)
	check(c.Priority == 10 || c.Priority == 5 || c.Priority == 1, "priority", "%d is not allowed; allowed are 10, 5, 1", c.Priority)
	check(c.Expiration >= 0 && c.Expiration <= 30*24*time.Hour, "expiration", "%s is not allowed; allowed are 0s to 720h0m0s", c.Expiration)
	check(len(c.Sound) <= 100, "sound", "has %d bytes; allowed are up to 100", len(c.Sound))
	c.HTTP.validate(p)
}

// parseAPNsKey reads a .p8 file. Its errors hold nothing of it.
func parseAPNsKey(text string) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("is not PEM; allowed is a .p8 file with a P-256 private key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("holds no PKCS #8 key; allowed is a .p8 file with a P-256 private key")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("holds another kind of key; allowed is a .p8 file with a P-256 private key")
	}
	return key, nil
}
