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
	gosmtp "github.com/wneessen/go-mail/smtp"

	"github.com/belfryhq/belfry/outbox/sender"
)

// smtpClient sends mail through an SMTP server.
type smtpClient struct {
	cfg    SMTPConfig
	from   *mail.Address
	reply  *mail.Address // or nil
	domain string        // of Message-IDs
	now    func() time.Time
	pool   *smtpPool
}

func (c *SMTPConfig) kind() string { return "smtp" }

// open implements Config.
func (c *SMTPConfig) open(now func() time.Time) (Client, error) {
	client := &smtpClient{cfg: *c, now: now}
	var err error
	if client.from, err = parseMailbox(c.From); err != nil {
		return nil, fmt.Errorf("smtp.from: %w", err)
	}
	if c.ReplyTo != "" {
		if client.reply, err = parseMailbox(c.ReplyTo); err != nil {
			return nil, fmt.Errorf("smtp.reply_to: %w", err)
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
			return nil, errors.New("smtp.ca_file: has no PEM certificate")
		}
	}
	pool := &smtpPool{cfg: *cfg, tls: config, limits: smtpLimits, orphans: make(map[*smtpWaiter]struct{})}
	if cfg.Hello == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("smtp.hello: is empty, and the machine's name is unknown: %w", err)
		}
		pool.cfg.Hello = host
	}
	if cfg.Username != "" {
		password, err := readSecret("smtp.password", cfg.Password, cfg.PasswordFile)
		if err != nil {
			return nil, err
		}
		pool.auth = func() gosmtp.Auth { return smtpMechanisms[cfg.Auth](cfg.Username, password, cfg.Host) }
	}
	return pool, nil
}

func (c *smtpClient) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	message, refusal := c.compose(d)
	if message == nil {
		return refusal
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, SMTPTimeout)
		defer cancel()
	}
	on, reused, err := c.pool.acquire(ctx, false)
	if err == nil && reused {
		if err := c.transact(ctx, on, message); !smtpStale(on, err) || ctx.Err() != nil {
			return classifySMTP(err)
		}
		on, _, err = c.pool.acquire(ctx, true)
	}
	if err != nil {
		return smtpUnopened(err)
	}
	return classifySMTP(c.transact(ctx, on, message))
}

// transact sends one message over a session, and releases the session.
func (c *smtpClient) transact(ctx context.Context, on *smtpSession, message *smtpMessage) error {
	err := on.send(ctx, c.pool.limits, message)
	on.delivered = on.delivered || err == nil
	// After a rejected message the session can be reused if the server confirms RSET, unless the reply may belong to an
	// earlier message.
	usable := err == nil || errors.Is(err, errNoSMTPUTF8) || smtpNotBegun(err) ||
		smtpReplied(err) && !(on.sent > 1 && smtpStale(on, err)) && on.step(ctx, "RSET", c.pool.limits.reset, on.client.Reset) == nil
	c.pool.release(on, usable && !on.late)
	return err
}

// smtpMessage is a mail and its envelope.
type smtpMessage struct {
	*gomail.Msg
	from, to string // arguments of MAIL and RCPT, with angle brackets
	// utf8 requires SMTPUTF8, because the local part of to is not ASCII.
	utf8 bool
}

// compose returns the mail, or the result of a refused delivery.
func (c *smtpClient) compose(d sender.Delivery) (*smtpMessage, sender.Result) {
	to, err := parseMailbox(d.Address)
	if err != nil {
		return nil, refuseAddress("address", "the address "+err.Error()+smtpAllowed)
	}
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(c.from)
	m.ToMailAddress(&mail.Address{Address: to.Address})
	if c.reply != nil {
		m.ReplyToMailAddress(c.reply)
	}
	m.SetMessageIDWithValue(d.Key + "@" + c.domain)
	m.SetDateWithValue(c.now())
	m.Subject(encodedTitle(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, d.Title)))
	m.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no out-of-office replies
	if link := c.unsubscribeLink(d); len(link) > smtpMaxLink {
		return nil, refuseContent("list_unsubscribe",
			fmt.Sprintf("the link of List-Unsubscribe has %d bytes; the maximum is %d; %s is shorter", len(link), smtpMaxLink,
				UnsubscribePlaceholder))
	} else if link != "" {
		unsubscribe(m, link)
	}
	m.SetBodyString(gomail.TypeTextPlain, d.Body)
	from, err := m.GetSender(false)
	if err != nil {
		return nil, refuseContent("message", "the mail has no sender")
	}
	recipients, err := m.GetRecipients()
	if err != nil {
		return nil, refuseContent("message", "the mail has no recipient")
	}
	return &smtpMessage{Msg: m, from: from, to: recipients[0], utf8: !isASCII(to.Address)}, sender.Result{}
}

// smtpMaxLink is the maximum length of a link in List-Unsubscribe in bytes. A header line has at most 998 bytes
// (RFC 5322 §2.1.1), and a link cannot be folded.
const smtpMaxLink = 998 - len("List-Unsubscribe: <>")

// unsubscribeLink returns the link of List-Unsubscribe, or an empty text.
func (c *smtpClient) unsubscribeLink(d sender.Delivery) string {
	values := map[string]string{"external_id": d.ExternalID, "category": d.Category, "key": d.Key}
	link := fillUnsubscribe(c.cfg.ListUnsubscribe, func(name string) string { return url.QueryEscape(values[name]) })
	if link == UnsubscribePlaceholder {
		link = d.UnsubscribeURL
	}
	if u, err := url.Parse(link); err == nil {
		return u.String() // escapes non-ASCII characters
	}
	return link
}

func unsubscribe(m *gomail.Msg, link string) {
	if strings.HasPrefix(link, "https:") && m.SetListUnsubscribeOneClick(link) == nil {
		return
	}
	m.SetListUnsubscribe(link)
}
