package provider

import (
	"fmt"
	"strings"

	"github.com/belfryhq/belfry/outbox/sender"
)

// WebhookConfig sets how messages go to an HTTP endpoint of one's own or of the recipient:
// a POST of JSON, signed as Standard Webhooks says
// (https://github.com/standard-webhooks/standard-webhooks, version 1.0.0).
//
//	POST <url, or the channel's address>
//	Content-Type: application/json
//	Idempotency-Key: <key>
//	webhook-id: <key>
//	webhook-timestamp: <seconds since 1970 of this attempt>
//	webhook-signature: v1,<base64 of HMAC-SHA256 over id.timestamp.body> …
//
//	{"key":"…","job_id":7,"channel_id":42,"external_id":"u42","category":"operator_notice",
//	 "medium":"webhook","locale":"ko","title":"…","body":"…","data":{…},"attempt":1}
//
// A job_id below zero is an activity's. The idempotency key stands in three places, all
// the same text in every attempt: Idempotency-Key, webhook-id and the body's key. A
// receiver that keeps the keys it has seen acts once however often it is called;
// VerifyWebhook checks a call's signature and age.
//
//	2xx ───────────────────────────────► accepted
//	401, 408, 425, 429, 500, 503 ──────► retryable, not before Retry-After
//	410, where the address is the URL ─► invalid address
//	other 3xx, 4xx ────────────────────► permanent
//	other 5xx, or no answer to a request that may have gone out ─► unknown
//	no connection ─────────────────────► retryable
//
// # Invariants
//
//  1. No connection goes to a private address, at whatever hop and however the name
//     resolves, but to those of allow_addresses (guard).
//  2. Up to three redirects by 307 and 308 are followed, never from https to http.
//  3. A body is not read for what it says: what counts is the status.
//
// Where the URL is fixed, 410 is permanent and no invalid address: it would speak of the
// endpoint and condemn one recipient after the other. For the same reason a name that resolves
// to a private address is retryable there: it is the operator's, and no recipient's fault.
type WebhookConfig struct {
	// URL is where every message goes. Empty: each to its channel's address.
	URL string `mapstructure:"url"`
	// AllowHTTP lets URLs be http; without it they are https.
	AllowHTTP bool `mapstructure:"allow_http"`
	// Secrets sign every message, one signature each, so that a receiver may know
	// either while they are rotated: whsec_ and the base64 of 24 to 64 bytes.
	Secrets []string `mapstructure:"secrets"`
	// SecretFile names a file with such secrets, one a line, used after Secrets.
	SecretFile string `mapstructure:"secret_file"`

	HTTP HTTPConfig `mapstructure:",squash"`
}

// DefaultWebhook sends to the channels' addresses, by https.
func DefaultWebhook() *WebhookConfig { return &WebhookConfig{} }

// webhookMaxSecrets is how many secrets sign at once at most.
const webhookMaxSecrets = 8

// validate implements Config.
func (c *WebhookConfig) validate(p *sender.Problems) {
	check := p.Check
	if c.URL != "" {
		at, err := parseURL(c.URL, c.AllowHTTP)
		if g, wrong := newGuard(c.HTTP.AllowAddresses); err == nil && wrong == nil && !g.permitsHost(at.Hostname()) {
			err = fmt.Errorf("its host %s is a private address, to which nothing would be sent; allowed is a public one, and a private one that allow_addresses has", at.Hostname())
		}
		hint := ""
		if !c.AllowHTTP && strings.HasPrefix(c.URL, "http:") {
			hint = ", and http with allow_http"
		}
		check(err == nil, "url", "%v%s", err, hint)
	}
	check(len(c.Secrets) > 0 || c.SecretFile != "", "secrets", "is missing; required is a secret here or in secret_file")
	check(len(c.Secrets) <= webhookMaxSecrets, "secrets", "has %d secrets; allowed are up to %d", len(c.Secrets), webhookMaxSecrets)
	for i, secret := range c.Secrets {
		_, err := parseWebhookSecret(secret)
		check(err == nil, fmt.Sprintf("secrets[%d]", i), "%v", err)
	}
	c.HTTP.validate(p)
}

// keys are the decoded secrets of both places.
func (c *WebhookConfig) keys() ([][]byte, error) {
	var keys [][]byte
	for i, secret := range c.Secrets {
		key, err := parseWebhookSecret(secret)
		if err != nil {
			return nil, fmt.Errorf("secrets[%d]: %w", i, err)
		}
		keys = append(keys, key)
	}
	text, err := readSecret("secret", "", c.SecretFile)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, err := parseWebhookSecret(line)
		if err != nil {
			return nil, fmt.Errorf("secret_file: line %d: %w", i+1, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > webhookMaxSecrets {
		return nil, fmt.Errorf("secrets: there are %d with those of secret_file; allowed are 1 to %d", len(keys), webhookMaxSecrets)
	}
	return keys, nil
}
