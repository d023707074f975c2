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

	gomail "github.com/wneessen/go-mail"

	"github.com/belfryhq/belfry/outbox/sender"
)

// SMTPConfig sets how messages are delivered as plain-text mail through one SMTP server.
//
//	connection: dial ─► EHLO ─► STARTTLS ─► AUTH ─► idle ◄──────────────┐
//	                                                 │                  │
//	message:                          MAIL ─► RCPT ─► DATA ─► content ─► "." ─► reply
//	          lost or refused (4yz):  └──────────── retryable ────────┘      unknown when lost
//
// Connections are kept for the next message, at most MaxIdle of them and each for
// IdleTimeout and MaxPerConnection messages. The protocol is spoken by
// github.com/wneessen/go-mail; smtpClient takes a message through its steps and decides what
// the answers mean.
//
// # Invariants
//
//  1. unknown only from the final dot on: before it a server must not deliver (RFC 5321
//     §4.1.1.4), so a connection that breaks earlier is retryable.
//  2. The idempotency key is the Message-ID, <key@domain>, the same in every attempt. SMTP
//     has no place that a server must honour; mail systems that drop repeats go by it.
//  3. No title, body or address can add a header or a command: addresses are parsed, and
//     control characters in a title become spaces.
//  4. A call ends with its context, whatever the server does, and reads at most readBytes
//     in each step. Each step also has the limit that RFC 5321 §4.5.3.2 gives it.
//  5. A kept connection that the server has closed meanwhile costs no attempt: when it
//     fails before the message was begun, a new one is opened, once.
//  6. A domain beyond ASCII goes out as A-labels. SMTPUTF8 is asked for only if the local
//     part of the address needs it. A server that does not offer it gets no such address:
//     the message fails permanently, and the address is not invalid.
//  7. No line of a header is longer than 998 bytes (RFC 5322 §2.1.1).
//
// # Answers
//
// 4yz is retryable, 5yz permanent. An address is invalid when the reply to RCPT has the
// enhanced code 5.1.1, 5.1.2, 5.1.3, 5.1.6 or 5.1.10. It is read from the reply's text also
// if the server does not announce ENHANCEDSTATUSCODES. A 550, 551 or 553 without such a code
// is permanent and no more: servers answer it to a sender that may not relay, is on a list of
// spammers or breaks a policy (RFC 5321 §4.2.3). Whatever a server says before a message has begun (greeting,
// STARTTLS, AUTH) concerns the server or the account and not the message: it is
// retryable, so that a wrong password opens the relay's breaker instead of filling the
// dead letters.
//
// # What it does not promise
//
// A 250 means that the server has taken the mail, not that anybody got it: bounces come
// back to the From address. Delivery.Data is not sent, and there is no HTML part.
type SMTPConfig struct {
	Host string `mapstructure:"host"`
	Port int    `mapstructure:"port"`
	// TLS is starttls (demanded), opportunistic (STARTTLS where the server offers it),
	// implicit (from the first byte, port 465) or none.
	TLS string `mapstructure:"tls"`
	// CAFile holds the PEM certificates that the server's must descend from. Empty: the
	// system's.
	CAFile string `mapstructure:"ca_file"`
	// Auth is plain, login, cram-md5, scram-sha-256 or xoauth2. Without Username nothing
	// is asked of it. plain and login refuse to run without TLS, except to localhost.
	Auth         string `mapstructure:"auth"`
	Username     string `mapstructure:"username"`
	Password     string `mapstructure:"password"`
	PasswordFile string `mapstructure:"password_file"`
	// From is an address, alone or as "Name <address>".
	From    string `mapstructure:"from"`
	ReplyTo string `mapstructure:"reply_to"`
	// MessageIDDomain is the right side of every Message-ID. Empty: From's domain.
	MessageIDDomain string `mapstructure:"message_id_domain"`
	// Hello is the name given in EHLO. Empty: the machine's.
	Hello string `mapstructure:"hello"`
	// ListUnsubscribe is an https: or mailto: URL for the header of that name, in which
	// {external_id}, {category} and {key} are replaced, or {unsubscribe_url} alone, which is
	// Delivery.UnsubscribeURL. An https: URL is announced for one click (RFC 8058). Empty: no
	// header.
	ListUnsubscribe string `mapstructure:"list_unsubscribe"`
	// MaxIdle is how many connections are kept between messages; 0: none.
	MaxIdle int `mapstructure:"max_idle"`
	// IdleTimeout is how long one is kept.
	IdleTimeout time.Duration `mapstructure:"idle_timeout"`
	// MaxPerConnection is how many messages one connection carries.
	MaxPerConnection int `mapstructure:"max_per_connection"`
}

// DefaultSMTP is a submission server that demands STARTTLS.
func DefaultSMTP() *SMTPConfig {
	return &SMTPConfig{
		Port: 587, TLS: "starttls", Auth: "plain",
		MaxIdle: 16, IdleTimeout: 30 * time.Second, MaxPerConnection: 100,
	}
}

// smtpModes are what SMTPConfig.TLS may be.
var smtpModes = []string{"starttls", "opportunistic", "implicit", "none"}

// smtpMechanisms are what SMTPConfig.Auth may be.
var smtpMechanisms = map[string]gomail.SMTPAuthType{
	"plain":         gomail.SMTPAuthPlain,
	"login":         gomail.SMTPAuthLogin,
	"cram-md5":      gomail.SMTPAuthCramMD5,
	"scram-sha-256": gomail.SMTPAuthSCRAMSHA256,
	"xoauth2":       gomail.SMTPAuthXOAUTH2,
}

var domainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`) })

// validate implements Config.
func (c *SMTPConfig) validate(p *sender.Problems) {
	check := p.Check
	check(c.Host != "" && !strings.ContainsAny(c.Host, " \t\r\n/"), "host", "%q is not allowed; allowed is a host name or an IP address", c.Host)
	check(c.Port >= 1 && c.Port <= 65535, "port", "%d is not allowed; allowed are 1 to 65535", c.Port)
	check(slices.Contains(smtpModes, c.TLS), "tls", "%q is not allowed; allowed are %s", c.TLS, strings.Join(smtpModes, ", "))
	_, known := smtpMechanisms[c.Auth]
	check(known, "auth", "%q is not allowed; allowed are plain, login, cram-md5, scram-sha-256, xoauth2", c.Auth)
	check(c.Password == "" || c.PasswordFile == "", "password", "is set, and so is password_file; allowed is one of them")
	check(c.Username == "" || c.Password != "" || c.PasswordFile != "", "password", "is empty; allowed is a password, or a file in password_file, since username is set")
	check(c.Username != "" || c.Password == "" && c.PasswordFile == "", "username", "is empty; allowed is a name, since a password is set")
	from, err := parseOwnMailbox(c.From)
	check(err == nil, "from", "%v", err)
	if c.ReplyTo != "" {
		_, err := parseOwnMailbox(c.ReplyTo)
		check(err == nil, "reply_to", "%v", err)
	}
	if c.MessageIDDomain != "" || from != nil {
		domain := c.messageIDDomain(from)
		check(domainName().MatchString(domain), "message_id_domain", "%q is not a domain; allowed are letters, digits, dots and hyphens", domain)
	}
	check(c.Hello == "" || domainName().MatchString(c.Hello), "hello", "%q is not a domain; allowed are letters, digits, dots and hyphens", c.Hello)
	if c.ListUnsubscribe != "" {
		check(validUnsubscribe(c.ListUnsubscribe), "list_unsubscribe", "is not allowed; allowed is "+UnsubscribePlaceholder+", or an https: URL, or a mailto: URL in ASCII, of up to %d bytes, in which {external_id}, {category} and {key} are replaced", smtpMaxLink)
	}
	check(c.MaxIdle >= 0 && c.MaxIdle <= 10_000, "max_idle", "%d is not allowed; allowed are 0 (keep none) to 10000", c.MaxIdle)
	check(c.IdleTimeout >= time.Second && c.IdleTimeout <= 5*time.Minute, "idle_timeout", "%s is not allowed; allowed are 1s to 5m0s", c.IdleTimeout)
	check(c.MaxPerConnection >= 1 && c.MaxPerConnection <= 1_000_000, "max_per_connection", "%d is not allowed; allowed are 1 to 1000000", c.MaxPerConnection)
}

// parseOwnMailbox reads From or ReplyTo: an address that a server without SMTPUTF8 takes, and
// that fits into a line of a header.
func parseOwnMailbox(text string) (*mail.Address, error) {
	parsed, err := parseMailbox(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w%s", err, smtpAllowed+smtpOwn)
	case len(text) > 500:
		return nil, errors.New("is too long" + smtpAllowed + smtpOwn)
	case !isASCII(parsed.Address):
		return nil, errors.New("has characters beyond ASCII before the @" + smtpAllowed + smtpOwn)
	}
	return parsed, nil
}

const smtpOwn = ", or \"Name <user@host>\" of up to 500, ASCII before the @"

// messageIDDomain is the domain of every Message-ID; from is From, parsed.
func (c *SMTPConfig) messageIDDomain(from *mail.Address) string {
	if c.MessageIDDomain != "" || from == nil {
		return c.MessageIDDomain
	}
	return from.Address[strings.LastIndexByte(from.Address, '@')+1:]
}

// UnsubscribePlaceholder is an SMTPConfig.ListUnsubscribe: the link of each delivery.
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

// fillUnsubscribe replaces the names in braces that SMTPConfig.ListUnsubscribe may hold.
func fillUnsubscribe(text string, value func(name string) string) string {
	for _, name := range []string{"external_id", "category", "key"} {
		text = strings.ReplaceAll(text, "{"+name+"}", value(name))
	}
	return text
}
