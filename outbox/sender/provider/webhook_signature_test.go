package provider

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The reference vector of the Standard Webhooks libraries.
const (
	webhookVectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	webhookVectorBody   = `{"test": 2432232314}`
	webhookVectorTime   = 1614265330
)

func webhookVector() http.Header {
	h := http.Header{}
	h.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("webhook-timestamp", "1614265330")
	h.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	return h
}

func TestWebhook_Verify(t *testing.T) {
	t.Parallel()
	at := time.Unix(webhookVectorTime, 0)
	set := func(key, value string) http.Header {
		h := webhookVector()
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
		{"the vector", webhookVector(), webhookVectorBody, at, nil},
		{"one of several", set("webhook-signature", "v1a,xx v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v2,x"), webhookVectorBody, at, nil},
		{"another version", set("webhook-signature", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="), webhookVectorBody, at, ErrWebhookSignature},
		{"changed body", webhookVector(), webhookVectorBody + " ", at, ErrWebhookSignature},
		{"changed id", set("webhook-id", "msg_other"), webhookVectorBody, at, ErrWebhookSignature},
		{"changed time", set("webhook-timestamp", "1614265331"), webhookVectorBody, at, ErrWebhookSignature},
		{"no time", set("webhook-timestamp", "now"), webhookVectorBody, at, ErrWebhookSignature},
		{"no signature", set("webhook-signature", ""), webhookVectorBody, at, ErrWebhookSignature},
		{"nothing", http.Header{}, webhookVectorBody, at, ErrWebhookSignature},
		{"at the edge, late", webhookVector(), webhookVectorBody, at.Add(WebhookTolerance), nil},
		{"too late", webhookVector(), webhookVectorBody, at.Add(WebhookTolerance + time.Second), ErrWebhookTimestamp},
		{"at the edge, early", webhookVector(), webhookVectorBody, at.Add(-WebhookTolerance), nil},
		{"too early", webhookVector(), webhookVectorBody, at.Add(-WebhookTolerance - time.Second), ErrWebhookTimestamp},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, VerifyWebhook(test.header, []byte(test.body), test.now, WebhookTolerance, webhookVectorSecret), test.want)
		})
	}
	err := VerifyWebhook(webhookVector(), []byte(webhookVectorBody), at, WebhookTolerance, "hunter2")
	require.EqualError(t, err, "secrets[0]: is not a secret; allowed values: whsec_ followed by the base64 of 24 to 64 bytes")
	require.ErrorIs(t, VerifyWebhook(webhookVector(), []byte(webhookVectorBody), at, WebhookTolerance), ErrWebhookSignature, "no secret verifies nothing")
}
