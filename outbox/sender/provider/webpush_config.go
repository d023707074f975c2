package provider

import (
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// WebPushConfig sets how browsers are reached by the Web Push protocol: RFC 8030, with
// the payload encrypted for the browser (RFC 8291, RFC 8188) and the sender named by VAPID
// (RFC 8292).
//
//	address ─► subscription ─► payload ─► record ─► POST endpoint ─► 201   accepted
//	   └ malformed: invalid      └ over 3,993 bytes: permanent      404, 410 invalid address
//	                                                                 429, 5xx as httpClient says
//	                                                                 other 4xx permanent
//
// A channel's address is the JSON of the browser's PushSubscription:
// {"endpoint": "https://…", "keys": {"p256dh": "…", "auth": "…"}}. The browser is sent the
// JSON object {"title", "body", "data", "key"}, for its service worker to show.
//
// # Invariants
//
//  1. The idempotency key goes into the payload, and without its hyphens into the Topic
//     header: an attempt replaces an earlier one of the same message that the push service
//     has not delivered yet, and a service worker that keeps the key in its
//     notification's tag shows one notification for both.
//  2. Every call has a fresh key pair and salt: no two bodies share a key and nonce.
//  3. The endpoint comes from a browser. It must be https, and no connection is made to
//     a private address (guard) unless the configuration allows it.
//  4. A token of VAPID names one push service, lives 12 hours and is used for at most 6.
//     At most 256 are kept.
//
// # What it does not promise
//
// That a message was shown: a push service answers when it has taken it, and drops it when
// TTL is over. Delivery receipts of RFC 8030 §5.1 are not asked for: no large push service
// has them.
type WebPushConfig struct {
	HTTP HTTPConfig `mapstructure:",squash"`
	// PrivateKey is VAPID's: the 32 bytes of a P-256 private key in base64url, as the
	// usual tools print it. Its public half is the browsers' applicationServerKey.
	PrivateKey     string `mapstructure:"private_key"`
	PrivateKeyFile string `mapstructure:"private_key_file"`
	// Subject is where a push service's operators reach you: mailto: or https:.
	Subject string `mapstructure:"subject"`
	// TTL is how long a push service keeps a message for a browser that is away; 0:
	// not at all. A service may keep it shorter.
	TTL time.Duration `mapstructure:"ttl"`
	// Urgency is very-low, low, normal or high: what may wake a device (RFC 8030 §5.3).
	Urgency string `mapstructure:"urgency"`
	// AllowHTTP lets endpoints be http. For tests.
	AllowHTTP bool `mapstructure:"allow_http"`
}

// DefaultWebPush keeps a message for a day.
func DefaultWebPush() *WebPushConfig { return &WebPushConfig{TTL: 24 * time.Hour, Urgency: "normal"} }

// webpushUrgencies are what WebPushConfig.Urgency may be.
var webpushUrgencies = []string{"very-low", "low", "normal", "high"}

// validate implements Config.
func (c *WebPushConfig) validate(p *sender.Problems) {
	check := p.Check
	check(c.PrivateKey != "" || c.PrivateKeyFile != "", "private_key", "is empty; allowed is a key, or a file in private_key_file")
	check(c.PrivateKey == "" || c.PrivateKeyFile == "", "private_key", "is set, and so is private_key_file; allowed is one of them")
	if c.PrivateKey != "" {
		_, err := parseVAPIDKey(c.PrivateKey)
		check(err == nil, "private_key", "%v", err)
	}
	check(validVAPIDSubject(c.Subject), "subject", "%q is not allowed; allowed are mailto:user@host and https://host", c.Subject)
	check(c.TTL >= 0 && c.TTL <= 28*24*time.Hour, "ttl", "%s is not allowed; allowed are 0s to 672h0m0s", c.TTL)
	check(slices.Contains(webpushUrgencies, c.Urgency), "urgency", "%q is not allowed; allowed are %s", c.Urgency, strings.Join(webpushUrgencies, ", "))
	c.HTTP.validate(p)
}

func validVAPIDSubject(subject string) bool {
	if address, ok := strings.CutPrefix(subject, "mailto:"); ok {
		parsed, err := parseMailbox(address)
		return err == nil && parsed.Address == address
	}
	_, err := parseURL(subject, false)
	return err == nil
}
