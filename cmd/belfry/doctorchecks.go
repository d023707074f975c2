package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
)

// serverFacts is the row of DoctorServer.
type serverFacts struct {
	VersionNumber     int
	Version           string
	Standby, ReadOnly bool
	Fsync             bool
	FullPageWrites    bool
	SynchronousCommit string
}

func (d *doctor) checkServer(ctx context.Context, s settings.Settings, on *database) {
	var facts serverFacts
	var found db.Found
	var unknown error // why the rest of it was not found out
	err := on.Pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		if found, unknown = db.Look(ctx, c.Conn()); unknown != nil && !found.Pooler {
			return unknown
		}
		rows, err := c.Query(ctx, queries.doctorServer)
		if err != nil {
			return err
		}
		facts, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[serverFacts])
		return err
	})
	if err != nil {
		d.note("server", healthFailed, "", "%s", err)
		return
	}
	switch {
	case facts.VersionNumber < pgserver.MinMajor*10_000:
		d.note("server", healthFailed, fmt.Sprintf("use PostgreSQL %d or later", pgserver.MinMajor), "PostgreSQL %s is too old", facts.Version)
	case facts.Standby:
		d.note("server", healthFailed, "point database.url at the primary (target_session_attrs=read-write finds it)", "PostgreSQL %s, but read-only: a replica", facts.Version)
	case facts.ReadOnly: // elsewhere belfry has it changed for itself
		d.note("server", healthFailed, fmt.Sprintf("ALTER ROLE %s SET default_transaction_read_only = off", pgx.Identifier{on.Address.User}.Sanitize()),
			"PostgreSQL %s; default_transaction_read_only is on for %s, and belfry does not change that through a pooler", facts.Version, on.Address.User)
	default:
		d.note("server", healthOK, "", "PostgreSQL %s", facts.Version)
	}
	d.checkDurability(facts)
	if found.Pooler {
		d.checkPooler(s, on, found, unknown)
	}
	d.checkConnections(ctx, s, on)
}

// checkPooler says what a pooler keeps from belfry.
func (d *doctor) checkPooler(s settings.Settings, on *database, found db.Found, unknown error) {
	remedy := ""
	if s.Runner.Listen || s.Delivery.Relay.Listen {
		remedy = "set runner.listen and delivery.listen to false behind a pooler in transaction mode; polling finds everything, a little later"
	}
	d.note("pooler", healthWarning, remedy,
		"a pooler stands between belfry and PostgreSQL: the job of a runner that died is taken over after runner.stale_after (%s), not at once", s.Runner.StaleAfter)
	const check = "statements"
	asked := on.Pool.Config().ConnConfig.DefaultQueryExecMode
	switch {
	case !db.Prepares(asked):
		d.note(check, healthOK, "", "nothing is prepared (default_query_exec_mode), whatever the pooler does")
	case unknown != nil:
		d.note(check, healthWarning, db.Remedy, "whether the pooler keeps prepared statements was not found out, and belfry goes on without any: %s", unknown)
	case found.Loses:
		d.note(check, healthWarning, db.Remedy, "the pooler loses prepared statements, by a trial over several transactions on two connections; belfry finds that out at each start and goes on without any")
	default:
		d.note(check, healthOK, "", "the pooler keeps prepared statements, by a trial over several transactions on two connections")
	}
}

func (d *doctor) checkDurability(facts serverFacts) {
	var off []string
	if !facts.Fsync {
		off = append(off, "fsync")
	}
	if !facts.FullPageWrites {
		off = append(off, "full_page_writes")
	}
	switch {
	case len(off) > 0:
		d.note("durability", healthWarning, "turn it on, unless this data may be lost",
			"%s off: a crash of the machine can corrupt the database", strings.Join(off, " and "))
	case facts.SynchronousCommit == "off":
		d.note("durability", healthWarning, "turn synchronous_commit on for belfry's user: a crash may forget messages that were sent, and send them again",
			"synchronous_commit is off")
	default:
		d.note("durability", healthOK, "", "fsync, full_page_writes and synchronous_commit are on")
	}
}

func (d *doctor) checkConnections(ctx context.Context, s settings.Settings, db *database) {
	var allowed, used int
	if err := db.Pool.QueryRow(ctx, queries.doctorConnections).Scan(&allowed, &used); err != nil {
		d.note("connections", healthFailed, "", "%s", err)
		return
	}
	// The doctor's own connections are among those used.
	free := allowed - used + int(db.Pool.Stat().TotalConns())
	if free < s.Database.MaxConnections {
		d.note("connections", healthWarning, "lower database.max_connections or raise the server's max_connections",
			"%d of %d are in use, belfry may want %d", used, allowed, s.Database.MaxConnections)
		return
	}
	d.note("connections", healthOK, "", "%d of %d in use", used, allowed)
}

func (d *doctor) checkChannels(ctx context.Context, s settings.Settings, db *database) {
	store, err := channels.New(s.Channels)
	var faults []channels.Fault
	if err == nil {
		faults, err = store.Check(ctx, db.Pool)
	}
	if err != nil {
		d.note("channels", healthFailed, "", "%s", err)
		return
	}
	fatal := false
	for _, f := range faults {
		status := healthWarning
		if f.Fatal {
			status, fatal = healthFailed, true
		}
		d.note("channels", status, f.Remedy, "%s", faultText(store.Relation(), f))
	}
	if fatal {
		return
	}
	switch was, err := store.Recorded(ctx, db.Pool); {
	case err != nil:
		d.note("channels", healthFailed, "", "%s", err)
	case was != "":
		d.note("channels", healthWarning, "`belfry channels check` brings it in step, and so does a runner or relay that starts",
			"SQL functions and checks of audiences go by %s as it was; channels.relation is %s", was, store.Relation())
	}
	bound, err := store.Bound(ctx, db.Pool)
	switch {
	case err != nil:
		d.note("channels", healthFailed, "", "%s", err)
	case bound.IsZero():
		d.note("channels", healthWarning, "`belfry channels import FILE.csv` or `belfry channels generate 300000` fills it", "%s is empty", store.Relation())
	case len(faults) == 0:
		d.note("channels", healthOK, "", "%s keeps the contract", store.Relation())
	}
}

func faultText(relation string, f channels.Fault) string {
	if f.Column == "" {
		return relation + ": " + f.Problem
	}
	return relation + "." + f.Column + ": " + f.Problem
}

// overdueAfter is how long a due job may wait before it looks as if nobody came.
const overdueAfter = time.Minute

func (d *doctor) checkJobs(ctx context.Context, s settings.Settings, db *database) {
	type stale struct {
		ID     int64
		Lane   string
		Runner string
		Age    time.Duration
	}
	rows, err := db.Pool.Query(ctx, queries.doctorStale, pgx.StrictNamedArgs{"stale_after": s.Runner.StaleAfter})
	var list []stale
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[stale])
	}
	if err != nil {
		d.note("jobs", healthFailed, "", "%s", err)
		return
	}
	for _, j := range list {
		d.note("jobs", healthWarning, "`belfry run` or a daemon that serves the lane takes it over", "job %d in lane %s is stale: RUNNING on %s without a heartbeat for %s", j.ID, j.Lane, j.Runner, printer.Short(j.Age))
	}
	var waiting int64
	var longest time.Duration
	var unknown []string
	err = db.Pool.QueryRow(ctx, queries.doctorOverdue, pgx.StrictNamedArgs{"types": []string{"inbox", "push"}}).Scan(&waiting, &longest, &unknown)
	switch {
	case err != nil:
		d.note("jobs", healthFailed, "", "%s", err)
	case len(unknown) > 0:
		d.note("jobs", healthWarning, "run the program that was built with them", "due jobs are of types that this belfry does not run: %s", strings.Join(unknown, ", "))
	case longest > overdueAfter:
		d.note("jobs", healthWarning, "is a daemon running, or `belfry run` scheduled?", "%s due, the first for %s", printer.Counted(waiting, "job"), printer.Short(longest))
	case len(list) == 0:
		d.note("jobs", healthOK, "", "%s due, none stale", printer.Counted(waiting, "job"))
	}
}
