package retention_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
)

var ann = job.Act{Actor: "ann", Reason: "wrong text"}

func TestMain(m *testing.M) { dbtest.Main(m) }

// bundle is the database of one test.
type bundle struct {
	*outboxtest.Database

	jobs *job.Store
}

// setup returns a database without channels.
func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(dbtest.Reused(t, 4))
}

func setupOn(db *dbtest.DB) *bundle {
	return &bundle{Database: &outboxtest.Database{DB: db}, jobs: job.NewStore(db.Pool)}
}

// one reads a single value.
func one[T any](t require.TestingT, b *bundle, sql string, args ...any) T {
	return outboxtest.One[T](t, b.Database, sql, args...)
}
