package sms_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/sms"
)

// A gateway that answers 200 whatever happens, and says the rest in its body.
func ExampleNew() {
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.URL.Path, string(body))
		_, _ = io.WriteString(w, `{"messages":[{"id":"m-1","status":"queued"}]}`)
	}))
	defer gateway.Close()

	cfg := sms.DefaultConfig()
	cfg.URL, cfg.From = gateway.URL+"/v1/messages", "15881234"
	cfg.Body = `{"to": {{to | digits | json}}, "from": {{from | json}}, "text": {{text | json}}}`
	cfg.MessageIDPath, cfg.CodePath = "messages.0.id", "messages.0.status"
	cfg.Success.Codes = []string{"queued"}
	cfg.InvalidAddress.Codes = []string{"invalid_number"}
	s, err := sms.New(cfg, time.Now)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()

	results := s.Send(context.Background(), []sender.Delivery{{Key: "k1", Address: "+82 10-1234-5678", Body: "hello"}})
	fmt.Println(results[0].Class, results[0].Receipt)
	// Output:
	// /v1/messages {"to": "821012345678", "from": "15881234", "text": "hello"}
	// accepted m-1
}
