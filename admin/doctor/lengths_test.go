package doctor_test

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// unbounded are the columns that accept a value of any length, with the reason why that is accepted.
var unbounded = map[string]string{
	"channels.attributes": "the application's own data; relays bound the bytes of messages in flight",
	"channels.addresses":  "the application's own data; relays bound the bytes of messages in flight",
}

// errStored is the outcome of a write that was accepted.
var errStored = errors.New("stored")

// lengthMore are the other columns that a valid row has then, and the row where not each can have it.
var lengthMore = map[string]string{
	"names.rival": ", rival_at = now()", "installation.halted_by": ", halted_at = now()", "schedules.cron": ", every = NULL",
	"users.password": ", identity = NULL, password_at = now()", "users.identity": ", password = NULL, password_at = NULL",
	"jobs.cursor": " WHERE status = 'RUNNING'", "jobs.bound": " WHERE status = 'RUNNING'", "jobs.throttle": " WHERE status = 'RUNNING'",
	"jobs.status": " WHERE status = 'RUNNING'",
}

// lengthRows have a row in each table that a role of belfry's programs may write.
const lengthRows = `
INSERT INTO belfry.job_types (name) VALUES ('digest');
INSERT INTO belfry.jobs (type, category, title) VALUES ('digest', 'operator_notice', 'Hi'), ('push', 'operator_notice', 'Hi');
INSERT INTO belfry.job_values (job_id, channel_id, value) SELECT id, 1, '{}' FROM belfry.jobs;
UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), bound = '9', "cursor" = '1' WHERE type = 'digest';
INSERT INTO belfry.job_skips (job_id, key, after, error) SELECT id, '1', '', 'x' FROM belfry.jobs WHERE type = 'digest';
INSERT INTO belfry.job_deliveries (job_id, relay) VALUES (1, 'r');
INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('night', now(), 'ann');
INSERT INTO belfry.senders (name, paused_at, paused_by) VALUES ('night', now(), 'ann');
INSERT INTO belfry.schedules (name, every, template, query, paused_at) VALUES ('daily', '1 hour', '{"type": "push", "category": "operator_notice", "title": "Hi"}', 'SELECT 1', now());
INSERT INTO belfry.channels (id, external_id, platform) VALUES (1, 'a', 'ios');
INSERT INTO belfry.segments (name) VALUES ('all');
INSERT INTO belfry.segment_members VALUES ('all', 1);
INSERT INTO belfry.opt_outs (channel_id) VALUES (1);
INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) VALUES (1, 'push', decode(repeat('00', 32), 'hex'));
INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'Hi');
INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (1, 'r', now(), '{1}', '{1}');
INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps, reasons) VALUES (1, '{1}', '{1}', '{0}', '{x}');
INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) VALUES (1, 1, 0, 1, 'push', 'permanent');
INSERT INTO belfry.relays (name) VALUES ('r');
INSERT INTO belfry.queues (name, transport, dispatcher, leads_until) VALUES ('bulk', 'redislist', 'r', now());
INSERT INTO belfry.pushes (queue, number) VALUES ('bulk', 1);
INSERT INTO belfry.samples (kind, name, at) VALUES ('lane', 'night', '2026-01-01 00:00:00+00');
INSERT INTO belfry.retention_walks (name, job_ids, channel_id) VALUES ('notifications', '{1}', 1);
INSERT INTO belfry.names (kind, name, instance, host, pid) VALUES ('relay', 'r', gen_random_uuid(), 'h', 1);
INSERT INTO belfry.tokens (name, role, sha256, created_by, expires_at) VALUES ('t', 'viewer', decode(repeat('00', 32), 'hex'), 'ann', now() + interval '1 hour');
INSERT INTO belfry.requests (who, key, fingerprint, ends_at, status) VALUES ('ann', 'k', decode(repeat('00', 32), 'hex'), now(), 200);
INSERT INTO belfry.users (name, role, identity, password_at, created_by) VALUES ('oidc:ann', 'viewer', 'i', NULL, 'ann');
INSERT INTO belfry.sessions (kind, sha256, name, role, via, expires_at) VALUES ('session', decode(repeat('00', 32), 'hex'), 'oidc:ann', 'viewer', 'oidc', now());
UPDATE belfry.installation SET halted_at = NULL;
INSERT INTO belfry.attachments (relation_schema, relation_name, key_column, key_type, columns, shape, relation_id) VALUES ('belfry', 'channels', 'id', 'bigint', '{}', '{}', 1);
`

// What a role of belfry's programs writes is read by each process, doctor and page: one value of hundreds of megabytes,
// which costs nothing to store compressed, took gigabytes in each reader. Each text, array or JSON value has a bound, or is
// in the list of those that have none. The golden file has the rule by which each is refused.
func TestRoles_WriteTextsOfBoundedLength(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	role := d.DB.Role(t)
	for _, statement := range grants(t, channels.DefaultRelation, "for", "enqueue,run,deliver,operate,inbox", "role", role.User).Statements {
		d.Exec(statement)
	}
	d.Exec(lengthRows)
	rows, err := d.DB.Pool.Query(t.Context(), `
SELECT c.relname, a.attname, CASE t.typname
         WHEN 'jsonb' THEN 'jsonb_build_object(''x'', repeat(''x'', 2200000))' WHEN 'bytea' THEN 'convert_to(repeat(''x'', 2200000), ''UTF8'')'
         WHEN '_text' THEN 'ARRAY[repeat(''x'', 2200000)]' WHEN '_tid' THEN 'array_fill(''(0,1)''::tid, ARRAY[300000])' WHEN 'text' THEN 'repeat(''x'', 2200000)' ELSE 'array_fill(1, ARRAY[300000])::' || a.atttypid::regtype END
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
 WHERE c.relnamespace = 'belfry'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND a.attlen = -1 AND t.typname NOT IN ('numeric', 'point')
   AND (has_column_privilege($1, c.oid, a.attnum, 'INSERT') OR has_column_privilege($1, c.oid, a.attnum, 'UPDATE'))
 ORDER BY 1, 2`, role.User)
	require.NoError(t, err)
	type column struct{ Table, Column, Value string }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	require.NoError(t, err)
	require.Greater(t, len(list), 100)

	var b strings.Builder
	for _, c := range list {
		name := c.Table + "." + c.Column
		if name == "events.detail" { // has two templates of schedules
			c.Value = strings.ReplaceAll(c.Value, "2200000", "4200000")
		}
		err := pgx.BeginFunc(t.Context(), d.DB.Pool, func(tx pgx.Tx) error {
			column := pgx.Identifier{c.Column}.Sanitize()
			statement := "UPDATE belfry." + c.Table + " SET " + column + " = " + c.Value + lengthMore[name]
			if c.Table == "activities" { // none changes
				columns := map[string]string{"channel_id": "1", "title": "'Hi'", "inbox": "true", "collapse_key": "'k'"}
				columns[c.Column] = c.Value
				statement = "INSERT INTO belfry.activities (" + strings.Join(slices.Sorted(maps.Keys(columns)), ", ") + ") VALUES ("
				for i, k := range slices.Sorted(maps.Keys(columns)) {
					statement += strings.Repeat(", ", min(i, 1)) + columns[k]
				}
				statement += ")"
			}
			if _, err := tx.Exec(t.Context(), statement); err != nil {
				return err
			}
			var stored bool
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT coalesce(max(octet_length("+column+"::text)), 0) > 100000 FROM belfry."+c.Table).Scan(&stored))
			if !stored {
				return errors.New("a trigger sets it")
			}
			return errStored
		})
		reason, accepted := unbounded[name], errors.Is(err, errStored)
		if accepted != (reason != "") {
			t.Errorf("%s: a value of 2.2 MB: %v", name, err)
		}
		if accepted {
			b.WriteString(name + ": unbounded: " + reason + "\n")
			continue
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "ERROR: "), " (SQLSTATE")
		require.Less(t, len(text), 1000, name)
		b.WriteString(name + ": " + regexp.MustCompile(`x{20,}`).ReplaceAllString(text, "x…") + "\n")
	}
	dbtest.Golden(t, "testdata/lengths.txt", b.String())
}

// The doctor lists 20 refused names, however many rows a role that runs has written.
func TestDoctor_ListsFewNames(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.names (kind, name, instance, host, pid, rival, rival_at) SELECT 'runner', 'n' || g, gen_random_uuid(), 'h', g, 'h:1', clock_timestamp() FROM generate_series(1, 50) g`)
	n := 0
	for _, f := range d.Examined().Findings {
		if strings.Contains(f.Detail.String(), "configured with the same name") {
			n++
		}
	}
	require.Equal(t, 20, n)
}
