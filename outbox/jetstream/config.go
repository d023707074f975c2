package jetstream

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Config is the part "delivery.nats" of the configuration.
type Config struct {
	// URLs of servers, nats://host[:port] or tls://host[:port]; the default port is 4222. One server of a
	// cluster is enough.
	URLs     []string `mapstructure:"urls"`
	User     string   `mapstructure:"user"`
	Password string   `mapstructure:"password"`
	// Credentials is a file with a user's JWT and seed; NKey, a file with only a seed.
	Credentials string    `mapstructure:"credentials"`
	NKey        string    `mapstructure:"nkey"`
	TLS         TLSConfig `mapstructure:"tls"`
	// Prefix begins the names of streams and subjects: <prefix>_bulk, <prefix>.bulk.ids.
	Prefix string `mapstructure:"prefix"`
	// Replicas is the number of servers that store each stream: 1, 3 or 5. A majority must be available.
	Replicas int `mapstructure:"replicas"`
	// MaxAckPending is the maximum number of unacknowledged copies per queue: those in flight in all
	// relays, and those that wait for redelivery. Twice the relays' slots is enough.
	MaxAckPending int `mapstructure:"max_ack_pending"`
	// MaxBytes is the maximum size of each of the two streams. A copy takes about 200 bytes.
	MaxBytes int64 `mapstructure:"max_bytes"`
	// Timeout bounds each call, connecting included.
	Timeout time.Duration `mapstructure:"timeout"`
}

// TLSConfig names PEM files. A CA or a tls:// URL enables TLS.
type TLSConfig struct {
	CA   string `mapstructure:"ca"`
	Cert string `mapstructure:"cert"` // client certificate; requires Key
	Key  string `mapstructure:"key"`
}

// Options configures a Broker, in addition to Config.
type Options struct {
	MaxQueued int           // maximum number of ids per queue
	Lease     time.Duration // of the relays; an unsettled copy is delivered again after it
	Log       zerolog.Logger
}

// DefaultConfig returns the defaults, which config.yaml documents.
func DefaultConfig() Config {
	return Config{URLs: []string{"nats://127.0.0.1:4222"}, Prefix: "belfry", Replicas: 3, MaxAckPending: 100_000, MaxBytes: 64 << 20,
		Timeout: 5 * time.Second}
}

// Bounds of Config.
const (
	minTimeout, maxTimeout = 100 * time.Millisecond, time.Minute
	minBytes               = 1 << 20
	minPending             = 1000
)

var namePrefix = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`) })

// Validate returns all problems, each with its key path, or nil. Messages do not repeat URLs, which may
// contain a misplaced password.
func (c Config) Validate(path string) error {
	v := sender.ValidationErrors{Path: path}
	v.Check(len(c.URLs) > 0, "urls", "is empty; allowed values: one or more of nats://host[:port] and tls://host[:port]")
	for i, text := range c.URLs {
		u, err := url.Parse(text)
		ok := err == nil && (u.Scheme == "nats" || u.Scheme == "tls") && u.Hostname() != "" && u.User == nil && u.Path == "" && u.RawQuery == ""
		v.Check(ok, fmt.Sprintf("urls[%d]", i),
			"is not a valid URL; allowed values: nats://host[:port] and tls://host[:port]; user and password have their own keys")
	}
	logins := 0
	for _, given := range []string{c.User, c.Credentials, c.NKey} {
		if given != "" {
			logins++
		}
	}
	v.Check(logins <= 1, "credentials", "more than one of user, credentials and nkey is set; set only one")
	v.Check((c.User == "") == (c.Password == ""), "password", "user and password must be set together")
	for key, file := range map[string]string{"credentials": c.Credentials, "nkey": c.NKey, "tls.ca": c.TLS.CA,
		"tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key} {
		if file != "" {
			_, err := os.Stat(file)
			v.Check(err == nil, key, "%v; must be a readable file", err)
		}
	}
	v.Check((c.TLS.Cert == "") == (c.TLS.Key == ""), "tls.cert", "tls.cert and tls.key must be set together")
	v.Check(namePrefix().MatchString(c.Prefix), "prefix",
		"%q is not allowed; allowed values: 1 to 63 of a-z, A-Z, 0-9, _ and -, starting with a letter or digit", c.Prefix)
	v.Check(c.Replicas == 1 || c.Replicas == 3 || c.Replicas == 5, "replicas", "%d is not allowed; allowed values: 1, 3 and 5", c.Replicas)
	v.Check(c.MaxAckPending >= minPending, "max_ack_pending", "%d is not allowed; allowed values: %d or more", c.MaxAckPending, minPending)
	v.Check(c.MaxBytes >= minBytes, "max_bytes", "%d is not allowed; allowed values: %d or more", c.MaxBytes, minBytes)
	v.Check(c.Timeout >= minTimeout && c.Timeout <= maxTimeout, "timeout", "%s is not allowed; allowed values: %s to %s", c.Timeout,
		minTimeout, maxTimeout)
	return v.Err()
}

func (o Options) validate() error {
	v := sender.ValidationErrors{Path: "delivery"}
	v.Check(o.MaxQueued >= 1, "max_queued", "%d is not allowed; allowed values: 1 or more", o.MaxQueued)
	v.Check(o.Lease >= 500*time.Millisecond, "lease", "%s is not allowed; allowed values: 500ms or more", o.Lease)
	return v.Err()
}

// natsOptions returns the options of the connection. Nothing is buffered while it is broken, because the
// callers of buffered pushes and pulls would no longer wait for them. It tries again after every refused
// login: by default nats.go permanently closes a connection whose login one server refuses twice.
func (c Config) natsOptions(o *outbox.CarrierOutage, log zerolog.Logger) ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name("belfry"), nats.Timeout(c.Timeout),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectBufSize(-1),
		nats.PingInterval(c.Timeout), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil after Close
				o.Disconnected(err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Debug().Err(err).Str("transport", name).Msg("the carrier reports an error")
			if refused(err) {
				_ = o.Observe(err)
			}
		}),
	}
	if c.User != "" {
		options = append(options, nats.UserInfo(c.User, c.Password))
	}
	if c.Credentials != "" {
		options = append(options, nats.UserCredentials(c.Credentials))
	}
	if c.NKey != "" {
		signed, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, errors.New("delivery.nats.nkey: must be a file with the seed of a user's nkey")
		}
		options = append(options, signed)
	}
	if c.TLS.CA != "" {
		options = append(options, nats.RootCAs(c.TLS.CA))
	}
	if c.TLS.Cert != "" {
		options = append(options, nats.ClientCert(c.TLS.Cert, c.TLS.Key))
	}
	return options, nil
}

func (c Config) servers() string { return strings.Join(c.URLs, ",") }
