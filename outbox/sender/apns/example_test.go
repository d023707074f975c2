package apns_test

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/outbox/sender/apns"
)

func ExampleNew() {
	cfg := apns.DefaultConfig()
	cfg.TeamID, cfg.KeyID, cfg.Topic = "TEAM567890", "KEY4567890", "org.example.app"
	cfg.KeyFile = "testdata/no_such_file.p8"
	_, err := apns.New(cfg, time.Now)
	fmt.Println(err)
	// Output: apns.key_file: stat testdata/no_such_file.p8: no such file or directory
}
