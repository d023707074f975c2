package provider

import (
	"context"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

var smtpAt = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func smtpDelivery() sender.Delivery {
	return sender.Delivery{
		Key: "0190a5c4-0000-8000-8000-000000000001", JobID: 7, ChannelID: 9, ExternalID: "user 9&x",
		Category: "operator_notice", Medium: "email", Address: "kim@example.org",
		Title: "Hello", Body: "One line.\nTwo: 안녕", Data: []byte("{}"), Attempt: 1,
	}
}

// smtpSetup starts a server and a sender for it, which trusts its certificate.
func smtpSetup(t *testing.T, configure func(*smtpServer), adjust func(*SMTPConfig)) (*smtpServer, Client) {
	t.Helper()
	srv := smtpNewServer(t, configure)
	cfg := DefaultSMTP()
	cfg.Host, cfg.Port, cfg.CAFile = "127.0.0.1", srv.addr.Port, srv.caFile()
	cfg.From, cfg.Hello = "belfry <notice@mail.example>", "relay.example"
	if adjust != nil {
		adjust(cfg)
	}
	s := open(t, cfg, func() time.Time { return smtpAt })
	return srv, s
}

// I9: the Message-ID is the idempotency key. STARTTLS and AUTH come before any mail.
func TestSMTP_WritesThePlainTextMail(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) {
		c.Username, c.Password, c.ReplyTo = "relay", "not for your eyes", "help@mail.example"
		c.ListUnsubscribe = "https://example.org/stop?u={external_id}&c={category}"
	})
	d := smtpDelivery()
	d.Title = "안녕, 여러분"
	require.Equal(t, sender.Result{Class: sender.Accepted, Code: "250"}, deliver(t, s, d))

	require.Equal(t, []string{"EHLO relay.example", "STARTTLS", "EHLO relay.example", srv.seen().auth, "MAIL FROM:<notice@mail.example> BODY=8BITMIME", "RCPT TO:<kim@example.org>", "DATA"}, srv.seen().lines)
	require.True(t, strings.HasPrefix(srv.seen().auth, "AUTH PLAIN "))
	got, err := mail.ReadMessage(strings.NewReader(srv.seen().mails[0]))
	require.NoError(t, err)
	require.Equal(t, "<"+d.Key+"@mail.example>", got.Header.Get("Message-ID"))
	require.Equal(t, "<kim@example.org>", got.Header.Get("To"))
	require.Equal(t, `"belfry" <notice@mail.example>`, got.Header.Get("From"))
	require.Equal(t, "<help@mail.example>", got.Header.Get("Reply-To"))
	require.Equal(t, "auto-generated", got.Header.Get("Auto-Submitted"))
	require.Equal(t, "<https://example.org/stop?u=user+9%26x&c=operator_notice>", got.Header.Get("List-Unsubscribe"))
	require.Equal(t, "List-Unsubscribe=One-Click", got.Header.Get("List-Unsubscribe-Post"))
	date, err := got.Header.Date()
	require.NoError(t, err)
	require.True(t, smtpAt.Equal(date))
	subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
	require.NoError(t, err)
	require.Equal(t, d.Title, subject)
	require.Equal(t, "text/plain; charset=UTF-8", got.Header.Get("Content-Type"))
	body, err := io.ReadAll(quotedprintable.NewReader(got.Body))
	require.NoError(t, err)
	require.Equal(t, d.Body, strings.ReplaceAll(strings.TrimRight(string(body), "\r\n"), "\r\n", "\n"))
	require.NotContains(t, srv.seen().mails[0], "go-mail")
}

// Every class: what a server says to each command, and what its silence means.
func TestSMTP_ClassifiesAnswers(t *testing.T) {
	t.Parallel()
	reply := func(command, text string) func(*smtpServer) {
		return func(s *smtpServer) { s.replies[command] = text }
	}
	fault := func(command, kind string) func(*smtpServer) {
		return func(s *smtpServer) { s.faults[command] = kind }
	}
	for name, test := range map[string]struct {
		server func(*smtpServer)
		class  sender.Class
		code   string
	}{
		"greeting refused":         {reply("GREETING", "554 no service"), sender.Retryable, "554"},
		"greeting busy":            {reply("GREETING", "421 too many"), sender.Retryable, "421"},
		"no STARTTLS":              {func(s *smtpServer) { s.noSTARTTLS = true }, sender.Retryable, "tls"},
		"STARTTLS refused":         {reply("STARTTLS", "454 not now"), sender.Retryable, "454"},
		"wrong password":           {reply("AUTH", "535 5.7.8 authentication failed"), sender.Retryable, "535 5.7.8"},
		"sender busy":              {reply("MAIL", "451 4.3.0 try later"), sender.Retryable, "451 4.3.0"},
		"sender refused":           {reply("MAIL", "550 5.7.1 not you"), sender.Permanent, "550 5.7.1"},
		"mailbox busy":             {reply("RCPT", "450 4.2.1 busy"), sender.Retryable, "450 4.2.1"},
		"mailbox full":             {reply("RCPT", "452 4.2.2 full"), sender.Retryable, "452 4.2.2"},
		"greylisted":               {reply("RCPT", "451 4.7.1 Greylisting in action, come back later"), sender.Retryable, "451 4.7.1"},
		"graylisted":               {reply("RCPT", "450 You are graylisted"), sender.Retryable, "450"},
		"no such mailbox":          {reply("RCPT", "550 5.1.1 who is kim@example.org"), sender.InvalidAddress, "550 5.1.1"},
		"not a local user":         {reply("RCPT", "551 5.1.6 moved"), sender.InvalidAddress, "551 5.1.6"},
		"not a mailbox name":       {reply("RCPT", "553 5.1.3 syntax"), sender.InvalidAddress, "553 5.1.3"},
		"no such mailbox, plainly": {reply("RCPT", "550 unknown"), sender.Permanent, "550"},
		"unwelcome by policy":      {reply("RCPT", "550 5.7.1 blocked"), sender.Permanent, "550 5.7.1"},
		"recipient refused":        {reply("RCPT", "554 5.7.0 no"), sender.Permanent, "554 5.7.0"},
		"DATA busy":                {reply("DATA", "451 4.3.0 later"), sender.Retryable, "451 4.3.0"},
		"DATA refused":             {reply("DATA", "554 5.5.1 no"), sender.Permanent, "554 5.5.1"},
		"content busy":             {reply("DOT", "452 4.3.1 no space"), sender.Retryable, "452 4.3.1"},
		"content refused":          {reply("DOT", "554 5.6.0 spam"), sender.Permanent, "554 5.6.0"},
		"malware (Exim)":           {reply("DOT", "550 This message contains malware (Eicar)"), sender.Permanent, "550"},
		"too large (Exim)":         {reply("DOT", "552 Message size exceeds maximum permitted"), sender.Permanent, "552"},
		"content busy (Exim)":      {reply("DOT", "451 Temporary local problem - please try later"), sender.Retryable, "451"},
		"not a mailbox, too late":  {reply("DOT", "550 5.1.1 no"), sender.Permanent, "550 5.1.1"},
		"garbage greeting":         {reply("GREETING", "HTTP/1.1 200 OK"), sender.Retryable, "connection"},
		"garbage after the dot":    {reply("DOT", "what"), sender.Unknown, "connection"},
		"dropped at once":          {fault("GREETING", "drop"), sender.Retryable, "connection"},
		"dropped at EHLO":          {fault("EHLO", "drop"), sender.Retryable, "connection"},
		"dropped at STARTTLS":      {fault("STARTTLS", "drop"), sender.Retryable, "connection"},
		"dropped at AUTH":          {fault("AUTH", "drop"), sender.Retryable, "connection"},
		"bare refusal":             {reply("RCPT", "550"), sender.Permanent, "550"},
		"short reply":              {reply("DOT", "25"), sender.Unknown, "connection"},
		"dropped at RCPT":          {fault("RCPT", "drop"), sender.Retryable, "connection"},
		"reset at DATA":            {fault("DATA", "reset"), sender.Retryable, "connection"},
		"dropped after the dot":    {fault("DOT", "drop"), sender.Unknown, "connection"},
		"reset after the dot":      {fault("DOT", "reset"), sender.Unknown, "connection"},
		"flood at EHLO":            {fault("EHLO", "flood"), sender.Retryable, "connection"},
		"flood after the dot":      {fault("DOT", "flood"), sender.Unknown, "connection"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := smtpSetup(t, test.server, func(c *SMTPConfig) { c.Username, c.Password = "relay", "not for your eyes" })
			got := deliver(t, s, smtpDelivery())
			require.Equal(t, test.class, got.Class, got)
			require.Equal(t, test.code, got.Code, got)
			if step, ok := strings.CutPrefix(name, "dropped at "); ok && step != "once" {
				require.Equal(t, "the connection was lost at "+step, got.Detail)
			} else if test.class != sender.Accepted {
				require.NotEmpty(t, got.Detail)
			}
			for _, private := range []string{"kim", "example.org", "not for your eyes"} {
				require.NotContains(t, got.Detail+got.Code, private)
			}
		})
	}
}

// RFC 5321 §4.2: a reply may consist of its code. A mail that was accepted with one is not sent again.
func TestSMTP_ReadsRepliesWithoutText(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"starttls", "none"} {
		srv, s := smtpSetup(t, func(s *smtpServer) {
			s.replies = map[string]string{"AUTH": "235", "MAIL": "250-2.1.0 fine\r\n250", "RCPT": "250", "DOT": "250"}
		}, func(c *SMTPConfig) { c.TLS, c.Username, c.Password = mode, "relay", "secret" })
		for range 3 {
			require.Equal(t, sender.Result{Class: sender.Accepted, Code: "250"}, deliver(t, s, smtpDelivery()), mode)
		}
		require.Equal(t, 1, srv.seen().connections, mode)
	}
}

// Only an answer about the address makes it invalid, whether the server announces enhanced
// codes or not.
func TestSMTP_OnlyAnAnswerAboutTheAddressMakesItInvalid(t *testing.T) {
	t.Parallel()
	for _, announced := range []bool{true, false} {
		srv, s := smtpSetup(t, func(s *smtpServer) { s.plain = !announced }, nil)
		for reply, class := range map[string]sender.Class{
			"550 5.1.1 unknown":                             sender.InvalidAddress,
			"550-5.1.1 The email account\r\n550 5.1.1 that": sender.InvalidAddress,
			"550 #5.1.1 unknown":                            sender.InvalidAddress,
			"550 5.1.2 bad system":                          sender.InvalidAddress,
			"553 5.1.3 syntax":                              sender.InvalidAddress,
			"551 5.1.6 moved":                               sender.InvalidAddress,
			"550 5.1.10 null MX":                            sender.InvalidAddress,
			"550 5.1.1":                                     sender.InvalidAddress,
			"550 unknown user":                              sender.Permanent,
			"551 not local":                                 sender.Permanent,
			"553 not a name":                                sender.Permanent,
			"550 relay not permitted":                       sender.Permanent,
			"550 rejected because your address 5.1.1.9 is in a black list": sender.Permanent,
			"550 high probability of spam":                                 sender.Permanent,
			"550 5.1.0 refused":                                            sender.Permanent,
			"550 5.1.7 bad sender":                                         sender.Permanent,
			"550 5.1.15 what":                                              sender.Permanent,
			"550 5.7.1 blocked using a blocklist":                          sender.Permanent,
			"554 5.7.1 relay access denied":                                sender.Permanent,
			"553 5.6.7 addresses beyond ASCII":                             sender.Permanent,
			"550 5.2.1 the mailbox takes no mail now":                      sender.Permanent,
			// Exim 4.96
			"550 Unrouteable address": sender.Permanent,
			"550-5.1.1 <kim@example.org>: Recipient address rejected:\r\n550 5.1.1 User unknown": sender.InvalidAddress,
			"550 rejected because 127.0.0.1 is in a black list at bl.example":                    sender.Permanent,
			"501 <kim@example.org>: domain literals not allowed":                                 sender.Permanent,
			"451 greylisted, try again later":                                                    sender.Retryable,
			"451 Temporary local problem - please try later":                                     sender.Retryable,
			"452 4.2.2 <kim@example.org>: Mailbox is full":                                       sender.Retryable,
			"421 too many messages in this connection":                                           sender.Retryable,
			"450 4.1.1 not verified yet":                                                         sender.Retryable,
		} {
			srv.set(func(s *smtpServer) { s.replies["RCPT"] = reply })
			require.Equal(t, class, deliver(t, s, smtpDelivery()).Class, "%s, announced %v", reply, announced)
		}
		// Of another step the same code is about something else.
		for _, command := range []string{"MAIL", "DATA", "DOT"} {
			srv.set(func(s *smtpServer) { s.replies = map[string]string{command: "550 5.1.1 no"} })
			require.Equal(t, sender.Permanent, deliver(t, s, smtpDelivery()).Class, command)
		}
	}
}

// RFC 2047 §5: a title that looks like an encoded word arrives as it is.
func TestSMTP_EncodesATitleThatLooksEncoded(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, nil)
	for i, title := range []string{"=?utf-8?q?fake_subject?=", "a =?utf-8?b?4oCu?= " + strings.Repeat("long ", 30), "=?안녕?="} {
		d := smtpDelivery()
		d.Title = title
		require.Equal(t, sender.Accepted, deliver(t, s, d).Class)
		content, err := mail.ReadMessage(strings.NewReader(srv.seen().mails[i]))
		require.NoError(t, err)
		require.NotEqual(t, title, content.Header.Get("Subject"))
		subject, err := new(mime.WordDecoder).DecodeHeader(content.Header.Get("Subject"))
		require.NoError(t, err)
		require.Equal(t, title, subject)
	}
}

// RFC 5322 §2.1.1: no line has more than 998 bytes.
func TestSMTP_NoLineIsTooLong(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) {
		c.ListUnsubscribe = "https://example.com/ü?u={external_id}&c={category}"
		c.From = strings.Repeat("n", 470) + " <notice@mail.example>"
	})
	d := smtpDelivery()
	d.Title, d.Body = strings.Repeat("t", 200), strings.Repeat("b", 5000)
	link := len("https://example.com/%C3%BC?u=&c=operator_notice")
	d.ExternalID = strings.Repeat("x", smtpMaxLink-link)
	require.Equal(t, sender.Accepted, deliver(t, s, d).Class)
	longest := 0
	for line := range strings.SplitSeq(srv.seen().mails[0], "\r\n") {
		longest = max(longest, len(line))
	}
	require.Equal(t, 998, longest)
	d.ExternalID += "x"
	require.Equal(t, refuseContent("list_unsubscribe", "the link of List-Unsubscribe has 979 bytes; the maximum is 978; {unsubscribe_url} is shorter"), deliver(t, s, d))
	require.Len(t, srv.seen().mails, 1)
}

// RFC 5321 §4.5.3.2: a server that is silent for too long in one step is given up, long before
// the call's own time is over.
func TestSMTP_EachStepHasItsOwnTime(t *testing.T) {
	t.Parallel()
	for command, limit := range map[string]func(*smtpLimit) *time.Duration{
		"GREETING": func(l *smtpLimit) *time.Duration { return &l.open },
		"AUTH":     func(l *smtpLimit) *time.Duration { return &l.open },
		"MAIL":     func(l *smtpLimit) *time.Duration { return &l.mail },
		"RCPT":     func(l *smtpLimit) *time.Duration { return &l.rcpt },
		"DATA":     func(l *smtpLimit) *time.Duration { return &l.data },
		"DOT":      func(l *smtpLimit) *time.Duration { return &l.dot },
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			_, s := smtpSetup(t, func(s *smtpServer) { s.faults[command] = "hang" }, func(c *SMTPConfig) { c.Username, c.Password = "relay", "secret" })
			pool := s.(*oneByOne).Closer.(*smtpPool)
			require.Equal(t, smtpLimits, pool.limits)
			*limit(&pool.limits) = smtpSoon
			got := s.Send(t.Context(), []sender.Delivery{smtpDelivery()})[0]
			require.Equal(t, "timeout", got.Code)
			want := sender.Retryable
			if command == "DOT" {
				want = sender.Unknown
			}
			require.Equal(t, want, got.Class, got)
		})
	}
}

// Before the final dot nothing can have been delivered, however much content went out.
func TestSMTP_ConnectionLostWithinTheContentIsRetryable(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, func(s *smtpServer) { s.faults["CONTENT"] = "reset" }, func(c *SMTPConfig) { c.TLS = "none" })
	d := smtpDelivery()
	d.Body = strings.Repeat("0123456789abcdef\n", 1<<19)
	got := deliver(t, s, d)
	require.Equal(t, sender.Retryable, got.Class, got)
	require.Contains(t, got.Detail, "the content")
	require.Empty(t, srv.seen().mails)
}

// smtpSoon is when a call ends that hangs, wherever it has come to.
const smtpSoon = time.Second

// A call ends with its context, whatever the server was about to say: unknown only from
// the final dot on.
func TestSMTP_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	for command, class := range map[string]sender.Class{
		"GREETING": sender.Retryable, "EHLO": sender.Retryable, "STARTTLS": sender.Retryable,
		"MAIL": sender.Retryable, "RCPT": sender.Retryable, "DATA": sender.Retryable, "DOT": sender.Unknown,
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			_, s := smtpSetup(t, func(s *smtpServer) { s.faults[command] = "hang" }, nil)
			within := smtpSoon
			if command == "DOT" {
				within = short
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			got := s.Send(ctx, []sender.Delivery{smtpDelivery()})[0]
			require.Equal(t, class, got.Class, got)
			require.Equal(t, "timeout", got.Code)
		})
	}
	t.Run("canceled", func(t *testing.T) {
		t.Parallel()
		srv, s := smtpSetup(t, func(s *smtpServer) { s.faults["DOT"] = "hang" }, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { <-srv.hangs; cancel() }()
		got := s.Send(ctx, []sender.Delivery{smtpDelivery()})[0]
		require.Equal(t, sender.Unknown, got.Class, got)
		require.Equal(t, "canceled", got.Code)
	})
}

func TestSMTP_NobodyThere(t *testing.T) {
	t.Parallel()
	cfg := DefaultSMTP()
	cfg.From = "notice@mail.example"
	for name, host := range map[string]string{"dial": "127.0.0.1", "dns": "no-such-host.invalid"} {
		cfg.Host, cfg.Port = host, 1
		s, err := New(cfg, time.Now)
		require.NoError(t, err)
		got := deliver(t, s, smtpDelivery())
		require.Equal(t, sender.Retryable, got.Class, got)
		require.Equal(t, name, got.Code, got)
	}
}

// A server whose certificate nobody vouches for gets no mail and no password.
func TestSMTP_RefusesACertificateItDoesNotTrust(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"starttls", "implicit"} {
		srv, s := smtpSetup(t, func(s *smtpServer) { s.implicit = mode == "implicit" }, func(c *SMTPConfig) {
			c.CAFile, c.TLS, c.Username, c.Password = "", mode, "relay", "secret"
		})
		got := deliver(t, s, smtpDelivery())
		require.Equal(t, sender.Retryable, got.Class)
		require.Equal(t, "tls", got.Code, got)
		require.Empty(t, srv.seen().auth)
		require.Empty(t, srv.seen().mails)
	}
}

func TestSMTP_ImplicitTLSAndNone(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"implicit", "none", "opportunistic"} {
		srv, s := smtpSetup(t, func(s *smtpServer) { s.implicit = mode == "implicit" }, func(c *SMTPConfig) { c.TLS = mode })
		require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class, mode)
		require.Equal(t, mode == "opportunistic", slices.Contains(srv.seen().lines, "STARTTLS"))
		require.Len(t, srv.seen().mails, 1)
	}
}

// RFC 8058: the link of the delivery is announced for one click. Without one there is no header.
func TestSMTP_AnnouncesTheLinkOfTheDelivery(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.ListUnsubscribe = UnsubscribePlaceholder })
	d := smtpDelivery()
	require.Equal(t, sender.Accepted, deliver(t, s, d).Class)
	d.UnsubscribeURL = "https://example.com/belfry/unsubscribe/" + strings.Repeat("Ab-_", 40)
	require.Equal(t, sender.Accepted, deliver(t, s, d).Class)
	require.NotContains(t, srv.seen().mails[0], "List-Unsubscribe")
	got, err := mail.ReadMessage(strings.NewReader(srv.seen().mails[1]))
	require.NoError(t, err)
	require.Equal(t, "<"+d.UnsubscribeURL+">", got.Header.Get("List-Unsubscribe"))
	require.Equal(t, "List-Unsubscribe=One-Click", got.Header.Get("List-Unsubscribe-Post"))
}

// Header injection: whatever the content and the address hold, the mail has the headers
// that belfry writes and the server sees one MAIL and one RCPT.
func TestSMTP_NothingCanAddAHeaderOrACommand(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.ListUnsubscribe = "https://example.org/?u={external_id}" })
	d := smtpDelivery()
	d.Title = "Hi\r\nBcc: everybody@example.org\r\n\r\nbody\u2028x"
	d.ExternalID = "9>\r\nX-Evil: 1"
	d.Body = "one\r\n.\r\nMAIL FROM:<evil@example.org>\r\n"
	require.Equal(t, sender.Accepted, deliver(t, s, d).Class)
	require.Len(t, srv.seen().mails, 1)
	got, err := mail.ReadMessage(strings.NewReader(srv.seen().mails[0]))
	require.NoError(t, err)
	require.Empty(t, got.Header.Get("Bcc"))
	require.Empty(t, got.Header.Get("X-Evil"))
	subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
	require.NoError(t, err)
	require.Equal(t, "Hi  Bcc: everybody@example.org    body x", subject)
	body, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), "MAIL FROM:<evil@example.org>")
	require.Equal(t, 1, strings.Count(strings.Join(srv.seen().lines, "\n"), "MAIL FROM"))

	for _, address := range []string{
		"", "kim", "kim@", "kim@example.org>\r\nRCPT TO:<evil@example.org", "kim@example.org\r\nBcc: a@b.c",
		"kim@example.org, lee@example.org", "\"a\r\nb\"@example.org", "\"a\\\r\\\nb\"@example.org", "a\x00b@example.org",
		"kim@example.org\n", "kim@example.org (a\r\nb)",
	} {
		d.Address = address
		got := deliver(t, s, d)
		require.Equal(t, []any{sender.Permanent, sender.RefusedAddress}, []any{got.Class, got.Refusal}, address)
		require.NotContains(t, got.Detail, "kim")
	}
	require.Len(t, srv.seen().mails, 1)
}

func TestSMTP_KeepsConnections(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.MaxPerConnection = 3 })
	for range 7 {
		require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	}
	require.Equal(t, 3, srv.seen().connections)
	// A refused message leaves the connection in order.
	srv.set(func(s *smtpServer) { s.replies["RCPT"] = "550 5.1.1 no" })
	require.Equal(t, sender.InvalidAddress, deliver(t, s, smtpDelivery()).Class)
	srv.set(func(s *smtpServer) { delete(s.replies, "RCPT") })
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	require.Equal(t, 3, srv.seen().connections)
	require.Len(t, srv.seen().mails, 8)
}

// A kept connection that the server has closed meanwhile costs no attempt, and nothing
// is sent twice.
func TestSMTP_ReplacesAStaleConnection(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, func(s *smtpServer) { s.closeAfter = true }, nil)
	for range 3 {
		require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	}
	require.Equal(t, 3, srv.seen().connections)
	require.Len(t, srv.seen().mails, 3)
	// Once: the new connection's own trouble is the answer.
	srv.set(func(s *smtpServer) { s.faults["MAIL"] = "drop" })
	got := deliver(t, s, smtpDelivery())
	require.Equal(t, sender.Retryable, got.Class)
	require.Equal(t, 4, srv.seen().connections)
}

// What a server sends beside its replies would be read as the reply to the next mail's commands.
func TestSMTP_ReplacesAConnectionWithUnreadReplies(t *testing.T) {
	t.Parallel()
	const stray = "550 5.1.1 no such mailbox"
	for _, mode := range []string{"starttls", "implicit", "none"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			srv, s := smtpSetup(t, func(s *smtpServer) { s.implicit = mode == "implicit" }, func(c *SMTPConfig) { c.TLS = mode })
			accepted := func(connections int) {
				t.Helper()
				require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
				require.Equal(t, connections, srv.seen().connections)
			}
			for range 3 {
				accepted(1)
			}
			srv.set(func(s *smtpServer) { s.once["DOT"] = "250 2.0.0 queued\r\n" + stray }) // read with the reply
			accepted(1)
			srv.set(func(s *smtpServer) { s.once["DOT"] = "250 2.0.0 queued\r\n250 2.0.0 queued" })
			accepted(2)
			srv.set(func(s *smtpServer) { s.stray = "250 2.0.0 queued" })
			accepted(3)
			require.Eventually(t, func() bool { return srv.seen().strays == 1 }, long, time.Millisecond) // not read yet
			srv.set(func(s *smtpServer) { s.stray = "" })
			accepted(4)
			// Too late to be seen: MAIL gets it, and the connection is not used again.
			srv.set(func(s *smtpServer) { s.once["MAIL"] = stray + "\r\n250 2.0.0 ok" })
			accepted(5)
			accepted(5)
			require.NotContains(t, srv.seen().lines, "RSET")
			require.Len(t, srv.seen().mails, 9)
			// Once: the new connection's refusal is the answer.
			srv.set(func(s *smtpServer) { s.replies["MAIL"] = "550 5.7.1 not you" })
			got := deliver(t, s, smtpDelivery())
			require.Equal(t, []any{sender.Permanent, "550 5.7.1"}, []any{got.Class, got.Code})
			require.Equal(t, 6, srv.seen().connections)
		})
	}
}

func TestSMTP_ClosedSenderKeepsNothing(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, nil)
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	require.NoError(t, s.Close())
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	require.Equal(t, 3, srv.seen().connections)
}

func TestSMTP_Validate(t *testing.T) {
	t.Parallel()
	require.EqualError(t, Validate("senders[2].smtp", DefaultSMTP()), strings.Join([]string{
		`senders[2].smtp.host: "" is not allowed; allowed values: a host name or an IP address`,
		`senders[2].smtp.from: is not a mail address; allowed values: user@host of up to 254 bytes, or "Name <user@host>" of up to 500, ASCII before the @`,
	}, "\n"))
	valid := DefaultSMTP()
	valid.Host, valid.From = "mail.example", "notice@mail.example"
	refuses(t, valid, map[string]func(*SMTPConfig){
		"port":               func(c *SMTPConfig) { c.Port = 0 },
		"tls":                func(c *SMTPConfig) { c.TLS = "ssl" },
		"tls: ":              func(c *SMTPConfig) { c.TLS, c.Auth = "opportunistic", "xoauth2" },
		"auth":               func(c *SMTPConfig) { c.Auth = "magic" },
		"password":           func(c *SMTPConfig) { c.Username = "relay" },
		"username":           func(c *SMTPConfig) { c.Password = "topsecret" },
		"from":               func(c *SMTPConfig) { c.From = "jörg@mail.example" },
		"reply_to":           func(c *SMTPConfig) { c.ReplyTo = "nobody" },
		"message_id_domain":  func(c *SMTPConfig) { c.MessageIDDomain = "a>b" },
		"hello":              func(c *SMTPConfig) { c.Hello = "a b" },
		"list_unsubscribe":   func(c *SMTPConfig) { c.ListUnsubscribe = "http://example.org/{user}" },
		"max_idle":           func(c *SMTPConfig) { c.MaxIdle = -1 },
		"idle_timeout":       func(c *SMTPConfig) { c.IdleTimeout = 0 },
		"max_per_connection": func(c *SMTPConfig) { c.MaxPerConnection = 0 },
	})
}

// A secret stands in the configuration or in a file.
func TestSMTP_ReadsFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(path, []byte("from the file\n"), 0o600))
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.Username, c.PasswordFile = "relay", path })
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	require.Equal(t, "AUTH PLAIN AHJlbGF5AGZyb20gdGhlIGZpbGU=", srv.seen().auth)

	cfg := DefaultSMTP()
	cfg.Host, cfg.From, cfg.Username, cfg.PasswordFile = "mail.example", "notice@mail.example", "relay", filepath.Join(t.TempDir(), "none")
	_, err := New(cfg, time.Now)
	require.ErrorContains(t, err, "smtp.password_file")
	cfg.Username, cfg.PasswordFile, cfg.CAFile = "", "", path
	_, err = New(cfg, time.Now)
	require.EqualError(t, err, "smtp.ca_file: has no PEM certificate")
}

// Idle connections end by themselves, with a QUIT.
func TestSMTP_IdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.IdleTimeout = time.Second })
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	require.Eventually(t, func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return slices.Contains(srv.lines, "QUIT") && len(srv.open) == 0
	}, long, 10*time.Millisecond)
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
}
