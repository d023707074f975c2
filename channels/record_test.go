package channels

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// A radius that no relation of the installation can answer is refused where it is asked
// for, and not when the job runs.
func TestRecord_RadiusWithoutLocationIsRefusedAtEnqueue(t *testing.T) {
	t.Parallel()
	b := setupOn(t, "app.users")
	b.exec(t, `CREATE SCHEMA app; CREATE TABLE app.users (id int PRIMARY KEY, external_id text UNIQUE, platform text, active boolean, addresses jsonb)`)
	const enqueue = `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 't', belfry.audience_radius(1, 2, 3000))`
	b.exec(t, enqueue)
	was, err := b.store.Record(b.ctx, b.pool)
	require.NoError(t, err)
	require.Equal(t, "belfry.channels", was)
	was, err = b.store.Record(b.ctx, b.pool)
	require.NoError(t, err)
	require.Empty(t, was, "in step")

	_, err = b.pool.Exec(b.ctx, enqueue)
	require.ErrorContains(t, err, "belfry.jobs.audience.kind: radius needs a column location, which app.users has not; allowed values: everyone")
	_, err = b.pool.Exec(b.ctx, `INSERT INTO belfry.schedules (name, cron, time_zone, template) VALUES ('s', '0 9 * * *', 'UTC',
		jsonb_build_object('type', 'push', 'category', 'operator_notice', 'title', 't', 'audience', belfry.audience_radius(1, 2, 3000)))`)
	require.ErrorContains(t, err, "radius needs a column location")
	_, err = b.store.Count(b.ctx, b.pool, Within(1, 2, 3000))
	require.ErrorIs(t, err, ErrRelation)
	require.ErrorContains(t, err, "app.users has no column location, which a radius audience needs")

	b.exec(t, `ALTER TABLE app.users ADD location point`)
	b.exec(t, enqueue)

	gone, err := New(Config{Relation: "app.nowhere"})
	require.NoError(t, err)
	was, err = gone.Record(b.ctx, b.pool)
	require.NoError(t, err)
	require.Empty(t, was, "a relation that is not there is not recorded")
}

// belfry.send_external finds channels where jobs do.
func TestRecord_SendExternalFollowsTheRelation(t *testing.T) {
	t.Parallel()
	b := setupOn(t, `Kunden`)
	b.exec(t, `CREATE TABLE "Kunden" (id smallint PRIMARY KEY, external_id text UNIQUE, platform text, active boolean)`)
	b.exec(t, `INSERT INTO "Kunden" VALUES (7, 'acct-5', 'web', true); INSERT INTO belfry.channels (external_id, platform) VALUES ('acct-6', 'web')`)
	_, err := b.store.Record(b.ctx, b.pool)
	require.NoError(t, err)
	var channel int64
	b.exec(t, `SELECT belfry.send_external('acct-5', 'activity', 'hello')`)
	require.NoError(t, b.pool.QueryRow(b.ctx, `SELECT channel_id FROM belfry.activities`).Scan(&channel))
	require.EqualValues(t, 7, channel)
	_, err = b.pool.Exec(b.ctx, `SELECT belfry.send_external('acct-6', 'activity', 'hello')`)
	require.ErrorContains(t, err, `'acct-6' is no channel's; allowed values: the external ids of public."Kunden"`)
}

// A role that does not own the schema compares and names the remedy.
func TestRecord_IsTheOwnersAndNamesTheRemedy(t *testing.T) {
	t.Parallel()
	b := setupOn(t, "app.users")
	b.exec(t, `CREATE SCHEMA app; CREATE TABLE app.users (id int PRIMARY KEY, external_id text)`)
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(b.ctx)) }()
	_, err = tx.Exec(b.ctx, `CREATE ROLE belfry_recipients_reader; GRANT USAGE ON SCHEMA belfry, app TO belfry_recipients_reader;
		GRANT SELECT ON belfry.recipients TO belfry_recipients_reader; SET LOCAL ROLE belfry_recipients_reader`)
	require.NoError(t, err)
	_, err = b.store.Record(b.ctx, tx)
	require.ErrorContains(t, err, "SQL functions read recipients from belfry.channels, and channels.relation is app.users; as ")
	require.ErrorContains(t, err, ", who owns the schema belfry: SELECT belfry.record_recipients('app.users')")
}

// The schema's owner trusts the relation with the role that owned it: SQL functions refuse it
// when it belongs to another role, until the owner records it again.
func TestRecord_AnotherOwnerOfTheRelationIsRefused(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	store, err := New(Config{Relation: "app.users"})
	require.NoError(t, err)
	b := bundle{ctx: t.Context(), pool: db.Pool, store: store}
	b.exec(t, `CREATE SCHEMA app; CREATE TABLE app.users (id int PRIMARY KEY, external_id text, platform text, active boolean); INSERT INTO app.users VALUES (1, 'u1', 'web', true)`)
	_, err = b.store.Record(b.ctx, b.pool)
	require.NoError(t, err)
	app := db.Role(t)
	b.exec(t, `ALTER TABLE app.users OWNER TO "`+app.User+`"`)
	_, err = b.pool.Exec(b.ctx, `SELECT belfry.send_external('u1', 'activity', 'hello')`)
	require.ErrorContains(t, err, "belfry.recipients.relation_name: app.users belongs to "+app.User+", and to ")
	m, err := b.store.Recorded(b.ctx, b.pool)
	require.NoError(t, err)
	require.Equal(t, app.User, m.Owner)
	require.ErrorContains(t, m, "so SQL functions do not read it")
	was, err := b.store.Record(b.ctx, b.pool)
	require.NoError(t, err)
	require.Equal(t, "app.users", was)
	b.exec(t, `SELECT belfry.send_external('u1', 'activity', 'hello')`)
}

// SQL functions run in the application's own session, under its policies: a row that a policy
// hides is an error, not a row that does not exist.
func TestRecord_HiddenRowsAreNotMissing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	store, err := New(Config{Relation: "app.users"})
	require.NoError(t, err)
	b := bundle{ctx: t.Context(), pool: db.Pool, store: store}
	b.exec(t, `CREATE SCHEMA app; CREATE TABLE app.users (id int PRIMARY KEY, external_id text, platform text, active boolean); INSERT INTO app.users VALUES (1, 'u1', 'web', true)`)
	_, err = b.store.Record(b.ctx, b.pool)
	require.NoError(t, err)
	app := db.Role(t, `GRANT USAGE ON SCHEMA belfry, app TO :role`, `GRANT ALL ON ALL TABLES IN SCHEMA belfry TO :role`, `GRANT SELECT (id, external_id) ON app.users TO :role`)
	const (
		sends    = `SELECT belfry.send_external('u1', 'activity', 'hello')`
		misses   = `SELECT belfry.audience_missing(belfry.audience_channels(1))`
		enqueues = `SELECT belfry.enqueue('inbox', 'operator_notice', 'hello', audience => belfry.audience_channels(1))`
	)
	for _, statement := range []string{sends, misses, enqueues} {
		_, err = app.Pool.Exec(b.ctx, statement)
		require.NoError(t, err, statement)
	}
	var warnings atomic.Int32
	config := app.Pool.Config()
	config.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { warnings.Add(1) }
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	require.NoError(t, err)
	defer pool.Close()
	b.exec(t, `ALTER TABLE app.users ENABLE ROW LEVEL SECURITY`)
	for _, statement := range []string{sends, misses} {
		_, err = pool.Exec(b.ctx, statement)
		require.ErrorContains(t, err, `query would be affected by row-level security policy for table "users"`, statement)
	}
	_, err = pool.Exec(b.ctx, sends)
	failed, ok := errors.AsType[*pgconn.PgError](err)
	require.True(t, ok)
	require.Contains(t, failed.Message, "may not see every row of app.users: ")
	require.Contains(t, failed.Hint, "BYPASSRLS")
	_, err = pool.Exec(b.ctx, enqueues)
	require.NoError(t, err, "the runner reads the relation with its own rights")
	require.Zero(t, warnings.Load(), "what is hidden is not warned of as missing")
	b.exec(t, `ALTER TABLE app.users DISABLE ROW LEVEL SECURITY; REVOKE ALL ON app.users FROM "`+app.User+`"; REVOKE SELECT (id, external_id) ON app.users FROM "`+app.User+`"`)
	_, err = pool.Exec(b.ctx, sends)
	require.ErrorContains(t, err, "permission denied for table users")
	require.NotContains(t, err.Error(), "may not see every row")
}
