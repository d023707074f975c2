package webpush_test

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/outbox/sender/webpush"
)

func ExampleNew() {
	cfg := webpush.DefaultConfig()
	cfg.Subject = "mailto:ops@example.org"
	cfg.PrivateKey = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
	s, err := webpush.New(cfg, time.Now)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()
	fmt.Println(s.MaxBatch())
	// Output: 1
}
