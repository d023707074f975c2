package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // http.Server takes no other logger, and this one is silenced
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// Config is the configuration of the fakes. DefaultConfig has every default.
type Config struct {
	// Listen is HOST:PORT of HTTP; SMTP uses the next port. Port 0 selects two free ports.
	Listen string
	// Faults apply from the start; SetFaults replaces them.
	Faults []Fault
	// HonourKeys makes the providers answer a repeated idempotency key with the first answer, and
	// do nothing.
	HonourKeys bool
	// Seed is the seed of the faults' shares. The order of calls also affects them.
	Seed uint64
	// ReceiptDelay is the time from a call of AlimTalk to its result; 0 means at once.
	ReceiptDelay time.Duration
	// RecentCalls is the number of calls that are stored with their content.
	RecentCalls int
	// Now returns the time of the process's clock.
	Now func() time.Time
}

// DefaultConfig listens on free ports of the loopback interface, without faults.
func DefaultConfig() Config {
	return Config{Listen: "127.0.0.1:0", Seed: 1, RecentCalls: 10_000, Now: time.Now}
}

// CheckAddress returns an error unless the address is HOST:PORT.
func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if n, parseErr := strconv.Atoi(port); err != nil || parseErr != nil || n < 0 || n >= 65535 {
		return errors.New("allowed values: HOST:PORT, such as 127.0.0.1:8925; port 0 selects a free port")
	}
	return nil
}

// Server serves the fake providers. It is safe for concurrent use.
type Server struct {
	config   Config
	keys     keys
	plan     *plan
	ledger   *ledger
	receipts receipts

	url, smtpAddress string

	http   http.Server
	mail   *smtp.Server
	inbox  net.Listener       // of mail
	cancel context.CancelFunc // ends calls that hang
	ending <-chan struct{}    // closed by cancel
	served sync.WaitGroup
	gate   sync.RWMutex // held for reading by every call
	closed bool         // under gate
}

// Start starts to listen. ctx limits only the start; Close ends the server.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := CheckAddress(c.Listen); err != nil {
		return nil, fmt.Errorf("listen: %q is not allowed; %w", brief(c.Listen), err)
	}
	if err := validateAll(c.Faults); err != nil {
		return nil, err
	}
	web, mail, err := listen(ctx, c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &Server{
		config: c, keys: openKeys(), plan: newPlan(c.Seed, c.Faults), ledger: newLedger(c),
		url: "http://" + web.Addr().String(), smtpAddress: mail.Addr().String(),
	}
	living, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.ending = cancel, living.Done()
	s.serveHTTP(living, web)
	s.serveMail(mail)
	return s, nil
}

// listen opens the listeners of HTTP and, at the next port, of SMTP.
func listen(ctx context.Context, address string) (web, mail net.Listener, err error) {
	var config net.ListenConfig
	if web, err = config.Listen(ctx, "tcp", address); err != nil {
		return nil, nil, err
	}
	host, port, _ := net.SplitHostPort(address) // CheckAddress accepted it
	if n, _ := strconv.Atoi(port); n > 0 {
		port = strconv.Itoa(n + 1)
	}
	if mail, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, port)); err != nil {
		return nil, nil, errors.Join(err, web.Close())
	}
	return web, mail, nil
}

// serveHTTP answers on a listener until Close.
func (s *Server) serveHTTP(ctx context.Context, l net.Listener) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = http.Server{
		Handler: s.handler(), Protocols: protocols, ErrorLog: log.New(io.Discard, "", 0),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: 1000},
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	s.served.Go(func() { _ = s.http.Serve(l) }) // ends with Close
}

// enter reports whether a call may begin. The call must call leave at its end.
func (s *Server) enter() bool {
	s.gate.RLock()
	if s.closed {
		s.gate.RUnlock()
		return false
	}
	return true
}

func (s *Server) leave() { s.gate.RUnlock() }

// Close stops listening, resets hanging calls and returns when every call has ended.
func (s *Server) Close() error {
	s.cancel()
	err := s.http.Close()
	_, _ = s.inbox.Close(), s.mail.Close() // the second Close returns an error
	s.gate.Lock()
	s.closed = true
	s.gate.Unlock()
	s.served.Wait()
	return err
}

// URL returns the base URL of the providers with HTTP.
func (s *Server) URL() string { return s.url }

// SMTPAddr returns HOST:PORT of the mail server.
func (s *Server) SMTPAddr() string { return s.smtpAddress }

// SetFaults replaces the faults and resets their counts. It returns an error and changes nothing if
// a fault is not valid.
func (s *Server) SetFaults(faults []Fault) error {
	if err := validateAll(faults); err != nil {
		return err
	}
	s.plan.replace(faults)
	return nil
}

// Summary returns the counts since the start or the last Reset.
func (s *Server) Summary() Summary {
	return Summary{Seed: s.config.Seed, Providers: s.ledger.summary()}
}

// Calls returns the last calls of a provider, or of all for "", oldest first. The server stores the
// last Config.RecentCalls of all providers together.
func (s *Server) Calls(p Provider) []Call { return s.ledger.calls(p) }

// Reset deletes every call and key. Faults and their counts stay.
func (s *Server) Reset() { s.ledger.reset() }
