package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// hostile is a database with rows in every table, the pages and the API over it, and a role.
type hostile struct {
	*house

	t    *testing.T
	role *dbtest.DB
	b    *browser
}

// column is a column that the role may write.
type column struct {
	Table, Name, Type string
	Updates, Inserts  bool
}

// fixture has rows in every table: a job in each status, messages in each status, and the rest once or twice.
func fixture() []string {
	list := []string{
		`INSERT INTO belfry.channels (external_id, platform, location, addresses, attributes) SELECT 'u' || g, 'ios', point(127, 37), '{"push": "token", "sms": "+821012345678"}', '{"name": "x"}' FROM generate_series(1, 48) g`,
		`INSERT INTO belfry.segments (name) VALUES ('testers'), ('vip')`,
		`INSERT INTO belfry.segment_members (segment, channel_id) SELECT 'testers', g FROM generate_series(1, 3) g`,
		`INSERT INTO belfry.opt_outs (channel_id, medium, reason) VALUES (1, 'sms', 'x'), (2, '*', 'y')`,
		`INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256, sender, error, job_id) VALUES (1, 'push', sha256('x'), 'fcm', 'gone', 3)`,
		`INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('night', now(), 'ann'), ('day', NULL, NULL)`,
		`INSERT INTO belfry.senders (name, rate_per_second, concurrency, paused_at, paused_by) VALUES ('fcm', 5, 3, now(), 'ann'), ('sms', 7, 1, NULL, NULL)`,
		`UPDATE belfry.categories SET cap = 3, cap_window = '1 day', quiet_start = '22:00', quiet_end = '08:00' WHERE name = 'operator_notice'`,
		`INSERT INTO belfry.jobs (type, category, title, body, lane, audience, idempotency_key, group_id, expires_at, deliver_at, variants, data)
			SELECT 'push', 'operator_notice', 'Hello', 'there', 'lane' || g, CASE g % 3 WHEN 0 THEN '{"kind": "channels", "external_ids": ["u1", "u2"]}' WHEN 1 THEN '{"kind": "radius", "latitude": 37, "longitude": 127, "radius_m": 1000}' ELSE '{"kind": "everyone"}' END::jsonb,
				'k' || g, gen_random_uuid(), now() + interval '1 day', now() + interval '1 second', '{"ko": {"title": "x"}}', '{"a": 1}' FROM generate_series(1, 6) g`,
		`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now(), channels_total = 8, backend_pid = 1, backend_start = now() WHERE id IN (2, 3, 4, 5)`,
		`UPDATE belfry.jobs SET bound = '8', "cursor" = '8', chunks = 1, channels_read = 8, channels_matched = 8, rows_written = 6, skipped = 1, declined = 1 WHERE id IN (2, 3, 4, 5)`,
		`UPDATE belfry.jobs SET throttle = 'rate', throttle_detail = 'x', throttled_ms = 5 WHERE id = 2`,
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT j, g, now() FROM generate_series(3, 5) j, generate_series(1, 48) g`,
		`INSERT INTO belfry.job_claims (job_id, claimed_to) VALUES (3, 28), (4, 8)`,
		`INSERT INTO belfry.notifications (channel_id, arrival, read_at, withdrawn_at) SELECT 1, arrival, now(), now() FROM belfry.jobs WHERE id = 3`,
		`INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (7, 'r', now() + interval '1 hour', '{3}', '{2}')`,
		`INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps, reasons) VALUES (7, '{3}', '{2}', '{0}', '{x}')`,
		`UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 7, receipt = 'x' WHERE (job_id + (channel_id - 1) / 8) % 6 = 1`,
		`UPDATE belfry.message_rows SET status = 'SENT', sent_at = now(), sender = 'fcm', attempts = 1 WHERE (job_id + (channel_id - 1) / 8) % 6 = 2`,
		`UPDATE belfry.message_rows SET status = 'DEAD', reason = 'permanent', last_error = 'no such user', attempts = 3, sender = 'fcm', recalled_at = now() WHERE (job_id + (channel_id - 1) / 8) % 6 = 3`,
		`UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE (job_id + (channel_id - 1) / 8) % 6 = 4`,
		`UPDATE belfry.message_rows SET status = 'QUEUED', push = 1 WHERE (job_id + (channel_id - 1) / 8) % 6 = 5`,
		`UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = 3`,
		`UPDATE belfry.jobs SET abort_requested = true WHERE id = 4`,
		`SELECT belfry.resume_edited(4, '{"title": "Hello again"}', 'ann', 'a slip'), belfry.abort(4, 'ann')`,
		`UPDATE belfry.jobs SET status = 'FAILED', last_error = 'x' WHERE id = 5`,
		`UPDATE belfry.jobs SET needs_approval = true WHERE id = 1`,
		`SELECT set_config('belfry.acts_for', 'bob', true), belfry.approve(1, 5, 'bob'), belfry.set(6, '{"expires_at": null}')`,
		`INSERT INTO belfry.job_skips (job_id, key, after, error, sqlstate) SELECT j, '7', '6', 'invalid', '22P02' FROM generate_series(2, 5) j`,
		`WITH j AS (INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', '{{value.points}} points') RETURNING id)
			INSERT INTO belfry.job_values SELECT j.id, 1, '{"points": 12}' FROM j`,
		`INSERT INTO belfry.job_deliveries (job_id, relay, written, sent, dead, cancelled) VALUES (3, '', 6, 0, 0, 1), (3, 'relay', 0, 1, 1, 0), (4, '', 6, 1, 1, 1)`,
		`INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, code, error) SELECT 3, g, 0, 1, 'push', 'fcm', 'retryable', '503', 'busy' FROM generate_series(1, 5) g`,
		`INSERT INTO belfry.samples (kind, name, at, medium, rows_written, sent, failed)
			SELECT k, n, date_bin('1 minute', now() - interval '5 minutes' * g, '1970-01-01 00:00:00+00'), m, 10, 9, 1
			  FROM generate_series(1, 3) g, (VALUES ('job', '1', ''), ('lane', 'default', ''), ('sender', 'fcm', 'push')) v(k, n, m)`,
		`INSERT INTO belfry.relays (name, senders, media, in_flight, limits) SELECT 'relay' || g, '{fcm,sms}', '{push,sms}', 1,
			'[{"name": "fcm", "medium": "push", "rate_per_second": 5, "concurrency": 3, "breaker": "closed", "waiting": 1, "calling": 1, "sent_per_second": 0.5, "failed_per_second": 0.25}]' FROM generate_series(1, 2) g`,
		`INSERT INTO belfry.queues (name, transport, dispatcher, leads_until) VALUES ('bulk', 'redis', 'relay1', now() + interval '1 minute'), ('activities', 'redis', 'relay1', now() + interval '1 minute')`,
		`INSERT INTO belfry.pushes (queue, number) VALUES ('bulk', 1), ('activities', 1)`,
		`INSERT INTO belfry.names (kind, name, instance, host, pid, rival, rival_at) VALUES ('relay', 'relay1', gen_random_uuid(), 'h', 1, 'h:2', now()), ('runner', 'r', gen_random_uuid(), 'h', 1, NULL, NULL)`,
		`INSERT INTO belfry.schedules (name, cron, template, query) VALUES ('digest', '0 9 * * *', '{"types": ["push"], "category": "operator_notice", "title": "Hello", "audience": {"kind": "channels", "external_ids": ["u1"]}}', 'SELECT ''x'' AS body')`,
		`INSERT INTO belfry.schedules (name, every, template) VALUES ('hourly', '1 hour', '{"type": "inbox", "category": "operator_notice", "title": "Hello"}')`,
		`UPDATE belfry.schedules SET failures = 1, failing_since = now(), retry_at = now(), next_at = now(), last_error = 'x', last_at = now(), last_fired_at = now(), last_jobs = '{3}', fired = 1`,
		`SELECT belfry.send(1, 'activity', 'hi', 'there', '{"a": 1}', '{"ko": {"title": "x"}}', deliver_at => now() + interval '1 hour', idempotency_key => 'k')`,
		`INSERT INTO belfry.activities (channel_id, category, title) VALUES (1, 'operator_notice', 'hi')`,
		`INSERT INTO belfry.activity_counts VALUES ('operator_notice', 'ann', date_trunc('hour', now()), 1)`,
		`INSERT INTO belfry.retention_walks (name, job_ids, channel_id) VALUES ('notifications', '{3}', 1)`,
		`INSERT INTO belfry.tokens (name, role, sha256, created_by, expires_at, revoked_at, last_used_at) VALUES ('t', 'viewer', sha256('t'), 'ann', now() + interval '1 day', now(), now())`,
		`INSERT INTO belfry.requests (who, key, fingerprint, ends_at, status, answer) VALUES ('ann', 'k', sha256('x'), now() + interval '1 day', 200, '{}')`,
		`INSERT INTO belfry.users (name, role, password, created_by, disabled_at, signed_in_at) VALUES ('kim', 'viewer', '$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY', 'ann', now(), now())`,
		`INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at) VALUES ('session', sha256('s'), 'kim', 'viewer', 'password', '192.0.2.1', now() + interval '1 hour')`,
		`CREATE TABLE public.users (id bigint PRIMARY KEY, os text)`,
		`INSERT INTO belfry.attachments (relation_schema, relation_name, relation_owner, key_column, key_type, columns, shape, relation_id, position, filled_at, verified_at)
			VALUES ('public', 'users', current_user, 'id', 'bigint', '{"external_id": "id", "platform": {"column": "os"}}',
				'{"id": {"type": "pg_catalog.int8", "number": 1}, "os": {"type": "pg_catalog.text", "number": 2}}', 'public.users'::regclass, '1', now(), now())`,
		`INSERT INTO belfry.attachment_misses (sqlstate) VALUES ('22000')`,
		`INSERT INTO belfry.events (subject, name, kind, actor, detail) SELECT s, 'x', 'changed', 'ann', '{"session_user": "x", "before": {"a": 1, "paused_at": null}, "after": {"a": 2, "paused_at": "2026-01-01T00:00:00Z"}, "count": 3}'
			FROM unnest('{dead_letter,channel,transport,segment,schedule,lane,sender,retention,limits}'::text[]) s`,
	}
	return list
}

// valuesOf returns hostile values of a type, as SQL.
func valuesOf(kind string) []string {
	long := `repeat('x', 300000)`
	switch kind {
	case "timestamp with time zone":
		return []string{`'infinity'`, `'-infinity'`, `'294276-12-31 23:59:59+00'`, `'4713-01-01 00:00:00+00 BC'`, `'0001-01-01 00:00:00+00'`, `'9999-12-31 23:59:59+00'`, `'10000-01-01 00:00:00+00'`}
	case "text", "name":
		return []string{`''`, `'zzz'`, `E'\x01\x1b[31m\r\n\u202e'`, `'-1'`, `'99999999999999999999'`, `'10:00'`, long}
	case "integer", "smallint", "bigint", "oid":
		limit := map[string][]string{"integer": {"-2147483648", "2147483647"}, "smallint": {"-32768", "32767"}, "bigint": {"-9223372036854775808", "9223372036854775807"}, "oid": {"4294967295"}}[kind]
		return append(limit, "0", "-1")
	case "double precision":
		return []string{`'NaN'`, `'Infinity'`, `'-Infinity'`, `1e308`, `-1`, `5e-324`}
	case "boolean":
		return []string{"true", "false"}
	case "text[]":
		return []string{`'{}'`, `'{NULL}'`, `'{""}'`, `'{{a,b},{c,d}}'`, `'[5:6]={a,b}'`, `array_fill(repeat('x', 100), ARRAY[10000])`}
	case "bigint[]", "smallint[]":
		return []string{`'{}'`, `'{NULL}'`, `'{{1,2},{3,4}}'`, `'[5:6]={1,2}'`, `'{-32768,32767}'`}
	case "tid[]":
		return []string{`'{}'`, `'{NULL}'`, `'[5:6]={"(0,1)","(4294967295,65535)"}'`}
	case "bytea":
		return []string{`''`, `'\x00ff'`, `sha256('hostile')`, `decode(repeat('00', 60000), 'hex')`}
	case "interval":
		return []string{`'178000000 years'`, `'-1 year'`, `'1 month'`, `'0'`, `'9223372036854 seconds'`}
	case "point":
		return []string{`'(NaN,NaN)'`, `'(Infinity,0)'`, `'(1e300,-1e300)'`}
	case "uuid":
		return []string{`'00000000-0000-0000-0000-000000000000'`}
	case "time without time zone":
		return []string{`'24:00'`, `'00:00'`}
	}
	return nil
}

// jsonValues returns hostile documents, and a sample with hostile values in each place of it.
func jsonValues(t *testing.T, sample string) []string {
	t.Helper()
	list := []string{`'null'`, `'[]'`, `'{}'`, `'"x"'`, `'1e1000'`, `'[null]'`, `'[{}]'`, `(repeat('[', 3000) || repeat(']', 3000))::jsonb`, `jsonb_build_object('x', repeat('x', 300000))`}
	var doc any
	require.NoError(t, json.Unmarshal([]byte(sample), &doc))
	var walk func(at []string, v any)
	walk = func(at []string, v any) {
		if len(at) > 0 {
			for _, odd := range []string{`null`, `"x"`, `""`, `1e1000`, `-9223372036854775809`, `0.5`, `[]`, `{}`, `[null]`, `true`} {
				list = append(list, fmt.Sprintf(`jsonb_set(%s, %s, '%s')`, quoted(sample), quoted("{"+strings.Join(at, ",")+"}"), odd))
			}
		}
		switch v := v.(type) {
		case map[string]any:
			for k, inner := range v {
				walk(append(slices.Clone(at), k), inner)
			}
		case []any:
			for i, inner := range v {
				walk(append(slices.Clone(at), fmt.Sprint(i)), inner)
			}
		}
	}
	walk(nil, doc)
	return list
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (h *hostile) exec(sql string) {
	h.t.Helper()
	_, err := h.db.Pool.Exec(h.t.Context(), sql)
	require.NoError(h.t, err, sql)
}

func rowsOf[T any](h *hostile, collect pgx.RowToFunc[T], sql string, args ...any) []T {
	h.t.Helper()
	rows, err := h.db.Pool.Query(h.t.Context(), sql, args...)
	require.NoError(h.t, err)
	list, err := pgx.CollectRows(rows, collect)
	require.NoError(h.t, err)
	return list
}

// columns returns what the role may write.
func (h *hostile) columns() []column {
	h.t.Helper()
	return rowsOf(h, pgx.RowToStructByPos[column], `
SELECT c.relname, a.attname, format_type(a.atttypid, NULL), has_column_privilege($1, c.oid, a.attnum, 'UPDATE'), has_column_privilege($1, c.oid, a.attnum, 'INSERT')
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'belfry'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity <> 'a'
   AND (has_column_privilege($1, c.oid, a.attnum, 'UPDATE') OR has_column_privilege($1, c.oid, a.attnum, 'INSERT'))
 ORDER BY 1, 2`, h.role.User)
}

// share returns the condition of the rows that get the value of a number: one row, or of messages one of each status.
func share(table string, i, rows int) string {
	if table == "message_rows" {
		return fmt.Sprintf("channel_id %% 8 = %d", i%8)
	}
	return fmt.Sprintf("ctid = (SELECT x.ctid FROM belfry.%s x ORDER BY x.ctid OFFSET %d LIMIT 1)", table, i%rows)
}

// try executes a statement of the role and reports whether the row was written.
func (h *hostile) try(sql string) bool {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	tag, err := h.role.Pool.Exec(ctx, sql)
	return err == nil && tag.RowsAffected() > 0
}

// insertion returns an INSERT of a copy of a table's row with a value in one column: of the columns without a default,
// with other keys. The owner reads the row, which the role may not.
func (h *hostile) insertion(c column, value string) string {
	h.t.Helper()
	type copied struct{ Name, Fresh string }
	list := rowsOf(h, pgx.RowToStructByPos[copied], `
SELECT a.attname, CASE WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND a.attnum = ANY (i.indkey))
                        AND NOT EXISTS (SELECT FROM pg_constraint f WHERE f.conrelid = a.attrelid AND f.contype = 'f' AND a.attnum = ANY (f.conkey))
           THEN CASE a.atttypid WHEN 'text'::regtype THEN 'gen_random_uuid()' WHEN 'bigint'::regtype THEN '(1e6 + random() * 1e9)::bigint' WHEN 'bytea'::regtype THEN 'sha256(gen_random_uuid()::text::bytea)' ELSE '' END
           ELSE '' END
  FROM pg_attribute a
 WHERE a.attrelid = ('belfry.' || $1)::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attname <> $2
   AND NOT (a.attrelid = ANY ('{belfry.jobs,belfry.activities}'::regclass[]) AND a.attname = ANY ('{id,route}'))
 ORDER BY a.attnum`, c.Table, c.Name)
	names, values := []string{pgx.Identifier{c.Name}.Sanitize()}, []string{value}
	for _, one := range list {
		name := pgx.Identifier{one.Name}.Sanitize()
		if one.Fresh == "" {
			one.Fresh = rowsOf(h, pgx.RowTo[string], fmt.Sprintf(`SELECT quote_nullable(x.%s::text) FROM belfry.%s x LIMIT 1`, name, c.Table))[0]
		}
		names, values = append(names, name), append(values, one.Fresh)
	}
	return fmt.Sprintf("INSERT INTO belfry.%s (%s) SELECT %s", c.Table, strings.Join(names, ", "), strings.Join(values, ", "))
}

// addresses returns what the pages and the API show, of these jobs and channels.
func addresses(ids, people []string) (list []string) {
	for _, o := range admin.Operations() {
		if o.Changes || o.Item() != nil {
			continue
		}
		path, query := api.PathOf(o), make(url.Values)
		for _, p := range o.Params() {
			value := map[string]string{"name": "digest", "channel": "1", "everyone": "true", "for": "run"}[p.Name]
			switch place := "{" + p.Name + "}"; {
			case strings.Contains(path, place) && p.Name != "id":
				path = strings.ReplaceAll(path, place, value)
			case o.Name == "dead-letters show" && p.Name == "job":
				query.Set("job", "3")
			case p.Name == "channel" && slices.Contains([]string{"dead-letters show", "channels show", "channels opt-outs"}, o.Name):
				query.Set("channel", "{id}")
			case p.Required && value != "", o.Name == "channels count" && p.Name == "everyone":
				query.Set(p.Name, value)
			}
		}
		if len(query) > 0 {
			path += "?" + strings.ReplaceAll(query.Encode(), url.QueryEscape("{id}"), "{id}")
		}
		if !strings.Contains(path, "{id}") {
			list = append(list, path)
			continue
		}
		about := ids
		if o.Noun() == "dead-letters" || o.Noun() == "channels" {
			about = people
		}
		for _, id := range about {
			list = append(list, strings.ReplaceAll(path, "{id}", id))
		}
	}
	return append(list, "/")
}

// read returns the requests that were not answered, except those about an object that is gone (404)
// or whose own row does not allow the answer (409).
func (h *hostile) read(ids, people []string) (faults []string) {
	h.t.Helper()
	for _, at := range addresses(ids, people) {
		for _, prefix := range []string{api.Prefix, ""} {
			if prefix+at == api.Prefix+"/" {
				continue
			}
			req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.url+prefix+at, nil)
			require.NoError(h.t, err)
			req.Header.Set("Authorization", "Bearer admin")
			logged := h.log.Len()
			res, err := h.b.client.Do(req)
			if err != nil {
				faults = append(faults, prefix+at+": "+err.Error())
				continue
			}
			answer, err := io.ReadAll(io.LimitReader(res.Body, 300))
			require.NoError(h.t, err)
			require.NoError(h.t, res.Body.Close())
			if res.StatusCode >= http.StatusBadRequest && res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusConflict {
				_, line, _ := strings.Cut(h.log.String()[logged:], "panic(")
				if line == "" {
					line = strings.TrimSpace(h.log.String())
					line = line[strings.LastIndexByte(line, '\n')+1:]
				}
				faults = append(faults, fmt.Sprintf("%s: %d: %.900s %s", prefix+at, res.StatusCode, line, answer))
			}
		}
	}
	return faults
}

// Whatever a role of belfry's programs may write in a column, every list and page can be read: roles are trusted
// with their tables, and not with the operators' view of all others.
func TestLong_RowsOfARoleBreakNoPage(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"deliver", "run", "operate", "enqueue"} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			h := &hostile{house: openOn(t, dbtest.New(t), nil), t: t}
			h.role, h.b = h.db.Role(t), h.as(t, "")
			var grants struct{ Statements []string }
			text := h.as(t, "admin").get(t, api.Prefix+"/roles?for="+profile+"&role="+h.role.User).source
			require.NoError(t, json.Unmarshal([]byte(text), &grants), text)
			for _, sql := range append(fixture(), grants.Statements...) {
				h.exec(sql)
			}
			h.exec(`CREATE SCHEMA kept`)
			tables := rowsOf(h, pgx.RowTo[string], `SELECT relname FROM pg_class WHERE relnamespace = 'belfry'::regnamespace AND relkind = 'r' ORDER BY 1`)
			for _, table := range tables {
				h.exec(fmt.Sprintf(`CREATE TABLE kept.%s AS TABLE belfry.%[1]s`, table))
			}
			require.Empty(t, h.read([]string{"1", "2", "3", "4", "5", "6"}, []string{"1"}), "before")
			written := 0
			for batch := range slices.Chunk(h.columns(), columnsAtOnce) {
				written += h.writeAll(tables, batch)
			}
			t.Logf("%d hostile values were written", written)
			require.Positive(t, written)
		})
	}
}

// columnsAtOnce is the number of columns whose hostile values are written before the pages are read: reading them takes
// seconds.
const columnsAtOnce = 8

// hostileValue is the value that the row nth of a column is to get.
type hostileValue struct {
	column
	value string
	nth   int
	rows  int // of the table
}

// writeAll writes the hostile values of some columns, reads all pages, and returns the number of values that the database
// accepted. A value that it refuses beside others is tried again by itself.
func (h *hostile) writeAll(tables []string, columns []column) (written int) {
	h.t.Helper()
	var list, again []hostileValue
	for _, c := range columns {
		list = append(list, h.valuesFor(c)...)
	}
	var accepted []string
	ids, people := make(map[string]bool), make(map[string]bool)
	flush := func() {
		if len(accepted) == 0 {
			return
		}
		for _, fault := range h.read(slices.Sorted(maps.Keys(ids)), slices.Sorted(maps.Keys(people))) {
			h.t.Errorf("%v: %s", short(accepted), fault)
		}
		accepted = nil
		clear(ids)
		clear(people)
		h.restore(tables)
	}
	write := func(v hostileValue) bool {
		before := len(accepted)
		if v.Updates && h.try(fmt.Sprintf(`UPDATE belfry.%s SET %s = %s WHERE %s`, v.Table, pgx.Identifier{v.Name}.Sanitize(), v.value, share(v.Table, v.nth, v.rows))) {
			accepted = append(accepted, fmt.Sprintf("%s.%s %s", v.Table, v.Name, v.value))
		}
		if v.Inserts && h.try(h.insertion(v.column, v.value)) {
			accepted = append(accepted, fmt.Sprintf("%s.%s inserted %s", v.Table, v.Name, v.value))
		}
		written += len(accepted) - before
		concerned(v.Table, ids, people)
		return len(accepted) > before
	}
	for round := 0; len(list) > 0; round++ { // one value of each row and column at a time
		var rest []hostileValue
		for _, v := range list {
			switch {
			case v.nth/v.rows > round:
				rest = append(rest, v)
			case !write(v):
				again = append(again, v)
			}
		}
		list = rest
		flush()
	}
	for _, v := range again {
		if len(accepted) >= v.rows {
			flush()
		}
		write(v)
	}
	flush()
	return written
}

// valuesFor returns the hostile values of a column.
func (h *hostile) valuesFor(c column) (list []hostileValue) {
	h.t.Helper()
	values := valuesOf(c.Type)
	if c.Type == "jsonb" {
		samples := rowsOf(h, pgx.RowTo[string], fmt.Sprintf(`SELECT DISTINCT %s::text FROM belfry.%s WHERE %[1]s IS NOT NULL ORDER BY 1 DESC LIMIT 2`, pgx.Identifier{c.Name}.Sanitize(), c.Table))
		for _, sample := range samples {
			values = append(values, jsonValues(h.t, sample)...)
		}
	}
	require.NotEmpty(h.t, values, "%s.%s: say what is hostile in a column of type %s", c.Table, c.Name, c.Type)
	rows := rowsOf(h, pgx.RowTo[int], `SELECT count(*)::int FROM belfry.`+c.Table)[0]
	require.Positive(h.t, rows, c.Table)
	if c.Table == "message_rows" {
		rows = 8
	}
	for i, value := range append(values, "NULL") {
		list = append(list, hostileValue{c, value, i, rows})
	}
	return list
}

// concerned adds the jobs and channels whose pages show the rows of a table.
func concerned(table string, ids, people map[string]bool) {
	ids["3"], people["1"] = true, true
	switch {
	case table == "jobs" || strings.HasPrefix(table, "job_"):
		for n := 1; n <= 6; n++ {
			ids[strconv.Itoa(n)] = true
		}
	case table == "message_rows":
		for n := 1; n <= 8; n++ {
			people[strconv.Itoa(n)] = true
		}
	}
}

// restore puts the rows of the fixture back.
func (h *hostile) restore(tables []string) {
	h.t.Helper()
	tx, err := h.db.Pool.Begin(h.t.Context())
	require.NoError(h.t, err)
	exec := func(sql string) {
		_, err := tx.Exec(h.t.Context(), sql)
		require.NoError(h.t, err, sql)
	}
	exec(`SET LOCAL session_replication_role = replica`)
	for _, table := range tables {
		var names string
		require.NoError(h.t, tx.QueryRow(h.t.Context(), `SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute WHERE attrelid = ('belfry.' || $1)::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`, table).Scan(&names))
		var same bool
		require.NoError(h.t, tx.QueryRow(h.t.Context(), fmt.Sprintf(`SELECT NOT EXISTS (SELECT to_jsonb(x) FROM belfry.%s x EXCEPT ALL SELECT to_jsonb(x) FROM kept.%[1]s x) AND (SELECT count(*) FROM belfry.%[1]s) = (SELECT count(*) FROM kept.%[1]s)`, table)).Scan(&same))
		if !same {
			exec(`DELETE FROM belfry.` + table)
			exec(fmt.Sprintf(`INSERT INTO belfry.%s (%s) OVERRIDING SYSTEM VALUE SELECT %[2]s FROM kept.%[1]s`, table, names))
		}
	}
	require.NoError(h.t, tx.Commit(h.t.Context()))
}

// short cuts long values.
func short(values []string) []string {
	list := slices.Clone(values)
	for i, v := range list {
		if len(v) > 160 {
			list[i] = v[:60] + "…" + v[len(v)-90:]
		}
	}
	return list
}
