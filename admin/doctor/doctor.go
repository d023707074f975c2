package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/migrations"
)

// Health is what a check came to.
type Health string

// The healths.
const (
	HealthOK      Health = "ok"
	HealthWarning Health = "warning"
	HealthFailed  Health = "failed"
)

// Finding is what one check found out.
type Finding struct {
	Check  string `json:"check"`
	Status Health `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"` // empty when there is nothing to do
}

// Report is the findings, in the order in which they were made.
type Report struct {
	OK       bool      `json:"ok"` // no check failed; there may be warnings
	Findings []Finding `json:"findings"`
}

// doctorInput is the input of `doctor`.
type doctorInput struct {
	For []string `flag:"for" label:"WHAT" choices:"migrate,enqueue,run,deliver,operate,monitor" help:"WHAT the connected role is to do, as of belfry roles (default whatever it can do entirely)"`
}

func doctorOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "doctor", Rows: "findings", Short: "Check configuration, database, schema, channels, jobs, schedules and delivery",
		Long: `Check configuration, connection, server, what a pooler keeps, schema, privileges, the
contract of channels.relation, jobs that are stuck or wait for approval, paused lanes,
schedules that fail, a database that is a copy, a halt, senders without a relay, messages
that are due and not moved, the carrier that relays work on, and whether health checks may
read the server's statistics. Each finding comes with what to do about it.
Nothing is changed. Exit code 1 when a check failed, 0 otherwise; warnings do not count.`,
		Role: operation.Operator, Need: operation.NeedServer, Deadline: 2 * operation.DefaultDeadline,
	}, func(ctx context.Context, env *operation.Env, in doctorInput) (*Report, error) {
		d := &doctor{Env: env, user: env.DB.Config().ConnConfig.User, profiles: profilesNamed(in.For)}
		d.examine(ctx)
		return ReportOf(d.findings), nil
	}, func(p *text.Doc, _ doctorInput, out *Report) {
		for _, f := range out.Findings {
			p.Printf("%s %-14s %s\n", p.Status(fmt.Sprintf("%-8s", f.Status)), f.Check, f.Detail)
			if f.Remedy != "" {
				p.Printf("%-23s -> %s\n", "", f.Remedy)
			}
		}
	})
}

// ReportOf is the doctor's report of these findings.
func ReportOf(findings []Finding) *Report {
	r := &Report{Findings: findings}
	r.OK = r.count(HealthFailed) == 0
	return r
}

// Verdict says how many checks failed.
func (r *Report) Verdict() error {
	failed, warnings := r.count(HealthFailed), r.count(HealthWarning)
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%s failed, %s", text.Counted(failed, "check"), text.Counted(warnings, "warning"))
}

func (r *Report) count(status Health) (n int64) {
	for _, f := range r.Findings {
		if f.Status == status {
			n++
		}
	}
	return n
}

// doctor gathers findings. A check whose ground is missing is not made: where the schema
// cannot be read there is nothing to say about jobs.
type doctor struct {
	*operation.Env

	user     string
	profiles []*profile // from --for; none: see profilesOf
	findings []Finding
}

func (d *doctor) note(check string, status Health, remedy, format string, args ...any) {
	d.findings = append(d.findings, Finding{check, status, fmt.Sprintf(format, args...), remedy})
}

func (d *doctor) ok(check, format string, args ...any) { d.note(check, HealthOK, "", format, args...) }

func (d *doctor) warn(check, remedy, format string, args ...any) {
	d.note(check, HealthWarning, remedy, format, args...)
}

func (d *doctor) fail(check, remedy, format string, args ...any) {
	d.note(check, HealthFailed, remedy, format, args...)
}

// look makes a check. That it could not be made is a finding, too.
func (d *doctor) look(ctx context.Context, check string, made func(context.Context, string) error) {
	if err := made(ctx, check); err != nil {
		d.fail(check, "", "%s", err)
	}
}

// quiet reports whether a check has found nothing yet.
func (d *doctor) quiet(check string) bool {
	for _, f := range d.findings {
		if f.Check == check {
			return false
		}
	}
	return true
}

// check is one of the doctor's checks: its name in the report and the function that makes it.
type check struct {
	name string
	made func(context.Context, string) error
}

// make makes checks in their order.
func (d *doctor) make(ctx context.Context, list ...check) {
	for _, c := range list {
		d.look(ctx, c.name, c.made)
	}
}

// examine makes every check.
func (d *doctor) examine(ctx context.Context) {
	if d.Setup.Configuration != "" {
		d.ok("configuration", "%s read", d.Setup.Configuration)
	}
	for _, file := range d.Setup.OpenFiles {
		d.warn("files", "chmod 600 "+text.ShellWord(file), "%s has a secret, and other accounts of this machine may read it", file)
	}
	d.make(ctx, check{"connection", d.checkConnection}, check{"server", d.checkServer})
	privileges := check{"privileges", d.checkPrivileges}
	if d.enqueuesOnly(ctx) {
		d.make(ctx, privileges)
		return
	}
	d.make(ctx, check{"health checks", d.checkStatistics})
	if !d.checkSchema(ctx) {
		return
	}
	d.make(ctx, privileges,
		check{"row security", d.checkSecured},
		check{"search_path", d.checkSearchPath},
		check{"channels", d.checkChannels},
		check{"jobs", d.checkJobs},
		check{"approvals", d.checkApprovals},
		check{"names", d.checkNames},
		check{"lanes", d.checkLanes},
		check{"schedules", d.checkSchedules},
	)
	d.checkDelivery(ctx)
}

// checkSecured looks for policies on belfry's own tables that hide rows.
func (d *doctor) checkSecured(ctx context.Context, check string) error {
	type secured struct{ Table, Policies string }
	rows, err := d.Reads().Query(ctx, queries.doctorSecured)
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[secured])
	for _, t := range list {
		d.fail(check, "drop the policy and ALTER TABLE "+t.Table+" DISABLE ROW LEVEL SECURITY, or ALTER ROLE "+d.quoted()+" BYPASSRLS",
			"row-level security hides rows of %s from %s (policies: %s)", t.Table, d.user, cmp.Or(t.Policies, "none, so all of them"))
	}
	return err
}

// checkSearchPath warns of roles that may create functions which this user's statements would find
// before those of PostgreSQL. belfry's own functions fix their search_path.
func (d *doctor) checkSearchPath(ctx context.Context, check string) error {
	type creators struct{ Schema, Roles string }
	rows, err := d.Reads().Query(ctx, queries.doctorCreators)
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[creators])
	for _, c := range list {
		d.warn(check, "REVOKE CREATE ON SCHEMA "+c.Schema+" FROM "+c.Roles+"; or ALTER ROLE "+d.quoted()+" SET search_path = pg_catalog, and name the schema in channels.relation",
			"%s may create functions in schema %s, and statements of %s would execute them", c.Roles, c.Schema, d.user)
	}
	return err
}

// checkSchema reports whether the tables can be looked at.
func (d *doctor) checkSchema(ctx context.Context) bool {
	const check = "schema"
	have, err := SchemaVersion(ctx, d.Reads())
	if err == nil && have < migrations.Latest() && d.Setup.Private {
		d.warn(check, "", "version %d of %d; the next command that needs it migrates the private server", have, migrations.Latest())
		return false
	}
	if err == nil {
		err = SchemaProblem(have, migrations.Latest())
	}
	if err != nil {
		remedy := ""
		if errkind.Of(err) == errkind.Forbidden {
			remedy = d.unreadable()
		}
		d.fail(check, remedy, "%s", err)
		return have > 0 && !errors.Is(err, migrations.ErrNewer)
	}
	d.ok(check, "version %d, the newest", have)
	return true
}

// collect reads the rows of a statement.
func collect[T any](ctx context.Context, d *doctor, statement string, args ...any) ([]T, error) {
	rows, err := d.Reads().Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}

// quoted is the connected user as SQL has it.
func (d *doctor) quoted() string { return pgx.Identifier{d.user}.Sanitize() }
