package alimtalk_test

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/outbox/sender/alimtalk"
)

func ExampleNew() {
	cfg := alimtalk.DefaultConfig()
	cfg.ServiceID, cfg.PlusFriendID = "ncp:kkobizmsg:kr:123456789012:name", "@example"
	cfg.AccessKey, cfg.SecretKey = "from the console", "from the vault"
	cfg.TemplateCode = "NOTICE1"
	s, err := alimtalk.New(cfg, time.Now)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()
	fmt.Println(s.MaxBatch())
	// Output: 100
}
