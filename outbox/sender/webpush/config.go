package webpush

import (
	"net/mail"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// Config sets how browsers are reached. DefaultConfig has every default.
type Config struct {
	HTTP httpcall.Config `mapstructure:",squash"`
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

// DefaultConfig keeps a message for a day.
func DefaultConfig() Config { return Config{TTL: 24 * time.Hour, Urgency: "normal"} }

// urgencies are what Config.Urgency may be.
var urgencies = []string{"very-low", "low", "normal", "high"}

// Validate returns every problem at once, each with its key path below path, or nil.
// It reads no file.
func (c Config) Validate(path string) error {
	problems := sender.Problems{Path: path}
	check := problems.Check
	check(c.PrivateKey != "" || c.PrivateKeyFile != "", "private_key", "is empty; allowed is a key, or a file in private_key_file")
	check(c.PrivateKey == "" || c.PrivateKeyFile == "", "private_key", "is set, and so is private_key_file; allowed is one of them")
	if c.PrivateKey != "" {
		_, err := parsePrivateKey(c.PrivateKey)
		check(err == nil, "private_key", "%v", err)
	}
	check(validSubject(c.Subject), "subject", "%q is not allowed; allowed are mailto:user@host and https://host", c.Subject)
	check(c.TTL >= 0 && c.TTL <= 28*24*time.Hour, "ttl", "%s is not allowed; allowed are 0s to 672h0m0s", c.TTL)
	check(slices.Contains(urgencies, c.Urgency), "urgency", "%q is not allowed; allowed are %s", c.Urgency, strings.Join(urgencies, ", "))
	return problems.Err(c.HTTP.Validate(path))
}

func validSubject(subject string) bool {
	if address, ok := strings.CutPrefix(subject, "mailto:"); ok {
		_, err := mail.ParseAddress(address)
		return err == nil
	}
	_, err := httpcall.ParseURL(subject, false)
	return err == nil
}
