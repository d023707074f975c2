package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
	"github.com/belfryhq/belfry/outbox/sender/webhook"
)

// A receiver checks who calls before it reads what is said.
func ExampleVerify() {
	now := func() time.Time { return time.Unix(1614265330, 0) } // in earnest time.Now
	receiver := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		if err := webhook.Verify(r.Header, body, now(), webhook.Tolerance, vectorSecret); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprintf(w, "thank you for %s", body)
	}

	answer := httptest.NewRecorder()
	call := httptest.NewRequest(http.MethodPost, "/hooks", http.NoBody)
	call.Header = vector()
	receiver(answer, call)
	fmt.Println(answer.Code)
	// Output: 401
}

// A fixed receiver in one's own network: its addresses are let through by name.
func ExampleNew() {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(webhook.Verify(r.Header, body, time.Now(), webhook.Tolerance, vectorSecret), r.Header.Get("Idempotency-Key"))
	}))
	defer receiver.Close()

	s, err := webhook.New(webhook.Config{
		URL: receiver.URL, AllowHTTP: true, Secrets: []string{vectorSecret},
		HTTP: httpcall.Config{AllowAddresses: []string{"127.0.0.0/8"}},
	}, time.Now)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()

	results := s.Send(context.Background(), []sender.Delivery{{Key: "k1", ChannelID: 42, Title: "hello", Data: []byte(`{}`)}})
	fmt.Println(results[0].Class)
	// Output:
	// <nil> k1
	// accepted
}
