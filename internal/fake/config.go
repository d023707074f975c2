package fake

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Config sets what is played. DefaultConfig has every default.
type Config struct {
	// Listen is the address of HTTP/1.1 and HTTP/2 without TLS, TLSListen of both with
	// TLS, SMTPListen of SMTP: HOST:PORT, port 0 for any that is free. Empty: not at all.
	Listen, TLSListen, SMTPListen string
	// Faults are in force from the start; SetFaults replaces them.
	Faults []Fault
	// HonourKeys has the providers answer a second accepted call of an idempotency key
	// as they did the first, and do nothing.
	HonourKeys bool
	// Seed decides the shares of faults and their ranges; the order in which calls
	// arrive does as well.
	Seed uint64
	// ReceiptDelay is how long after a call AlimTalk knows its result; 0: at once.
	ReceiptDelay time.Duration
	// Keys is a directory in which the credentials are kept between starts; it is made
	// if need be. Empty: they are made at the start and forgotten at the end.
	Keys string
	// MaxKeys is how many idempotency keys are kept, about 100 bytes each, and how many
	// results of AlimTalk, about 200.
	MaxKeys int
	// RecentCalls is how many calls are kept whole.
	RecentCalls int
	// Now is the process's clock.
	Now func() time.Time
}

// DefaultConfig listens on free ports of the loopback interface, without faults.
func DefaultConfig() Config {
	return Config{
		Listen: "127.0.0.1:0", TLSListen: "127.0.0.1:0", SMTPListen: "127.0.0.1:0",
		Seed: 1, MaxKeys: 4_000_000, RecentCalls: 10_000, Now: time.Now,
	}
}

// Validate returns every problem at once, each with its field, or nil.
func (c Config) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	for _, l := range []struct{ name, address string }{{"listen", c.Listen}, {"tls_listen", c.TLSListen}, {"smtp_listen", c.SMTPListen}} {
		if l.address != "" {
			err := CheckAddress(l.address)
			check(err == nil, "%s: %q is not allowed; %w", l.name, brief(l.address), err)
		}
	}
	check(c.Listen != "" || c.TLSListen != "" || c.SMTPListen != "", "listen, tls_listen, smtp_listen: all are empty; allowed is at least one HOST:PORT")
	problems = append(problems, validateAll(c.Faults))
	check(c.ReceiptDelay >= 0 && c.ReceiptDelay <= 24*time.Hour, "receipt_delay: %s is not allowed; allowed are 0 to 24h", c.ReceiptDelay)
	check(c.MaxKeys >= 1 && c.MaxKeys <= 100_000_000, "max_keys: %d is not allowed; allowed are 1 to 100000000", c.MaxKeys)
	check(c.RecentCalls >= 1 && c.RecentCalls <= 1_000_000, "recent_calls: %d is not allowed; allowed are 1 to 1000000", c.RecentCalls)
	check(c.Now != nil, "now: is nil; allowed is a clock")
	return errors.Join(problems...)
}

// CheckAddress wants HOST:PORT; its error says so.
func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		var n int
		if n, err = strconv.Atoi(port); err == nil && n >= 0 && n <= 65535 {
			return nil
		}
	}
	return errors.New("allowed are HOST:PORT, as 127.0.0.1:8925, and port 0 for any that is free")
}
