package walk_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// deed is an act as a person does it: what its form is filled with, and what the database says then.
type deed struct {
	operation string
	given     map[string]string // by parameter
	then      string            // a question that the database answers with yes
}

// unwalked are the acts that the walk leaves out, and why; the tests that do them look at their receipts.
var unwalked = map[string]string{
	"adopt":             "does nothing in a database that was not moved: admin has it",
	"transport rebuild": "is about a carrier, which this installation has not: cmd/belfry has it",
	"transport drain":   "is about a carrier, which this installation has not: cmd/belfry has it",
	"enqueue":           "has a page of its own: TestBrowser_ANoticeIsWrittenCountedAndApproved",
}

// subjects are the jobs that the acts of the walk are about, by number.
type subjects struct{ fails, skipped, sent, waits, asks string }

// toActOn is a house with something for each act: a job that FAILED, one that skipped somebody, one with
// dead letters, one that waits for its lane and one for a second person.
func toActOn(t *testing.T) (h *house, s subjects) {
	t.Helper()
	h = live(t, options{channels: 40, faults: `{for: fcm, status: 400, address: "[05]$"}`})
	h.run("lanes", "pause", "night")
	notice := func(title, lane string) string {
		return text.Int(h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: title, Lane: lane}))
	}
	h.exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE insufficient_privilege USING MESSAGE = 'refused for the test'; END $$")
	h.exec("CREATE TRIGGER refuse BEFORE INSERT ON belfry.notifications FOR EACH ROW EXECUTE FUNCTION refuse()")
	s.fails = notice("Fails", "")
	h.becomes("SELECT status = 'FAILED' FROM belfry.jobs")
	h.exec("DROP TRIGGER refuse ON belfry.notifications")
	h.exec("ALTER TABLE belfry.notifications ADD CONSTRAINT unlucky CHECK (channel_id <> 13)")
	s.skipped = notice("One is skipped", "")
	h.becomes("SELECT status = 'PROCESSED' AND skipped = 1 FROM belfry.jobs WHERE id = " + s.skipped)
	h.exec("ALTER TABLE belfry.notifications DROP CONSTRAINT unlucky")
	s.sent = text.Int(h.enqueue(job.Spec{Type: "push", Category: "operator_notice", Title: "Sent", Route: []string{"push"}}))
	h.becomes("SELECT count(*) = 8 FROM belfry.messages WHERE status = 'DEAD'")
	require.NoError(t, h.fakes.SetFaults(nil))
	h.exec("UPDATE belfry.events SET at = now() - interval '2 days'")
	h.exec("CREATE TABLE clients AS SELECT external_id AS id FROM belfry.channels; ALTER TABLE clients ADD PRIMARY KEY (id)")
	h.exec("INSERT INTO belfry.channels (external_id, platform) VALUES ('stray', 'ios')")
	s.waits = notice("Waits", "night")
	s.asks = text.Int(h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "Asks", Lane: "night", RequestedBy: "somebody", NeedsApproval: true}))
	return h, s
}

// Every act there is can be done in a browser, does what it says, is answered by a receipt, and says who
// did it.
func TestBrowser_EveryActIsDoneAndRecorded(t *testing.T) {
	t.Parallel()
	h, s := toActOn(t)
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-admin", password)
	of := func(job, what string) string { return "SELECT " + what + " FROM belfry.jobs WHERE id = " + job }
	type given = map[string]string
	two := `{"type": ["inbox"], "category": "operator_notice", "title": "One of two", "lane": "night", "everyone": true}
		{"type": ["inbox"], "category": "operator_notice", "title": "Two of two", "lane": "night", "everyone": true}`
	deeds := []deed{
		{"jobs retry-skipped", given{"id": s.skipped}, of(s.skipped, "skipped = 0")},
		{"jobs set", given{"id": s.waits, "title": "Waits for its lane", "max_recipients": "1000"}, of(s.waits, "title = 'Waits for its lane' AND max_recipients = 1000")},
		{"jobs approve", given{"id": s.asks}, of(s.asks, "approved_by = 'the-admin'")},
		{"abort", given{"id": s.waits}, of(s.waits, "status = 'ABORTED'")},
		{"resume", given{"id": s.waits}, of(s.waits, "status = 'PENDING'")},
		{"retry", given{"id": s.fails}, of(s.fails, "status = 'PROCESSED'")},
		{"dead-letters redrive", given{"job": s.sent, "external_id": "u5"}, "SELECT count(*) = 7 FROM belfry.messages WHERE status = 'DEAD'"},
		{"dead-letters discard", given{"job": s.sent, "external_id": "u10"}, "SELECT count(*) = 6 FROM belfry.messages WHERE status = 'DEAD'"},
		{"recall", given{"id": s.sent}, of(s.sent, "recalled_at IS NOT NULL")},
		{"jobs test-send", given{"id": s.sent, "to": "u2"}, "SELECT EXISTS (SELECT FROM belfry.activities WHERE requested_by = 'the-admin')"},
		{"jobs enqueue", given{"jobs": two}, "SELECT count(*) = 2 FROM belfry.jobs WHERE requested_by = 'the-admin'"},
		{"send", given{"external_id": "u3", "category": "operator_notice", "title": "To one"}, "SELECT EXISTS (SELECT FROM belfry.activities WHERE title = 'To one' AND requested_by = 'the-admin')"},
		{"halt", nil, "SELECT EXISTS (SELECT FROM belfry.events WHERE kind = 'halted')"},
		{"unhalt", nil, "SELECT kind <> 'halted' FROM belfry.events WHERE subject = 'installation' ORDER BY id DESC LIMIT 1"},
		{"lanes pause", given{"lane": "day"}, "SELECT paused_by = 'the-admin' FROM belfry.lanes WHERE name = 'day'"},
		{"lanes resume", given{"lane": "day"}, "SELECT paused_at IS NULL FROM belfry.lanes WHERE name = 'day'"},
		{"categories add", given{"category": "storms", "route": "push,sms"}, "SELECT EXISTS (SELECT FROM belfry.categories WHERE name = 'storms')"},
		{"categories set", given{"category": "storms", "max_recipients": "500"}, "SELECT max_recipients = 500 FROM belfry.categories WHERE name = 'storms'"},
		{"senders set", given{"sender": "fcm", "rate_per_second": "70"}, "SELECT rate_per_second = 70 FROM belfry.senders WHERE name = 'fcm'"},
		{"senders pause", given{"sender": "fcm"}, "SELECT paused_by = 'the-admin' FROM belfry.senders WHERE name = 'fcm'"},
		{"senders resume", given{"sender": "fcm"}, "SELECT paused_at IS NULL FROM belfry.senders WHERE name = 'fcm'"},
		{"limits set", given{"max_rows_per_second": "9000"}, "SELECT max_rows_per_second = 9000 FROM belfry.limits"},
		{"channels opt-out", given{"external_id": "u4", "category": "operator_notice", "medium": "push"}, "SELECT count(*) = 1 FROM belfry.opt_outs"},
		{"channels opt-in", given{"external_id": "u4", "category": "operator_notice", "medium": "push"}, "SELECT count(*) = 0 FROM belfry.opt_outs"},
		{"channels forget", given{"external_id": "u6"}, "SELECT NOT EXISTS (SELECT FROM belfry.channels WHERE external_id = 'u6')"},
		{"channels segment create", given{"name": "vips", "description": "who pay"}, "SELECT count(*) = 1 FROM belfry.segments"},
		{"channels segment set", given{"name": "vips", "keys": "u1\nu2"}, "SELECT count(*) = 2 FROM belfry.segment_members"},
		{"channels segment add", given{"name": "vips", "keys": "u2\nu3\nu4"}, "SELECT count(*) = 4 FROM belfry.segment_members"},
		{"channels segment remove", given{"name": "vips", "keys": "u1"}, "SELECT count(*) = 3 FROM belfry.segment_members"},
		{"channels segment drop", given{"name": "vips"}, "SELECT count(*) = 0 FROM belfry.segments"},
		{"channels attach", given{"relation": "clients", "external_id": "id"}, "SELECT filled_at IS NOT NULL FROM belfry.attachments"},
		{"channels verify", nil, "SELECT NOT active FROM belfry.channels WHERE external_id = 'stray'"},
		{"channels detach", nil, "SELECT count(*) = 0 FROM belfry.attachments"},
		{"schedules add", given{"name": "daily", "cron": "0 9 * * *", "type": "inbox", "category": "popular_content", "title": "Popular", "everyone": "on", "lane": "night"}, "SELECT cron = '0 9 * * *' FROM belfry.schedules WHERE name = 'daily'"},
		{"schedules pause", given{"name": "daily"}, "SELECT paused_by = 'the-admin' FROM belfry.schedules WHERE name = 'daily'"},
		{"schedules resume", given{"name": "daily"}, "SELECT paused_at IS NULL FROM belfry.schedules WHERE name = 'daily'"},
		{"schedules run", given{"name": "daily"}, "SELECT EXISTS (SELECT FROM belfry.jobs WHERE title = 'Popular')"},
		{"schedules remove", given{"name": "daily"}, "SELECT count(*) = 0 FROM belfry.schedules"},
		{"tokens create", given{"name": "robot", "role": "viewer", "expires_at": time.Now().Add(48 * time.Hour).Format(time.RFC3339)}, "SELECT count(*) = 1 FROM belfry.tokens"},
		{"tokens revoke", given{"name": "robot"}, "SELECT bool_and(revoked_at IS NOT NULL) FROM belfry.tokens"},
		{"users add", given{"name": "new", "role": "viewer", "password": "a long new password"}, "SELECT role = 'viewer' FROM belfry.users WHERE name = 'new'"},
		{"users set-password", given{"name": "new", "password": "another long password"}, "SELECT true"},
		{"users set", given{"name": "new", "role": "operator"}, "SELECT role = 'operator' FROM belfry.users WHERE name = 'new'"},
		{"users link", given{"name": "new"}, "SELECT true"},
		{"sessions revoke", given{"user": "new"}, "SELECT count(*) = 0 FROM belfry.sessions WHERE name = 'new'"},
		{"users disable", given{"name": "new"}, "SELECT disabled_at IS NOT NULL FROM belfry.users WHERE name = 'new'"},
		{"users enable", given{"name": "new"}, "SELECT disabled_at IS NULL FROM belfry.users WHERE name = 'new'"},
		{"users remove", given{"name": "new"}, "SELECT count(*) = 0 FROM belfry.users WHERE name = 'new'"},
		{"prune", given{"older_than": "24h"}, "SELECT EXISTS (SELECT FROM belfry.events WHERE subject = 'retention')"},
	}
	done := make(map[string]bool)
	for _, d := range deeds {
		done[d.operation] = true
		p.does(h, d)
	}
	for _, o := range admin.Operations() {
		if o.Changes && unwalked[o.Name] == "" {
			require.True(t, done[o.Name], "nobody has done %q", o.Name)
		}
	}
	p.sound()
}

// does has a person fill in the form of an act, press its button, and agree to what is asked.
func (p *tab) does(h *house, d deed) {
	p.Helper()
	const acts = "SELECT (SELECT count(*) FROM belfry.events WHERE actor = 'the-admin') + (SELECT count(*) FROM belfry.job_events WHERE actor = 'the-admin')"
	at := slices.IndexFunc(admin.Operations(), func(o operation.Operation) bool { return o.Name == d.operation })
	require.GreaterOrEqual(p, at, 0, d.operation)
	o := admin.Operations()[at]
	before := h.number(acts)
	path, query := api.PathOf(o), make(url.Values)
	if o.Verb() == "set" {
		path += "/set"
	}
	plans := slices.ContainsFunc(o.Params(), func(q operation.Param) bool { return q.Name == "dry_run" })
	for name, text := range d.given {
		if place := "{" + name + "}"; strings.Contains(path, place) {
			path = strings.ReplaceAll(path, place, text)
		} else if plans && name != "jobs" {
			query.Set(name, text) // as what leads there has it
		}
	}
	p.goTo(path + "?" + query.Encode())
	for name, text := range d.given {
		p.enter(name, text)
	}
	finished := func() bool { return evaluate[bool](p, `document.querySelector("main .result") !== null`) }
	for range 2 { // once more, where something is to be agreed to
		p.enter("_count", evaluate[string](p, `document.querySelector("label[for=in-count]")?.textContent.match(/\d+/)[0] ?? ""`))
		ctx, cancel := context.WithTimeout(p.ctx, patience)
		_, err := chromedp.RunResponse(ctx, chromedp.Click(`(//main//form[contains(@class, "act")]//p[@class="do"]/button)[1]`))
		cancel()
		require.NoError(p, err, d.operation)
		if finished() {
			break
		}
	}
	require.True(p, finished(), "%s is not done:\n%s", d.operation, p.text())
	require.Contains(p, p.text(), "done at", "no receipt answers %s", d.operation)
	h.becomes("SELECT coalesce((" + d.then + "), false)")
	require.Greater(p, h.number(acts), before, "no event says who did %s", d.operation)
}

// enter gives a field of the form what a person would, if it is there.
func (p *tab) enter(name, text string) {
	p.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll("main form.act [name]")].find((e) => e.name === %q && e.type !== "hidden");
		if (!e) return false;
		if (e.type === "checkbox") e.checked = true;
		else if (e.value !== %[2]q) e.value = %[2]q;
		e.dispatchEvent(new Event("input", { bubbles: true }));
		return true;
	})()`, name, text))
}
