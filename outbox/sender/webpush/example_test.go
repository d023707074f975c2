package webpush_test

import (
	"fmt"

	"github.com/belfryhq/belfry/outbox/sender/webpush"
)

// A browser subscribes with the public half of the sender's key.
func ExampleNew() {
	cfg := webpush.DefaultConfig()
	cfg.Subject = "mailto:ops@example.org"
	cfg.PrivateKey = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
	s, err := webpush.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()
	fmt.Println(s.PublicKey())
	// Output: BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8
}
