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

// APNsConfig configures the Apple Push Notification service: one HTTP/2 request per device token, authorized by
// a provider token.
//
//	POST /3/device/{token} ─► 200                                        accepted
//	                          410, BadDeviceToken                         invalid address
//	                          403 ExpiredProviderToken                    new token, once more
//	                          InvalidProviderToken, MissingProviderToken,
//	                          429, 500, 503, IdleTimeout                  retryable
//	                          other 4xx                                   permanent
//	                          no answer                                   unknown, see httpClient
//
// Requests, headers and reasons follow Apple's "Sending notification requests to APNs" and "Handling
// notification responses from APNs".
//
// A channel's address is the device token in hexadecimal. The payload is
//
//	{"aps": {"alert": {"title", "body"}, "sound": …}, "data": {…}, "key": "…"}
//
// data is the message's data without its member aps. That object is merged into aps (badge, category,
// thread-id, …), except for alert.
//
// # Invariants
//
//  1. The idempotency key is apns-id and apns-collapse-id, so that a device shows one notification for two
//     attempts of a message. The payload contains it too, as key.
//  2. A provider token is used for at most 40 minutes (Apple rejects it after an hour) and replaced at most once
//     in 20 minutes (Apple rejects more frequent changes), even if Apple reports it as expired.
//  3. A message over 4,096 bytes is permanent, without a call.
//
// # Not guaranteed
//
// That a message is shown: APNs answers when it has accepted the message. While a device is offline, APNs stores
// one message per device and collapse id, and drops it after Expiration.
type APNsConfig struct {
	HTTP HTTPConfig `mapstructure:",squash"`
	// Endpoint is the service's URL. Builds from Xcode need https://api.sandbox.push.apple.com. An http URL uses
	// HTTP/2 without TLS, for tests.
	Endpoint string `mapstructure:"endpoint"`
	// TeamID and KeyID are the ten-character ids that Apple assigned to the team and to the key.
	TeamID string `mapstructure:"team_id"`
	KeyID  string `mapstructure:"key_id"`
	// Key is the content of the .p8 file: a P-256 private key in PEM.
	Key     string `mapstructure:"key"`
	KeyFile string `mapstructure:"key_file"`
	// Topic is the app's bundle id.
	Topic string `mapstructure:"topic"`
	// Priority is 10 (immediately), 5 (depending on the device's power state) or 1.
	Priority int `mapstructure:"priority"`
	// Expiration is the time for which APNs stores a message for an offline device. Zero means that it does not.
	Expiration time.Duration `mapstructure:"expiration"`
	// Sound is the name of the sound. Empty means no sound.
	Sound string `mapstructure:"sound"`
}

// DefaultAPNs returns the settings of Apple's production service, with immediate delivery and an expiration of a
// day.
func DefaultAPNs() *APNsConfig {
	return &APNsConfig{Endpoint: "https://api.push.apple.com", Priority: 10, Expiration: 24 * time.Hour, Sound: "default"}
}

var (
	apnsIdentifier = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]{10}$`) })
	apnsTopic      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9.-]{1,255}$`) })
)

// validate implements Config.
func (c *APNsConfig) validate(p *sender.ValidationErrors) {
	check := p.Check
	_, err := parseURL(c.Endpoint, true)
	check(err == nil, "endpoint", "%v; allowed values: a URL such as https://api.push.apple.com", err)
	check(apnsIdentifier().MatchString(c.TeamID), "team_id", "%q is not allowed; allowed values: 10 letters and digits", c.TeamID)
	check(apnsIdentifier().MatchString(c.KeyID), "key_id", "%q is not allowed; allowed values: 10 letters and digits", c.KeyID)
	check(c.Key != "" || c.KeyFile != "", "key", "is empty; set the content of a .p8 file, or its name in key_file")
	check(c.Key == "" || c.KeyFile == "", "key", "is set, and so is key_file; set only one")
	if c.Key != "" {
		_, err := parseAPNsKey(c.Key)
		check(err == nil, "key", "%v", err)
	}
	check(apnsTopic().MatchString(c.Topic), "topic",
		"%q is not allowed; allowed values: a bundle id: letters, digits, dots and hyphens", c.Topic)
	check(c.Priority == 10 || c.Priority == 5 || c.Priority == 1, "priority", "%d is not allowed; allowed values: 10, 5, 1", c.Priority)
	check(c.Expiration >= 0 && c.Expiration <= 30*24*time.Hour, "expiration", "%s is not allowed; allowed values: 0s to 720h0m0s",
		c.Expiration)
	check(len(c.Sound) <= 100, "sound", "has %d bytes; the maximum is 100", len(c.Sound))
	c.HTTP.validate(p)
}

// parseAPNsKey parses a .p8 file. Its errors do not quote it.
func parseAPNsKey(text string) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("is not PEM; allowed values: a .p8 file with a P-256 private key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("holds no PKCS #8 key; allowed values: a .p8 file with a P-256 private key")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("holds another kind of key; allowed values: a .p8 file with a P-256 private key")
	}
	return key, nil
}
