package smtp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	gomail "github.com/wneessen/go-mail"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// defaultTimeout bounds a call whose context has no deadline.
const defaultTimeout = 30 * time.Second

// Sender sends mail through one server. It is safe for concurrent use.
type Sender struct {
	cfg    Config
	from   *mail.Address
	reply  *mail.Address // nil: none
	domain string        // of every Message-ID
	now    func() time.Time
	pool   *pool
}

// Option gives a Sender a collaborator.
type Option func(*Sender)

// WithClock sets the clock of the Date header; the default is time.Now.
func WithClock(now func() time.Time) Option { return func(s *Sender) { s.now = now } }

// New reads the files that cfg names and returns a Sender. It opens no connection.
func New(cfg Config, options ...Option) (*Sender, error) {
	if err := cfg.Validate("smtp"); err != nil {
		return nil, err
	}
	s := &Sender{cfg: cfg, now: time.Now}
	var err error
	if s.from, err = mail.ParseAddress(cfg.From); err != nil {
		return nil, errors.New("smtp.from: is not an address")
	}
	if cfg.ReplyTo != "" {
		if s.reply, err = mail.ParseAddress(cfg.ReplyTo); err != nil {
			return nil, errors.New("smtp.reply_to: is not an address")
		}
	}
	s.domain = cfg.messageIDDomain(s.from)
	if s.pool, err = newPool(cfg); err != nil {
		return nil, err
	}
	for _, option := range options {
		option(s)
	}
	return s, nil
}

func newPool(cfg Config) (*pool, error) {
	config := &tls.Config{ServerName: cfg.Host, MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("smtp.ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("smtp.ca_file: holds no certificate in PEM")
		}
	}
	options := []gomail.Option{
		gomail.WithPort(cfg.Port), gomail.WithTLSConfig(config), gomail.WithoutNoop(), gomail.WithoutRset(),
		gomail.WithTimeout(time.Hour), // link keeps to the call's context
	}
	switch cfg.TLS {
	case "implicit":
		options = append(options, gomail.WithSSL())
	case "opportunistic":
		options = append(options, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	case "none":
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
	default:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	}
	if cfg.Hello != "" {
		options = append(options, gomail.WithHELO(cfg.Hello))
	}
	if cfg.Username != "" {
		password, err := httpcall.Secret("smtp.password", cfg.Password, cfg.PasswordFile)
		if err != nil {
			return nil, err
		}
		options = append(options, gomail.WithSMTPAuth(mechanisms[cfg.Auth]),
			gomail.WithUsername(cfg.Username), gomail.WithPassword(password))
	}
	return &pool{cfg: cfg, tls: config, options: options}, nil
}

// Close ends the kept connections. A call in progress is not disturbed.
func (s *Sender) Close() error {
	s.pool.close()
	return nil
}

// MaxBatch implements sender.Sender: one mail has one recipient.
func (s *Sender) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (s *Sender) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	for i, d := range batch {
		results[i] = s.deliver(ctx, d)
	}
	return results
}

func (s *Sender) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	message, refusal := s.compose(d)
	if message == nil {
		return refusal
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	if kept := s.pool.take(); kept != nil {
		if err := s.transact(ctx, kept, message); !stale(err) || ctx.Err() != nil {
			return classify(ctx, err)
		}
	}
	fresh, err := s.pool.open(ctx)
	if err != nil {
		return unopened(ctx, err)
	}
	return classify(ctx, s.transact(ctx, fresh, message))
}

// transact sends one message over a session and then keeps the session or closes it.
func (s *Sender) transact(ctx context.Context, on *session, message *gomail.Msg) error {
	free := on.link.bind(ctx)
	on.sent++
	err := on.mail.SendWithSMTPClient(on.client, message)
	// A refused message leaves the session in order if the server says so.
	usable := err == nil || replied(err) && on.client.Reset() == nil
	if free() && usable {
		s.pool.keep(on)
	} else {
		on.close()
	}
	return err
}

// compose makes the mail. Without one the result says why there is none.
func (s *Sender) compose(d sender.Delivery) (*gomail.Msg, sender.Result) {
	to, err := mail.ParseAddress(d.Address)
	if err != nil || strings.ContainsFunc(d.Address, unicode.IsControl) { // a comment may hold them
		return nil, sender.Result{Class: sender.InvalidAddress, Code: "address", Detail: "the address is not one of mail; allowed is user@host"}
	}
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(s.from)
	m.ToMailAddress(&mail.Address{Address: to.Address})
	if s.reply != nil {
		m.ReplyToMailAddress(s.reply)
	}
	m.SetMessageIDWithValue(d.Key + "@" + s.domain)
	m.SetDateWithValue(s.now())
	m.Subject(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, d.Title))
	m.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no out-of-office replies
	if s.cfg.ListUnsubscribe != "" {
		s.unsubscribe(m, d)
	}
	m.SetBodyString(gomail.TypeTextPlain, d.Body)
	return m, sender.Result{}
}

func (s *Sender) unsubscribe(m *gomail.Msg, d sender.Delivery) {
	values := map[string]string{"external_id": d.ExternalID, "category": d.Category, "key": d.Key}
	where := fill(s.cfg.ListUnsubscribe, func(name string) string { return url.QueryEscape(values[name]) })
	if strings.HasPrefix(where, "https:") && m.SetListUnsubscribeOneClick(where) == nil {
		return
	}
	m.SetListUnsubscribe(where)
}
