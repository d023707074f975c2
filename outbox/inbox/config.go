package inbox

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Config configures the tokens and limits of a Handler. DefaultConfig has the defaults.
type Config struct {
	// Audience is the aud of tokens, which distinguishes them from tokens for other services.
	Audience string `mapstructure:"audience"`
	// Subject is the meaning of a token's sub: SubjectID or SubjectExternalID.
	Subject string `mapstructure:"subject"`
	// Keys verify tokens. The application signs with any of them.
	Keys []Key `mapstructure:"keys"`
	// Origins are the origins of web pages that may read responses, such as https://www.example.com.
	Origins []string `mapstructure:"origins"`
	// RatePerSecond is the permitted rate of requests of one reader, and Burst their number at once.
	RatePerSecond float64 `mapstructure:"rate_per_second"`
	Burst         int     `mapstructure:"burst"`
	// MaxConnections is the size of the connection pool, which nothing else uses.
	MaxConnections int `mapstructure:"max_connections"`
	// MaxStreams is the maximum number of open streams of a process (package outbox/inbox/live).
	MaxStreams int `mapstructure:"max_streams"`
}

// Values of Config.Subject.
const (
	SubjectID         = "id"          // the id of the channel
	SubjectExternalID = "external_id" // the channel's external id, which a query resolves for each request
)

// DefaultConfig returns the defaults that config.yaml documents.
func DefaultConfig() Config {
	return Config{Subject: SubjectID, Keys: []Key{}, Origins: []string{}, RatePerSecond: 10, Burst: 30, MaxConnections: 8, MaxStreams: 10_000}
}

// Validate returns every problem, each with its key path. A Handler also requires a Config that CheckServed accepts.
func (c Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("inbox."+key+": "+format, args...))
	}
	if len(c.Audience) > maxSubject {
		bad("audience", "has %d bytes; allowed values: up to %d bytes", len(c.Audience), maxSubject)
	}
	if c.Subject != SubjectID && c.Subject != SubjectExternalID {
		bad("subject", "%q is not allowed; allowed values: %s, %s", c.Subject, SubjectID, SubjectExternalID)
	}
	first := make(map[string]int)
	for i, k := range c.Keys {
		errs = append(errs, k.validate(fmt.Sprintf("inbox.keys[%d]", i)))
		if at, twice := first[k.ID]; twice {
			bad(fmt.Sprintf("keys[%d].id", i), "%q is given twice, first in inbox.keys[%d]; allowed values: different ids", k.ID, at)
		}
		first[k.ID] = i
	}
	for _, origin := range c.Origins {
		if !isOrigin(origin) {
			bad("origins", "%q is not allowed; allowed values: https://HOST or https://HOST:PORT in lower case, without a path and without "+
				"the port 443, or http:// with localhost or a loopback address", origin)
		}
	}
	if c.RatePerSecond < 0.1 || c.RatePerSecond > 10_000 {
		bad("rate_per_second", "%v is not allowed; allowed values: 0.1 to 10000", c.RatePerSecond)
	}
	if c.Burst < 1 || c.Burst > 10_000 {
		bad("burst", "%d is not allowed; allowed values: 1 to 10000", c.Burst)
	}
	if c.MaxConnections < 1 || c.MaxConnections > 1000 {
		bad("max_connections", "%d is not allowed; allowed values: 1 to 1000", c.MaxConnections)
	}
	if c.MaxStreams < 1 || c.MaxStreams > 1_000_000 {
		bad("max_streams", "%d is not allowed; allowed values: 1 to 1000000", c.MaxStreams)
	}
	return errors.Join(errs...)
}

// isOrigin reports whether a text is an origin as browsers send it.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || text != u.Scheme+"://"+strings.ToLower(u.Host) || strings.Contains(u.Host, "*") {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && address.IsLoopback()
	return u.Scheme == "https" && u.Port() != "443" || u.Scheme == "http" && local && u.Port() != "80"
}

// allows reports whether pages of an origin may read responses.
func (c Config) allows(origin string) bool { return slices.Contains(c.Origins, origin) }
