package schedules_test

import (
	"testing"

	"github.com/belfryhq/belfry/dev/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
