package accounts_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
)

var (
	ann = job.Act{Actor: "ann", Reason: "wrong text"}
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bundle is one test's database.
type bundle struct {
	*outboxtest.Database

	jobs *job.Store
	who  *channels.Store
}

// setup makes n channels with the ids 1 to n, made and changed a day ago.
func setup(t *testing.T, n int) *bundle {
	t.Helper()
	return setupOn(t, dbtest.Reused(t, 4), n)
}

func setupOn(t *testing.T, db *dbtest.DB, n int) *bundle {
	t.Helper()
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	b := &bundle{Database: &outboxtest.Database{DB: db}, jobs: job.NewStore(db.Pool), who: who}
	b.OldChannels(t, n)
	return b
}

// one reads a single value.
func one[T any](t require.TestingT, b *bundle, sql string, args ...any) T {
	return outboxtest.One[T](t, b.Database, sql, args...)
}
