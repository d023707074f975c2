package bench_test

import (
	"os"
	"testing"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

func TestMain(m *testing.M) {
	bench.Child() // does not return in a runner process
	if os.Getenv("BELFRY_BENCH_CHILD") != "" {
		os.Exit(3) //revive:disable-line:deep-exit // the suite must never run within the suite
	}
	dbtest.Main(m)
}
