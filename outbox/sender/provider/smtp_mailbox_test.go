package provider

import (
	"net/mail"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

// RFC 5891, RFC 6531 §3.2: a domain goes out as A-labels, SMTPUTF8 only where an address needs
// it, and no address beyond ASCII to a server without SMTPUTF8.
func TestSMTP_InternationalAddresses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		address, mail, rcpt, header string
		utf8                        bool
	}{
		{"user@münchen.example", "", "RCPT TO:<user@xn--mnchen-3ya.example>", "<user@xn--mnchen-3ya.example>", false},
		{"user@xn--mnchen-3ya.example", "", "RCPT TO:<user@xn--mnchen-3ya.example>", "<user@xn--mnchen-3ya.example>", false},
		{"user@exa_mple.test", "", "RCPT TO:<user@exa_mple.test>", "<user@exa_mple.test>", false},
		{"한글@example.test", " SMTPUTF8", "RCPT TO:<한글@example.test>", "<한글@example.test>", true},
		{"한글@도메인.test", " SMTPUTF8", "RCPT TO:<한글@xn--hq1bm8jm9l.test>", "<한글@xn--hq1bm8jm9l.test>", true},
	} {
		for _, offered := range []bool{true, false} {
			srv, s := smtpSetup(t, func(s *smtpServer) { s.utf8 = offered }, func(c *SMTPConfig) { c.From, c.ReplyTo = "Bücher <notice@bücher.example>", "hilfe@bücher.example" })
			d := smtpDelivery()
			d.Address = test.address
			got := deliver(t, s, d)
			if test.utf8 && !offered {
				require.Equal(t, refuseAddress("smtputf8", "the server does not accept non-ASCII addresses"), got)
				require.Empty(t, srv.seen().mails)
				d.Address = "kim@example.org" // by the connection that was kept
				require.Equal(t, sender.Accepted, deliver(t, s, d).Class)
				require.Equal(t, 1, srv.seen().connections)
				continue
			}
			require.Equal(t, sender.Accepted, got.Class, test.address)
			lines := srv.seen().lines
			require.Contains(t, lines, "MAIL FROM:<notice@xn--bcher-kva.example> BODY=8BITMIME"+test.mail)
			require.Contains(t, lines, test.rcpt)
			content, err := mail.ReadMessage(strings.NewReader(srv.seen().mails[0]))
			require.NoError(t, err)
			require.Equal(t, test.header, content.Header.Get("To"))
			require.Equal(t, "<hilfe@xn--bcher-kva.example>", content.Header.Get("Reply-To"))
			require.Equal(t, "<"+d.Key+"@xn--bcher-kva.example>", content.Header.Get("Message-ID"))
		}
	}
}

// One address, whose host is a domain and which is what it looks like.
func TestSMTP_RefusesAddressesThatAreNotOneMailbox(t *testing.T) {
	t.Parallel()
	const (
		group     = "the address is a group"
		literal   = "the address has an IP address instead of a domain"
		invisible = "the address has a blank or an invisible character"
	)
	srv, s := smtpSetup(t, nil, nil)
	d := smtpDelivery()
	for address, reason := range map[string]string{
		"group: kim@example.org;": group, "g: kim@example.org; (c)": group, "g: Kim <kim@example.org>;": group,
		"kim@[192.0.2.1]": literal, "kim@[IPv6:2001:db8::1]": literal, "Kim <kim@[IPv6:2001:db8::1]>": literal,
		"kim\u200b@example.org": invisible, "\ufeffkim@example.org": invisible, "k\u2060im@example.org": invisible, "kim\u00ad@example.org": invisible,
		"kim\u00a0@example.org": invisible, "kim\u3000@example.org": invisible, "kim\u3164@example.org": invisible,
		"kim@example.org\u200b": invisible, "kim@example.org\ufeff": invisible, "kim@example.org\u00a0": invisible, "kim@ex\u00adample.org": invisible,
	} {
		d.Address = address
		require.Equal(t, refuseAddress("address", reason+smtpAllowed), deliver(t, s, d), "%+q", address)
		cfg := DefaultSMTP()
		cfg.Host, cfg.From = "mail.example.org", address
		require.ErrorContains(t, Validate("x", cfg), "from: "+strings.TrimPrefix(reason, "the address ")+smtpAllowed, "%+q", address)
	}
	for address, to := range map[string]string{
		`"A; B: c" <kim@example.org>`: "kim@example.org", `"k:i;m"@example.org`: `"k:i;m"@example.org`, `"@["@example.org`: `"@["@example.org`,
		"Kim\u200b <kim@example.org>": "kim@example.org", "kim@example.org (a: b;)": "kim@example.org", "kim@نامه\u200cای.test": "kim@xn--mgba3gch31f060k.test",
	} {
		d.Address = address
		require.Equal(t, sender.Accepted, deliver(t, s, d).Class, "%+q", address)
		require.Contains(t, srv.seen().lines, "RCPT TO:<"+to+">")
	}
}

// A temporary refusal of one address is told from one of the server or the sender.
func TestSMTP_TemporaryRefusalsOfAnAddress(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, nil)
	for reply, about := range map[string]bool{
		"450 4.1.1 not yet": true, "450 4.1.2 no": true, "450 4.2.0 no": true, "450 4.2.1 busy": true, "452 4.2.2 full": true,
		"451 4.7.1 Greylisting in action": true, "450 You are graylisted": true, "451 grey-listed": true,
		"450 4.1.8 your domain": false, "451 4.3.0 later": false, "450 4.7.1 policy": false, "451 later": false, "421 4.4.2 timeout": false,
		"550 5.7.1 no greylisting": false,
	} {
		srv.set(func(s *smtpServer) { s.replies = map[string]string{"RCPT": reply} })
		require.Equal(t, about, deliver(t, s, smtpDelivery()).AboutAddress, reply)
	}
}
