package attach

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

const usersTable = `CREATE SCHEMA app; CREATE TABLE app.users (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(), os text, deleted_at timestamptz, lang text, tz text, lat float8, lon float8,
	first_name text, push_token text, email text, note text)`

var usersAttached = Table{
	Relation: "app.users", ExternalID: "id", Platform: "os", Active: "!deleted_at", Locale: "lang", TimeZone: "tz",
	Location: "lat,lon", Attributes: "first_name", Addresses: "push=push_token,email=email",
}

func (b bundle) attach(t *testing.T, a Table) {
	t.Helper()
	require.NoError(t, Attach(b.ctx, b.store, b.pool, a, channels.By{}))
	_, err := Backfill(b.ctx, b.pool, Options{})
	require.NoError(t, err)
}

func (b bundle) drift(t *testing.T) Drift {
	t.Helper()
	d, err := Verify(b.ctx, b.pool, Options{BatchSize: 70, DryRun: true})
	require.NoError(t, err)
	return d
}

func (b bundle) one(t *testing.T, sql string) (s string) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(b.ctx, sql).Scan(&s))
	return s
}

// writeAtRandom inserts, changes and deletes rows of app.users, in transactions of one
// row or of several in no order, until ctx ends. No transaction may fail.
func (b bundle) writeAtRandom(ctx context.Context, seed uint64, several bool) error {
	r := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		n := 1
		if several {
			n = 1 + r.IntN(8)
		}
		err := pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
			for range n {
				// A third of the keys in each writer's hands: writers do not wait for each other.
				key := fmt.Sprintf("%032x", r.IntN(600)*3+int(seed))
				statement := []string{
					`INSERT INTO app.users (id, os, lang) VALUES ($1::text::uuid, 'web', $2) ON CONFLICT (id) DO UPDATE SET lang = excluded.lang`,
					`UPDATE app.users SET os = 'android', lang = $2, deleted_at = NULL WHERE id = $1::text::uuid`,
					`UPDATE app.users SET deleted_at = now(), note = $2 WHERE id = $1::text::uuid`,
					`DELETE FROM app.users WHERE id = $1::text::uuid AND $2 <> ''`,
				}[r.IntN(4)]
				if _, err := tx.Exec(b.ctx, statement, key, fmt.Sprint(r.IntN(1000))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Whatever is written while the rows are brought over, the channels are in step at the
// end, and no writer's transaction fails for it, in whatever order it writes.
func TestAttach_ConcurrentWritesAreRight(t *testing.T) {
	t.Parallel()
	attachUnderWrites(t, 600)
}

// The writers meet four times as many batches.
func TestFault_AttachUnderManyWritesIsRight(t *testing.T) {
	t.Parallel()
	attachUnderWrites(t, 2400)
}

// attachUnderWrites fills the channels of so many users while three write to these.
func attachUnderWrites(t *testing.T, users int) {
	t.Helper()
	for _, kind := range []string{"uuid", "text"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(t, usersTable)
			b.exec(t, `INSERT INTO app.users (id, os) SELECT lpad(to_hex(n), 32, '0')::uuid, 'ios' FROM generate_series(0, $1::int) n`, users)
			a := usersAttached
			if kind == "text" {
				b.exec(t, `ALTER TABLE app.users ADD login text UNIQUE`)
				b.exec(t, `CREATE FUNCTION app.named() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.login := 'U-' || NEW.id; RETURN NEW; END $$;
					CREATE TRIGGER named BEFORE INSERT OR UPDATE ON app.users FOR EACH ROW EXECUTE FUNCTION app.named(); UPDATE app.users SET os = os`)
				a.ExternalID = "login"
			}
			// Some have channels already, of other content.
			b.exec(t, `INSERT INTO belfry.channels (external_id, platform, active) SELECT lpad(to_hex(n), 32, '0')::uuid, 'web', false FROM generate_series(0, $1::int, 5) n`, users)
			require.NoError(t, Attach(b.ctx, b.store, b.pool, a, channels.By{}))

			writing, stop := context.WithCancel(b.ctx)
			defer stop()
			var writers sync.WaitGroup
			errs := make([]error, 3)
			for i := range errs {
				writers.Go(func() { errs[i] = b.writeAtRandom(writing, uint64(i), i == 0) })
			}
			d, err := Backfill(b.ctx, b.pool, Options{BatchSize: 40})
			stop()
			writers.Wait()
			require.NoError(t, errors.Join(errs...))
			require.NoError(t, err)
			require.Greater(t, d.Rows, int64(users)/3)
			found := b.drift(t)
			if kind == "text" { // the channels of before are strays
				found.Strays = 0
			}
			require.True(t, found.None(), "%+v", found)
			attached, err := Read(b.ctx, b.pool)
			require.NoError(t, err)
			require.NotNil(t, attached.FilledAt)
			require.True(t, attached.Following)
		})
	}
}

// A row of the application and its channel are one transaction.
func TestAttach_FollowsEveryWrite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, usersTable)
	b.attach(t, usersAttached)
	const channel = `SELECT platform || '|' || active || '|' || locale || '|' || time_zone || '|' || coalesce(location::text, 'nowhere') || '|' || attributes || '|' || addresses
		FROM belfry.channels WHERE external_id = '00000000-0000-0000-0000-000000000001'`
	b.exec(t, `INSERT INTO app.users (id, os, lang, tz, lat, lon, first_name, push_token, email) VALUES
		('00000000-0000-0000-0000-000000000001', 'ios', 'ko', 'Asia/Seoul', 37.57, 126.98, 'Kim', 'tok', '')`)
	require.Equal(t, `ios|true|ko|Asia/Seoul|(126.98,37.57)|{"first_name": "Kim"}|{"push": "tok"}`, b.one(t, channel))
	id := b.one(t, `SELECT id::text FROM belfry.channels`)

	// What a channel cannot have is left empty and stops nobody.
	b.exec(t, `UPDATE app.users SET os = '???', lang = repeat('x', 99), tz = repeat('y', 99), lat = 'NaN', lon = 1e300`)
	require.Equal(t, `unknown|true|||nowhere|{"first_name": "Kim"}|{"push": "tok"}`, b.one(t, channel))
	before := b.one(t, `SELECT xmin::text FROM belfry.channels`)
	b.exec(t, `UPDATE app.users SET note = 'nothing of a channel'`)
	require.Equal(t, before, b.one(t, `SELECT xmin::text FROM belfry.channels`), "no write for it")
	b.exec(t, `UPDATE app.users SET deleted_at = now(), os = 'web'`)
	require.Equal(t, `web|false|||nowhere|{"first_name": "Kim"}|{"push": "tok"}`, b.one(t, channel))

	// Another key is another recipient; one that comes back is the same channel.
	b.exec(t, `UPDATE app.users SET id = '00000000-0000-0000-0000-000000000002', deleted_at = NULL`)
	require.Equal(t, `web|false|||nowhere|{}|{}`, b.one(t, channel))
	b.exec(t, `DELETE FROM app.users; INSERT INTO app.users (id, os) VALUES ('00000000-0000-0000-0000-000000000001', 'web')`)
	require.Equal(t, `web|true|||nowhere|{}|{}`, b.one(t, channel))
	require.Equal(t, id, b.one(t, `SELECT id::text FROM belfry.channels WHERE external_id LIKE '%1'`))
	require.Equal(t, "1", b.one(t, `SELECT count(*)::text FROM belfry.channels WHERE active`))
	require.True(t, b.drift(t).None())
	b.exec(t, `TRUNCATE app.users`)
	require.Equal(t, "0", b.one(t, `SELECT count(*)::text FROM belfry.channels WHERE active`))
	require.True(t, b.drift(t).None())

	relation, err := Detach(b.ctx, b.pool, channels.By{})
	require.NoError(t, err)
	require.Equal(t, "app.users", relation)
	b.exec(t, `INSERT INTO app.users (os) VALUES ('ios')`)
	require.Equal(t, "0", b.one(t, `SELECT count(*)::text FROM belfry.channels WHERE active`))
	_, err = Detach(b.ctx, b.pool, channels.By{})
	require.ErrorIs(t, err, ErrNotAttached)
	_, err = Verify(b.ctx, b.pool, Options{})
	require.ErrorIs(t, err, ErrNotAttached)
}

// Columns of the table have the names of whatever belfry's statements name.
func TestAttach_ColumnsMayHaveAnyName(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"uuid", "text", "bigint", "character varying(40)"} {
		for _, mapped := range []string{"k", "x"} {
			b := setup(t)
			names := strings.Split("a b c d e f g h i j k l m n o p q r s t u v w x y z old new came went done keys made list stray value builtin id_1", " ")
			b.exec(t, `CREATE SCHEMA app; CREATE TABLE app.users (id `+key+` PRIMARY KEY, "`+strings.Join(names, `" text, "`)+`" text)`)
			id := map[bool]string{true: "00000000-0000-0000-0000-000000000001", false: "1"}[key == "uuid"]
			b.exec(t, `INSERT INTO app.users (id, k, x) VALUES ('`+id+`', 'k', 'x')`)
			b.attach(t, Table{Relation: "app.users", ExternalID: "id", Platform: "=ios", Attributes: "told=" + mapped})
			const channel = `SELECT active || '|' || attributes FROM belfry.channels`
			require.Equal(t, `true|{"told": "`+mapped+`"}`, b.one(t, channel))
			require.True(t, b.drift(t).None())
			b.exec(t, `UPDATE app.users SET k = 'new', x = 'new'`)
			require.Equal(t, `true|{"told": "new"}`, b.one(t, channel))
			require.True(t, b.drift(t).None())
		}
	}
}

// A json value that jsonb rejects is left empty in the channel of its row, and stops no other row.
func TestAttach_JSONThatJSONBRejectsIsLeftEmpty(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE SCHEMA app; CREATE DOMAIN app.traits AS json;
		CREATE TABLE app.users (id text PRIMARY KEY, enabled boolean NOT NULL DEFAULT true, traits json, list json[], own app.traits, push text);
		INSERT INTO app.users SELECT 'u' || n, true, '{"a": 1}', '{1}', '[2]', 'tok' FROM generate_series(1, 4) n`)
	bad := []string{`"\u0000"`, `1e999999`, `"\ud800"`}
	for i, value := range bad[:2] {
		b.exec(t, fmt.Sprintf(`UPDATE app.users SET traits = '{"a": %[1]s}', list = ARRAY['%[1]s'::json], own = '%[1]s' WHERE id = 'u%[2]d'`, value, i+1))
	}
	b.attach(t, Table{Relation: "app.users", ExternalID: "id", Platform: "=ios", Active: "enabled",
		Attributes: "traits=traits,list=list,own=own", Addresses: "push=push"})
	for i, value := range bad[2:] {
		b.exec(t, fmt.Sprintf(`UPDATE app.users SET traits = '{"a": %[1]s}', list = ARRAY['%[1]s'::json], own = '%[1]s' WHERE id = 'u%[2]d'`, value, i+3))
	}
	const channels = `SELECT string_agg(external_id || active || attributes || addresses, ' ' ORDER BY external_id) FROM belfry.channels`
	whole := `true{"own": [2], "list": [1], "traits": {"a": 1}}{"push": "tok"}`
	require.Equal(t, `u1true{}{"push": "tok"} u2true{}{"push": "tok"} u3true{}{"push": "tok"} u4`+whole, b.one(t, channels))
	require.True(t, b.drift(t).None())
	b.exec(t, `UPDATE app.users SET enabled = false, push = '' WHERE id < 'u4'`)
	require.Equal(t, `u1false{}{} u2false{}{} u3false{}{} u4`+whole, b.one(t, channels))
	require.True(t, b.drift(t).None())
	require.Equal(t, "0", b.one(t, `SELECT count(*)::text FROM belfry.attachment_misses`))
}

// The product of two differences in degrees may be too small for a float8, and then no location near could be written.
func TestAttach_LocationsTooCloseForTheIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE SCHEMA app; CREATE TABLE app.users (id text PRIMARY KEY, place point, push text)`)
	b.attach(t, Table{Relation: "app.users", ExternalID: "id", Platform: "=ios", Location: "place", Addresses: "push=push"})
	b.exec(t, `INSERT INTO app.users SELECT 'z' || n, point(0, 0) FROM generate_series(1, 300) n;
		INSERT INTO app.users SELECT 't' || n, point(('1e-' || 160 + n)::float8, -('1e-' || 165 + n)::float8) FROM generate_series(1, 100) n;
		INSERT INTO app.users SELECT 'u' || n, point(n, -n) FROM generate_series(1, 50) n;
		INSERT INTO app.users VALUES ('v', point(-1e-11, 1e-200))`)
	require.Equal(t, "0", b.one(t, `SELECT count(*)::text FROM belfry.attachment_misses`))
	require.Equal(t, "400 (-1e-11,0)", b.one(t, `SELECT count(*) FILTER (WHERE location::text = '(0,0)') || ' ' || min(location::text) FILTER (WHERE external_id = 'v') FROM belfry.channels`))
	require.True(t, b.drift(t).None())
}

// A table that was attached before an upgrade gets the functions of it, without another attach.
func TestAttach_UpgradesTheTriggersOfATable(t *testing.T) {
	t.Parallel()
	b, db := setup(t), dbtest.New(t)
	b.pool = db.Pool
	b.exec(t, `CREATE SCHEMA app; CREATE TABLE app.users (id text PRIMARY KEY, x json, push text)`)
	b.attach(t, Table{Relation: "app.users", ExternalID: "id", Platform: "=ios", Attributes: "told=x", Addresses: "push=push"})
	misses := func(id string) (made string, missed string) {
		b.exec(t, `INSERT INTO app.users VALUES ($1, '"\u0000"', 'tok')`, id)
		return b.one(t, `SELECT count(*)::text FROM belfry.channels`), b.one(t, `SELECT count(*)::text FROM belfry.attachment_misses`)
	}
	made, missed := misses("u1")
	require.Equal(t, []string{"1", "0"}, []string{made, missed})
	_, err := migrations.Down(b.ctx, db.DSN, 7)
	require.NoError(t, err)
	made, missed = misses("u2")
	require.Equal(t, []string{"1", "1"}, []string{made, missed})
	_, err = migrations.Up(b.ctx, db.DSN)
	require.NoError(t, err)
	made, missed = misses("u3")
	require.Equal(t, []string{"2", "1"}, []string{made, missed})
	require.Equal(t, "!belfry_follow_rows !belfry_follow_truncate",
		b.one(t, `SELECT string_agg(tgname, ' ' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = 'app.users'::regclass`))
}

func TestAttach_VerifyRepairsWhatWroteAroundTheTriggers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (name varchar(300) UNIQUE, os text)`)
	b.exec(t, `INSERT INTO users SELECT 'u-' || n, 'ios' FROM generate_series(1, 500) n`)
	b.attach(t, Table{Relation: "users", ExternalID: "name", Platform: "os"})
	require.Equal(t, Drift{Rows: 500}, b.drift(t))
	b.exec(t, `ALTER TABLE users DISABLE TRIGGER USER`)
	attached, err := Read(b.ctx, b.pool)
	require.NoError(t, err)
	require.False(t, attached.Following)
	b.exec(t, `DELETE FROM users WHERE name = 'u-7'; UPDATE users SET os = 'web' WHERE name < 'u-2'; INSERT INTO users VALUES ('new', 'ios'), (repeat('x', 250), 'ios'), (NULL, 'ios')`)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) VALUES ('of nobody', 'ios')`)
	b.exec(t, `ALTER TABLE users ENABLE TRIGGER USER`)

	want := Drift{Rows: 502, Missing: 1, Different: 111, Strays: 2, Unusable: 2}
	require.Equal(t, want, b.drift(t))
	repaired, err := Verify(b.ctx, b.pool, Options{BatchSize: 33})
	require.NoError(t, err)
	require.Equal(t, want, repaired)
	require.Equal(t, Drift{Rows: 502, Unusable: 2}, b.drift(t))
	require.Equal(t, "f", b.one(t, `SELECT left(active::text, 1) FROM belfry.channels WHERE external_id = 'u-7'`))
}

// Bringing over ends anywhere and goes on, with the rows it had counted once.
func TestAttach_BackfillGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (id int PRIMARY KEY); INSERT INTO users SELECT generate_series(-300, 300)`)
	require.NoError(t, Attach(b.ctx, b.store, b.pool, Table{Relation: "users", ExternalID: "id"}, channels.By{}))
	ctx, cancel := context.WithCancel(b.ctx)
	_, err := Backfill(ctx, b.pool, Options{BatchSize: 50, Progress: func(d Drift) {
		if d.Rows == 150 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	attached, err := Read(b.ctx, b.pool)
	require.NoError(t, err)
	require.EqualValues(t, 150, attached.Filled)
	require.Nil(t, attached.FilledAt)
	require.NoError(t, Attach(b.ctx, b.store, b.pool, Table{Relation: "users", ExternalID: "id"}, channels.By{}), "the same again goes on")
	d, err := Backfill(b.ctx, b.pool, Options{BatchSize: 50})
	require.NoError(t, err)
	require.EqualValues(t, 451, d.Rows)
	require.EqualValues(t, 451, d.Missing)
	require.True(t, b.drift(t).None())
	d, err = Backfill(b.ctx, b.pool, Options{})
	require.NoError(t, err)
	require.Zero(t, d, "all done")
	require.NoError(t, Attach(b.ctx, b.store, b.pool, Table{Relation: "users", ExternalID: "id", Platform: "=ios"}, channels.By{}))
	d, err = Backfill(b.ctx, b.pool, Options{})
	require.NoError(t, err)
	require.Equal(t, Drift{Rows: 601, Different: 601}, d, "other columns begin anew")
}

// A step converts each row once, and one whose channels it all made reads no row again.
// A function around the conversion counts.
func TestAttach_ConvertsEachRowOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, usersTable)
	b.exec(t, `CREATE SEQUENCE app.conversions;
		CREATE FUNCTION app.counted(r jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$ BEGIN PERFORM nextval('app.conversions'); RETURN r; END $$;
		ALTER FUNCTION belfry.attached_object(jsonb, text) RENAME TO attached_plain;
		CREATE FUNCTION belfry.attached_object(shape jsonb, r text) RETURNS text LANGUAGE sql AS $$ SELECT 'app.counted(' || belfry.attached_plain(shape, r) || ')' $$;
		INSERT INTO app.users (id, os) SELECT lpad(to_hex(n), 32, '0')::uuid, 'ios' FROM generate_series(1, 1000) n`)
	converted := func() string { return b.one(t, `SELECT nextval('app.conversions') - 1`) }
	b.attach(t, usersAttached)
	require.Equal(t, "1000", converted())
	require.Equal(t, "1000 ios", b.one(t, `SELECT count(*) || ' ' || max(platform) FROM belfry.channels WHERE active`))

	b.exec(t, `ALTER SEQUENCE app.conversions RESTART`)
	require.Zero(t, b.drift(t).Different)
	require.Equal(t, "1000", converted())
}

// A step costs by its rows, whatever the tables' sizes and statistics: it goes by their
// indexes, also where reading a whole table once would be cheaper. A step is one of many.
func TestAttach_StepsReadNoWholeTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, usersTable)
	b.exec(t, `INSERT INTO app.users (os, lang) SELECT 'ios', g::text FROM generate_series(1, 3000) g`)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'other-' || g, 'ios' FROM generate_series(1, 3000) g`)
	require.NoError(t, Attach(b.ctx, b.store, b.pool, usersAttached, channels.By{}))
	step := `SELECT (belfry.attachment_step(NULL, 500, %s)).missing::text`
	strays := `SELECT (belfry.attachment_strays(0, 4000, %s)).strays::text`
	for _, c := range []struct{ prepare, statement, found string }{
		{"", fmt.Sprintf(step, "false"), "500"},
		{"", fmt.Sprintf(step, "true"), "500"},
		{"ALTER TABLE app.users DISABLE TRIGGER USER; UPDATE app.users SET lang = 'x'; ANALYZE app.users, belfry.channels", fmt.Sprintf(step, "true"), "0"},
		{"", fmt.Sprintf(strays, "false"), "3000"},
		{"", fmt.Sprintf(strays, "true"), "3000"},
	} {
		if c.prepare != "" {
			b.exec(t, c.prepare)
		}
		tx, err := b.pool.Begin(b.ctx)
		require.NoError(t, err)
		var found string
		var before, after int64 // the connection's counts that the server has not taken over yet
		whole := `SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE relid IN ('app.users'::regclass, 'belfry.channels'::regclass)`
		require.NoError(t, tx.QueryRow(b.ctx, whole).Scan(&before))
		require.NoError(t, tx.QueryRow(b.ctx, c.statement).Scan(&found))
		require.NoError(t, tx.QueryRow(b.ctx, whole).Scan(&after))
		require.NoError(t, tx.Commit(b.ctx))
		require.Equal(t, c.found, found, c.statement)
		require.Equal(t, before, after, c.statement)
	}
	require.Equal(t, "500", b.one(t, `SELECT count(*)::text FROM belfry.channels WHERE locale = 'x'`))
}

// A row that goes around the triggers while a step waits for its channel deactivates it.
func TestAttach_StepSeesRowsThatWentMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (name text UNIQUE, os text); INSERT INTO users VALUES ('u-1', 'ios'), ('u-2', 'ios')`)
	b.attach(t, Table{Relation: "users", ExternalID: "name", Platform: "os"})
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(b.ctx, `ALTER TABLE users DISABLE TRIGGER USER; DELETE FROM users WHERE name = 'u-1'; SELECT FROM belfry.channels FOR UPDATE`)
	require.NoError(t, err)
	different := make(chan string, 1)
	go func() {
		var s string
		if err := b.pool.QueryRow(b.ctx, `SELECT (belfry.attachment_step(NULL, 10, true)).different::text`).Scan(&s); err != nil {
			s = err.Error()
		}
		different <- s
	}()
	b.eventually(t, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	require.NoError(t, tx.Commit(b.ctx))
	require.Equal(t, "1", <-different)
	require.Equal(t, "u-2", b.one(t, `SELECT string_agg(external_id, ' ') FROM belfry.channels WHERE active`))
}

// The triggers' lock waits for writers a moment at a time and never makes others wait long.
func TestAttach_WaitsForWritersAndGivesUpWhenToldTo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (id int PRIMARY KEY)`)
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(b.ctx, `INSERT INTO users VALUES (1)`)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.ctx)) }) // after the COMMIT it does nothing
	impatient, cancel := context.WithCancel(b.ctx)
	defer cancel()
	refused := make(chan error, 1)
	go func() {
		refused <- Attach(impatient, b.store, b.pool, Table{Relation: "users", ExternalID: "id"}, channels.By{})
	}()
	const waits = `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'users'::regclass AND NOT granted AND waitstart > $1)`
	b.eventually(t, waits, time.Time{})
	var first time.Time
	require.NoError(t, b.pool.QueryRow(b.ctx, `SELECT coalesce(max(waitstart), clock_timestamp()) FROM pg_locks WHERE relation = 'users'::regclass AND NOT granted`).Scan(&first))
	b.eventually(t, waits, first) // it let go, and tries again
	cancel()
	require.ErrorContains(t, <-refused, "channels: attach users: ")
	done := make(chan error, 1)
	go func() {
		done <- Attach(b.ctx, b.store, b.pool, Table{Relation: "users", ExternalID: "id"}, channels.By{})
	}()
	require.NoError(t, tx.Commit(b.ctx))
	require.NoError(t, <-done)
	_, err = Backfill(b.ctx, b.pool, Options{})
	require.NoError(t, err)
	require.Equal(t, "1", b.one(t, `SELECT external_id FROM belfry.channels`))
}

func TestAttach_RefusesWithTheRemedy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, usersTable)
	b.exec(t, `CREATE VIEW app.people AS SELECT * FROM app.users; CREATE TABLE others (id int PRIMARY KEY)`)
	change := func(f func(a *Table)) Table {
		a := usersAttached
		f(&a)
		return a
	}
	for _, tt := range []struct {
		a    Table
		want string
	}{
		{change(func(a *Table) { a.Relation = "app.nobody" }), "relation: app.nobody does not exist"},
		{change(func(a *Table) { a.Relation = "a b" }), `relation: "a b" is not a table`},
		{change(func(a *Table) { a.Relation = "app.people" }), "relation: app.people is no table"},
		{change(func(a *Table) { a.Relation = "belfry.channels" }), "relation: belfry.channels is belfry's own"},
		{change(func(a *Table) { a.ExternalID = "email" }), `external_id: no unique index holds email alone, without a condition and not DEFERRABLE: CREATE UNIQUE INDEX CONCURRENTLY ON "app"."users" ("email")`},
		{change(func(a *Table) { a.ExternalID = "lat" }), "external_id: column lat is double precision; allowed types: uuid, text"},
		{change(func(a *Table) { a.Platform = "phone" }), `platform: app.users has no column "phone"; allowed values: deleted_at, email`},
		{change(func(a *Table) { a.Active = "deleted_at" }), "active: column deleted_at is timestamp with time zone; allowed types: boolean"},
		{change(func(a *Table) { a.Location = "lat" }), "location: column lat is double precision; allowed types: point"},
		{change(func(a *Table) { a.Addresses = "push=push_token,phone=email" }), `addresses: "phone" is not a medium; allowed values: a jsonb column, or MEDIUM=COLUMN,… of alimtalk`},
	} {
		err := Attach(b.ctx, b.store, b.pool, tt.a, channels.By{})
		require.ErrorIs(t, err, ErrTable)
		require.ErrorContains(t, err, tt.want)
	}
	attached, err := Read(b.ctx, b.pool)
	require.NoError(t, err)
	require.Nil(t, attached)
	b.attach(t, usersAttached)
	require.ErrorContains(t, Attach(b.ctx, b.store, b.pool, Table{Relation: "others", ExternalID: "id"}, channels.By{}), "another one is attached; `belfry channels detach` first")

	other, err := channels.New(channels.Config{Relation: "app.people"})
	require.NoError(t, err)
	require.ErrorContains(t, Attach(b.ctx, other, b.pool, usersAttached, channels.By{}), "channels.relation is app.people")

	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(b.ctx)) }()
	_, err = tx.Exec(b.ctx, `CREATE ROLE belfry_attach_nobody; GRANT USAGE ON SCHEMA belfry, app TO belfry_attach_nobody; SET LOCAL ROLE belfry_attach_nobody`)
	require.NoError(t, err)
	err = Attach(b.ctx, b.store, tx, usersAttached, channels.By{})
	require.ErrorIs(t, err, ErrRights)
	require.NotErrorIs(t, err, ErrTable)
	require.ErrorContains(t, err, "GRANT SELECT, TRIGGER ON app.users TO belfry_attach_nobody; connect as ")
	require.ErrorContains(t, err, ", who owns the schema belfry, or as a superuser")
}

// An application's role needs no right of belfry's for its writes to be followed.
func TestAttach_TheApplicationNeedsNoRights(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, usersTable)
	b.attach(t, usersAttached)
	err := pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(b.ctx, `CREATE ROLE belfry_attach_app; GRANT USAGE ON SCHEMA app TO belfry_attach_app; GRANT ALL ON app.users TO belfry_attach_app;
			SET LOCAL ROLE belfry_attach_app; INSERT INTO app.users (os) VALUES ('ios'); UPDATE app.users SET os = 'web'; DELETE FROM app.users; RESET ROLE; DROP OWNED BY belfry_attach_app; DROP ROLE belfry_attach_app`)
		return err
	})
	require.NoError(t, err)
	require.Equal(t, "web|false", b.one(t, `SELECT platform || '|' || active FROM belfry.channels`))
}
