package provider

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	gosmtp "github.com/wneessen/go-mail/smtp"

	"github.com/belfryhq/belfry/outbox/sender"
)

// SMTPConfig configures delivery as plain-text mail through an SMTP server.
//
//	connection: dial ─► EHLO ─► STARTTLS ─► AUTH ─► idle ◄──────────────┐
//	                                                 │                  │
//	message:                          MAIL ─► RCPT ─► DATA ─► content ─► "." ─► reply
//	          lost or refused (4yz):  └──────────── retryable ────────┘      unknown if lost
//
// Up to MaxIdle connections are reused, each for up to IdleTimeout and MaxPerConnection messages. A call takes the first
// connection that is ready: a new one, or one that another call has finished with. If the server refuses a further
// connection, calls wait for those that it has accepted.
// github.com/wneessen/go-mail implements the protocol; smtpClient runs the steps of a message and classifies the
// answers.
//
// # Invariants
//
//  1. A result is unknown only after the final dot. Before it a server must not deliver (RFC 5321 §4.1.1.4), so a
//     connection that breaks earlier is retryable.
//  2. The idempotency key is the Message-ID, <key@domain>, the same in every attempt. SMTP defines no deduplication;
//     mail systems that drop repeats use the Message-ID.
//  3. No title, body or address can add a header or a command: addresses are parsed, and control characters in a
//     title become spaces.
//  4. A call ends with its context and reads a limited number of bytes. Each step also has the timeout of RFC 5321
//     §4.5.3.2.
//  5. An idle connection that the server has closed costs no attempt: if it fails before the message began, a new
//     one is opened, once.
//  6. Non-ASCII domains are sent as A-labels. SMTPUTF8 is requested only if the local part of the address requires
//     it. If the server does not support it, the message fails permanently and the address is not invalid.
//  7. No header line exceeds 998 bytes (RFC 5322 §2.1.1).
//
// # Answers
//
// 4yz is retryable, 5yz permanent. An address is invalid if the reply to RCPT has the enhanced code 5.1.1, 5.1.2,
// 5.1.3, 5.1.6 or 5.1.10. The code is read from the reply's text even if the server does not announce
// ENHANCEDSTATUSCODES. A 550, 551 or 553 without such a code is only permanent: servers also send it to a sender that
// may not relay, is blocklisted or violates a policy (RFC 5321 §4.2.3). Replies before a message begins (greeting,
// STARTTLS, AUTH) concern the server or the account and not the message. They are retryable, so that a wrong password
// opens the relay's breaker instead of creating dead letters.
//
// # Not guaranteed
//
// A 250 means that the server has accepted the mail, not that the recipient received it: bounces return to the From
// address. Delivery.Data is not sent, and there is no HTML part.
type SMTPConfig struct {
	Host string `mapstructure:"host"`
	Port int    `mapstructure:"port"`
	// TLS is starttls (required), opportunistic (STARTTLS if the server offers it), implicit (from the first byte,
	// port 465) or none.
	TLS string `mapstructure:"tls"`
	// CAFile names a PEM file of trusted certificate authorities, which replace the system's. Empty means the
	// system's authorities.
	CAFile string `mapstructure:"ca_file"`
	// Auth is plain, login, cram-md5, scram-sha-256 or xoauth2. Without Username there is no authentication. plain
	// and login require TLS, except to localhost.
	Auth         string `mapstructure:"auth"`
	Username     string `mapstructure:"username"`
	Password     string `mapstructure:"password"`
	PasswordFile string `mapstructure:"password_file"`
	// From is an address, alone or as "Name <address>".
	From    string `mapstructure:"from"`
	ReplyTo string `mapstructure:"reply_to"`
	// MessageIDDomain is the domain of Message-IDs. Empty means the domain of From.
	MessageIDDomain string `mapstructure:"message_id_domain"`
	// Hello is the name in EHLO. Empty means the machine's name.
	Hello string `mapstructure:"hello"`
	// ListUnsubscribe is an https: or mailto: URL for the header List-Unsubscribe, in which {external_id},
	// {category} and {key} are replaced, or only {unsubscribe_url}, which means Delivery.UnsubscribeURL. An https:
	// URL is announced for one click (RFC 8058). Empty means no header.
	ListUnsubscribe string `mapstructure:"list_unsubscribe"`
	// MaxIdle is the maximum number of idle connections. Zero means that none are reused.
	MaxIdle int `mapstructure:"max_idle"`
	// IdleTimeout is the time after which an idle connection is closed.
	IdleTimeout time.Duration `mapstructure:"idle_timeout"`
	// MaxPerConnection is the maximum number of messages per connection.
	MaxPerConnection int `mapstructure:"max_per_connection"`
}

// DefaultSMTP returns the settings of a submission server that requires STARTTLS.
func DefaultSMTP() *SMTPConfig {
	return &SMTPConfig{
		Port: 587, TLS: "starttls", Auth: "plain",
		MaxIdle: 16, IdleTimeout: 30 * time.Second, MaxPerConnection: 100,
	}
}

// smtpModes are the values of SMTPConfig.TLS.
var smtpModes = []string{"starttls", "opportunistic", "implicit", "none"}

// smtpMechanisms are the values of SMTPConfig.Auth.
var smtpMechanisms = map[string]func(username, password, host string) gosmtp.Auth{
	"plain":         func(u, p, host string) gosmtp.Auth { return gosmtp.PlainAuth("", u, p, host, false) },
	"login":         func(u, p, host string) gosmtp.Auth { return gosmtp.LoginAuth(u, p, host, false) },
	"cram-md5":      func(u, p, _ string) gosmtp.Auth { return gosmtp.CRAMMD5Auth(u, p) },
	"scram-sha-256": func(u, p, _ string) gosmtp.Auth { return gosmtp.ScramSHA256Auth(u, p) },
	"xoauth2":       func(u, p, _ string) gosmtp.Auth { return gosmtp.XOAuth2Auth(u, p) },
}

var domainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`) })

// validate implements Config.
func (c *SMTPConfig) validate(p *sender.ValidationErrors) {
	check := p.Check
	check(c.Host != "" && !strings.ContainsAny(c.Host, " \t\r\n/"), "host",
		"%q is not allowed; allowed values: a host name or an IP address", c.Host)
	check(c.Port >= 1 && c.Port <= 65535, "port", "%d is not allowed; allowed values: 1 to 65535", c.Port)
	check(slices.Contains(smtpModes, c.TLS), "tls", "%q is not allowed; allowed values: %s", c.TLS, strings.Join(smtpModes, ", "))
	_, known := smtpMechanisms[c.Auth]
	check(known, "auth", "%q is not allowed; allowed values: plain, login, cram-md5, scram-sha-256, xoauth2", c.Auth)
	check(c.Auth != "xoauth2" || c.TLS != "opportunistic" && c.TLS != "none", "tls",
		"%q is not allowed with auth xoauth2, whose token would travel in the clear; allowed values: starttls, implicit", c.TLS)
	check(c.Password == "" || c.PasswordFile == "", "password", "is set, and so is password_file; set only one")
	check(c.Username == "" || c.Password != "" || c.PasswordFile != "", "password",
		"is empty; set a password, or a file in password_file, because username is set")
	check(c.Username != "" || c.Password == "" && c.PasswordFile == "", "username", "is empty; set a name, because a password is set")
	from, err := parseOwnMailbox(c.From)
	check(err == nil, "from", "%v", err)
	if c.ReplyTo != "" {
		_, err := parseOwnMailbox(c.ReplyTo)
		check(err == nil, "reply_to", "%v", err)
	}
	if c.MessageIDDomain != "" || from != nil {
		domain := c.messageIDDomain(from)
		check(domainName().MatchString(domain), "message_id_domain",
			"%q is not a domain; allowed values: letters, digits, dots and hyphens", domain)
	}
	check(c.Hello == "" || domainName().MatchString(c.Hello), "hello",
		"%q is not a domain; allowed values: letters, digits, dots and hyphens", c.Hello)
	if c.ListUnsubscribe != "" {
		check(validUnsubscribe(c.ListUnsubscribe), "list_unsubscribe", "is not allowed; allowed values: "+UnsubscribePlaceholder+
			", or an https: URL, or a mailto: URL in ASCII, of up to %d bytes, in which {external_id}, {category} and {key} are replaced",
			smtpMaxLink)
	}
	check(c.MaxIdle >= 0 && c.MaxIdle <= 10_000, "max_idle", "%d is not allowed; allowed values: 0 (keep none) to 10000", c.MaxIdle)
	check(c.IdleTimeout >= time.Second && c.IdleTimeout <= 5*time.Minute, "idle_timeout",
		"%s is not allowed; allowed values: 1s to 5m0s", c.IdleTimeout)
	check(c.MaxPerConnection >= 1 && c.MaxPerConnection <= 1_000_000, "max_per_connection",
		"%d is not allowed; allowed values: 1 to 1000000", c.MaxPerConnection)
}

// parseOwnMailbox parses From or ReplyTo: an address that does not require SMTPUTF8 and fits into a header line.
func parseOwnMailbox(text string) (*mail.Address, error) {
	parsed, err := parseMailbox(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w%s", err, smtpAllowed+smtpOwn)
	case len(text) > 500:
		return nil, errors.New("is too long" + smtpAllowed + smtpOwn)
	case !isASCII(parsed.Address):
		return nil, errors.New("has non-ASCII characters before the @" + smtpAllowed + smtpOwn)
	}
	return parsed, nil
}

const smtpOwn = ", or \"Name <user@host>\" of up to 500, ASCII before the @"

// messageIDDomain returns the domain of Message-IDs. from is the parsed From.
func (c *SMTPConfig) messageIDDomain(from *mail.Address) string {
	if c.MessageIDDomain != "" || from == nil {
		return c.MessageIDDomain
	}
	return from.Address[strings.LastIndexByte(from.Address, '@')+1:]
}

// UnsubscribePlaceholder is the SMTPConfig.ListUnsubscribe that means the link of each delivery.
const UnsubscribePlaceholder = "{unsubscribe_url}"

func validUnsubscribe(text string) bool {
	if text == UnsubscribePlaceholder {
		return true
	}
	filled := fillUnsubscribe(text, func(string) string { return "x" })
	u, err := url.Parse(filled)
	if err != nil || len(text) > smtpMaxLink || strings.ContainsAny(filled, "{}<> \t\r\n") {
		return false
	}
	return u.Scheme == "https" && u.Host != "" || u.Scheme == "mailto" && u.Opaque != "" && isASCII(text)
}

// fillUnsubscribe replaces the placeholders of SMTPConfig.ListUnsubscribe.
func fillUnsubscribe(text string, value func(name string) string) string {
	for _, name := range []string{"external_id", "category", "key"} {
		text = strings.ReplaceAll(text, "{"+name+"}", value(name))
	}
	return text
}
