package settings_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/sender"
)

const mailer = `BELFRY_SENDERS=[{"name": "mail", "kind": "smtp", "smtp": {"host": "127.0.0.1", "port": PORT, "tls": "none", "from": "a@example.com", "list_unsubscribe": "{unsubscribe_url}"}}]`

// A sender that links to an opt-out needs keys, and a place.
func TestSenders_ALinkNeedsKeysAndAPlace(t *testing.T) {
	t.Parallel()
	_, err := settings.Load(config.Input{Environ: []string{strings.Replace(mailer, "PORT", "25", 1)}}, nil)
	require.ErrorContains(t, err, "senders[0].smtp.list_unsubscribe: {unsubscribe_url} needs api.unsubscribe_keys_file, which is empty; allowed values of that: a file with keys")
	require.ErrorContains(t, err, "senders[0].smtp.list_unsubscribe: {unsubscribe_url} needs api.public_url, which is empty; allowed values of that: https://HOST[:PORT][/PATH]")
}

// The mail of a sender has a link that the keys read: channel, category and medium.
func TestSenders_MailHasASignedLink(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	port, mails := mailServer(t)
	told := config.Input{Environ: []string{
		strings.Replace(mailer, "PORT", port, 1),
		"BELFRY_API_PUBLIC_URL=https://example.com/belfry", "BELFRY_API_UNSUBSCRIBE_KEYS_FILE=" + file,
	}}
	_, err := settings.Load(told, settings.Always)
	require.ErrorContains(t, err, "api.unsubscribe_keys_file")
	s, err := settings.Load(told, nil)
	require.NoError(t, err)
	_, err = s.OpenLinks()
	var unfit *node.ConfigError
	require.ErrorAs(t, err, &unfit)
	require.ErrorContains(t, err, "api.unsubscribe_keys_file")

	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("b", 32)), 0o600))
	links, err := s.OpenLinks()
	require.NoError(t, err)
	list, done, err := s.OpenSenders(links)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("k", 32)), 0o600))
	changed, err := links.Reload()
	require.NoError(t, err)
	require.True(t, changed, "the key that signs is the one of the last reload")
	batch := []sender.Delivery{{Key: "k", ChannelID: 4711, ExternalID: "kim", Category: "popular_content", Medium: "email", Address: "kim@example.com", Title: "hi", Body: "hi"}}
	results := list[0].Client.Send(t.Context(), batch)
	require.Equal(t, sender.Accepted, results[0].Class, results[0].Detail)
	require.Empty(t, batch[0].UnsubscribeURL, "the caller's batch stays as it is")
	require.NoError(t, done())

	_, after, found := strings.Cut(strings.ReplaceAll(<-mails, "\r\n ", " "), "<https://example.com/belfry/unsubscribe/")
	require.True(t, found)
	signed, _, _ := strings.Cut(after, ">")
	links, err = unsubscribe.Open(file)
	require.NoError(t, err)
	link, err := links.Read(signed)
	require.NoError(t, err)
	require.Equal(t, unsubscribe.Link{ChannelID: 4711, Category: "popular_content", Medium: "email"}, link)
}

// mailServer takes one mail.
func mailServer(t *testing.T) (port string, mails <-chan string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	got := make(chan string, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		in := bufio.NewScanner(c)
		say := func(line string) { _, _ = c.Write([]byte(line + "\r\n")) }
		say("220 here")
		var mail strings.Builder
		for content := false; in.Scan(); {
			line := in.Text()
			switch {
			case content && line == ".":
				content = false
				got <- mail.String()
				say("250 taken")
			case content:
				mail.WriteString(line + "\r\n")
			case line == "DATA":
				content = true
				say("354 go on")
			case line == "QUIT":
				say("221 bye")
				return
			default:
				say("250 yes")
			}
		}
	}()
	_, port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port, got
}
