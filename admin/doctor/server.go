package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/internal/text"
)

// checkConnection pings the database.
func (d *doctor) checkConnection(ctx context.Context, check string) error {
	if err := d.DB.Ping(ctx); err != nil {
		return fmt.Errorf("%s: %w", d.Setup.Address, err)
	}
	d.ok(check, "%s, %s", d.Setup.Address, d.Setup.Database)
	return nil
}

// serverFacts is the row of DoctorServer.
type serverFacts struct {
	VersionNumber     int
	Version           string
	Standby, ReadOnly bool
	Fsync             bool
	FullPageWrites    bool
	SynchronousCommit string

	SynchronousStandbyNames string
	WaitingCommits          int64
}

// checkServer checks the server, and a pooler in front of it.
func (d *doctor) checkServer(ctx context.Context, check string) error {
	var facts serverFacts
	var found db.Found
	var unknown error // why the pooler could not be examined
	err := d.DB.AcquireFunc(ctx, func(c *pgxpool.Conn) (err error) {
		if found, unknown = db.DetectPooler(ctx, c.Conn()); unknown != nil && !found.Pooler {
			return unknown
		}
		facts, err = db.One[serverFacts](ctx, c, queries.doctorServer)
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case facts.VersionNumber < pgserver.MinMajor*10_000:
		d.fail(check, fmt.Sprintf("use PostgreSQL %d or later", pgserver.MinMajor), "PostgreSQL %s is too old", facts.Version)
	case facts.Standby:
		d.fail(check, "point database.url at the primary (target_session_attrs=read-write finds it)",
			"PostgreSQL %s, but read-only: a replica", facts.Version)
	case facts.ReadOnly: // without a pooler belfry changes it for its session
		d.fail(check, fmt.Sprintf("ALTER ROLE %s SET default_transaction_read_only = off", d.quoted()),
			"PostgreSQL %s; default_transaction_read_only is on for %s, and belfry does not change that through a pooler", facts.Version, d.user)
	default:
		d.ok(check, "PostgreSQL %s", facts.Version)
	}
	d.checkDurability(facts)
	if facts.WaitingCommits > 0 {
		d.fail("replication",
			"start a standby that synchronous_standby_names lists, or ALTER SYSTEM RESET synchronous_standby_names and SELECT pg_reload_conf()",
			"%s waiting for a synchronous standby (synchronous_standby_names is %s); their changes are committed here, but their "+
				"callers have no response",
			text.Counted(facts.WaitingCommits, "commit"), facts.SynchronousStandbyNames)
	}
	if found.Pooler {
		d.checkPooler(found, unknown)
	}
	return nil
}

// checkPooler warns about features that do not work through a pooler.
func (d *doctor) checkPooler(found db.Found, unknown error) {
	remedy := ""
	if d.Setup.Listens {
		remedy = "set runner.listen and delivery.listen to false behind a pooler in transaction mode; polling finds the same work, a little later"
	}
	d.warn("pooler", remedy,
		"a pooler stands between belfry and PostgreSQL: the job of a dead runner is taken over after runner.stale_after "+
			"(%s), not immediately", d.Setup.StaleAfter)
	const check = "statements"
	switch {
	case !db.Prepares(d.DB.Config().ConnConfig.DefaultQueryExecMode):
		d.ok(check, "prepared statements are not used (default_query_exec_mode)")
	case unknown != nil:
		d.warn(check, db.Remedy, "the check for prepared statements failed, and belfry does not use them: %s", unknown)
	case found.Loses:
		d.warn(check, db.Remedy,
			"the pooler loses prepared statements, in a trial over several transactions on two connections; belfry detects this at "+
				"each start and does not use them")
	default:
		d.ok(check, "the pooler keeps prepared statements, in a trial over several transactions on two connections")
	}
}

func (d *doctor) checkDurability(facts serverFacts) {
	const check = "durability"
	var off []string
	if !facts.Fsync {
		off = append(off, "fsync")
	}
	if !facts.FullPageWrites {
		off = append(off, "full_page_writes")
	}
	switch {
	case len(off) > 0:
		d.warn(check, "turn it on, unless this data may be lost", "%s off: a crash of the machine can corrupt the database",
			strings.Join(off, " and "))
	case facts.SynchronousCommit == "off":
		d.warn(check, "turn synchronous_commit on for belfry's user: after a crash, sent messages may be sent again", "synchronous_commit is off")
	default:
		d.ok(check, "fsync, full_page_writes and synchronous_commit are on")
	}
}

// checkStatistics warns if the role may not read the statistics that the health check of replicas needs.
func (d *doctor) checkStatistics(ctx context.Context, check string) error {
	if health := d.Setup.Health; !health.Enabled || health.ReplicaLag == 0 {
		return nil
	}
	var may bool
	if err := d.Reads().QueryRow(ctx, queries.doctorStatistics).Scan(&may); err != nil {
		return err
	}
	if !may {
		d.warn(check, "GRANT pg_monitor TO "+d.quoted(), "%s may not read the server's statistics: replica_lag has no effect", d.user)
		return nil
	}
	d.ok(check, "%s may read the server's statistics", d.user)
	return nil
}
