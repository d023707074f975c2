package provider

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
)

// smtpClient sends mail through one server.
type smtpClient struct {
	cfg    SMTPConfig
	from   *mail.Address
	reply  *mail.Address // nil: none
	domain string        // of every Message-ID
	now    func() time.Time
	pool   *smtpPool
}

func (c *SMTPConfig) kind() string { return "smtp" }

// open implements Config.
func (c *SMTPConfig) open(now func() time.Time) (Client, error) {
	client := &smtpClient{cfg: *c, now: now}
	var err error
	if client.from, err = mail.ParseAddress(c.From); err != nil {
		return nil, errors.New("smtp.from: is not an address")
	}
	if c.ReplyTo != "" {
		if client.reply, err = mail.ParseAddress(c.ReplyTo); err != nil {
			return nil, errors.New("smtp.reply_to: is not an address")
		}
	}
	client.domain = c.messageIDDomain(client.from)
	if client.pool, err = newSMTPPool(c); err != nil {
		return nil, err
	}
	return &oneByOne{Closer: client.pool, deliver: client.deliver}, nil
}

func newSMTPPool(cfg *SMTPConfig) (*smtpPool, error) {
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
		password, err := readSecret("smtp.password", cfg.Password, cfg.PasswordFile)
		if err != nil {
			return nil, err
		}
		options = append(options, gomail.WithSMTPAuth(smtpMechanisms[cfg.Auth]),
			gomail.WithUsername(cfg.Username), gomail.WithPassword(password))
	}
	return &smtpPool{cfg: *cfg, tls: config, options: options}, nil
}

func (c *smtpClient) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	message, refusal := c.compose(d)
	if message == nil {
		return refusal
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	if kept := c.pool.take(); kept != nil {
		if err := c.transact(ctx, kept, message); !smtpStale(err) || ctx.Err() != nil {
			return classifySMTP(ctx, err)
		}
	}
	fresh, err := c.pool.open(ctx)
	if err != nil {
		return smtpUnopened(ctx, err)
	}
	return classifySMTP(ctx, c.transact(ctx, fresh, message))
}

// transact sends one message over a session and then keeps the session or closes it.
func (c *smtpClient) transact(ctx context.Context, on *smtpSession, message *gomail.Msg) error {
	free := on.link.bind(ctx)
	on.sent++
	err := on.mail.SendWithSMTPClient(on.client, message)
	// A refused message leaves the session in order if the server says so.
	usable := err == nil || smtpReplied(err) && on.client.Reset() == nil
	if free() && usable {
		c.pool.keep(on)
	} else {
		on.close()
	}
	return err
}

// compose makes the mail. Without one the result says why there is none.
func (c *smtpClient) compose(d sender.Delivery) (*gomail.Msg, sender.Result) {
	to, err := mail.ParseAddress(d.Address)
	if err != nil || strings.ContainsFunc(d.Address, unicode.IsControl) { // a comment may hold them
		return nil, refuseAddress("address", "the address is not one of mail; allowed is user@host")
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

func (c *smtpClient) unsubscribe(m *gomail.Msg, d sender.Delivery) {
	values := map[string]string{"external_id": d.ExternalID, "category": d.Category, "key": d.Key}
	where := fillUnsubscribe(c.cfg.ListUnsubscribe, func(name string) string { return url.QueryEscape(values[name]) })
	if where == UnsubscribePlaceholder {
		where = d.UnsubscribeURL
	}
	if where == "" {
		return
	}
	if strings.HasPrefix(where, "https:") && m.SetListUnsubscribeOneClick(where) == nil {
		return
	}
	m.SetListUnsubscribe(where)
}
