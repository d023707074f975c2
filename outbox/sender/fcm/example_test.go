package fcm_test

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/fcm"
)

// The service account's key comes from a file; New reads it and makes no call.
func ExampleNew() {
	cfg := fcm.DefaultConfig()
	cfg.ServiceAccountFile = "/run/secrets/absent.json"
	cfg.TTL = time.Hour
	s, err := fcm.New(cfg, time.Now)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()
	results := s.Send(context.Background(), []sender.Delivery{{Key: "k1", Address: "registration token", Title: "hello", Data: []byte(`{}`)}})
	fmt.Println(results[0].Class)
	// Output: service_account_file: stat /run/secrets/absent.json: no such file or directory
}
