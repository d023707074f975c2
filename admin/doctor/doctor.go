package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/migrations"
)

// Health is the result of a check.
type Health string

// The healths.
const (
	HealthOK      Health = "ok"
	HealthWarning Health = "warning"
	HealthFailed  Health = "failed"
)

// Finding is the result of one check.
type Finding struct {
	Check  string    `json:"check"`
	Status Health    `json:"status"`
	Detail text.Line `json:"detail"`
	Remedy text.Line `json:"remedy"` // empty if none is needed
}

// Report is the findings, in the order in which they were made.
type Report struct {
	OK       bool      `json:"ok"` // no check failed; there may be warnings
	Findings []Finding `json:"findings"`
}

// doctorInput is the input of `doctor`.
type doctorInput struct {
	For []string `flag:"for" label:"WHAT" choices:"migrate,enqueue,run,deliver,operate,inbox,monitor" help:"WHAT the connected role does, see belfry roles (default: the profiles that it has entirely)"`
}

func doctorOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "doctor", Rows: "findings", Short: "Check configuration, database, schema, channels, jobs, schedules and delivery",
		Long: `Check the configuration, connection, server, pooler, schema, privileges, contract of
channels.relation, stuck jobs, halts, paused lanes and senders, failing schedules, a copied
database, senders without a relay, overdue messages, the carrier of the relays, and access
of health checks to the server's statistics. Each finding has a remedy. Nothing is changed.
The exit code is 1 if a check failed, else 0; warnings do not count.`,
		Role: operation.Operator, Need: operation.NeedServer, Deadline: 2 * operation.DefaultDeadline,
	}, func(ctx context.Context, env *operation.Env, in doctorInput) (*Report, error) {
		d := &doctor{Env: env, user: env.DB.Config().ConnConfig.User, profiles: profilesNamed(in.For)}
		d.examine(ctx)
		return ReportOf(d.findings), nil
	}, func(p *text.Doc, _ doctorInput, out *Report) {
		for _, f := range out.Findings {
			p.Line("%s %-14s %s", paddedStatus(f.Status), f.Check, f.Detail)
			if f.Remedy.String() != "" {
				p.Line("%-23s -> %s", "", f.Remedy)
			}
		}
	})
}

// paddedStatus returns a status in a column of fixed width.
func paddedStatus(h Health) text.StatusCell {
	return text.Status(h, strings.Repeat(" ", max(0, 8-len(h))))
}

// ReportOf returns a report of findings.
func ReportOf(findings []Finding) *Report {
	r := &Report{Findings: findings}
	r.OK = r.count(HealthFailed) == 0
	return r
}

// Verdict returns an error with the number of failed checks.
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

// doctor collects findings. It skips checks that depend on a failed check: if the schema cannot be
// read, jobs are not checked.
type doctor struct {
	*operation.Env

	user     string
	profiles []*profile // from --for; if empty, see ownProfiles
	findings []Finding
	locked   bool // a session locks tables
}

// Reads returns a reader that waits for a second for each table, if one is locked.
func (d *doctor) Reads() db.Reader {
	if d.locked {
		return d.Env.Reads().Waiting(time.Second)
	}
	return d.Env.Reads()
}

// note adds a finding. The remedy is a text or a cell.
func (d *doctor) note(check string, status Health, remedy any, format string, args ...any) {
	d.findings = append(d.findings, Finding{check, status, text.Sprintf(format, args...), text.Sprintf("%s", remedy)})
}

func (d *doctor) ok(check, format string, args ...any) { d.note(check, HealthOK, "", format, args...) }

func (d *doctor) warn(check string, remedy any, format string, args ...any) {
	d.note(check, HealthWarning, remedy, format, args...)
}

func (d *doctor) fail(check string, remedy any, format string, args ...any) {
	d.note(check, HealthFailed, remedy, format, args...)
}

// run executes a check. An error of the check is a finding, too.
func (d *doctor) run(ctx context.Context, check string, do func(context.Context, string) error) {
	if err := do(ctx, check); err != nil {
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

// check is a check of the doctor: its name in the report and its function.
type check struct {
	name string
	run  func(context.Context, string) error
}

// runAll executes checks in order.
func (d *doctor) runAll(ctx context.Context, list ...check) {
	for _, c := range list {
		d.run(ctx, c.name, c.run)
	}
}

// examine executes all checks.
func (d *doctor) examine(ctx context.Context) {
	if d.Setup.Configuration != "" {
		d.ok("configuration", "%s read", d.Setup.Configuration)
	}
	for _, file := range d.Setup.OpenFiles {
		d.warn("files", "chmod 600 "+text.ShellWord(file), "%s has a secret, and other accounts of this machine may read it", file)
	}
	d.runAll(ctx, check{"connection", d.checkConnection}, check{"server", d.checkServer})
	privileges := check{"privileges", d.checkPrivileges}
	if d.enqueuesOnly(ctx) {
		d.runAll(ctx, privileges)
		return
	}
	d.runAll(ctx, check{"locks", d.checkLocks}, check{"health checks", d.checkStatistics})
	if !d.checkSchema(ctx) {
		return
	}
	d.runAll(ctx, privileges,
		check{"row security", d.checkSecured},
		check{"search_path", d.checkSearchPath},
		check{"channels", d.checkChannels},
		check{"jobs", d.checkJobs},
		check{"names", d.checkNames},
		check{"notifications", d.checkNotifications},
		check{"partitions", d.checkPartitions},
		check{"stopped", d.checkStopped},
		check{"schedules", d.checkSchedules},
	)
	d.checkDelivery(ctx)
}

// checkLocks warns about sessions that keep others from writing to belfry's tables.
func (d *doctor) checkLocks(ctx context.Context, check string) error {
	for _, h := range db.TableHolders(ctx, d.DB) {
		d.locked = true
		d.warn(check, h.Remedy(), "%s is locked by %s", h.Locked, h)
	}
	return nil
}

// checkSecured checks belfry's own tables for policies that hide rows.
func (d *doctor) checkSecured(ctx context.Context, check string) error {
	type secured struct{ Table, Policies string }
	list, err := db.Collect(ctx, d.Reads(), queries.doctorSecured, nil, pgx.RowToStructByPos[secured])
	for _, t := range list {
		d.fail(check, "drop the policy and ALTER TABLE "+t.Table+" DISABLE ROW LEVEL SECURITY, or ALTER ROLE "+d.quoted()+" BYPASSRLS",
			"row-level security hides rows of %s from %s (policies: %s)", t.Table, d.user, cmp.Or(t.Policies, "none, so all of them"))
	}
	return err
}

// checkSearchPath warns about roles that may create functions which statements of this user would
// execute instead of PostgreSQL's. belfry's own functions and transactions fix their search_path.
func (d *doctor) checkSearchPath(ctx context.Context, check string) error {
	type creators struct{ Schema, Roles string }
	var list []creators
	o := db.Options{Limit: db.Left(ctx, operation.DefaultDeadline), Reads: true, Path: true}
	err := db.InTx(ctx, d.DB, o, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.doctorCreators)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[creators])
		}
		return err
	})
	for _, c := range list {
		d.warn(check, "REVOKE CREATE ON SCHEMA "+c.Schema+" FROM "+c.Roles+"; or ALTER ROLE "+d.quoted()+
			" SET search_path = pg_catalog",
			"%s may create functions in schema %s, and statements of %s would execute them", c.Roles, c.Schema, d.user)
	}
	return err
}

// checkSchema reports whether the tables can be read.
func (d *doctor) checkSchema(ctx context.Context) bool {
	const check = "schema"
	version, usableFrom, err := db.ReadSchema(ctx, d.Reads(), migrations.Latest())
	have := migrations.Schema{Version: version, UsableFrom: usableFrom}
	if err == nil && have.Version < migrations.Latest() && d.Setup.Private {
		d.warn(check, "", "version %d of %d; the next command that needs it migrates the private server", have.Version, migrations.Latest())
		return false
	}
	if err == nil {
		err = have.Check()
	}
	if err != nil {
		remedy := text.Line{}
		if db.KindOf(err) == db.KindForbidden {
			remedy = d.unreadable()
		}
		d.fail(check, remedy, "%s", err)
		return have.Version > 0 && !errors.Is(err, migrations.ErrNewer)
	}
	if have.Newer() {
		d.ok(check, "%s", have)
		return true
	}
	d.ok(check, "version %d, the newest", have.Version)
	return true
}

// collect reads the rows of a statement.
func collect[T any](ctx context.Context, d *doctor, statement string, args ...any) ([]T, error) {
	return db.All[T](ctx, d.Reads(), statement, args...)
}

// quoted returns the connected user as an SQL identifier.
func (d *doctor) quoted() string { return pgx.Identifier{d.user}.Sanitize() }
