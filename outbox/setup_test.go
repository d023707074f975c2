package outbox_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

var (
	bg  = context.Background()
	ann = job.Act{Actor: "ann", Reason: "wrong text"}
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

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

// returned marks the waiting messages of jobs as claimed before.
func (b *bundle) returned(t *testing.T) {
	t.Helper()
	b.Exec(t, `UPDATE belfry.message_rows SET lease_id = 0 WHERE job_id > 0 AND status = 'PENDING' AND lease_id IS NULL`)
}

// leasesOf returns the leases of messages, each once.
func leasesOf(claimed []outbox.Claimed) (ids []int64) {
	for _, c := range claimed {
		if !slices.Contains(ids, c.LeaseID) {
			ids = append(ids, c.LeaseID)
		}
	}
	return ids
}
