package apns

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
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// Config sets how Apple devices are reached. DefaultConfig has every default.
type Config struct {
	HTTP httpcall.Config `mapstructure:",squash"`
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

// DefaultConfig is Apple's production service, at once and for a day.
func DefaultConfig() Config {
	return Config{Endpoint: "https://api.push.apple.com", Priority: 10, Expiration: 24 * time.Hour, Sound: "default"}
}

var (
	identifier = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]{10}$`) })
	topic      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9.-]{1,255}$`) })
)

// Validate returns every problem at once, each with its key path below path, or nil.
// It reads no file.
func (c Config) Validate(path string) error {
	problems := sender.Problems{Path: path}
	check := problems.Check
	_, err := httpcall.ParseURL(c.Endpoint, true)
	check(err == nil, "endpoint", "%v; allowed is a URL such as https://api.push.apple.com", err)
	check(identifier().MatchString(c.TeamID), "team_id", "%q is not allowed; allowed are 10 letters and digits", c.TeamID)
	check(identifier().MatchString(c.KeyID), "key_id", "%q is not allowed; allowed are 10 letters and digits", c.KeyID)
	check(c.Key != "" || c.KeyFile != "", "key", "is empty; allowed is the content of a .p8 file, or its name in key_file")
	check(c.Key == "" || c.KeyFile == "", "key", "is set, and so is key_file; allowed is one of them")
	if c.Key != "" {
		_, err := parseKey(c.Key)
		check(err == nil, "key", "%v", err)
	}
	check(topic().MatchString(c.Topic), "topic", "%q is not allowed; allowed is a bundle id: letters, digits, dots and hyphens", c.Topic)
	check(c.Priority == 10 || c.Priority == 5 || c.Priority == 1, "priority", "%d is not allowed; allowed are 10, 5, 1", c.Priority)
	check(c.Expiration >= 0 && c.Expiration <= 30*24*time.Hour, "expiration", "%s is not allowed; allowed are 0s to 720h0m0s", c.Expiration)
	check(len(c.Sound) <= 100, "sound", "has %d bytes; allowed are up to 100", len(c.Sound))
	return problems.Err(c.HTTP.Validate(path))
}

// parseKey reads a .p8 file. Its errors hold nothing of it.
func parseKey(text string) (*ecdsa.PrivateKey, error) {
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
