package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Each sender of the printed configuration delivers to the fake.
func TestSenders_DeliverToTheFakes(t *testing.T) {
	t.Parallel()
	server, err := fake.Start(t.Context(), fake.DefaultConfig())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	senders := printedSenders(t, server)
	require.Len(t, senders, len(fake.Providers()))
	for i, s := range senders {
		delivers(t, server, s, fmt.Sprintf("0b2c3d4e-0000-8000-8000-%012d", i))
	}
}

// printedSenders opens the senders of the printed configuration.
func printedSenders(t *testing.T, server *fake.Server) []relay.Sender {
	t.Helper()
	text, err := Senders(server)
	require.NoError(t, err)
	var file struct {
		Senders []any `yaml:"senders"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	list, err := settings.DecodeSenders(file.Senders, relay.DefaultConfig().Retry)
	require.NoError(t, err)
	require.NoError(t, errors.Join(list.Validate(nil)...))
	senders, done, err := list.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, done()) })
	return senders
}

// delivers sends one message and requires that the fake receives it.
func delivers(t *testing.T, server *fake.Server, s relay.Sender, key string) {
	t.Helper()
	d := sender.Delivery{
		Key: key, JobID: 1, ChannelID: 1, Attempt: 1, Medium: s.Medium,
		Address: "0123456789abcdef", Title: "Hello", Body: "there", Data: json.RawMessage("{}"),
	}
	want, p := sender.Accepted, fake.Provider(s.Name)
	switch s.Name {
	case "webpush":
		d.Address = server.Subscription("ann")
	case "email":
		d.Address, p = "ann@example.com", fake.SMTP
	case "sms":
		d.Address = "+821012345678"
	case "alimtalk":
		d.Address, want = "+821012345678", sender.Pending
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results := s.Client.Send(ctx, []sender.Delivery{d})
	require.Equal(t, want, results[0].Class, "%s: %+v", s.Name, results[0])
	calls := server.Calls(p)
	require.Len(t, calls, 1, s.Name)
	require.Contains(t, calls[0].Body, "there")
	if p != fake.AlimTalk { // which has no place for a key
		require.Equal(t, key, calls[0].Key, s.Name)
	}
}

func TestFakeLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1 call, 0/s: 1 accepted", fakeLine(fake.Tally{Calls: 1, Accepted: 1}, -1))
	require.Equal(t, "1,234 calls, 5/s: 1,000 accepted, 2 duplicate, 3 repeated, 200 refused, 4 dropped, 5 unanswered, 6 early",
		fakeLine(fake.Tally{Calls: 1234, Accepted: 1000, Duplicates: 2, Repeats: 3, Dropped: 4, Unanswered: 5, Early: 6, Refused: map[string]int64{"503": 200}}, 5))
}

// Without a terminal the command shows no live line and ends with its context.
func TestWatchFakes_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	watchFakes(ctx, text.NewTicker(text.NewProgress(io.Discard, nil), time.Now), nil)
}
