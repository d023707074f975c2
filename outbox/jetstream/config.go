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

	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Config is the part "delivery.nats" of the configuration.
type Config struct {
	// URLs of the servers, nats://host[:port] or tls://host[:port], port 4222. One is enough:
	// it names the others.
	URLs     []string `mapstructure:"urls"`
	User     string   `mapstructure:"user"`
	Password string   `mapstructure:"password"`
	// Credentials is a file with a user's JWT and seed, NKey one with a seed alone.
	Credentials string    `mapstructure:"credentials"`
	NKey        string    `mapstructure:"nkey"`
	TLS         TLSConfig `mapstructure:"tls"`
	// Prefix begins the names of streams and subjects: <prefix>_bulk, <prefix>.bulk.ids.
	Prefix string `mapstructure:"prefix"`
	// Replicas is how many servers keep each stream: 1, or an odd number of which one fewer
	// than half may be lost.
	Replicas int `mapstructure:"replicas"`
	// MaxAckPending is how many copies of a queue may be out at once: what all relays together
	// have in flight, and what waits to be looked at again. Twice their slots is enough.
	MaxAckPending int `mapstructure:"max_ack_pending"`
	// MaxBytes is how large each of the two streams may grow. A copy takes some 200 bytes.
	MaxBytes int64 `mapstructure:"max_bytes"`
	// Timeout bounds each call, connecting included.
	Timeout time.Duration `mapstructure:"timeout"`
}

// TLSConfig names files in PEM. A CA, or a URL of tls://, asks for TLS.
type TLSConfig struct {
	CA   string `mapstructure:"ca"`
	Cert string `mapstructure:"cert"` // with Key: this client's own
	Key  string `mapstructure:"key"`
}

// Options are what a Broker has beside its own part of the configuration.
type Options struct {
	MaxQueued int           // ids in each queue
	Lease     time.Duration // of the relays: a copy that is taken and not settled comes again after it
	Log       zerolog.Logger
}

// DefaultConfig is what config.yaml documents.
func DefaultConfig() Config {
	return Config{URLs: []string{"nats://127.0.0.1:4222"}, Prefix: "belfry", Replicas: 3, MaxAckPending: 100_000, MaxBytes: 64 << 20, Timeout: 5 * time.Second}
}

// Bounds of Config.
const (
	minTimeout, maxTimeout = 100 * time.Millisecond, time.Minute
	minBytes               = 1 << 20
	minPending             = 1000
)

var namePrefix = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`) })

// Validate returns every problem at once, each with its key path, or nil. No message repeats a
// URL: what ought to have been a key of its own may be in it.
func (c Config) Validate(path string) error {
	v := sender.Problems{Path: path}
	v.Check(len(c.URLs) > 0, "urls", "is empty; allowed are one or more of nats://host[:port] and tls://host[:port]")
	for i, text := range c.URLs {
		u, err := url.Parse(text)
		ok := err == nil && (u.Scheme == "nats" || u.Scheme == "tls") && u.Hostname() != "" && u.User == nil && u.Path == "" && u.RawQuery == ""
		v.Check(ok, fmt.Sprintf("urls[%d]", i), "not a usable URL; allowed are nats://host[:port] and tls://host[:port], with user and password as keys of their own")
	}
	ways := 0
	for _, given := range []string{c.User, c.Credentials, c.NKey} {
		if given != "" {
			ways++
		}
	}
	v.Check(ways <= 1, "credentials", "more than one of user, credentials and nkey is set; allowed is one of them")
	v.Check((c.User == "") == (c.Password == ""), "password", "user and password come together")
	for key, file := range map[string]string{"credentials": c.Credentials, "nkey": c.NKey, "tls.ca": c.TLS.CA, "tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key} {
		if file != "" {
			_, err := os.Stat(file)
			v.Check(err == nil, key, "%v; allowed is a file that can be read", err)
		}
	}
	v.Check((c.TLS.Cert == "") == (c.TLS.Key == ""), "tls.cert", "tls.cert and tls.key come together")
	v.Check(namePrefix().MatchString(c.Prefix), "prefix", "%q is not allowed; allowed are 1 to 63 of a-z, A-Z, 0-9, _ and -, starting with a letter or digit", c.Prefix)
	v.Check(c.Replicas == 1 || c.Replicas == 3 || c.Replicas == 5, "replicas", "%d is not allowed; allowed are 1, 3 and 5", c.Replicas)
	v.Check(c.MaxAckPending >= minPending, "max_ack_pending", "%d is not allowed; allowed are %d and more", c.MaxAckPending, minPending)
	v.Check(c.MaxBytes >= minBytes, "max_bytes", "%d is not allowed; allowed are %d and more", c.MaxBytes, minBytes)
	v.Check(c.Timeout >= minTimeout && c.Timeout <= maxTimeout, "timeout", "%s is not allowed; allowed are %s to %s", c.Timeout, minTimeout, maxTimeout)
	return v.Err()
}

func (o Options) validate() error {
	v := sender.Problems{Path: "delivery"}
	v.Check(o.MaxQueued >= 1, "max_queued", "%d is not allowed; allowed are 1 and more", o.MaxQueued)
	v.Check(o.Lease >= 500*time.Millisecond, "lease", "%s is not allowed; allowed are 500ms and more", o.Lease)
	return v.Err()
}

// natsOptions are those of the connection. What cannot be sent now is not kept for later: a push or
// a pull that comes out of a buffer after an outage would be nobody's.
func (c Config) natsOptions(o *relay.Outage, log zerolog.Logger) ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name("belfry"), nats.Timeout(c.Timeout),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectBufSize(-1),
		nats.PingInterval(c.Timeout), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // it was not closed on purpose
				o.Disconnected(err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Debug().Err(err).Str("transport", name).Msg("the carrier reports an error")
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
			return nil, errors.New("delivery.nats.nkey: not a file with the seed of a user's nkey")
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
