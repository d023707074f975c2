package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
)

// A grant is a set of privileges on a relation of belfry, on some of its columns, or on a function.
type grant struct {
	privileges string // comma-separated
	relation   string // without the schema; a function's ends with its parentheses
	columns    string // comma-separated; empty means all
}

// on returns the object of the privileges in the syntax of GRANT.
func (g grant) on() string {
	if strings.HasSuffix(g.relation, ")") {
		return "FUNCTION belfry." + g.relation
	}
	return "belfry." + g.relation
}

// A profile is a kind of roles, with its purpose and privileges. It is the source of `belfry roles`, the
// doctor's checks, and docs/roles.md.
type profile struct {
	name, does string
	reads      bool    // every table and view, also of later versions
	migrates   bool    // creates the schema
	grants     []grant // in addition
}

// attemptColumns are the columns of belfry.attempts without its id: a role that chose ids could use the
// next ones, and each INSERT of another role would fail.
const attemptColumns = "job_id, channel_id, step, attempt, medium, sender, outcome, reason, code, error"

// says is the function by which belfry.enqueue compares a repeated request with its job.
const says = "says(text, text, text, text, text, jsonb, jsonb, jsonb)"

// channelColumns are the columns of belfry.channels without its id, as attemptColumns, and without its times.
const channelColumns = "external_id, platform, active, location, locale, time_zone, attributes, addresses"

// profiles are all kinds of roles.
func profiles() []profile {
	return []profile{
		{name: "migrate", does: "make and upgrade the schema, and own it", migrates: true},
		{name: "enqueue", does: "enqueue jobs and activities by INSERT, with RETURNING, by `belfry.enqueue`, `belfry.send` and `belfry.notify`",
			grants: []grant{
				{"INSERT", "jobs", ""}, {"SELECT", "jobs", "id, type, group_id, idempotency_key"},
				{"INSERT", "activities", ""}, {"SELECT", "activities", "id, idempotency_key"}, {"INSERT", "job_values", ""},
				{"SELECT", "recipients", ""}, {"EXECUTE", says, ""},
			}},
		{name: "run", does: "run jobs and fire schedules: `belfry run`, `belfry daemon`", reads: true, grants: []grant{
			{"INSERT, UPDATE", "jobs", ""}, {"INSERT", "job_types", ""}, {"INSERT, UPDATE, DELETE", "job_skips", ""},
			{"INSERT, UPDATE", "schedules", ""}, {"INSERT", "job_values", ""}, {"INSERT", "notifications", ""}, {"INSERT", "message_rows", ""},
			{"INSERT, UPDATE", "job_deliveries", ""}, {"INSERT, UPDATE", "samples", ""}, {"INSERT, UPDATE, DELETE", "names", ""},
			{"EXECUTE", says, ""},
		}},
		{name: "deliver", does: "deliver messages: `belfry relay`, `belfry daemon` with senders", reads: true, grants: []grant{
			{"UPDATE", "jobs", "abort_requested, delivered_at"},
			{"INSERT", "job_claims", "job_id"}, {"UPDATE", "job_claims", "claimed_to"},
			{"UPDATE", "message_rows",
				"status, next_attempt_at, attempts, sent_at, last_error, step, crashes, lease_id, receipt, reason, revision, sender, push"},
			{"INSERT, UPDATE, DELETE", "leases", ""},
			{"INSERT, DELETE", "handovers", ""}, {"INSERT", "attempts", attemptColumns}, {"INSERT, UPDATE, DELETE", "relays", ""},
			{"INSERT", "queues", "name, transport, dispatcher, leads_until"}, {"UPDATE", "queues", ""}, {"INSERT, UPDATE, DELETE", "pushes", ""},
			{"INSERT", "invalid_addresses", "channel_id, medium, sha256, sender, error, job_id"}, // without a time, by which the oldest give way
			{"INSERT, UPDATE", "job_deliveries", ""}, {"INSERT, UPDATE", "samples", ""}, {"INSERT, UPDATE, DELETE", "names", ""},
		}},
		{name: "operate", does: "act on jobs, lanes, schedules, senders, categories, messages and recipients, prune, adopt, " +
			"halt, and serve the HTTP API: `belfry serve`", reads: true, grants: []grant{
			{"INSERT, UPDATE, DELETE", "jobs", ""}, {"UPDATE", "limits", ""}, {"UPDATE, DELETE", "job_skips", ""},
			{"DELETE", "job_events", ""}, {"DELETE", "job_revisions", ""}, {"DELETE", "job_values", ""},
			{"INSERT, UPDATE, DELETE", "lanes", ""}, {"INSERT, UPDATE, DELETE", "schedules", ""}, {"INSERT, UPDATE, DELETE", "senders", ""},
			{"INSERT, UPDATE, DELETE", "categories", ""}, {"INSERT", "channels", channelColumns},
			{"UPDATE, DELETE", "channels", ""}, {"INSERT, UPDATE", "platforms", ""},
			{"INSERT, UPDATE, DELETE", "segments", ""}, {"INSERT, UPDATE, DELETE", "segment_members", ""},
			{"INSERT, UPDATE, DELETE", "opt_outs", ""},
			{"DELETE", "invalid_addresses", ""}, {"INSERT, UPDATE, DELETE", "activities", ""}, {"UPDATE, DELETE", "message_rows", ""},
			{"DELETE", "job_claims", ""}, {"EXECUTE", "own_claimed(bigint, bigint, integer)", ""},
			{"EXECUTE", "old_notifications(timestamptz)", ""}, {"EXECUTE", "drop_notifications(timestamptz)", ""},
			{"UPDATE, DELETE", "notifications", ""}, {"DELETE", "inbox", ""}, {"INSERT", "attempts", attemptColumns}, {"DELETE", "attempts", ""},
			{"INSERT, UPDATE, DELETE", "retention_walks", ""},
			{"INSERT", "events", "subject, name, kind, actor, reason, detail"}, {"UPDATE", "events", "name, reason, detail"},
			{"DELETE", "events", ""}, {"INSERT, UPDATE, DELETE", "job_deliveries", ""}, {"UPDATE, DELETE", "samples", ""},
			{"INSERT", "installation", ""}, {"UPDATE", "installation", "system_identifier, database_oid, place, halted_at, halted_by, halt_reason"},
			{"UPDATE", "queues", "epoch, epoch_at"}, {"UPDATE", "pushes", "channel_ids, tids"}, {"UPDATE", "attachments",
				"position, rows_filled, rows_unusable, filled_at, verified_at"}, {"DELETE", "attachments", ""},
			{"DELETE", "attachment_misses", ""}, {"EXECUTE", "forget_listed(text, text[], integer, interval, boolean)", ""}, {"EXECUTE", says, ""},
			{"INSERT", "tokens", "name, role, sha256, created_by, expires_at"}, {"UPDATE", "tokens", ""},
			{"INSERT, UPDATE, DELETE", "requests", ""}, {"INSERT, UPDATE, DELETE", "users", ""},
			{"INSERT", "sessions", "kind, sha256, name, role, via, address, expires_at"}, {"UPDATE, DELETE", "sessions", ""},
		}},
		{name: "inbox", does: "show and mark the notifications of people: `belfry.inbox_page` and its kind, and serve `inbox.listen`",
			grants: []grant{
				{"EXECUTE", "inbox_page(bigint, bigint, integer, boolean, text, bigint)", ""}, {"EXECUTE", "inbox_next(bigint, bigint, boolean)", ""},
				{"EXECUTE", "inbox_unread(bigint)", ""}, {"EXECUTE", "inbox_seen(bigint)", ""}, {"EXECUTE", "inbox_read_all(bigint)", ""},
				{"EXECUTE", "inbox_read(bigint, bigint[], boolean)", ""}, {"EXECUTE", "inbox_archive(bigint, bigint[], boolean)", ""},
				{"EXECUTE", "inbox_preferences(bigint)", ""}, {"EXECUTE", "inbox_prefer(bigint, text, text, boolean)", ""},
				{"EXECUTE", "inbox_arrivals(bigint, bigint[], integer)", ""}, {"EXECUTE", "inbox_walks(bigint[], timestamptz)", ""},
				{"EXECUTE", "inbox_reached(bigint, bigint[])", ""}, {"EXECUTE", "inbox_since(bigint, bigint, bigint[], integer)", ""},
			}},
		{name: "monitor", does: "read only: lists, `show`, `audit`, `belfry doctor`", reads: true},
	}
}

// profileNamed returns the profile with a name, or nil.
func profileNamed(name string) *profile {
	for _, p := range profiles() {
		if p.name == name {
			return &p
		}
	}
	return nil
}

// profilesNamed returns the profiles with these names.
func profilesNamed(names []string) (list []*profile) {
	for _, name := range names {
		if p := profileNamed(name); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// statements returns the GRANTs for a quoted role on belfry's schema and the relation of the recipients.
func (p *profile) statements(role, relation string) []string {
	if p.migrates {
		return []string{
			fmt.Sprintf("DO $$BEGIN EXECUTE format('GRANT CREATE ON DATABASE %%I TO %s', current_database()); END$$",
				strings.ReplaceAll(role, "'", "''")),
		}
	}
	list := []string{"GRANT USAGE ON SCHEMA belfry TO " + role}
	if p.reads {
		list = append(list, "GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO "+role)
	}
	for _, g := range p.grants {
		privilege := g.privileges
		if g.columns != "" {
			privilege += " (" + g.columns + ")"
		}
		list = append(list, fmt.Sprintf("GRANT %s ON %s TO %s", privilege, g.on(), role))
	}
	switch {
	case relation != channels.DefaultRelation && (p.reads || p.name == "enqueue"):
		list = append(list, fmt.Sprintf("GRANT SELECT ON %s TO %s", relation, role))
	case p.name == "enqueue": // for belfry.send_external
		list = append(list, "GRANT SELECT (id, external_id) ON belfry.channels TO "+role)
	}
	if p.reads {
		list = append(list, "ALTER DEFAULT PRIVILEGES IN SCHEMA belfry GRANT SELECT ON TABLES TO "+role)
	}
	return list
}

// rolesInput is the input of `roles`.
type rolesInput struct {
	For  []string `flag:"for" label:"WHAT" required:"true" choices:"migrate,enqueue,run,deliver,operate,inbox,monitor" help:"purpose of the role: migrate, enqueue, run, deliver, operate, inbox, monitor"`
	Role string   `flag:"role" label:"NAME" help:"NAME of the role (default belfry_ and the first WHAT)"`
}

// RoleGrants is the result of `roles`.
type RoleGrants struct {
	For        []string `json:"for"`
	Role       string   `json:"role"`
	Statements []string `json:"statements"`
}

func rolesOperation() operation.Operation {
	var b strings.Builder
	for _, p := range profiles() {
		fmt.Fprintf(&b, "  %-8s %s\n", p.name, strings.ReplaceAll(p.does, "`", ""))
	}
	return operation.Define(operation.Operation{
		Name: "roles", Short: "Print the GRANTs that a database role needs", Role: operation.Viewer, Need: operation.NeedConfiguration,
		Usage: "--for WHAT [flags]",
		Long: `Print the GRANTs that a database role needs, and nothing more, for psql. WHAT is one or
more of:

` + b.String() + `
The role must exist. Run the statements in belfry's database as the owner of the schema,
which is the role that migrates; run the statements of migrate as the owner of the database.
ALTER DEFAULT PRIVILEGES lets the role read the tables of later versions, if the same owner
creates them. Run the statements of the new version after an upgrade, for the privileges to
write. If channels.relation is a relation of the application, its owner must grant SELECT
on it, and SELECT and TRIGGER on a table that the owner of the schema attaches. The command
does not connect to the database. 'belfry doctor --for' lists missing privileges.`,
		Example: `  belfry roles --for run,deliver --role belfry_daemon | psql app
  belfry roles --for enqueue --role app_web
  belfry roles --for monitor`,
	}, func(_ context.Context, env *operation.Env, in rolesInput) (*RoleGrants, error) {
		out := &RoleGrants{For: in.For, Role: cmp.Or(in.Role, "belfry_"+in.For[0])}
		out.Statements = statementsOf(profilesNamed(in.For), pgx.Identifier{out.Role}.Sanitize(), env.Channels.Relation())
		return out, nil
	}, func(p *text.Doc, _ rolesInput, out *RoleGrants) {
		for _, statement := range out.Statements {
			p.Line("%s;", statement)
		}
	})
}

// statementsOf returns the GRANTs of several profiles without duplicates.
func statementsOf(chosen []*profile, role, relation string) (list []string) {
	for _, p := range chosen {
		for _, statement := range p.statements(role, relation) {
			if !slices.Contains(list, statement) {
				list = append(list, statement)
			}
		}
	}
	return list
}
