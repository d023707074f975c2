package provider

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

// What may no longer be sent when the server is ready at last is not sent: neither its addresses, nor its end.
func TestSMTP_ChecksBeforeItSends(t *testing.T) {
	t.Parallel()
	server, c := smtpSetup(t, nil, nil)
	for sends, test := range []struct {
		checks      int // that pass
		lines       []string
		connections int
	}{
		{0, nil, 0},
		{1, nil, 1},
		{1, []string{"MAIL", "RCPT", "DATA"}, 1},
	} {
		before, asked := len(server.seen().lines), 0
		ctx := sender.WithCheck(t.Context(), func() error {
			if asked++; asked > test.checks {
				return sender.ErrLate
			}
			return nil
		})
		result := c.Send(ctx, []sender.Delivery{smtpDelivery()})[0]
		require.Equal(t, sender.Result{Class: sender.Retryable, Code: "late", Detail: "not sent: the claim to the message may have ended", Untried: true}, result)
		var commands []string
		for _, line := range server.seen().lines[before:] {
			if command, _, _ := strings.Cut(strings.ToUpper(line), " "); slices.Contains([]string{"MAIL", "RCPT", "DATA"}, strings.TrimSuffix(command, ":")) {
				commands = append(commands, command)
			}
		}
		require.Equal(t, test.lines, commands, sends)
		require.Empty(t, server.seen().mails)
		require.Equal(t, test.connections, server.seen().connections, "nothing was sent over the first")
	}
	require.Equal(t, sender.Accepted, c.Send(t.Context(), []sender.Delivery{smtpDelivery()})[0].Class)
}

// A server with a limit of messages per session refuses MAIL of the next one temporarily. It goes over a fresh connection.
func TestSMTP_ReplacesASessionThatMayDeliverNoMore(t *testing.T) {
	t.Parallel()
	server, c := smtpSetup(t, nil, nil)
	send := func() sender.Class { return c.Send(t.Context(), []sender.Delivery{smtpDelivery()})[0].Class }
	require.Equal(t, sender.Accepted, send())
	server.set(func(s *smtpServer) { s.once["MAIL"] = "452 4.5.3 too many messages in this session" })
	require.Equal(t, sender.Accepted, send())
	require.Equal(t, 2, server.seen().connections)

	server.set(func(s *smtpServer) { s.replies["MAIL"] = "452 4.3.1 no space" })
	for range 3 {
		require.Equal(t, sender.Retryable, send())
	}
	require.Equal(t, 3, server.seen().connections, "a fresh connection that is refused is no reason for another one")
}
