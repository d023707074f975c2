package attach

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// weak returns a pair: the owner of the schema belfry, and a role that owns schema app. Its function
// app.evil records in app.harm each call with the rights of another role.
func weak(t *testing.T) (b bundle, app bundle) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	t.Cleanup(cancel)
	store, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	db := dbtest.New(t)
	role := db.Role(t, `CREATE SCHEMA app AUTHORIZATION :role`)
	b, app = bundle{ctx: ctx, pool: db.Pool, store: store}, bundle{ctx: ctx, pool: role.Pool, store: store}
	t.Cleanup(func() {
		_, err := db.Pool.Exec(context.WithoutCancel(ctx), `DROP SCHEMA app CASCADE`)
		require.NoError(t, err)
	})
	app.exec(t, `CREATE TABLE app.harm (who text, how text);
		CREATE FUNCTION app.evil(how text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			IF current_user <> '`+role.User+`' THEN
				INSERT INTO app.harm VALUES (current_user, how);
			END IF;
			RETURN 'web';
		END $$;
		CREATE TYPE app.os AS ENUM ('ios', 'web');
		CREATE FUNCTION app.os_text(app.os) RETURNS text LANGUAGE sql AS $$ SELECT app.evil('text') $$;
		CREATE FUNCTION app.os_json(app.os) RETURNS json LANGUAGE sql AS $$ SELECT to_json(app.evil('json')) $$;
		CREATE FUNCTION app.os_bool(app.os) RETURNS boolean LANGUAGE sql AS $$ SELECT app.evil('boolean') <> '' $$;
		CREATE FUNCTION app.os_uuid(app.os) RETURNS uuid LANGUAGE sql AS $$ SELECT md5(app.evil('uuid'))::uuid $$`)
	return b, app
}

const casts = `CREATE CAST (app.os AS json) WITH FUNCTION app.os_json(app.os) AS IMPLICIT;
	CREATE CAST (app.os AS text) WITH FUNCTION app.os_text(app.os) AS IMPLICIT;
	CREATE CAST (app.os AS boolean) WITH FUNCTION app.os_bool(app.os) AS IMPLICIT;
	CREATE CAST (app.os AS uuid) WITH FUNCTION app.os_uuid(app.os) AS IMPLICIT`

// The owner of an attached table has its code executed by no trigger: a cast that it adds later, a column that it
// retypes, a domain's CHECK. Its own writes succeed.
func TestAttach_TriggersExecuteNoCodeOfTheTablesOwner(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ define, column, value, alter, want string }{
		"an enum":                {"", "app.os", `'ios'`, "", `"ios"`},
		"a domain over an enum":  {`CREATE DOMAIN app.d AS app.os CHECK (app.evil('check') <> '')`, "app.d", `'ios'`, "", `"ios"`},
		"a domain over a domain": {`CREATE DOMAIN app.d AS boolean CHECK (app.evil('check') <> ''); CREATE DOMAIN app.e AS app.d`, "app.e", `false`, "", `false`},
		"an array":               {"", "app.os[]", `'{ios,web}'`, "", `["ios", "web"]`},
		"an array of a domain":   {`CREATE DOMAIN app.d AS integer CHECK (app.evil('check') <> '')`, "app.d[]", `'{1,2}'`, "", `[1, 2]`},
		"a domain over an array": {`CREATE DOMAIN app.d AS app.os[]; CREATE DOMAIN app.e AS int[]`, "app.e", `'{1,2}'`, "", `[1, 2]`},
		"an array of an array":   {`CREATE DOMAIN app.d AS int[]`, "app.d[]", `ARRAY['{1,2}'::app.d]`, "", `["{1,2}"]`},
		"a composite":            {`CREATE TYPE app.pair AS (a app.os, b text)`, "app.pair", `ROW('ios', 'x')`, "", `"(ios,x)"`},
		"a range":                {`CREATE TYPE app.r AS RANGE (subtype = app.os)`, "app.r", `'[ios,web]'`, "", `"[ios,web]"`},
		"a domain over jsonb":    {`CREATE DOMAIN app.d AS jsonb CHECK (app.evil('check') <> '')`, "app.d", `'{"x": [1]}'`, "", `{"x": [1]}`},
		"a domain over a time":   {`CREATE DOMAIN app.d AS timestamptz`, "app.d", `'2026-05-01 08:00:00+00'`, "", `"2026-05-01T08:00:00+00:00"`},
		"a retyped column": {"", "text", `'ios'`,
			`ALTER TABLE app.users ALTER c TYPE app.os USING 'ios'`, `"ios"`},
		"a domain made again": {`CREATE DOMAIN app.d AS text`, "app.d", `'ios'`,
			`ALTER TABLE app.users DROP c; DROP DOMAIN app.d; CREATE DOMAIN app.d AS app.os; ALTER TABLE app.users ADD c app.d DEFAULT 'ios'`, `"ios"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, app := weak(t)
			if tt.define != "" {
				app.exec(t, tt.define)
			}
			app.exec(t, `CREATE TABLE app.users (id text PRIMARY KEY, c `+tt.column+`)`)
			b.attach(t, Table{Relation: "app.users", ExternalID: "id", Attributes: "c"})
			app.exec(t, `INSERT INTO app.users VALUES ('u1', `+tt.value+`), ('u2', NULL)`)
			const attributes = `SELECT string_agg(attributes::text, ' ' ORDER BY id) FROM belfry.channels`
			require.Equal(t, `{"c": `+tt.want+`} {}`, b.one(t, attributes))
			app.exec(t, casts)
			if tt.alter != "" {
				app.exec(t, tt.alter)
			}
			app.exec(t, `UPDATE app.users SET c = NULL; UPDATE app.users SET c = `+tt.value+`; INSERT INTO app.users VALUES ('u3', `+tt.value+`);
				DELETE FROM app.users WHERE id = 'u3'`)
			if tt.alter == "" {
				require.Equal(t, "0", b.one(t, `SELECT count(*)::text FROM belfry.attachment_misses`))
				require.Equal(t, `{"c": `+tt.want+`} {"c": `+tt.want+`} {}`, b.one(t, attributes))
				require.True(t, b.drift(t).None())
			}
			require.Equal(t, "0", b.one(t, `SELECT count(*)::text FROM app.harm`), b.one(t, `SELECT coalesce(string_agg(how, ' '), '') FROM app.harm`))
		})
	}
}

// A key or another column that is retyped, or a table that becomes a view, executes nothing in the triggers, and no step
// reads it with the rights of the operator.
func TestAttach_StepsReadNoOtherTypes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, alter, write string }{
		{"key", `ALTER TABLE app.users ALTER id TYPE app.os USING 'ios'`, `UPDATE app.users SET id = 'web'; DELETE FROM app.users; INSERT INTO app.users VALUES ('ios', 'x')`},
		{"column", `ALTER TABLE app.users ALTER c TYPE app.os USING 'ios'`, `UPDATE app.users SET c = 'web'; INSERT INTO app.users VALUES (gen_random_uuid(), 'ios')`},
		{"view", `ALTER TABLE app.users RENAME TO people; CREATE VIEW app.users AS SELECT id, app.evil('view') AS c FROM app.people`, `INSERT INTO app.people VALUES (gen_random_uuid(), 'x')`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, app := weak(t)
			app.exec(t, `CREATE TABLE app.users (id uuid PRIMARY KEY, c text); INSERT INTO app.users VALUES (gen_random_uuid(), 'ios')`)
			b.attach(t, Table{Relation: "app.users", ExternalID: "id", Attributes: "c"})
			app.exec(t, casts)
			app.exec(t, tt.alter)
			app.exec(t, tt.write)
			for _, step := range []string{`SELECT belfry.attachment_step(NULL, 10, false)`, `SELECT belfry.attachment_step(NULL, 10, true)`, `SELECT belfry.attachment_strays(0, 10, true)`} {
				_, err := b.pool.Exec(b.ctx, step)
				require.ErrorContains(t, err, "app.users is no table or has columns of other types than when it was attached", step)
			}
			require.Equal(t, "0", b.one(t, `SELECT count(*)::text FROM app.harm`), b.one(t, `SELECT coalesce(string_agg(how, ' '), '') FROM app.harm`))
		})
	}
}

// A key of an application's type of the name of a built-in one is no built-in key.
func TestAttach_FollowsNoKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	b, app := weak(t)
	app.exec(t, `CREATE DOMAIN app.uuid AS app.os; CREATE TABLE app.users (id app.uuid PRIMARY KEY)`)
	err := Attach(b.ctx, b.store, b.pool, Table{Relation: "app.users", ExternalID: "id"}, channels.By{})
	require.ErrorContains(t, err, "external_id: column id is app.uuid; allowed types: uuid, text")
}
