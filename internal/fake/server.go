package fake

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // http.Server takes no other logger, and this one is silenced
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Server is the providers, listening. It is safe for concurrent use.
type Server struct {
	config Config
	plan   *plan
	ledger *ledger
	vault  *vault
	vapid  string // the public key in base64url
	bearer string // FCM's access token
	token  string // of SMS

	receipts receipts

	address, tlsAddress, smtpAddress string

	http   []*http.Server
	mail   net.Listener
	cancel context.CancelFunc // ends calls that hang
	served sync.WaitGroup
	gate   sync.RWMutex // held for reading by every call
	closed bool         // under gate
}

// Start begins to listen. ctx bounds starting alone; Close ends it.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	v, err := openVault(c.Keys)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	s := &Server{config: c, plan: newPlan(c.Seed, c.Faults), ledger: newLedger(c), vault: v}
	s.bearer, s.token = v.text("fcm token", 48), v.text("sms", 24)
	s.receipts.most = c.MaxKeys
	if s.vapid, err = v.vapidPublic(); err != nil {
		return nil, err
	}
	listeners, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	if c.Keys != "" {
		credentials, err := s.Credentials()
		if err == nil {
			err = writeCopies(c.Keys, s.FCMServiceAccountFile(), credentials)
		}
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, closeListener(l))
			}
			return nil, fmt.Errorf("credentials: %w", err)
		}
	}
	living, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.serve(living, listeners)
	return s, nil
}

func closeListener(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

// listen opens the listeners: plain, with TLS, SMTP; nil for what is not wanted.
func (s *Server) listen(ctx context.Context) (all [3]net.Listener, err error) {
	var config net.ListenConfig
	for i, at := range []struct {
		name, want string
		got        *string
	}{{"listen", s.config.Listen, &s.address}, {"tls_listen", s.config.TLSListen, &s.tlsAddress}, {"smtp_listen", s.config.SMTPListen, &s.smtpAddress}} {
		if at.want == "" {
			continue
		}
		if all[i], err = config.Listen(ctx, "tcp", at.want); err != nil {
			for _, l := range all[:i] {
				err = errors.Join(err, closeListener(l))
			}
			return all, fmt.Errorf("%s: %w", at.name, err)
		}
		*at.got = all[i].Addr().String()
	}
	return all, nil
}

// serve answers on the listeners until Close.
func (s *Server) serve(ctx context.Context, listeners [3]net.Listener) {
	handler := s.handler()
	silent := log.New(io.Discard, "", 0)
	config := &tls.Config{Certificates: []tls.Certificate{s.vault.tls}, MinVersion: tls.VersionTLS12}
	for i, l := range listeners[:2] {
		if l == nil {
			continue
		}
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(i == 1)
		protocols.SetUnencryptedHTTP2(i == 0)
		server := &http.Server{
			Handler: handler, Protocols: protocols, ErrorLog: silent, TLSConfig: config.Clone(),
			ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute,
			HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: 1000},
			BaseContext: func(net.Listener) context.Context { return ctx },
		}
		s.http = append(s.http, server)
		s.served.Go(func() {
			if i == 1 {
				_ = server.ServeTLS(l, "", "") // ends with Close
			} else {
				_ = server.Serve(l)
			}
		})
	}
	if l := listeners[2]; l != nil {
		s.mail = l
		s.served.Go(func() { s.serveMail(ctx, l, config) })
	}
}

// Close stops listening, resets what hangs and returns when every call has ended.
func (s *Server) Close() error {
	s.cancel()
	var problems []error
	for _, server := range s.http {
		problems = append(problems, server.Close())
	}
	problems = append(problems, closeListener(s.mail))
	s.gate.Lock()
	s.closed = true
	s.gate.Unlock()
	s.served.Wait()
	if err := errors.Join(problems...); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// URL is the base of every HTTP provider without TLS, or "".
func (s *Server) URL() string { return base("http://", s.address) }

// TLSURL is the base of every HTTP provider with TLS, or "". A client has to trust
// Credentials.CertificatePEM.
func (s *Server) TLSURL() string { return base("https://", s.tlsAddress) }

func base(scheme, address string) string {
	if address == "" {
		return ""
	}
	return scheme + address
}

// SMTPAddr is HOST:PORT of the mail server, or "".
func (s *Server) SMTPAddr() string { return s.smtpAddress }

// Credentials returns what callers have to prove themselves with.
func (s *Server) Credentials() (Credentials, error) {
	return s.vault.credentials(s.plainest() + "/token")
}

// FCMServiceAccountFile names the file of Config.Keys with FCM's service account. It has
// the port in its name, as the account has: fakes may share a directory.
func (s *Server) FCMServiceAccountFile() string {
	base := s.plainest()
	return "fcm-service-account-" + base[strings.LastIndexByte(base, ':')+1:] + ".json"
}

// plainest is the base that needs least of a client.
func (s *Server) plainest() string {
	if s.address != "" {
		return s.URL()
	}
	return s.TLSURL()
}

// SetFaults replaces the faults in force, unless one of them is not valid. Their counts
// begin anew.
func (s *Server) SetFaults(faults []Fault) error {
	if err := validateAll(faults); err != nil {
		return err
	}
	s.plan.replace(faults)
	return nil
}

// Faults returns the faults in force and how often each has hit.
func (s *Server) Faults() []Order { return s.plan.inForce() }

// Summary returns what was counted since the start or the last Reset.
func (s *Server) Summary() Summary {
	return Summary{Seed: s.config.Seed, Providers: s.ledger.summary()}
}

// Calls returns the last calls of a provider, or of all for "", oldest first; of all
// providers together, the last Config.RecentCalls are kept.
func (s *Server) Calls(p Provider) []Call { return s.ledger.calls(p) }

// Reset forgets every call and key. Faults stay in force, with their counts. A call
// that is being answered meanwhile may still be counted as unanswered.
func (s *Server) Reset() { s.ledger.reset() }
