package httpcall_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// A sender makes its request, and reads the answer or the lack of one.
func ExampleClient_Do() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer provider.Close()
	client, err := httpcall.New(httpcall.Config{}, httpcall.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	call := func(url string) sender.Result {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{}`))
		if err != nil {
			return sender.Result{Class: sender.Permanent}
		}
		answer, err := client.Do(req)
		if err != nil {
			return httpcall.Failure(err)
		}
		return answer.Result()
	}
	fmt.Printf("%+v\n", call(provider.URL))
	fmt.Printf("%+v\n", call("http://127.0.0.1:1")) // where nobody listens
	// Output:
	// {Class:retryable Code:429 Detail:Too Many Requests RetryAfter:20s Receipt:}
	// {Class:retryable Code:dial Detail:connection refused RetryAfter:0s Receipt:}
}
