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

// client sends mail through one server.
type client struct {
	cfg    Config
	from   *mail.Address
	reply  *mail.Address // nil: none
	domain string        // of every Message-ID
	now    func() time.Time
	pool   *pool
}

// New reads the files that cfg names and opens no connection. now is the clock.
func New(cfg Config, now func() time.Time) (*sender.OneByOne, error) {
	if err := cfg.Validate("smtp"); err != nil {
		return nil, err
	}
	c := &client{cfg: cfg, now: now}
	var err error
	if c.from, err = mail.ParseAddress(cfg.From); err != nil {
		return nil, errors.New("smtp.from: is not an address")
	}
	if cfg.ReplyTo != "" {
		if c.reply, err = mail.ParseAddress(cfg.ReplyTo); err != nil {
			return nil, errors.New("smtp.reply_to: is not an address")
		}
	}
	c.domain = cfg.messageIDDomain(c.from)
	if c.pool, err = newPool(cfg); err != nil {
		return nil, err
	}
	return &sender.OneByOne{Closer: c.pool, Deliver: c.deliver}, nil
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

func (c *client) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	message, refusal := c.compose(d)
	if message == nil {
		return refusal
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	if kept := c.pool.take(); kept != nil {
		if err := c.transact(ctx, kept, message); !stale(err) || ctx.Err() != nil {
			return classify(ctx, err)
		}
	}
	fresh, err := c.pool.open(ctx)
	if err != nil {
		return unopened(ctx, err)
	}
	return classify(ctx, c.transact(ctx, fresh, message))
}

// transact sends one message over a session and then keeps the session or closes it.
func (c *client) transact(ctx context.Context, on *session, message *gomail.Msg) error {
	free := on.link.bind(ctx)
	on.sent++
	err := on.mail.SendWithSMTPClient(on.client, message)
	// A refused message leaves the session in order if the server says so.
	usable := err == nil || replied(err) && on.client.Reset() == nil
	if free() && usable {
		c.pool.keep(on)
	} else {
		on.close()
	}
	return err
}

// compose makes the mail. Without one the result says why there is none.
func (c *client) compose(d sender.Delivery) (*gomail.Msg, sender.Result) {
	to, err := mail.ParseAddress(d.Address)
	if err != nil || strings.ContainsFunc(d.Address, unicode.IsControl) { // a comment may hold them
		return nil, sender.Result{Class: sender.InvalidAddress, Code: "address", Detail: "the address is not one of mail; allowed is user@host"}
	}
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(c.from)
	m.ToMailAddress(&mail.Address{Address: to.Address})
	if c.reply != nil {
		m.ReplyToMailAddress(c.reply)
	}
	m.SetMessageIDWithValue(d.Key + "@" + c.domain)
	m.SetDateWithValue(c.now())
	m.Subject(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, d.Title))
	m.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no out-of-office replies
	if c.cfg.ListUnsubscribe != "" {
		c.unsubscribe(m, d)
	}
	m.SetBodyString(gomail.TypeTextPlain, d.Body)
	return m, sender.Result{}
}

func (c *client) unsubscribe(m *gomail.Msg, d sender.Delivery) {
	values := map[string]string{"external_id": d.ExternalID, "category": d.Category, "key": d.Key}
	where := fill(c.cfg.ListUnsubscribe, func(name string) string { return url.QueryEscape(values[name]) })
	if strings.HasPrefix(where, "https:") && m.SetListUnsubscribeOneClick(where) == nil {
		return
	}
	m.SetListUnsubscribe(where)
}
