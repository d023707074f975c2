package smtp_test

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
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/smtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func delivery() sender.Delivery {
	return sender.Delivery{
		Key: "0190a5c4-0000-8000-8000-000000000001", JobID: 7, ChannelID: 9, ExternalID: "user 9&x",
		Category: "operator_notice", Medium: "email", Address: "kim@example.org",
		Title: "Hello", Body: "One line.\nTwo: 안녕", Data: []byte("{}"), Attempt: 1,
	}
}

// setup starts a server and a sender for it, which trusts its certificate.
func setup(t *testing.T, configure func(*server), adjust func(*smtp.Config)) (*server, *sender.OneByOne) {
	t.Helper()
	srv := newServer(t, configure)
	cfg := smtp.DefaultConfig()
	cfg.Host, cfg.Port, cfg.CAFile = "127.0.0.1", srv.addr.Port, srv.caFile()
	cfg.From, cfg.Hello = "belfry <notice@mail.example>", "relay.example"
	if adjust != nil {
		adjust(&cfg)
	}
	s, err := smtp.New(cfg, func() time.Time { return at })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return srv, s
}

func send(t *testing.T, s *sender.OneByOne, d sender.Delivery) sender.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	results := s.Send(ctx, []sender.Delivery{d})
	require.Len(t, results, 1)
	return results[0]
}

// I9: the Message-ID is the idempotency key. STARTTLS and AUTH come before any mail.
func TestSend_WritesThePlainTextMail(t *testing.T) {
	t.Parallel()
	srv, s := setup(t, nil, func(c *smtp.Config) {
		c.Username, c.Password, c.ReplyTo = "relay", "not for your eyes", "help@mail.example"
		c.ListUnsubscribe = "https://example.org/stop?u={external_id}&c={category}"
	})
	d := delivery()
	d.Title = "안녕, 여러분"
	require.Equal(t, sender.Result{Class: sender.Accepted, Code: "250"}, send(t, s, d))

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
	require.True(t, at.Equal(date))
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
func TestSend_ClassifiesAnswers(t *testing.T) {
	t.Parallel()
	reply := func(command, text string) func(*server) {
		return func(s *server) { s.replies[command] = text }
	}
	fault := func(command, kind string) func(*server) {
		return func(s *server) { s.faults[command] = kind }
	}
	for name, test := range map[string]struct {
		server func(*server)
		class  sender.Class
		code   string
	}{
		"greeting refused":         {reply("GREETING", "554 no service"), sender.Retryable, "554"},
		"greeting busy":            {reply("GREETING", "421 too many"), sender.Retryable, "421"},
		"no STARTTLS":              {func(s *server) { s.noSTARTTLS = true }, sender.Retryable, "tls"},
		"STARTTLS refused":         {reply("STARTTLS", "454 not now"), sender.Retryable, "454"},
		"wrong password":           {reply("AUTH", "535 5.7.8 authentication failed"), sender.Retryable, "535"},
		"sender busy":              {reply("MAIL", "451 4.3.0 try later"), sender.Retryable, "451 4.3.0"},
		"sender refused":           {reply("MAIL", "550 5.7.1 not you"), sender.Permanent, "550 5.7.1"},
		"mailbox busy":             {reply("RCPT", "450 4.2.1 busy"), sender.Retryable, "450 4.2.1"},
		"mailbox full":             {reply("RCPT", "452 4.2.2 full"), sender.Retryable, "452 4.2.2"},
		"no such mailbox":          {reply("RCPT", "550 5.1.1 who is kim@example.org"), sender.InvalidAddress, "550 5.1.1"},
		"not a local user":         {reply("RCPT", "551 5.1.6 moved"), sender.InvalidAddress, "551 5.1.6"},
		"not a mailbox name":       {reply("RCPT", "553 5.1.3 syntax"), sender.InvalidAddress, "553 5.1.3"},
		"no such mailbox, plainly": {reply("RCPT", "550 unknown"), sender.InvalidAddress, "550"},
		"unwelcome by policy":      {reply("RCPT", "550 5.7.1 blocked"), sender.Permanent, "550 5.7.1"},
		"recipient refused":        {reply("RCPT", "554 5.7.0 no"), sender.Permanent, "554 5.7.0"},
		"DATA busy":                {reply("DATA", "451 4.3.0 later"), sender.Retryable, "451 4.3.0"},
		"DATA refused":             {reply("DATA", "554 5.5.1 no"), sender.Permanent, "554 5.5.1"},
		"content busy":             {reply("DOT", "452 4.3.1 no space"), sender.Retryable, "452 4.3.1"},
		"content refused":          {reply("DOT", "554 5.6.0 spam"), sender.Permanent, "554 5.6.0"},
		"not a mailbox, too late":  {reply("DOT", "550 5.1.1 no"), sender.Permanent, "550 5.1.1"},
		"garbage greeting":         {reply("GREETING", "HTTP/1.1 200 OK"), sender.Retryable, "connection"},
		"garbage after the dot":    {reply("DOT", "what"), sender.Unknown, "connection"},
		"dropped at once":          {fault("GREETING", "drop"), sender.Retryable, "connection"},
		"dropped at RCPT":          {fault("RCPT", "drop"), sender.Retryable, "connection"},
		"reset at DATA":            {fault("DATA", "reset"), sender.Retryable, "connection"},
		"dropped after the dot":    {fault("DOT", "drop"), sender.Unknown, "connection"},
		"reset after the dot":      {fault("DOT", "reset"), sender.Unknown, "connection"},
		"flood at EHLO":            {fault("EHLO", "flood"), sender.Retryable, "connection"},
		"flood after the dot":      {fault("DOT", "flood"), sender.Unknown, "connection"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := setup(t, test.server, func(c *smtp.Config) { c.Username, c.Password = "relay", "not for your eyes" })
			got := send(t, s, delivery())
			require.Equal(t, test.class, got.Class, got)
			require.Equal(t, test.code, got.Code, got)
			if test.class != sender.Accepted {
				require.NotEmpty(t, got.Detail)
			}
			for _, private := range []string{"kim", "example.org", "not for your eyes"} {
				require.NotContains(t, got.Detail+got.Code, private)
			}
		})
	}
}

// Before the final dot nothing can have been delivered, however much content went out.
func TestSend_ConnectionLostWithinTheContentIsRetryable(t *testing.T) {
	t.Parallel()
	srv, s := setup(t, func(s *server) { s.faults["CONTENT"] = "reset" }, func(c *smtp.Config) { c.TLS = "none" })
	d := delivery()
	d.Body = strings.Repeat("0123456789abcdef\n", 1<<19)
	got := send(t, s, d)
	require.Equal(t, sender.Retryable, got.Class, got)
	require.Contains(t, got.Detail, "the content")
	require.Empty(t, srv.seen().mails)
}

// soon is when a call ends that hangs: enough to get that far on a busy machine.
const soon = time.Second

// A call ends with its context, whatever the server was about to say: unknown only from
// the final dot on.
func TestSend_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	for command, class := range map[string]sender.Class{
		"GREETING": sender.Retryable, "EHLO": sender.Retryable, "STARTTLS": sender.Retryable,
		"MAIL": sender.Retryable, "RCPT": sender.Retryable, "DATA": sender.Retryable, "DOT": sender.Unknown,
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			_, s := setup(t, func(s *server) { s.faults[command] = "hang" }, nil)
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			got := s.Send(ctx, []sender.Delivery{delivery()})[0]
			require.Equal(t, class, got.Class, got)
			require.Equal(t, "timeout", got.Code)
		})
	}
	t.Run("canceled", func(t *testing.T) {
		t.Parallel()
		_, s := setup(t, func(s *server) { s.faults["DOT"] = "hang" }, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(soon, cancel).Stop()
		got := s.Send(ctx, []sender.Delivery{delivery()})[0]
		require.Equal(t, sender.Unknown, got.Class, got)
		require.Equal(t, "canceled", got.Code)
	})
}

func TestSend_NobodyThere(t *testing.T) {
	t.Parallel()
	cfg := smtp.DefaultConfig()
	cfg.From = "notice@mail.example"
	for name, host := range map[string]string{"dial": "127.0.0.1", "dns": "no-such-host.invalid"} {
		cfg.Host, cfg.Port = host, 1
		s, err := smtp.New(cfg, time.Now)
		require.NoError(t, err)
		got := send(t, s, delivery())
		require.Equal(t, sender.Retryable, got.Class, got)
		require.Equal(t, name, got.Code, got)
	}
}

// A server whose certificate nobody vouches for gets no mail and no password.
func TestSend_RefusesACertificateItDoesNotTrust(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"starttls", "implicit"} {
		srv, s := setup(t, func(s *server) { s.implicit = mode == "implicit" }, func(c *smtp.Config) {
			c.CAFile, c.TLS, c.Username, c.Password = "", mode, "relay", "secret"
		})
		got := send(t, s, delivery())
		require.Equal(t, sender.Retryable, got.Class)
		require.Equal(t, "tls", got.Code, got)
		require.Empty(t, srv.seen().auth)
		require.Empty(t, srv.seen().mails)
	}
}

func TestSend_ImplicitTLSAndNone(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"implicit", "none", "opportunistic"} {
		srv, s := setup(t, func(s *server) { s.implicit = mode == "implicit" }, func(c *smtp.Config) { c.TLS = mode })
		require.Equal(t, sender.Accepted, send(t, s, delivery()).Class, mode)
		require.Equal(t, mode == "opportunistic", slices.Contains(srv.seen().lines, "STARTTLS"))
		require.Len(t, srv.seen().mails, 1)
	}
}

// Header injection: whatever the content and the address hold, the mail has the headers
// that belfry writes and the server sees one MAIL and one RCPT.
func TestSend_NothingCanAddAHeaderOrACommand(t *testing.T) {
	t.Parallel()
	srv, s := setup(t, nil, func(c *smtp.Config) { c.ListUnsubscribe = "https://example.org/?u={external_id}" })
	d := delivery()
	d.Title = "Hi\r\nBcc: everybody@example.org\r\n\r\nbody\u2028x"
	d.ExternalID = "9>\r\nX-Evil: 1"
	d.Body = "one\r\n.\r\nMAIL FROM:<evil@example.org>\r\n"
	require.Equal(t, sender.Accepted, send(t, s, d).Class)
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
		got := send(t, s, d)
		require.Equal(t, sender.InvalidAddress, got.Class, address)
		require.NotContains(t, got.Detail, "kim")
	}
	require.Len(t, srv.seen().mails, 1)
}

func TestSend_KeepsConnections(t *testing.T) {
	t.Parallel()
	srv, s := setup(t, nil, func(c *smtp.Config) { c.MaxPerConnection = 3 })
	for range 7 {
		require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
	}
	require.Equal(t, 3, srv.seen().connections)
	// A refused message leaves the connection in order.
	srv.set(func(s *server) { s.replies["RCPT"] = "550 5.1.1 no" })
	require.Equal(t, sender.InvalidAddress, send(t, s, delivery()).Class)
	srv.set(func(s *server) { delete(s.replies, "RCPT") })
	require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
	require.Equal(t, 3, srv.seen().connections)
	require.Len(t, srv.seen().mails, 8)
}

// A kept connection that the server has closed meanwhile costs no attempt, and nothing
// is sent twice.
func TestSend_ReplacesAStaleConnection(t *testing.T) {
	t.Parallel()
	srv, s := setup(t, func(s *server) { s.closeAfter = true }, nil)
	for range 3 {
		require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
	}
	require.Equal(t, 3, srv.seen().connections)
	require.Len(t, srv.seen().mails, 3)
	// Once: the new connection's own trouble is the answer.
	srv.set(func(s *server) { s.faults["MAIL"] = "drop" })
	got := send(t, s, delivery())
	require.Equal(t, sender.Retryable, got.Class)
	require.Equal(t, 4, srv.seen().connections)
}

func TestSend_ClosedSenderKeepsNothing(t *testing.T) {
	t.Parallel()
	srv, s := setup(t, nil, nil)
	require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
	require.NoError(t, s.Close())
	require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
	require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
	require.Equal(t, 3, srv.seen().connections)
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	require.EqualError(t, smtp.DefaultConfig().Validate("senders[2].smtp"), strings.Join([]string{
		`senders[2].smtp.host: "" is not allowed; allowed is a host name or an IP address`,
		`senders[2].smtp.from: is not an address; allowed is user@host or "Name <user@host>"`,
	}, "\n"))
	valid := smtp.DefaultConfig()
	valid.Host, valid.From = "mail.example", "notice@mail.example"
	require.NoError(t, valid.Validate("x"))
	for key, change := range map[string]func(*smtp.Config){
		"port":               func(c *smtp.Config) { c.Port = 0 },
		"tls":                func(c *smtp.Config) { c.TLS = "ssl" },
		"auth":               func(c *smtp.Config) { c.Auth = "magic" },
		"password":           func(c *smtp.Config) { c.Username = "relay" },
		"username":           func(c *smtp.Config) { c.Password = "topsecret" },
		"reply_to":           func(c *smtp.Config) { c.ReplyTo = "nobody" },
		"message_id_domain":  func(c *smtp.Config) { c.MessageIDDomain = "a>b" },
		"hello":              func(c *smtp.Config) { c.Hello = "a b" },
		"list_unsubscribe":   func(c *smtp.Config) { c.ListUnsubscribe = "http://example.org/{user}" },
		"max_idle":           func(c *smtp.Config) { c.MaxIdle = -1 },
		"idle_timeout":       func(c *smtp.Config) { c.IdleTimeout = 0 },
		"max_per_connection": func(c *smtp.Config) { c.MaxPerConnection = 0 },
	} {
		c := valid
		change(&c)
		err := c.Validate("x")
		require.ErrorContains(t, err, "x."+key+": ")
		require.ErrorContains(t, err, "allowed")
		require.NotContains(t, err.Error(), "topsecret")
		_, err = smtp.New(c, time.Now)
		require.Error(t, err)
	}
}

// A secret stands in the configuration or in a file.
func TestNew_ReadsFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(path, []byte("from the file\n"), 0o600))
	srv, s := setup(t, nil, func(c *smtp.Config) { c.Username, c.PasswordFile = "relay", path })
	require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
	require.Equal(t, "AUTH PLAIN AHJlbGF5AGZyb20gdGhlIGZpbGU=", srv.seen().auth)

	cfg := smtp.DefaultConfig()
	cfg.Host, cfg.From, cfg.Username, cfg.PasswordFile = "mail.example", "notice@mail.example", "relay", filepath.Join(t.TempDir(), "none")
	_, err := smtp.New(cfg, time.Now)
	require.ErrorContains(t, err, "smtp.password_file")
	cfg.Username, cfg.PasswordFile, cfg.CAFile = "", "", path
	_, err = smtp.New(cfg, time.Now)
	require.EqualError(t, err, "smtp.ca_file: holds no certificate in PEM")
}

// Idle connections end by themselves, with a QUIT.
func TestSend_IdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	srv, s := setup(t, nil, func(c *smtp.Config) { c.IdleTimeout = time.Second })
	require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
	require.Eventually(t, func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return slices.Contains(srv.lines, "QUIT") && len(srv.open) == 0
	}, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
}

// I13: as many connections as calls at once, and no more than MaxIdle afterwards.
func TestSend_ManyAtOnce(t *testing.T) {
	t.Parallel()
	srv, s := setup(t, nil, func(c *smtp.Config) { c.MaxIdle, c.TLS = 2, "none" })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				if got := s.Send(t.Context(), []sender.Delivery{delivery()})[0]; got.Class != sender.Accepted {
					t.Error(got)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, srv.seen().mails, 80)
	require.Eventually(t, func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return len(srv.open) <= 2
	}, 10*time.Second, 10*time.Millisecond)
}

// A connection that could not be made use of is closed, and so is one whose message was
// left unfinished.
func TestSend_LeavesNoConnectionOpen(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"GREETING", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA", "DOT"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			srv, s := setup(t, func(s *server) { s.faults[command] = "hang" }, func(c *smtp.Config) { c.Username, c.Password = "relay", "secret" })
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			_ = s.Send(ctx, []sender.Delivery{delivery()})
			require.Eventually(t, func() bool {
				srv.mu.Lock()
				defer srv.mu.Unlock()
				return srv.connections == 1 && len(srv.open) == 0
			}, 10*time.Second, time.Millisecond)
		})
	}
}

// A server that refuses a message and then its RSET gets no further message on that
// connection.
func TestSend_DropsAConnectionThatIsNotReset(t *testing.T) {
	t.Parallel()
	srv, s := setup(t, func(s *server) {
		s.replies["RCPT"], s.replies["RSET"] = "550 5.1.1 no", "503 5.5.1 bad sequence"
	}, nil)
	require.Equal(t, sender.InvalidAddress, send(t, s, delivery()).Class)
	srv.set(func(s *server) { clear(s.replies) })
	require.Equal(t, sender.Accepted, send(t, s, delivery()).Class)
	require.Equal(t, 2, srv.seen().connections)
}
