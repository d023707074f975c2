package webhook_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender/webhook"
)

// The reference vector of the Standard Webhooks libraries.
const (
	vectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorBody   = `{"test": 2432232314}`
	vectorTime   = 1614265330
)

func vector() http.Header {
	h := http.Header{}
	h.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("webhook-timestamp", "1614265330")
	h.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	return h
}

func TestVerify(t *testing.T) {
	t.Parallel()
	at := time.Unix(vectorTime, 0)
	set := func(key, value string) http.Header {
		h := vector()
		h.Set(key, value)
		return h
	}
	for _, test := range []struct {
		name   string
		header http.Header
		body   string
		now    time.Time
		want   error
	}{
		{"the vector", vector(), vectorBody, at, nil},
		{"one of several", set("webhook-signature", "v1a,xx v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v2,x"), vectorBody, at, nil},
		{"another version", set("webhook-signature", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="), vectorBody, at, webhook.ErrSignature},
		{"changed body", vector(), vectorBody + " ", at, webhook.ErrSignature},
		{"changed id", set("webhook-id", "msg_other"), vectorBody, at, webhook.ErrSignature},
		{"changed time", set("webhook-timestamp", "1614265331"), vectorBody, at, webhook.ErrSignature},
		{"no time", set("webhook-timestamp", "now"), vectorBody, at, webhook.ErrSignature},
		{"no signature", set("webhook-signature", ""), vectorBody, at, webhook.ErrSignature},
		{"nothing", http.Header{}, vectorBody, at, webhook.ErrSignature},
		{"at the edge, late", vector(), vectorBody, at.Add(webhook.Tolerance), nil},
		{"too late", vector(), vectorBody, at.Add(webhook.Tolerance + time.Second), webhook.ErrTimestamp},
		{"at the edge, early", vector(), vectorBody, at.Add(-webhook.Tolerance), nil},
		{"too early", vector(), vectorBody, at.Add(-webhook.Tolerance - time.Second), webhook.ErrTimestamp},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, webhook.Verify(test.header, []byte(test.body), test.now, webhook.Tolerance, vectorSecret), test.want)
		})
	}
	err := webhook.Verify(vector(), []byte(vectorBody), at, webhook.Tolerance, "hunter2")
	require.EqualError(t, err, "secrets[0]: is no secret; allowed is whsec_ followed by the base64 of 24 to 64 bytes")
	require.ErrorIs(t, webhook.Verify(vector(), []byte(vectorBody), at, webhook.Tolerance), webhook.ErrSignature, "no secret verifies nothing")
}
