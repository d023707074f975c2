package fake_test

import (
	"bufio"
	"io"
	"net"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/fake"
)

// talk is an SMTP client that sees every line.
type talk struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (b *bench) dial() *talk {
	b.t.Helper()
	conn, err := new(net.Dialer).DialContext(b.t.Context(), "tcp", b.SMTPAddr())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	c := &talk{t: b.t, conn: conn, in: bufio.NewReader(conn)}
	require.Equal(b.t, "220", c.reply())
	return c
}

// reply reads a reply and returns its code, or the error's text.
func (c *talk) reply() string {
	if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err.Error()
	}
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		if len(line) < 4 || line[3] != '-' {
			return line[:min(3, len(line))]
		}
	}
}

// say sends a line and returns the reply's code, or the error's text.
func (c *talk) say(line string) string {
	if _, err := io.WriteString(c.conn, line+"\r\n"); err != nil {
		return err.Error()
	}
	return c.reply()
}

// mail sends a mail up to its final dot and returns the code of each step.
func (c *talk) mail(key, to string) []string {
	require.Equal(c.t, "250", c.say("EHLO me"))
	codes := []string{c.say("MAIL FROM:<belfry@example.com>"), c.say("RCPT TO:<" + to + ">")}
	if codes[1] != "250" {
		return append(codes, c.say("RSET"))
	}
	codes = append(codes, c.say("DATA"))
	text := "Subject: =?utf-8?q?Hell=C3=B6?=\r\nMessage-ID: <" + key + "@example.com>\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nth=\r\nere\r\n.."
	return append(codes, c.say(text+"\r\n."))
}

// Mail arrives with authentication, by a client that is not ours.
func TestServer_TakesMail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.SMTPAddr())
	require.NoError(t, err)
	client, err := smtp.NewClient(conn, "localhost")
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	require.NoError(t, client.Auth(smtp.PlainAuth("", b.setting("smtp", "username"), b.setting("smtp", "password"), "localhost")))
	for range 2 {
		require.NoError(t, client.Mail("belfry@example.com"))
		require.NoError(t, client.Rcpt("ann@example.com"))
		w, err := client.Data()
		require.NoError(t, err)
		_, err = io.WriteString(w, "Subject: Hello\r\nMessage-ID: <k-1@example.com>\r\n\r\nthere\r\n.dot\r\n")
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	require.NoError(t, client.Quit())
	tally := b.Summary().Of(fake.SMTP)
	balanced(t, tally)
	require.Equal(t, [3]int64{2, 1, 1}, [3]int64{tally.Accepted, tally.DistinctKeys, tally.Duplicates})
	call := b.Calls(fake.SMTP)[0]
	require.Equal(t, [4]string{"k-1", "ann@example.com", "Hello", "there\n.dot"}, [4]string{call.Key, call.Address, call.Title, strings.ReplaceAll(call.Body, "\r", "")})
}

func TestServer_RefusesOddMail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.dial()
	for _, step := range [][2]string{
		{"EHLO me", "250"}, {"DATA", "502"}, {"MAIL FROM:<>", "250"},
		{"AUTH PLAIN AGEAYg==", "535"}, {"AUTH CRAM-MD5", "504"},
		{"RCPT TO:<a@example.com>", "250"}, {"DATA", "354"}, {"no header\r\n.", "554"},
		{"MAIL FROM:<>", "250"}, {"RCPT TO:<a@example.com>", "250"}, {"DATA", "354"}, {strings.Repeat(strings.Repeat("x", 998)+"\r\n", 1100) + ".", "554"},
		{"QUIT", "221"},
	} {
		require.Equal(t, step[1], c.say(step[0]), step[0][:min(len(step[0]), 40)])
	}
	require.Equal(t, "EOF", c.reply())
	tally := b.Summary().Of(fake.SMTP)
	require.Equal(t, map[string]int64{"554": 2}, tally.Refused)
	balanced(t, tally)

	require.Equal(t, "500", b.dial().say(strings.Repeat("x", 5000)))
}

// Each fault of mail, line by line.
func TestServer_FailsMailAsOrdered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	try := func(fault string) (string, fake.Tally) {
		b.Reset()
		b.order(fault)
		codes := b.dial().mail("k", "ann@example.com")
		return strings.Join(codes, " "), b.Summary().Of(fake.SMTP)
	}
	for _, c := range []struct {
		fault, codes                  string
		accepted, refused, unanswered int64
	}{
		{"{for: smtp, status: 451}", "250 250 354 451", 0, 1, 0},
		{"{for: smtp, status: 552}", "250 250 354 552", 0, 1, 0},
		{"{for: all, status: 503}", "250 250 354 451", 0, 1, 0},
		{"{for: all, status: 400}", "250 250 354 554", 0, 1, 0},
		{"{for: smtp, do: invalid-address, address: ^ann}", "250 550 250", 0, 1, 0},
		{"{for: smtp, do: invalid-address, address: ^bob}", "250 250 354 250", 1, 0, 0},
		{"{for: smtp, do: garbage}", "250 250 354 \x00\xffg", 1, 0, 1},
		{"{for: smtp, latency: 10ms}", "250 250 354 250", 1, 0, 0},
	} {
		codes, tally := try(c.fault)
		require.Equal(t, c.codes, codes, c.fault)
		require.Equal(t, [3]int64{c.accepted, c.refused, c.unanswered}, [3]int64{tally.Accepted, tally.Refusals(), tally.Unanswered}, c.fault)
		balanced(t, tally)
	}
	codes, tally := try("{for: smtp, do: reset}")
	require.Contains(t, codes, "connection reset")
	require.Equal(t, [3]int64{1, 1, 0}, [3]int64{tally.Accepted, tally.Unanswered, tally.Dropped})
	codes, tally = try("{for: smtp, do: reset, accepted: false}")
	require.Contains(t, codes, "connection reset")
	require.Equal(t, [2]int64{0, 1}, [2]int64{tally.Accepted, tally.Dropped})
}
