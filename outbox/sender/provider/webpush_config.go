package provider

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// WebPushConfig configures the Web Push protocol for browsers: RFC 8030, with an encrypted payload (RFC 8291,
// RFC 8188) and VAPID for the sender's identity (RFC 8292).
//
//	address ─► subscription ─► payload ─► record ─► POST endpoint ─► 201   accepted
//	   └ malformed, other host:  └ over 3,993 bytes: permanent      404, 410 invalid address
//	     permanent
//	                                                                 429, 5xx see httpClient
//	                                                                 other 4xx permanent
//
// A channel's address is the JSON of the browser's PushSubscription:
// {"endpoint": "https://…", "keys": {"p256dh": "…", "auth": "…"}}. The service worker receives the JSON object
// {"title", "body", "data", "key"}.
//
// # Invariants
//
//  1. The payload contains the idempotency key, and the Topic header contains it without hyphens. An attempt
//     therefore replaces an undelivered earlier attempt in the push service, and a service worker that uses the
//     key as the notification's tag shows one notification for both.
//  2. Every call has a new key pair and salt: no two bodies share a key and nonce.
//  3. The endpoint comes from a browser. It must be https and on one of Hosts, because whoever subscribes a server
//     of their own makes calls that hang, and no connection is opened to a private address (guard) unless the
//     configuration permits it.
//  4. A VAPID token is for one push service, expires after 12 hours and is used for at most 6 hours. At most 256
//     tokens are cached.
//
// # Not guaranteed
//
// That a message is shown: a push service answers when it has accepted the message, and drops it after TTL.
// Delivery receipts (RFC 8030 §5.1) are not requested, because no large push service supports them.
type WebPushConfig struct {
	HTTP HTTPConfig `mapstructure:",squash"`
	// PrivateKey is the VAPID key: the 32 bytes of a P-256 private key in base64url, the usual format of tools.
	// Its public key is the browsers' applicationServerKey.
	PrivateKey     string `mapstructure:"private_key"`
	PrivateKeyFile string `mapstructure:"private_key_file"`
	// Subject is your contact for a push service's operators, a mailto: or https: URL.
	Subject string `mapstructure:"subject"`
	// TTL is the time for which a push service stores a message for an offline browser. Zero means that it does
	// not. A service may shorten it.
	TTL time.Duration `mapstructure:"ttl"`
	// Urgency is very-low, low, normal or high. Devices that save power defer low urgencies (RFC 8030 §5.3).
	Urgency string `mapstructure:"urgency"`
	// Hosts are the hosts of endpoints: names, *.NAME for each name below NAME, and * for any. None means the push
	// services of Chrome, Edge, Firefox and Safari.
	Hosts []string `mapstructure:"hosts"`
	// AllowHTTP permits http endpoints, for tests.
	AllowHTTP bool `mapstructure:"allow_http"`
}

// pushServices are the hosts of the browsers' push services.
var pushServices = []string{"fcm.googleapis.com", "android.googleapis.com", "*.push.services.mozilla.com", "*.push.apple.com", "*.notify.windows.com"}

// serves reports whether an endpoint may be on a host.
func (c *WebPushConfig) serves(host string) bool {
	hosts := c.Hosts
	if len(hosts) == 0 {
		hosts = pushServices
	}
	return slices.ContainsFunc(hosts, func(h string) bool {
		below, wild := strings.CutPrefix(strings.ToLower(h), "*")
		return wild && strings.HasSuffix(strings.ToLower(host), below) || strings.EqualFold(h, host)
	})
}

// DefaultWebPush returns settings with a TTL of a day.
func DefaultWebPush() *WebPushConfig { return &WebPushConfig{TTL: 24 * time.Hour, Urgency: "normal"} }

// webpushUrgencies are the values of WebPushConfig.Urgency.
var webpushUrgencies = []string{"very-low", "low", "normal", "high"}

// validate implements Config.
func (c *WebPushConfig) validate(p *sender.ValidationErrors) {
	check := p.Check
	check(c.PrivateKey != "" || c.PrivateKeyFile != "", "private_key", "is empty; set a key, or a file in private_key_file")
	check(c.PrivateKey == "" || c.PrivateKeyFile == "", "private_key", "is set, and so is private_key_file; set only one")
	if c.PrivateKey != "" {
		_, err := parseVAPIDKey(c.PrivateKey)
		check(err == nil, "private_key", "%v", err)
	}
	check(validVAPIDSubject(c.Subject), "subject", "%q is not allowed; allowed values: mailto:user@host and https://host", c.Subject)
	check(c.TTL >= 0 && c.TTL <= 28*24*time.Hour, "ttl", "%s is not allowed; allowed values: 0s to 672h0m0s", c.TTL)
	for i, host := range c.Hosts {
		name := strings.TrimPrefix(host, "*.")
		check(host == "*" || name != "" && !strings.ContainsAny(name, "*/: ") && !strings.HasPrefix(name, "."), fmt.Sprintf("hosts[%d]", i),
			"%q is not allowed; allowed values: names as push.example.com, *.example.com for names below it, * for any", host)
	}
	check(slices.Contains(webpushUrgencies, c.Urgency), "urgency", "%q is not allowed; allowed values: %s", c.Urgency,
		strings.Join(webpushUrgencies, ", "))
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
