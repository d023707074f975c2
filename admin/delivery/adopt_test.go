package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Adopting twice is adopting once, and each change is kept with both places.
func TestAdopt_IsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Exec(t, `UPDATE belfry.installation SET database_oid = NULL`)
	was := one[string](t, b, `SELECT id::text FROM belfry.installation`)
	for range 2 {
		_, err := delivery.Adopt(bg, b.DB.Pool, "", job.Act{Actor: "ann", Reason: "moved"})
		require.NoError(t, err)
	}
	require.Equal(t, was, one[string](t, b, `SELECT id::text FROM belfry.installation`), "providers know its keys by it")
	require.Equal(t, "disowned: , adopted: moved", one[string](t, b, `SELECT string_agg(kind || ': ' || reason, ', ' ORDER BY id) FROM belfry.events WHERE subject = 'installation'`))
	require.True(t, one[bool](t, b, `SELECT detail #> '{before,database_oid}' = 'null' AND detail #>> '{after,database_oid}' = (SELECT oid::text FROM pg_database WHERE datname = current_database())
		AND detail #>> '{after,system_identifier}' = (SELECT system_identifier::text FROM pg_control_system()) AND actor = 'ann'
		FROM belfry.events WHERE subject = 'installation' AND kind = 'adopted'`))
}

// What waits is counted by age, without what is held.
func TestReadBacklog_CountsWhatWouldLeave(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	empty, err := delivery.ReadBacklog(bg, b.DB.Pool)
	require.NoError(t, err)
	require.Equal(t, delivery.Backlog{Ages: []delivery.BacklogAge{}}, empty)
	b.Rest(t, outbox.TypePush, 10, job.Processed)
	b.Rest(t, outbox.TypePush, 20, job.Aborted)
	old := b.Rest(t, outbox.TypePush, 5, job.Processed)
	b.Exec(t, `ALTER TABLE belfry.jobs DISABLE TRIGGER USER; UPDATE belfry.jobs SET created_at = now() - interval '3 days' WHERE id = `+fmt.Sprint(old)+`; ALTER TABLE belfry.jobs ENABLE TRIGGER USER`)
	b.ActivitiesFor(t, 3)
	b.Exec(t, `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'waits')`)
	dbtest.Recount(t, b.DB.Pool)
	got, err := delivery.ReadBacklog(bg, b.DB.Pool)
	require.NoError(t, err)
	hour, week := time.Hour, 168*time.Hour
	require.Equal(t, delivery.Backlog{Ages: []delivery.BacklogAge{{&hour, 1, 10}, {&week, 1, 5}}, Activities: 3, Unwalked: 1}, got)
}
