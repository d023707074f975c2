package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
)

// previousVariable names the program of a previous version. `make test-upgrade` builds it.
const previousVariable = "BELFRY_TEST_PREVIOUS"

// upgrade is two versions of belfry side by side on one database.
type upgrade struct {
	previous string // the program; "" means this belfry on a schema that is newer than it
	started  int
}

// program starts a process: in turn of this version and of the previous one.
func (c *relayChaos) program(environ []string, args ...string) *process {
	c.Helper()
	if c.upgrade != nil && c.upgrade.previous != "" {
		if c.upgrade.started++; c.upgrade.started%2 == 0 {
			return startProgram(c.T, c.upgrade.previous, nil, environ, args...)
		}
	}
	return start(c.T, environ, args...)
}

// expandSQL is a migration of the next release, which expands the schema.
const expandSQL = `SET LOCAL lock_timeout = '500ms';
	ALTER TABLE belfry.jobs ADD COLUMN note text, ADD COLUMN tries integer;
	ALTER TABLE belfry.message_rows ADD COLUMN note text;
	CREATE TABLE belfry.fresh (job_id bigint NOT NULL);
	CREATE FUNCTION belfry.fresh_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO belfry.fresh VALUES (NEW.id); RETURN NULL; END $$;
	CREATE TRIGGER fresh_note AFTER INSERT ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.fresh_note();
	CREATE INDEX fresh_idx ON belfry.message_rows (sender)`

// newerSQL records a migration that this belfry does not have.
var newerSQL = fmt.Sprintf("INSERT INTO belfry.schema_migrations (version_id, is_applied) VALUES (%d, true)", migrations.Latest()+1)

// contractSQL is a migration that removes something that this belfry uses.
var contractSQL = fmt.Sprintf("CREATE OR REPLACE FUNCTION belfry.usable_from() RETURNS bigint LANGUAGE sql IMMUTABLE RETURN %d", migrations.Latest()+1)

// expand migrates the database once, while relays deliver. A previous version is on a newer schema from the start.
func (c *relayChaos) expand() {
	c.Helper()
	if c.upgrade.previous != "" || c.done["expand"] > 0 {
		return
	}
	c.done["expand"]++
	expandSchema(c.T, c.db)
}

// expandSchema applies expandSQL. Like migrations, it tries again when a statement of a process has a table.
func expandSchema(t *testing.T, db *dbtest.DB) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		_, err := db.Pool.Exec(t.Context(), expandSQL+";"+newerSQL)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01") && time.Now().Before(deadline) {
			t.Log(err) // a lock timeout or a deadlock
			continue
		}
		require.NoError(t, err)
		return
	}
}

// walk runs a job whose runners are killed, so that runners of both versions continue it.
func (c *relayChaos) walk() {
	c.Helper()
	c.done["walk"]++
	id, err := job.NewStore(c.db.Pool).Enqueue(c.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Hello", Lane: "walk"})
	require.NoError(c, err)
	one := " FROM belfry.jobs WHERE id = " + strconv.FormatInt(id, 10)
	environ := small(c.db)
	for _, chunks := range []string{"3", "6"} {
		p := c.program(environ, "daemon")
		waitUntil(c.T, c.db.Pool, "SELECT chunks >= "+chunks+one)
		_ = p.Process.Kill()
		<-p.ended
	}
	p := c.program(environ, "daemon")
	waitUntil(c.T, c.db.Pool, "SELECT status = 'PROCESSED'"+one)
	p.terminate(c.T)
	require.Equal(c, codeDone, p.exit(c.T), p.stderr.String())
	require.Equal(c, c.total/2, count(c.T, c.db, "belfry.job_notifications WHERE job_id = "+strconv.FormatInt(id, 10)))
}

// I1, I2, I8, I9, I10 during an upgrade: this release runs on the schema of the next one. The schema is expanded in
// the middle of the relays' fault test; processes start before and after it, and runners and relays are killed. With
// the program of a previous version in BELFRY_TEST_PREVIOUS, every second process is of that version, on the schema
// of this one.
func TestProcess_UpgradeUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	seed := fromEnviron(t, "BELFRY_TEST_SEED", time.Now().UnixNano())
	t.Logf("BELFRY_TEST_SEED=%d", seed)
	testKilledRelays(t, "postgres", nil, fromEnviron(t, "BELFRY_TEST_MESSAGES", 2_000), seed, &upgrade{previous: os.Getenv(previousVariable)})
}

// A process continues when the schema is expanded, and also when it is contracted under it, which is not ready then.
// New processes may use an expanded schema, and refuse a contracted one.
func TestProcess_ContractedSchemaIsRefused(t *testing.T) {
	t.Parallel()
	d := deliverable(t, newKept(t), 1)
	environ := d.environ("BELFRY_METRICS_COLLECT_EVERY=1s")
	old := start(t, environ, "relay", "--metrics-listen", "127.0.0.1:0")
	base := old.shown(t)
	becomes(t, old, base+"/readyz", http.StatusOK, "^ok\n$")
	expandSchema(t, d.db)
	sends := func() {
		d.exec(`SELECT belfry.send(1, 'activity', 'Hello')`)
		waitUntil(t, d.db.Pool, "SELECT bool_and(status = 'SENT') FROM belfry.messages")
	}
	sends()

	fresh := start(t, environ, "relay", "--relay-name", "fresh", "--metrics-listen", "127.0.0.1:0")
	becomes(t, fresh, fresh.shown(t)+"/readyz", http.StatusOK, "^ok\n$")
	latest := migrations.Latest()
	require.Equal(t, fmt.Sprintf("version %d, newer than this belfry, which knows up to %d and may use it: upgrade this belfry", latest+1, latest),
		fresh.logged(t, "the schema is newer than this belfry, which may use it")[0]["detail"])
	doctor := command(t, environ, "doctor")
	require.Contains(t, doctor.stdout, fmt.Sprintf("version %d, newer than this belfry", latest+1))
	require.Equal(t, codeDone, doctor.code, doctor.stdout)
	fresh.terminate(t)
	require.Equal(t, codeDone, fresh.exit(t), fresh.stderr.String())

	d.exec(contractSQL)
	refused := fmt.Sprintf("the database schema is newer than this belfry: it is at version %d, for a belfry that knows version %d, and this belfry "+
		"knows up to %d; use a newer belfry", latest+1, latest+1, latest)
	fresh = start(t, environ, "relay", "--relay-name", "fresh")
	require.Equal(t, codeConfiguration, fresh.exit(t))
	require.Contains(t, fresh.stderr.String(), refused)
	becomes(t, old, base+"/readyz", http.StatusServiceUnavailable, refused)
	sends()
	old.terminate(t)
	require.Equal(t, codeDone, old.exit(t), old.stderr.String())
}
