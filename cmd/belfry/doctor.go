package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/node"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/migrations"
)

// health is the outcome of one check.
type health string

const (
	healthOK      health = "ok"
	healthWarning health = "warning"
	healthFailed  health = "failed"
)

// finding is what one check found out.
type finding struct {
	Check  string `json:"check"`
	Status health `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"` // empty when there is nothing to do
}

// doctorReport is the JSON of `belfry doctor`.
type doctorReport struct {
	OK       bool      `json:"ok"` // no check failed; there may be warnings
	Findings []finding `json:"findings"`
}

func newDoctorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check configuration, database, schema, channels, jobs, schedules and delivery",
		Long: `Check configuration, connection, server, what a pooler keeps, schema, privileges, the
contract of channels.relation, jobs that are stuck or held back, paused lanes, schedules
that fail, a database that is a copy, routes without a sender, senders without a relay,
messages that are due and not moved, leases left behind, dead letters, the carrier
that relays work on, what health checks may see, and the abort cache. Each finding comes with what to do about it.
Nothing is changed. Exit code 1 when a check failed, 0 otherwise; warnings do not count.`,
		Args: noArgs,
	}
	kinds := cmd.Flags().StringSlice("for", nil, "`WHAT` the connected role is to do, as of belfry roles (default whatever it can do entirely)")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen, err := chosenProfiles(*kinds)
		if err != nil {
			return err
		}
		d := doctor{app: a, profiles: chosen}
		if err := d.examine(cmd); err != nil {
			return err
		}
		return d.report(*asJSON)
	}
	return cmd
}

// doctor gathers findings. A check whose ground is missing is not made: without
// a connection there is nothing to say about the schema.
type doctor struct {
	*app

	profiles []*profile // from --for; none: see profilesOf
	findings []finding
}

func (d *doctor) note(check string, status health, remedy, format string, args ...any) {
	d.findings = append(d.findings, finding{check, status, fmt.Sprintf(format, args...), remedy})
}

// examine makes every check. The error is one of cleaning up.
func (d *doctor) examine(cmd *cobra.Command) (err error) {
	s, err := d.settings(cmd)
	if err != nil {
		for _, line := range problemLines(err) {
			d.note("configuration", healthFailed, "see `belfry help configuration` and config.yaml", "%s", line)
		}
		return nil
	}
	d.note("configuration", healthOK, "", "%s read", readFrom(s))

	ctx := cmd.Context()
	db, err := d.open(ctx, s, schemaAny, d.logger(s, d.stderr))
	if err != nil {
		d.note("connection", healthFailed, "", "%s", err)
		return nil
	}
	defer func() { err = errors.Join(err, db.close()) }()
	ctx, cancel := context.WithTimeout(ctx, 2*statementDeadline)
	defer cancel()
	d.checkConnection(ctx, s, db)
	d.checkServer(ctx, s, db)
	if d.enqueuesOnly(ctx, db) {
		d.checkPrivileges(ctx, s, db)
		return nil
	}
	d.checkStatistics(ctx, s, db)
	if d.checkSchema(ctx, db) {
		d.checkPrivileges(ctx, s, db)
		d.checkChannels(ctx, s, db)
		d.checkJobs(ctx, s, db)
		d.checkRunning(ctx, db)
		d.checkNames(ctx, db)
		d.checkLanes(ctx, db)
		d.checkSchedules(ctx, db)
		d.checkDelivery(ctx, s, db)
	}
	d.checkAbortCache(ctx, s)
	return nil
}

// report prints the findings.
func (d *doctor) report(asJSON bool) error {
	var failed, warnings int64
	for _, f := range d.findings {
		switch f.Status {
		case healthFailed:
			failed++
		case healthWarning:
			warnings++
		case healthOK:
		}
	}
	if asJSON {
		if err := d.printJSON(doctorReport{failed == 0, d.findings}); err != nil {
			return err
		}
	} else {
		for _, f := range d.findings {
			d.printf("%-8s %-14s %s\n", f.Status, f.Check, f.Detail)
			if f.Remedy != "" {
				d.printf("%-23s -> %s\n", "", f.Remedy)
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s failed, %s", printer.Counted(failed, "check"), printer.Counted(warnings, "warning"))
	}
	return nil
}

// slowAnswer is a round trip that makes every chunk wait noticeably.
const slowAnswer = 50 * time.Millisecond

// maxSkew is how far the clocks may differ before relative times surprise.
const maxSkew = 2 * time.Second

func (d *doctor) checkConnection(ctx context.Context, s settings.Settings, db *database) {
	const rounds = 5
	best, skew := time.Duration(0), time.Duration(0)
	for range rounds {
		begin := time.Now()
		server, err := db.now(ctx)
		if err != nil {
			d.note("connection", healthFailed, "", "%s: %s", db.Address, err)
			return
		}
		if took := time.Since(begin); best == 0 || took < best {
			best, skew = took, begin.Add(took/2).Sub(server)
		}
	}
	kind := "given by " + s.Source("database.url").String()
	if db.Private != nil {
		kind = "private server, PostgreSQL " + db.Private.Install().Version + " of " + db.Private.Install().BinDir
	}
	if best > slowAnswer {
		d.note("connection", healthWarning, "run belfry nearer to its database: every chunk waits for several answers",
			"%s, %s; it takes %s to answer", db.Address, kind, printer.Short(best))
	} else {
		d.note("connection", healthOK, "", "%s, %s; answers in %s", db.Address, kind, best.Round(10*time.Microsecond))
	}
	if skew.Abs() > maxSkew {
		d.note("clock", healthWarning, "synchronise the clocks; schedules follow the database's, `--at +10m` this machine's",
			"this machine is %s %s the database", printer.Short(skew.Abs()), map[bool]string{true: "ahead of", false: "behind"}[skew > 0])
	} else {
		d.note("clock", healthOK, "", "within %s of the database's", maxSkew)
	}
}

// checkSchema reports whether the tables can be looked at.
func (d *doctor) checkSchema(ctx context.Context, db *database) bool {
	have, err := node.SchemaVersion(ctx, db.Pool)
	if err == nil && have < migrations.Latest() && db.Private != nil {
		d.note("schema", healthWarning, "", "version %d of %d; the next command that needs it migrates the private server", have, migrations.Latest())
		return false
	}
	if err == nil {
		err = node.SchemaProblem(have, migrations.Latest())
	}
	if err != nil {
		remedy := ""
		if forbidden(err) {
			remedy = unreadable(db.Address.User)
		}
		d.note("schema", healthFailed, remedy, "%s", err)
		return have > 0 && !errors.Is(err, migrations.ErrNewer)
	}
	d.note("schema", healthOK, "", "version %d, the newest", have)
	return true
}
