package accounts_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
)

var (
	ann = job.Act{Actor: "ann", Reason: "wrong text"}
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bundle is the database of one test.
type bundle struct{ *outboxtest.Stores }

// setup returns a database with n old channels, whose ids are 1 to n.
func setup(t *testing.T, n int) *bundle {
	t.Helper()
	return setupOn(t, dbtest.Reused(t, 4), n)
}

func setupOn(t *testing.T, db *dbtest.DB, n int) *bundle {
	t.Helper()
	return &bundle{outboxtest.NewStores(t, db, n)}
}

// one reads a single value.
func one[T any](t require.TestingT, b *bundle, sql string, args ...any) T {
	return outboxtest.One[T](t, b.Database, sql, args...)
}
