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

// A grant gives privileges on one of belfry's relations, or on columns of it, or on a
// function.
type grant struct {
	privileges string // comma-separated
	relation   string // without the schema; a function's ends with its parentheses
	columns    string // comma-separated; empty: all
}

// on is what the privileges are for, as GRANT has it.
func (g grant) on() string {
	if strings.HasSuffix(g.relation, ")") {
		return "FUNCTION belfry." + g.relation
	}
	return "belfry." + g.relation
}

// A profile is what roles of one kind do, and what they need for it: the one source of
// `belfry roles`, of what the doctor checks, and of docs/roles.md.
type profile struct {
	name, does string
	reads      bool    // every table and view, those of later versions too
	migrates   bool    // makes the schema
	grants     []grant // beyond that
}

// profiles are all kinds of roles.
func profiles() []profile {
	return []profile{
		{name: "migrate", does: "make and upgrade the schema, and own it", migrates: true},
		{name: "enqueue", does: "enqueue jobs and activities by INSERT, with RETURNING, by `belfry.enqueue` and `belfry.send`", grants: []grant{
			{"INSERT", "jobs", ""}, {"SELECT", "jobs", "id, type, group_id, idempotency_key"},
			{"INSERT", "activities", ""}, {"SELECT", "activities", "id, idempotency_key"},
			{"SELECT", "recipients", ""},
		}},
		{name: "run", does: "run jobs and fire schedules: `belfry run`, `belfry daemon`", reads: true, grants: []grant{
			{"INSERT, UPDATE", "jobs", ""}, {"INSERT, UPDATE", "job_types", ""}, {"INSERT, UPDATE, DELETE", "job_skips", ""},
			{"INSERT, UPDATE", "schedules", ""}, {"INSERT", "notifications", ""}, {"INSERT", "messages", ""},
			{"INSERT, UPDATE", "job_deliveries", ""}, {"INSERT, UPDATE, DELETE", "names", ""},
		}},
		{name: "deliver", does: "deliver messages: `belfry relay`, `belfry daemon` with senders", reads: true, grants: []grant{
			{"UPDATE", "jobs", "abort_requested, delivered_at"}, {"UPDATE", "messages", "status, next_attempt_at, attempts, sent_at, last_error, step, crashes, lease_id, receipt, reason, revision, sender, push"}, {"INSERT, UPDATE, DELETE", "leases", ""},
			{"INSERT, DELETE", "handovers", ""}, {"INSERT", "attempts", ""}, {"INSERT, UPDATE, DELETE", "relays", ""},
			{"INSERT, UPDATE", "queues", ""}, {"INSERT, DELETE", "pushes", ""},
			{"INSERT", "invalid_addresses", ""},
			{"INSERT, UPDATE", "job_deliveries", ""}, {"INSERT, UPDATE, DELETE", "names", ""},
		}},
		{name: "operate", does: "act on jobs, lanes, schedules, senders, categories, messages and recipients, prune, adopt, halt, and serve the HTTP API: `belfry serve`", reads: true, grants: []grant{
			{"INSERT, UPDATE, DELETE", "jobs", ""}, {"UPDATE", "limits", ""}, {"UPDATE, DELETE", "job_skips", ""}, {"DELETE", "job_events", ""}, {"DELETE", "job_revisions", ""},
			{"INSERT, UPDATE, DELETE", "lanes", ""}, {"INSERT, UPDATE, DELETE", "schedules", ""}, {"INSERT, UPDATE, DELETE", "senders", ""},
			{"INSERT, UPDATE, DELETE", "categories", ""}, {"INSERT, UPDATE, DELETE", "channels", ""}, {"INSERT, UPDATE", "platforms", ""},
			{"INSERT, UPDATE, DELETE", "segments", ""}, {"INSERT, UPDATE, DELETE", "segment_members", ""}, {"INSERT, UPDATE, DELETE", "opt_outs", ""},
			{"DELETE", "invalid_addresses", ""}, {"INSERT, UPDATE, DELETE", "activities", ""}, {"UPDATE, DELETE", "messages", ""},
			{"UPDATE, DELETE", "notifications", ""}, {"INSERT, DELETE", "attempts", ""}, {"INSERT, UPDATE, DELETE", "retention_walks", ""},
			{"INSERT, UPDATE, DELETE", "events", ""}, {"INSERT, UPDATE, DELETE", "job_deliveries", ""},
			{"INSERT", "installation", ""}, {"UPDATE", "installation", "system_identifier, database_oid, place, halted_at, halted_by, halt_reason"},
			{"UPDATE", "queues", "epoch, epoch_at"}, {"UPDATE", "attachments", "position, rows_filled, rows_unusable, filled_at, verified_at"}, {"DELETE", "attachments", ""}, {"DELETE", "attachment_misses", ""}, {"EXECUTE", "forget_listed(text, bigint, integer)", ""},
			{"INSERT, UPDATE", "tokens", ""}, {"INSERT, UPDATE, DELETE", "requests", ""}, {"INSERT, UPDATE, DELETE", "users", ""}, {"INSERT, UPDATE, DELETE", "sessions", ""},
		}},
		{name: "monitor", does: "look, and change nothing: lists, `show`, `audit`, `belfry doctor`", reads: true},
	}
}

// profileNamed finds a profile; nil: there is none of that name.
func profileNamed(name string) *profile {
	for _, p := range profiles() {
		if p.name == name {
			return &p
		}
	}
	return nil
}

// profilesNamed finds those of these names.
func profilesNamed(names []string) (list []*profile) {
	for _, name := range names {
		if p := profileNamed(name); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// statements are the GRANTs for a role, which is quoted, over belfry's schema and the
// relation of the recipients.
func (p *profile) statements(role, relation string) []string {
	if p.migrates {
		return []string{
			fmt.Sprintf("DO $$BEGIN EXECUTE format('GRANT CREATE ON DATABASE %%I TO %s', current_database()); END$$", strings.ReplaceAll(role, "'", "''")),
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
	For  []string `flag:"for" label:"WHAT" required:"true" choices:"migrate,enqueue,run,deliver,operate,monitor" help:"WHAT the role does: migrate, enqueue, run, deliver, operate, monitor"`
	Role string   `flag:"role" label:"NAME" help:"NAME of the role (default belfry_ and the first WHAT)"`
}

// RoleGrants is what `roles` prints.
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
The role has to exist. Run the statements in belfry's database as the owner of the schema,
who is the role that migrates; those of migrate as the owner of the database. ALTER DEFAULT
PRIVILEGES lets the role read the tables of later versions, if this owner makes them; what it
may write there is printed by that version: run the statements again after an upgrade.
Who reads the recipients from a relation of their own (channels.relation) has to own that
to grant it, and so does who gives SELECT and TRIGGER on a table that is to be attached,
which the owner of the schema does. No connection is made. 'belfry doctor --for' says what a role lacks.`,
		Example: `  belfry roles --for run,deliver --role belfry_daemon | psql app
  belfry roles --for enqueue --role app_web
  belfry roles --for monitor`,
	}, func(_ context.Context, env *operation.Env, in rolesInput) (*RoleGrants, error) {
		out := &RoleGrants{For: in.For, Role: cmp.Or(in.Role, "belfry_"+in.For[0])}
		out.Statements = statementsOf(profilesNamed(in.For), pgx.Identifier{out.Role}.Sanitize(), env.Channels.Relation())
		return out, nil
	}, func(p *text.Doc, _ rolesInput, out *RoleGrants) {
		for _, statement := range out.Statements {
			p.Printf("%s;\n", statement)
		}
	})
}

// statementsOf are the GRANTs of several profiles, each once.
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
