package outboxtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

// Stores is a Database with the stores of its jobs and channels.
type Stores struct {
	*Database

	Jobs     *job.Store
	Channels *channels.Store
}

// NewStores returns the stores of a database with n channels, whose ids are 1 to n. They were created and
// changed a day ago.
func NewStores(t testing.TB, db *dbtest.DB, n int) *Stores {
	t.Helper()
	recipients, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	s := &Stores{Database: &Database{DB: db}, Jobs: job.NewStore(db.Pool), Channels: recipients}
	s.OldChannels(t, n)
	return s
}
