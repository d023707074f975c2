package sms_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/sms"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	short = 2 * time.Second // enough to connect and be heard on a busy machine
	long  = 5 * time.Second
	key   = "0193a1b2-0000-8000-8000-000000000001"
)

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func setup(t *testing.T, cfg sms.Config) *sender.OneByOne {
	t.Helper()
	s, err := sms.New(cfg, func() time.Time { return time.Unix(1_800_000_000, 0) })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func delivery() sender.Delivery {
	return sender.Delivery{
		Key: key, JobID: -7, ChannelID: 42, ExternalID: "u/42", Category: "operator_notice", Medium: "sms", Locale: "ko",
		Address: "+82 10-1234-5678", Title: `say "hi"`, Body: "a&b=<c>\n안녕", Data: json.RawMessage(`{"n":1.50,"s":"x y","o":{"a": 1},"z":null}`), Attempt: 1,
	}
}

func send(t *testing.T, s *sender.OneByOne, d sender.Delivery, timeout time.Duration) sender.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	results := s.Send(ctx, []sender.Delivery{d})
	require.Len(t, results, 1)
	return results[0]
}
