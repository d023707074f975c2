package api_test

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/admin/access"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/channels"
)

// secrets has a database in which whatever may not be read by everybody says s3cret.
func secrets(t *testing.T) *bundle {
	t.Helper()
	b := setup(t, nil)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, addresses, attributes)
		VALUES ('s3cret@example.org', 'ios', '{"push": "s3cret-token", "sms": "+82-s3cret", "email": "s3cret@example.org"}', '{"name": "s3cret"}'), ('b', 'ios', '{}', '{}')`)
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, body, data, variants, audience) VALUES
		('push', 'operator_notice', 'Hello', 's3cret {{attributes.name | default "x"}}', '{"a": "s3cret"}', '{"ko": {"title": "s3cret", "body": "s3cret"}}', '{"kind": "channels", "external_ids": ["s3cret@example.org", "s3cret2"]}')`)
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = 1`)
	b.exec(t, `UPDATE belfry.jobs SET cursor = '2', bound = '2', chunks = 1, channels_read = 2, channels_matched = 2, rows_written = 1, skipped = 1 WHERE id = 1`)
	b.exec(t, `SELECT belfry.abort(1)`)
	b.exec(t, `SELECT belfry.resume_edited(1, '{"body": "s3cret, corrected", "data": {"b": "s3cret"}, "variants": {"ko": {"title": "s3cret too"}}, "audience": {"kind": "channels", "external_ids": ["s3cret3"]}}')`)
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = fence + 1 WHERE id = 1`)
	b.exec(t, `INSERT INTO belfry.job_skips (job_id, key, after, error) VALUES (1, '2', '1', 'invalid: s3cret')`)
	b.exec(t, `UPDATE belfry.jobs SET status = 'FAILED', last_error = 'skipped too many, the last: s3cret' WHERE id = 1`)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, reason, attempts, last_error, receipt) VALUES (1, 1, now(), 'DEAD', 'permanent', 1, 'no such user: s3cret@example.org', NULL)`)
	b.exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, reason, error) VALUES (1, 1, 0, 1, 'push', 'fcm', 'permanent', 'permanent', 'no such user: s3cret@example.org')`)
	b.exec(t, `SELECT belfry.send(1, 'operator_notice', 's3cret likes you', 's3cret')`)
	b.exec(t, `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) VALUES (1, 'push', decode(repeat('5e', 32), 'hex'))`)
	b.exec(t, `INSERT INTO belfry.schedules (name, cron, template, query) VALUES ('digest', '0 9 * * *',
		'{"types": ["push"], "category": "operator_notice", "title": "Hello", "body": "s3cret", "data": {"a": "s3cret"}, "variants": {"ko": {"title": "s3cret"}}, "audience": {"kind": "channels", "external_ids": ["s3cret"]}}', 'SELECT ''s3cret'' AS body')`)
	b.exec(t, `UPDATE belfry.schedules SET template = jsonb_set(template, '{body}', '"s3cret again"'), query = 'SELECT ''s3cret again'' AS body'`)
	b.exec(t, `UPDATE belfry.schedules SET failures = 1, failing_since = now(), retry_at = now(), next_at = now(), last_error = 'query failed: s3cret'`)
	b.exec(t, `INSERT INTO belfry.users (name, role, password, created_by) VALUES ('kim', 'viewer', '$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY', 'ann')`)
	b.exec(t, `INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at) VALUES ('session', decode(repeat('00', 32), 'hex'), 'kim', 'viewer', 'password', 's3cret-address', now() + interval '1 hour')`)
	b.exec(t, `INSERT INTO belfry.events (subject, name, kind, actor, detail) VALUES ('user', 'kim', 'signed in', 'kim', '{"address": "s3cret-address"}')`)
	return b
}

// asks are requests for whatever an operation looks at, with every parameter that finds the
// secrets.
func asks(t *testing.T) map[string]string {
	t.Helper()
	list := make(map[string]string)
	for id, o := range read(t) {
		if o.method != http.MethodGet || strings.HasSuffix(id, "-watch") || strings.HasPrefix(id, "login-oidc") { // has no end here; has no operation
			continue
		}
		path, query := strings.TrimPrefix(o.path, api.Prefix), url.Values{}
		for _, p := range o.Parameters {
			value, known := map[string]string{"id": "1", "job": "1", "channel": "1", "everyone": "true", "for": "run", "name": "digest", "kind": "sender"}[p.Name]
			switch {
			case p.In == "path":
				require.True(t, known, "%s: say which %s there is", id, p.Name)
				path = strings.ReplaceAll(path, "{"+p.Name+"}", value)
			case value != "" && p.Name != "name" && !strings.HasSuffix(o.path, "/events"):
				query.Set(p.Name, value)
			}
		}
		list[id] = path + "?" + query.Encode()
	}
	return list
}

// Viewers and authors are shown no words, no external id, no address and no error that may quote
// them, whatever they look at; operators are.
func TestLong_MaskWhoLooksReadsNoContents(t *testing.T) {
	t.Parallel()
	b := secrets(t)
	var told []string
	list := asks(t)
	for _, id := range slices.Sorted(maps.Keys(list)) {
		for _, role := range []string{"viewer", "author"} {
			a := b.call(t, role, "GET", list[id], "")
			require.Contains(t, []int{http.StatusOK, http.StatusForbidden}, a.status, "%s %s: %s", role, id, a.text)
			require.NotContains(t, a.text+a.header.Get("Link"), "s3cret", "%s %s", role, id)
			require.NotContains(t, a.text, "Xl5eXl5e", "%s %s: a hash of an address is guessed", role, id)
		}
		if a := b.call(t, "operator", "GET", list[id], ""); strings.Contains(a.text, "s3cret") && id != "doctor" && id != "schedules-preview" { // which are operators'
			told = append(told, id)
			if shown := b.call(t, "viewer", "GET", list[id], ""); !strings.HasPrefix(id, "dead-letters-") { // which are operators', too
				require.Contains(t, shown.text, `masked`, id)
			}
		}
	}
	require.Equal(t, []string{
		"channels-show", "dead-letters-list", "dead-letters-show", "events-list", "jobs-audit", "jobs-events", "jobs-list", "jobs-preview", "jobs-recipients", "jobs-report", "jobs-revisions",
		"jobs-show", "jobs-skips",
		"schedules-events", "schedules-list", "schedules-show", "sessions-list", "users-events",
	}, told, "what there is to mask")
	require.Contains(t, b.call(t, "operator", "GET", "/channels/opt-outs?channel=1", "").text, "Xl5eXl5e")
}

// Dead letters are for operators alone, and their errors are without addresses for everybody.
func TestMask_ErrorsOfDeadLettersAreForOperators(t *testing.T) {
	t.Parallel()
	b := secrets(t)
	for _, role := range []string{"viewer", "author"} {
		require.Equal(t, http.StatusForbidden, b.call(t, role, "GET", "/dead-letters/errors", "").status)
	}
	for _, role := range []string{"operator", "admin"} {
		a := b.call(t, role, "GET", "/dead-letters/errors", "")
		require.Equal(t, http.StatusOK, a.status, a.text)
		require.Contains(t, a.text, `"error":"no such user: #"`, role)
		require.Contains(t, a.text, `"letters":1`, role)
		require.NotContains(t, a.text, "s3cret", role)
	}
}

// An author asks in every way in which an answer could have what the author may not read.
func TestMask_AuthorsFindNoWayAround(t *testing.T) {
	t.Parallel()
	b := secrets(t)
	b.exec(t, `UPDATE belfry.jobs SET idempotency_key = 'theirs' WHERE id = 1`)
	for name, ask := range map[string]struct{ role, method, path, body string }{
		"composed for a recipient":        {"author", "POST", "/enqueue", `{"type": ["push"], "category": "operator_notice", "title": "{{attributes.name}} {{external_id}}", "everyone": true, "preview": true}`},
		"another's request by its key":    {"author", "POST", "/enqueue", `{"type": ["push"], "category": "operator_notice", "title": "Hello", "everyone": true, "idempotency_key": "theirs"}`},
		"a test of a job":                 {"author", "POST", "/jobs/1/test-send", `{"to": "1"}`},
		"an activity":                     {"author", "POST", "/send", `{"channel": 1, "category": "operator_notice", "title": "{{attributes.name}}"}`},
		"an external id that is a guess":  {"viewer", "GET", "/dead-letters?external_id=s", ""},
		"an order that is none":           {"viewer", "GET", "/dead-letters?sort=error", ""},
		"a filter that is none":           {"viewer", "GET", "/jobs?body=s", ""},
		"events, by lines":                {"viewer", "GET", "/jobs/watch?id=1", ""},
		"a problem with a result":         {"author", "POST", "/enqueue", `{"type": ["push"], "category": "operator_notice", "title": "{{attributes.name}}", "everyone": true, "confirm_count": 77}`},
		"a question about what is stored": {"author", "POST", "/enqueue/question", `{"type": ["push"], "category": "operator_notice", "title": "Hello", "everyone": true}`},
	} {
		a := b.call(t, ask.role, ask.method, ask.path, ask.body)
		require.Less(t, a.status, 500, "%s: %s", name, a.text)
		require.NotContains(t, a.text, "s3cret", name)
	}
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, addresses) SELECT 'more-' || i, 'ios', '{"push": "t"}' FROM generate_series(1, 10) i`)
	a := b.call(t, "author", "POST", "/enqueue", `{"type": ["push"], "category": "operator_notice", "title": "{{attributes.name}}", "everyone": true, "preview": true}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Contains(t, a.text, `"samples":[]`)
	require.NotContains(t, a.text, "s3cret")
	require.Contains(t, b.call(t, "operator", "POST", "/enqueue", `{"type": ["push"], "category": "operator_notice", "title": "{{attributes.name}}", "everyone": true, "preview": true}`).text, "s3cret")
}

// An answer that is kept for repetitions is not for a role that reads less by now.
func TestMask_KeptAnswersAreForTheRoleThatAsked(t *testing.T) {
	t.Parallel()
	role := "operator"
	b := setup(t, func(c *api.Options) {
		c.Authenticate = func(ctx context.Context, _ string) (access.Identity, error) {
			who, err := tokens(ctx, role)
			who.Name = "one"
			return who, err
		}
	})
	body := `{"type": ["push"], "category": "operator_notice", "title": "Hello", "body": "s3cret", "everyone": true}`
	a := b.call(t, "x", "POST", "/enqueue", body, "Idempotency-Key", "k1")
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Contains(t, a.text, "s3cret")
	require.Contains(t, b.call(t, "x", "POST", "/enqueue", body, "Idempotency-Key", "k1").text, "s3cret", "repeated")
	role = "author"
	a = b.call(t, "x", "POST", "/enqueue", body, "Idempotency-Key", "k1")
	require.Equal(t, http.StatusUnprocessableEntity, a.status, a.text)
	require.NotContains(t, a.text, "s3cret")
}

// What the database says of a value of a row is not for everybody; what it says of the input is.
func TestMask_ErrorsQuoteNoRows(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) {
		people, err := channels.New(channels.Config{Relation: "public.people"})
		require.NoError(t, err)
		c.Env.Channels = people
	})
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) VALUES ('s3cret', 'ios')`)
	b.exec(t, `CREATE VIEW public.people AS SELECT * FROM belfry.channels WHERE external_id::int > 0`)
	for role, quotes := range map[string]bool{"viewer": false, "author": false, "operator": true} {
		a := b.call(t, role, "GET", "/channels/count?everyone=true", "")
		require.Equal(t, quotes, strings.Contains(a.text, "s3cret"), "%s: %s", role, a.text)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, a.text)
		if !quotes {
			require.Contains(t, a.problem(t).Detail, "(SQLSTATE 22P02); only operators can read the message")
		}
	}
}
