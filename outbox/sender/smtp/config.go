package smtp

import (
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

// Config sets how mail is sent. DefaultConfig has every default.
type Config struct {
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
	// {external_id}, {category} and {key} are replaced. An https: URL is announced for
	// one click (RFC 8058). Empty: no header.
	ListUnsubscribe string `mapstructure:"list_unsubscribe"`
	// MaxIdle is how many connections are kept between messages; 0: none.
	MaxIdle int `mapstructure:"max_idle"`
	// IdleTimeout is how long one is kept.
	IdleTimeout time.Duration `mapstructure:"idle_timeout"`
	// MaxPerConnection is how many messages one connection carries.
	MaxPerConnection int `mapstructure:"max_per_connection"`
}

// DefaultConfig is a submission server that demands STARTTLS.
func DefaultConfig() Config {
	return Config{
		Port: 587, TLS: "starttls", Auth: "plain",
		MaxIdle: 16, IdleTimeout: 30 * time.Second, MaxPerConnection: 100,
	}
}

// modes are what Config.TLS may be.
var modes = []string{"starttls", "opportunistic", "implicit", "none"}

// mechanisms are what Config.Auth may be.
var mechanisms = map[string]gomail.SMTPAuthType{
	"plain":         gomail.SMTPAuthPlain,
	"login":         gomail.SMTPAuthLogin,
	"cram-md5":      gomail.SMTPAuthCramMD5,
	"scram-sha-256": gomail.SMTPAuthSCRAMSHA256,
	"xoauth2":       gomail.SMTPAuthXOAUTH2,
}

var domainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`) })

// Validate returns every problem at once, each with its key path below path, or nil.
// It reads no file.
func (c Config) Validate(path string) error {
	problems := sender.Problems{Path: path}
	check := problems.Check
	check(c.Host != "" && !strings.ContainsAny(c.Host, " \t\r\n/"), "host", "%q is not allowed; allowed is a host name or an IP address", c.Host)
	check(c.Port >= 1 && c.Port <= 65535, "port", "%d is not allowed; allowed are 1 to 65535", c.Port)
	check(slices.Contains(modes, c.TLS), "tls", "%q is not allowed; allowed are %s", c.TLS, strings.Join(modes, ", "))
	_, known := mechanisms[c.Auth]
	check(known, "auth", "%q is not allowed; allowed are plain, login, cram-md5, scram-sha-256, xoauth2", c.Auth)
	check(c.Password == "" || c.PasswordFile == "", "password", "is set, and so is password_file; allowed is one of them")
	check(c.Username == "" || c.Password != "" || c.PasswordFile != "", "password", "is empty; allowed is a password, or a file in password_file, since username is set")
	check(c.Username != "" || c.Password == "" && c.PasswordFile == "", "username", "is empty; allowed is a name, since a password is set")
	from, err := mail.ParseAddress(c.From)
	check(err == nil, "from", "is not an address; allowed is user@host or \"Name <user@host>\"")
	if c.ReplyTo != "" {
		_, err := mail.ParseAddress(c.ReplyTo)
		check(err == nil, "reply_to", "is not an address; allowed is user@host or \"Name <user@host>\"")
	}
	if c.MessageIDDomain != "" || from != nil {
		domain := c.messageIDDomain(from)
		check(domainName().MatchString(domain), "message_id_domain", "%q is not a domain; allowed are letters, digits, dots and hyphens", domain)
	}
	check(c.Hello == "" || domainName().MatchString(c.Hello), "hello", "%q is not a domain; allowed are letters, digits, dots and hyphens", c.Hello)
	if c.ListUnsubscribe != "" {
		check(validUnsubscribe(c.ListUnsubscribe), "list_unsubscribe", "is not allowed; allowed is an https: or mailto: URL, in which {external_id}, {category} and {key} are replaced")
	}
	check(c.MaxIdle >= 0 && c.MaxIdle <= 10_000, "max_idle", "%d is not allowed; allowed are 0 (keep none) to 10000", c.MaxIdle)
	check(c.IdleTimeout >= time.Second && c.IdleTimeout <= 5*time.Minute, "idle_timeout", "%s is not allowed; allowed are 1s to 5m0s", c.IdleTimeout)
	check(c.MaxPerConnection >= 1 && c.MaxPerConnection <= 1_000_000, "max_per_connection", "%d is not allowed; allowed are 1 to 1000000", c.MaxPerConnection)
	return problems.Err()
}

// messageIDDomain is the domain of every Message-ID; from is From, parsed.
func (c Config) messageIDDomain(from *mail.Address) string {
	if c.MessageIDDomain != "" || from == nil {
		return c.MessageIDDomain
	}
	return from.Address[strings.LastIndexByte(from.Address, '@')+1:]
}

func validUnsubscribe(text string) bool {
	filled := fill(text, func(string) string { return "x" })
	u, err := url.Parse(filled)
	if err != nil || strings.ContainsAny(filled, "{}<> \t\r\n") {
		return false
	}
	return u.Scheme == "https" && u.Host != "" || u.Scheme == "mailto" && u.Opaque != ""
}

// fill replaces the names in braces that Config.ListUnsubscribe may hold.
func fill(text string, value func(name string) string) string {
	for _, name := range []string{"external_id", "category", "key"} {
		text = strings.ReplaceAll(text, "{"+name+"}", value(name))
	}
	return text
}
