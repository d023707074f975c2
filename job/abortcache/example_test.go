package abortcache_test

import (
	"context"
	"fmt"
	"os"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/abortcache"
)

// An operator's tool flags a job and goes on to the database; it says so when the
// cache does not answer, and does not stop there.
func ExampleOpen() {
	config := abortcache.DefaultConfig()
	config.URL = "unix://" + os.DevNull + "/redis.sock" // where no server is
	cache, err := abortcache.Open(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cache.Close() }()
	err = cache.Set(context.Background(), 42, job.Act{Actor: "ana", Reason: "wrong audience"})
	fmt.Println("flagged:", err == nil)
	// Output: flagged: false
}

func ExampleConfig_Validate() {
	config := abortcache.DefaultConfig()
	config.Timeout = 0
	fmt.Println(config.Validate())
	// Output: abort.timeout: 0s is not allowed; allowed are 10ms to 10s
}
