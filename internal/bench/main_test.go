package bench_test

import (
	"testing"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

func TestMain(m *testing.M) {
	bench.Child() // does not return in a runner process
	dbtest.Main(m)
}
