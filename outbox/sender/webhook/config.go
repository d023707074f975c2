package webhook

import (
	"fmt"
	"strings"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// Config sets where messages go and how they are signed.
type Config struct {
	// URL is where every message goes. Empty: each to its channel's address.
	URL string `mapstructure:"url"`
	// AllowHTTP lets URLs be http; without it they are https.
	AllowHTTP bool `mapstructure:"allow_http"`
	// Secrets sign every message, one signature each, so that a receiver may know
	// either while they are rotated: whsec_ and the base64 of 24 to 64 bytes.
	Secrets []string `mapstructure:"secrets"`
	// SecretFile names a file with such secrets, one a line, used after Secrets.
	SecretFile string `mapstructure:"secret_file"`

	HTTP httpcall.Config `mapstructure:",squash"`
}

// DefaultConfig sends to the channels' addresses, by https.
func DefaultConfig() Config { return Config{} }

// maxSecrets is how many secrets sign at once at most.
const maxSecrets = 8

// Validate returns every problem at once, each with its key under path, or nil. It reads
// no file.
func (c Config) Validate(path string) error {
	problems := sender.Problems{Path: path}
	check := problems.Check
	if c.URL != "" {
		_, err := httpcall.ParseURL(c.URL, c.AllowHTTP)
		hint := ""
		if !c.AllowHTTP && strings.HasPrefix(c.URL, "http:") {
			hint = ", and http with allow_http"
		}
		check(err == nil, "url", "%v%s", err, hint)
	}
	check(len(c.Secrets) > 0 || c.SecretFile != "", "secrets", "is missing; required is a secret here or in secret_file")
	check(len(c.Secrets) <= maxSecrets, "secrets", "has %d secrets; allowed are up to %d", len(c.Secrets), maxSecrets)
	for i, secret := range c.Secrets {
		_, err := parseSecret(secret)
		check(err == nil, fmt.Sprintf("secrets[%d]", i), "%v", err)
	}
	return problems.Err(c.HTTP.Validate(path))
}

// keys are the decoded secrets of both places.
func (c Config) keys() ([][]byte, error) {
	var keys [][]byte
	for i, secret := range c.Secrets {
		key, err := parseSecret(secret)
		if err != nil {
			return nil, fmt.Errorf("secrets[%d]: %w", i, err)
		}
		keys = append(keys, key)
	}
	text, err := httpcall.Secret("secret", "", c.SecretFile)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, err := parseSecret(line)
		if err != nil {
			return nil, fmt.Errorf("secret_file: line %d: %w", i+1, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxSecrets {
		return nil, fmt.Errorf("secrets: there are %d with those of secret_file; allowed are 1 to %d", len(keys), maxSecrets)
	}
	return keys, nil
}
