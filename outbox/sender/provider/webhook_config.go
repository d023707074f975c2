package provider

import (
	"fmt"
	"strings"

	"github.com/belfryhq/belfry/outbox/sender"
)

// WebhookConfig configures delivery to an HTTP endpoint of the operator or of the recipient: a POST of JSON with
// the signature of Standard Webhooks
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
// The job_id of an activity is negative. Idempotency-Key, webhook-id and the body's key contain the idempotency
// key, which is the same in every attempt. A receiver that stores the keys can ignore repeated calls.
// VerifyWebhook checks a call's signature and age.
//
//	2xx ───────────────────────────────► accepted
//	401, 408, 425, 429, 500, 503 ──────► retryable, not before Retry-After
//	410, if the address is the URL ────► invalid address
//	other 3xx, 4xx ────────────────────► permanent
//	other 5xx, or no answer to a request that may have been sent ─► unknown
//	no connection ─────────────────────► retryable
//
// # Invariants
//
//  1. No connection is opened to a private address, at any hop and after any resolution, except to
//     allow_addresses (guard).
//  2. Up to three redirects by 307 and 308 are followed, never from https to http.
//  3. The result depends on the status only; the body is ignored.
//
// If the URL is fixed, 410 is permanent and not an invalid address, because it concerns the endpoint and not the
// recipient. For the same reason a name that resolves to a private address is retryable: the operator must fix it.
type WebhookConfig struct {
	// URL receives all messages. If it is empty, each message is sent to its channel's address.
	URL string `mapstructure:"url"`
	// AllowHTTP permits http URLs.
	AllowHTTP bool `mapstructure:"allow_http"`
	// Secrets sign every message, with one signature per secret, so that receivers can rotate them. A secret is
	// whsec_ followed by the base64 of 24 to 64 bytes.
	Secrets []string `mapstructure:"secrets"`
	// SecretFile names a file with further secrets, one per line.
	SecretFile string `mapstructure:"secret_file"`

	HTTP HTTPConfig `mapstructure:",squash"`
}

// DefaultWebhook returns settings for https calls to the channels' addresses.
func DefaultWebhook() *WebhookConfig { return &WebhookConfig{} }

// webhookMaxSecrets is the maximum number of secrets.
const webhookMaxSecrets = 8

// validate implements Config.
func (c *WebhookConfig) validate(p *sender.ValidationErrors) {
	check := p.Check
	if c.URL != "" {
		at, err := parseURL(c.URL, c.AllowHTTP)
		if g, wrong := newGuard(c.HTTP.AllowAddresses); err == nil && wrong == nil && !g.permitsHost(at.Hostname()) {
			err = fmt.Errorf(
				"its host %s is a private address, which the guard refuses; allowed values: public addresses, and private "+
					"ones in allow_addresses", at.Hostname())
		}
		hint := ""
		if !c.AllowHTTP && strings.HasPrefix(c.URL, "http:") {
			hint = ", and http with allow_http"
		}
		check(err == nil, "url", "%v%s", err, hint)
	}
	check(len(c.Secrets) > 0 || c.SecretFile != "", "secrets", "is missing; set a secret here or in secret_file")
	check(len(c.Secrets) <= webhookMaxSecrets, "secrets", "has %d secrets; allowed values: up to %d", len(c.Secrets), webhookMaxSecrets)
	for i, secret := range c.Secrets {
		_, err := parseWebhookSecret(secret)
		check(err == nil, fmt.Sprintf("secrets[%d]", i), "%v", err)
	}
	c.HTTP.validate(p)
}

// keys returns the decoded secrets of Secrets and SecretFile.
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
		return nil, fmt.Errorf("secrets: there are %d, including secret_file; allowed values: 1 to %d", len(keys), webhookMaxSecrets)
	}
	return keys, nil
}
