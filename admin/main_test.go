package admin_test

import (
	"testing"

	"github.com/belfryhq/belfry/migrations/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
