package smtp_test

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/outbox/sender/smtp"
)

func ExampleNew() {
	cfg := smtp.DefaultConfig()
	cfg.Host = "smtp.example.org"
	cfg.From = "Example <notice@example.org>"
	cfg.Username, cfg.Password = "notice", "from the vault"
	s, err := smtp.New(cfg, time.Now)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()
	fmt.Println(s.MaxBatch())
	// Output: 1
}

func ExampleConfig_Validate() {
	cfg := smtp.DefaultConfig()
	cfg.Host, cfg.From, cfg.TLS = "smtp.example.org", "notice@example.org", "ssl"
	fmt.Println(cfg.Validate("senders[0].smtp"))
	// Output: senders[0].smtp.tls: "ssl" is not allowed; allowed are starttls, opportunistic, implicit, none
}
