package attach

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
)

// faultsOf returns the faults of belfry.channels and of the attached table, one per line.
func (b bundle) faultsOf(t *testing.T) (s string) {
	t.Helper()
	faults, err := b.store.Check(b.ctx, b.pool)
	require.NoError(t, err)
	status, err := Read(b.ctx, b.pool)
	require.NoError(t, err)
	for _, f := range append(faults, status.Faults()...) {
		s += f.String() + "\n"
	}
	return s
}

// repaired has Verify repair, and returns what it found.
func (b bundle) repaired(t *testing.T) Drift {
	t.Helper()
	d, err := Verify(b.ctx, b.pool, Options{})
	require.NoError(t, err)
	require.True(t, b.drift(t).None())
	require.NotContains(t, b.faultsOf(t), "were not followed")
	return d
}

const addressesOf = `SELECT string_agg(external_id || ' ' || platform || ' ' || active || ' ' || addresses, '; ' ORDER BY external_id) FROM belfry.channels`

// A column that is not mapped is not converted: its content can fail no write.
func TestAttach_ConvertsMappedColumnsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (id int PRIMARY KEY, os text, raw json)`)
	b.exec(t, `INSERT INTO users VALUES (1, 'ios', '{"a": "\u0000"}')`)
	b.attach(t, Table{Relation: "users", ExternalID: "id", Platform: "os"})
	b.exec(t, `INSERT INTO users VALUES (2, 'web', '"\u0000"'), (3, 'web', '"\u0000"')`)
	b.exec(t, `UPDATE users SET os = 'android', raw = '["\u0000"]' WHERE id = 2`)
	b.exec(t, `DELETE FROM users WHERE id = 3`)
	require.Equal(t, `1 ios true {}; 2 android true {}; 3 web false {}`, b.one(t, addressesOf))
	require.True(t, b.drift(t).None())
	require.NotContains(t, b.faultsOf(t), "not followed")
}

// A channel that cannot be written fails no write either; the failure is counted, and
// the channel stays as it is.
func TestAttach_RecordsWritesThatItCannotFollow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (id int PRIMARY KEY, os text)`)
	b.attach(t, Table{Relation: "users", ExternalID: "id", Platform: "os"})
	b.exec(t, `INSERT INTO users VALUES (1, 'ios')`)
	b.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '22P05'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON belfry.channels EXECUTE FUNCTION refuse()`)
	b.exec(t, `UPDATE users SET os = 'web'`)
	b.exec(t, `DROP FUNCTION refuse CASCADE`)
	require.Equal(t, `1 ios true {}`, b.one(t, addressesOf))
	require.Contains(t, b.faultsOf(t), "warning: 1 writes of public.users were not followed (SQLSTATE 22P05); `belfry channels verify`, which repairs what differs")
	require.EqualValues(t, 1, b.repaired(t).Different)
	require.Equal(t, `1 web true {}`, b.one(t, addressesOf))
}

// Triggers of the application change and delete the row that was written, and insert a row after TRUNCATE. Whatever
// they are called, the channel has what the row has in the end.
func TestAttach_FollowsWhatOtherTriggersDo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (id text PRIMARY KEY, note text, email text);
		CREATE FUNCTION ban() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM users WHERE id = new.id AND new.note = 'ban'; RETURN NULL; END $$;
		CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE users SET email = lower(email) WHERE id = new.id AND email <> lower(email); RETURN NULL; END $$;
		CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO users VALUES ('admin', '', 'A@X'); RETURN NULL; END $$;
		CREATE TRIGGER "0_ban" AFTER UPDATE ON users FOR EACH ROW EXECUTE FUNCTION ban();
		CREATE TRIGGER "A tidy" AFTER INSERT OR UPDATE ON users FOR EACH ROW EXECUTE FUNCTION tidy();
		CREATE TRIGGER _again AFTER TRUNCATE ON users EXECUTE FUNCTION again()`)
	b.attach(t, Table{Relation: "users", ExternalID: "id", Platform: "=ios", Addresses: "email=email"})
	b.exec(t, `INSERT INTO users VALUES ('ann', '', 'ANN@X'), ('bob', '', 'BOB@X')`)
	require.Equal(t, `ann ios true {"email": "ann@x"}; bob ios true {"email": "bob@x"}`, b.one(t, addressesOf))
	b.exec(t, `UPDATE users SET note = 'ban', email = 'B@X' WHERE id = 'bob'`)
	require.Equal(t, `ann ios true {"email": "ann@x"}; bob ios false {}`, b.one(t, addressesOf))
	b.exec(t, `TRUNCATE users`)
	require.Equal(t, `admin ios true {"email": "a@x"}; ann ios false {}; bob ios false {}`, b.one(t, addressesOf))
	require.True(t, b.drift(t).None())
	require.NotContains(t, b.faultsOf(t), "not followed")
}

// A channel has the same content whatever the settings of the session that writes its row.
func TestAttach_WritersSettingsChangeNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TYPE mood AS ENUM ('sad', 'ok');
		CREATE TABLE users (id int PRIMARY KEY, lat float8, lon float8, ends timestamptz, during tstzrange, every interval, key bytea, rate float8, paid money, type regclass, moods mood[]);
		INSERT INTO users SELECT g, 37.5665, 126.978, '2026-01-02 00:00+00', '[2026-01-02 00:00+00,)', '1 day 2 hours', '\xdead', 0.123456789, 1234.5, 'pg_class', '{ok,NULL}' FROM generate_series(1, 2) g`)
	b.attach(t, Table{Relation: "users", ExternalID: "id", Platform: "=ios", Location: "lat,lon", Attributes: "ends,during,every,key,rate,paid,type,moods"})
	b.exec(t, `SET timezone = 'Asia/Seoul'; SET datestyle = 'SQL, DMY'; SET intervalstyle = iso_8601; SET extra_float_digits = -13;
		SET bytea_output = escape; SET array_nulls = off; SET quote_all_identifiers = on; SET lc_monetary = 'C.UTF-8'; -- no other locale is everywhere
		UPDATE users SET key = key || 'x'; UPDATE users SET key = 'x'; RESET ALL`)
	require.Equal(t, `(126.978,37.5665) {"key": "\\x78", "ends": "2026-01-02T00:00:00+00:00", "paid": "$1,234.50", "rate": 0.123456789, "type": "pg_class", "every": "1 day 02:00:00", "moods": ["ok", null], "during": "[\"2026-01-02 00:00:00+00\",)"}`,
		b.one(t, `SELECT string_agg(DISTINCT location::text || ' ' || attributes::text, '; ') FROM belfry.channels`))
	require.True(t, b.drift(t).None())
}

// A transaction whose snapshot is older than the step that brought its user over writes
// on, in every isolation level, and verify repairs what it missed.
func TestAttach_OlderSnapshotsWrite(t *testing.T) {
	t.Parallel()
	for _, isolation := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(t, `CREATE TABLE users (id int PRIMARY KEY, os text); INSERT INTO users SELECT g, 'ios' FROM generate_series(1, 4) g`)
			require.NoError(t, Attach(b.ctx, b.store, b.pool, Table{Relation: "users", ExternalID: "id", Platform: "os"}, channels.By{}))
			tx, err := b.pool.BeginTx(b.ctx, pgx.TxOptions{IsoLevel: isolation})
			require.NoError(t, err)
			_, err = tx.Exec(b.ctx, `SELECT FROM users`)
			require.NoError(t, err)
			_, err = Backfill(b.ctx, b.pool, Options{})
			require.NoError(t, err)
			for _, write := range []string{`UPDATE users SET os = 'web' WHERE id = 1`, `DELETE FROM users WHERE id = 2`, `UPDATE users SET id = 30 WHERE id = 3`, `INSERT INTO users VALUES (5, 'ios')`} {
				_, err = tx.Exec(b.ctx, write)
				require.NoError(t, err, write)
			}
			verified, err := Verify(b.ctx, b.pool, Options{})
			require.NoError(t, err)
			require.True(t, verified.None())
			require.NoError(t, tx.Commit(b.ctx))
			require.Contains(t, b.faultsOf(t), "SQLSTATE 40001", "a verify that began before the commit covers none of it")
			b.repaired(t)
			require.Equal(t, `1 web true {}; 2 unknown false {}; 3 unknown false {}; 30 ios true {}; 4 ios true {}; 5 ios true {}`,
				b.one(t, `SELECT string_agg(external_id || ' ' || CASE WHEN active THEN platform ELSE 'unknown' END || ' ' || active || ' ' || addresses, '; ' ORDER BY external_id) FROM belfry.channels`))
		})
	}
}

// Serializable transactions of different users are not in each other's way by the index of
// the channels.
func TestAttach_SerializableWritersOfDifferentUsersCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (id int PRIMARY KEY, place point); INSERT INTO users SELECT g, point(1, g) FROM generate_series(1, 4) g`)
	b.attach(t, Table{Relation: "users", ExternalID: "id", Location: "place"})
	begin := func() pgx.Tx {
		tx, err := b.pool.BeginTx(b.ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
		require.NoError(t, err)
		_, err = tx.Exec(b.ctx, `SET LOCAL enable_seqscan = off`)
		require.NoError(t, err)
		return tx
	}
	one, two := begin(), begin()
	for id, tx := range []pgx.Tx{one, two, one, two} {
		_, err := tx.Exec(b.ctx, `UPDATE users SET place = point(2, 2) WHERE id = $1`, id+1)
		require.NoError(t, err)
	}
	require.NoError(t, one.Commit(b.ctx))
	require.NoError(t, two.Commit(b.ctx))
	require.True(t, b.drift(t).None())
	require.NotContains(t, b.faultsOf(t), "not followed")
}

// A writer that may wait for no lock, or that a deadlock over channels would end, goes on.
func TestLong_AttachFailsNoWriteOfALockedChannel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (id int PRIMARY KEY, os text); INSERT INTO users VALUES (1, 'ios')`)
	b.attach(t, Table{Relation: "users", ExternalID: "id", Platform: "os"})
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(b.ctx, `UPDATE belfry.channels SET locale = 'ko'; INSERT INTO belfry.channels (external_id, platform) VALUES ('2', 'ios'); LOCK users IN SHARE UPDATE EXCLUSIVE MODE`)
	require.NoError(t, err)
	b.exec(t, `UPDATE users SET os = 'web'`) // after 5 s
	require.Contains(t, b.faultsOf(t), "SQLSTATE 55P03")
	require.NoError(t, tx.Rollback(b.ctx))
	require.EqualValues(t, 1, b.repaired(t).Different)
}

// A column that is renamed, retyped, dropped or made again is a serious fault. The
// application's ALTER TABLE and its writes succeed, and nobody loses an address.
func TestAttach_ColumnsThatChangeAreFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, alter, write, fault, undo string }{
		{"renamed", `ALTER TABLE app.u RENAME token TO push_token`, `UPDATE app.u SET push_token = 'new'`,
			"fatal: app.u cannot be followed: column token is renamed to push_token; repeat `belfry channels attach`", `ALTER TABLE app.u RENAME push_token TO token`},
		{"renamed key", `ALTER TABLE app.u RENAME id TO key`, `UPDATE app.u SET token = 'new'; INSERT INTO app.u VALUES ('u2', 'ios', 'two', true)`,
			"column id is renamed to key", `ALTER TABLE app.u RENAME key TO id`},
		{"swapped", `ALTER TABLE app.u RENAME token TO old; ALTER TABLE app.u RENAME note TO token`, `UPDATE app.u SET old = 'new'`,
			"column token is renamed to old", `ALTER TABLE app.u RENAME token TO note; ALTER TABLE app.u RENAME old TO token`},
		{"retyped", `ALTER TABLE app.u ALTER live TYPE text USING CASE WHEN live THEN 'yes' END`, `UPDATE app.u SET token = 'new', live = 'yeah'`,
			"column live is text now, and was bool", `ALTER TABLE app.u ALTER live TYPE boolean USING true`},
		{"dropped", `ALTER TABLE app.u DROP os`, `UPDATE app.u SET token = 'new'; INSERT INTO app.u VALUES ('u2', 'two')`,
			"column os does not exist any more", ""},
		{"made again", `ALTER TABLE app.u DROP os; ALTER TABLE app.u ADD os text DEFAULT 'web'`, `UPDATE app.u SET token = 'new'`,
			"column os was dropped and made again", ""},
		{"without its index", `ALTER TABLE app.u DROP CONSTRAINT u_pkey`, `UPDATE app.u SET token = 'new'`,
			"no unique index holds id alone any more", `ALTER TABLE app.u ADD PRIMARY KEY (id)`},
		{"inherited from", `CREATE TABLE app.heir () INHERITS (app.u)`, `UPDATE app.u SET token = 'new'`,
			"other tables inherit from it now", `DROP TABLE app.heir`},
		{"unlogged", `ALTER TABLE app.u SET UNLOGGED`, `UPDATE app.u SET token = 'new'`, "it is unlogged now", `ALTER TABLE app.u SET LOGGED`},
		{"subscribed to", `CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (connect = false, slot_name = NONE); SET allow_system_table_mods = on;
				INSERT INTO pg_subscription_rel SELECT oid, 'app.u'::regclass, 'r' FROM pg_subscription; SET session_replication_role = replica; UPDATE app.u SET token = 'replica'; RESET ALL`, `UPDATE app.u SET token = 'new'`,
			`a subscription writes to it, for which its triggers do not fire: ALTER TABLE app.u ENABLE ALWAYS TRIGGER "!belfry_follow_rows", ENABLE ALWAYS TRIGGER "!belfry_follow_truncate"`,
			`ALTER TABLE app.u ENABLE ALWAYS TRIGGER "!belfry_follow_rows", ENABLE ALWAYS TRIGGER "!belfry_follow_truncate";
				SET session_replication_role = replica; UPDATE app.u SET token = 'replica'; UPDATE app.u SET token = 'new'; RESET ALL; DROP SUBSCRIPTION s`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(t, `CREATE SCHEMA app; CREATE TABLE app.u (id text PRIMARY KEY, os text, token text, live boolean, note text); INSERT INTO app.u VALUES ('u1', 'ios', 'tok', true)`)
			b.attach(t, Table{Relation: "app.u", ExternalID: "id", Platform: "os", Active: "live", Addresses: "push=token"})
			before := b.one(t, addressesOf)
			b.exec(t, tt.alter)
			b.exec(t, tt.write)
			require.Contains(t, b.faultsOf(t), tt.fault)
			if tt.name != "made again" && tt.name != "without its index" && tt.name != "inherited from" && tt.name != "swapped" && tt.name != "unlogged" && tt.name != "subscribed to" {
				require.Equal(t, before, b.one(t, addressesOf))
			}
			_, err := Verify(b.ctx, b.pool, Options{DryRun: true})
			require.ErrorContains(t, err, "channels: verify app.u: app.u cannot be followed: ")
			if tt.undo == "" {
				b.attach(t, Table{Relation: "app.u", ExternalID: "id", Active: "live", Addresses: "push=token"})
			} else {
				b.exec(t, tt.undo)
			}
			b.repaired(t)
			require.NotContains(t, b.faultsOf(t), "followed")
			require.Contains(t, b.one(t, addressesOf), `{"push": "new"}`)
		})
	}
}

// A relation under another name is not the one that was attached, and detach takes the
// triggers off it nonetheless.
func TestAttach_DetachFindsTheRenamedTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (id int PRIMARY KEY)`)
	b.attach(t, Table{Relation: "users", ExternalID: "id"})
	b.exec(t, `ALTER TABLE users RENAME TO members; CREATE VIEW users AS SELECT * FROM members`)
	require.Contains(t, b.faultsOf(t), "fatal: public.users, which it follows, does not exist any more")
	_, err := Detach(b.ctx, b.pool, channels.By{})
	require.NoError(t, err)
	require.Equal(t, "0", b.one(t, `SELECT count(*)::text FROM pg_trigger WHERE tgrelid = 'members'::regclass`))
}

// Rows that can have no channel are counted, a NULL id too.
func TestAttach_CountsRowsWithoutAUsableID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (name text UNIQUE); INSERT INTO users VALUES ('a'), (NULL), (NULL), (''), (repeat('x', 201))`)
	require.NoError(t, Attach(b.ctx, b.store, b.pool, Table{Relation: "users", ExternalID: "name"}, channels.By{}))
	d, err := Backfill(b.ctx, b.pool, Options{BatchSize: 1})
	require.NoError(t, err)
	require.Equal(t, Drift{Rows: 5, Missing: 1, Unusable: 4}, d)
	a, err := Read(b.ctx, b.pool)
	require.NoError(t, err)
	require.EqualValues(t, 1, a.Filled)
	require.EqualValues(t, 4, a.Unusable)
	require.Equal(t, Drift{Rows: 5, Unusable: 4}, b.drift(t))
}

// Channels of 19-digit keys have their rows.
func TestAttach_VerifyKnowsTheLongestKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE users (id bigint PRIMARY KEY); INSERT INTO users VALUES (1100000000000000001), (9223372036854775807), (-9223372036854775808)`)
	b.attach(t, Table{Relation: "users", ExternalID: "id"})
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) VALUES ('9223372036854775808', 'ios')`)
	require.Equal(t, Drift{Rows: 3, Strays: 1}, b.drift(t))
}

// What cannot be followed is refused with a way out, and the way out works.
func TestAttach_RefusesTablesThatItCannotFollow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE DOMAIN login AS text; CREATE TABLE users (id int, name text CONSTRAINT users_name_key UNIQUE DEFERRABLE, code char(8), big numeric(20) UNIQUE, dom login UNIQUE);
		CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE parents (id int PRIMARY KEY); CREATE TABLE heirs () INHERITS (parents);
		CREATE UNLOGGED TABLE volatile (id int PRIMARY KEY)`)
	for _, tt := range []struct{ relation, key, want string }{
		{"parts", "id", "relation: parts is partitioned or inherited from"},
		{"parents", "id", "relation: parents is partitioned or inherited from"},
		{"volatile", "id", "relation: volatile is temporary or unlogged"},
		{"users", "name", `not DEFERRABLE: CREATE UNIQUE INDEX CONCURRENTLY ON "public"."users" ("name")`},
	} {
		err := Attach(b.ctx, b.store, b.pool, Table{Relation: tt.relation, ExternalID: tt.key}, channels.By{})
		require.ErrorIs(t, err, ErrTable)
		require.ErrorContains(t, err, tt.want)
	}
	for _, key := range []string{"code", "big", "dom"} {
		err := Attach(b.ctx, b.store, b.pool, Table{Relation: "users", ExternalID: key}, channels.By{})
		require.ErrorContains(t, err, `ALTER TABLE "public"."users" ADD COLUMN belfry_id text GENERATED ALWAYS AS ("`+key+`"::text) STORED UNIQUE`)
		b.exec(t, `ALTER TABLE "public"."users" ADD COLUMN belfry_id text GENERATED ALWAYS AS ("`+key+`"::text) STORED UNIQUE`)
		b.attach(t, Table{Relation: "users", ExternalID: "belfry_id"})
		b.exec(t, `INSERT INTO users VALUES (1, 'n', 'c', 18446744073709551615, 'd')`)
		require.True(t, b.drift(t).None())
		require.Equal(t, "1", b.one(t, `SELECT count(*)::text FROM belfry.channels WHERE active`))
		_, err = Detach(b.ctx, b.pool, channels.By{})
		require.NoError(t, err)
		b.exec(t, `DELETE FROM users; DELETE FROM belfry.channels; ALTER TABLE users DROP belfry_id`)
	}
	if b.one(t, `SELECT (current_setting('server_version_num')::int >= 180000)::text`) == "true" {
		b.exec(t, `CREATE TABLE soft (id int PRIMARY KEY, deleted_at timestamptz, live boolean GENERATED ALWAYS AS (deleted_at IS NULL))`)
		err := Attach(b.ctx, b.store, b.pool, Table{Relation: "soft", ExternalID: "id", Active: "live"}, channels.By{})
		require.ErrorContains(t, err, "active: column live is a VIRTUAL generated column, which triggers cannot read; allowed values: a STORED one, or the columns that it is made of")
		b.attach(t, Table{Relation: "soft", ExternalID: "id", Active: "!deleted_at"})
	}
}

// Names as Prisma and Hibernate make them, in double quotes and without.
func TestAttach_TakesQuotedNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE "User" ("userId" text PRIMARY KEY, "pushToken" text, "order" text, "e-mail" text, traits jsonb)`)
	for _, a := range []Table{
		{Relation: `public."User"`, ExternalID: `"userId"`, Platform: `"order"`, Attributes: `"traits"`, Addresses: `push="pushToken",email="e-mail"`},
		{Relation: `User`, ExternalID: `userId`, Platform: `order`, Attributes: `traits`, Addresses: `push=pushToken,email=e-mail`},
	} {
		b.attach(t, a)
		b.exec(t, `INSERT INTO "User" VALUES ('u1', 'tok', 'ios', 'a@b.test') ON CONFLICT DO NOTHING`)
		require.Equal(t, `u1 ios true {"push": "tok", "email": "a@b.test"}`, b.one(t, addressesOf))
		attached, err := Read(b.ctx, b.pool)
		require.NoError(t, err)
		require.Equal(t, `public."User"`, attached.Relation)
	}
	b.exec(t, `CREATE VIEW "Our People" AS SELECT * FROM belfry.channels`)
	for _, relation := range []string{`"Our People"`, `public."Our People"`, `"belfry"."channels"`} {
		s, err := channels.New(channels.Config{Relation: relation})
		require.NoError(t, err)
		faults, err := s.Check(b.ctx, b.pool)
		require.NoError(t, err)
		require.Empty(t, faults)
	}
}
