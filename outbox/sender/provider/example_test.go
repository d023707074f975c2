package provider_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/provider"
)

// A gateway that answers 200 whatever happens, and says the rest in its body.
func ExampleNew() {
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.URL.Path, string(body))
		_, _ = io.WriteString(w, `{"messages":[{"id":"m-1","status":"queued"}]}`)
	}))
	defer gateway.Close()

	cfg := provider.DefaultSMS()
	cfg.URL, cfg.From = gateway.URL+"/v1/messages", "15881234"
	cfg.Body = `{"to": {{.to | digits | json}}, "from": {{.from | json}}, "text": {{.text | json}}}`
	cfg.MessageIDPath, cfg.CodePath = "messages.0.id", "messages.0.status"
	cfg.Success.Codes = []string{"queued"}
	cfg.InvalidAddress.Codes = []string{"invalid_number"}
	client, err := provider.New(cfg, time.Now)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	results := client.Send(context.Background(), []sender.Delivery{{Key: "k1", Address: "+82 10-1234-5678", Body: "hello"}})
	fmt.Println(results[0].Class, results[0].Receipt)
	// Output:
	// /v1/messages {"to": "821012345678", "from": "15881234", "text": "hello"}
	// accepted m-1
}

func ExampleValidate() {
	cfg := provider.DefaultSMTP()
	cfg.Host, cfg.From, cfg.TLS = "smtp.example.org", "notice@example.org", "ssl"
	fmt.Println(provider.Validate("senders[0].smtp", cfg))
	// Output: senders[0].smtp.tls: "ssl" is not allowed; allowed values: starttls, opportunistic, implicit, none
}

// notify is a receiver of calls signed with secret. first reports whether a key is new, and stores it durably with what it causes.
func notify(secret string, first func(key string, body []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		if err := provider.VerifyWebhook(r.Header, body, time.Now(), provider.WebhookTolerance, secret); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err := first(r.Header.Get("Idempotency-Key"), body); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable) // belfry tries again
			return
		}
		w.WriteHeader(http.StatusNoContent) // also if the key was known
	}
}

// A receiver in a private network, whose addresses are allowed, verifies the caller.
func ExampleVerifyWebhook() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLwSwMfKQ9r8GKYqr"
	receiver := httptest.NewServer(notify(secret, func(key string, _ []byte) error {
		fmt.Println(key)
		return nil
	}))
	defer receiver.Close()

	for _, signedWith := range []string{secret, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		client, err := provider.New(&provider.WebhookConfig{
			URL: receiver.URL, AllowHTTP: true, Secrets: []string{signedWith},
			HTTP: provider.HTTPConfig{AllowAddresses: []string{"127.0.0.0/8"}},
		}, time.Now)
		if err != nil {
			fmt.Println(err)
			return
		}
		results := client.Send(context.Background(), []sender.Delivery{{Key: "k1", ChannelID: 42, Title: "hello", Data: []byte(`{}`)}})
		fmt.Println(results[0].Class, results[0].Code)
		_ = client.Close()
	}
	// Output:
	// k1
	// accepted 204
	// retryable 401
}
