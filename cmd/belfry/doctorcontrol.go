package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// statistics is the row of DoctorStatistics.
type statistics struct {
	MayRead  bool
	Standbys int
	Lag      *time.Duration
}

// checkStatistics says whether health checks see what they look at.
func (d *doctor) checkStatistics(ctx context.Context, s settings.Settings, db *database) {
	health := s.Runner.Load.Health
	if !health.Enabled {
		d.note("health checks", healthOK, "", "off (runner.load.health.enabled)")
		return
	}
	rows, err := db.Pool.Query(ctx, queries.doctorStatistics)
	var seen statistics
	if err == nil {
		seen, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[statistics])
	}
	if err != nil {
		d.note("health checks", healthFailed, "", "%s", err)
		return
	}
	switch {
	case !seen.MayRead && health.ReplicaLag > 0:
		d.note("health checks", healthWarning, "GRANT pg_monitor TO "+pgx.Identifier{db.Address.User}.Sanitize(),
			"%s may not read the server's statistics: replica_lag sees nothing and holds nothing back", db.Address.User)
	case seen.Standbys == 0:
		d.note("health checks", healthOK, "", "no standby is attached here")
	case health.ReplicaLag > 0 && seen.Lag != nil && *seen.Lag > health.ReplicaLag:
		d.note("health checks", healthWarning, "jobs pause until it catches up", "a standby lags by %s; allowed are %s", printer.Short(*seen.Lag), health.ReplicaLag)
	default:
		lag := "caught up"
		if seen.Lag != nil {
			lag = "at most " + printer.Short(*seen.Lag) + " behind"
		}
		d.note("health checks", healthOK, "", "%d of the server's standbys seen, %s", seen.Standbys, lag)
	}
}

// checkRunning lists the jobs that run and are held back.
func (d *doctor) checkRunning(ctx context.Context, db *database) {
	running, err := job.NewStore(db.Pool).List(ctx, job.Filter{Statuses: []job.Status{job.Running}, Limit: 1000})
	if err != nil {
		d.note("load", healthFailed, "", "%s", err)
		return
	}
	free := 0
	for _, j := range running {
		if j.Throttle == "" {
			free++
			continue
		}
		d.note("load", healthWarning, fmt.Sprintf("it goes on by itself; `belfry jobs set %d health_checks=off` goes on regardless", j.ID),
			"job %d is held back by %s; %s in all", j.ID, admin.ThrottledBy(j), printer.Short(time.Duration(j.ThrottledMS)*time.Millisecond))
	}
	if free == len(running) {
		d.note("load", healthOK, "", "%s RUNNING, none held back", printer.Counted(int64(free), "job"))
	}
}

// checkLanes lists the lanes that are paused.
func (d *doctor) checkLanes(ctx context.Context, db *database) {
	lanes, err := job.NewStore(db.Pool).Lanes(ctx)
	if err != nil {
		d.note("lanes", healthFailed, "", "%s", err)
		return
	}
	paused := 0
	for _, l := range lanes {
		if l.PausedAt != nil {
			paused++
			d.note("lanes", healthWarning, "`belfry lanes resume "+l.Name+"` opens it", "lane %s is paused since %s by %s: %s; %s due",
				l.Name, printer.Clock(*l.PausedAt), l.PausedBy, printer.OrNone(printer.OneLine(l.PauseReason, 200)), printer.Counted(l.Due, "job"))
		}
	}
	if paused == 0 {
		d.note("lanes", healthOK, "", "none is paused")
	}
}

// checkSchedules lists the schedules that fail, and for a user that is to fire them those
// whose query it may not run.
func (d *doctor) checkSchedules(ctx context.Context, db *database) {
	store := schedule.NewStore(db.Pool)
	list, err := store.List(ctx)
	if err != nil {
		d.note("schedules", healthFailed, "", "%s", err)
		return
	}
	fires := d.fires(ctx, db)
	failing := 0
	for _, s := range list {
		if s.LastError == "" && fires {
			if err := store.CheckQuery(ctx, s); err != nil {
				failing++
				d.note("schedules", healthWarning, "correct it before it is due", "schedule %s will fail: %s", s.Name, printer.OneLine(err.Error(), 300))
			}
		}
		if s.LastError != "" {
			failing++
			d.note("schedules", healthWarning, "correct it; `belfry schedules run "+s.Name+"` makes up for what was missed", "schedule %s fails: %s", s.Name, printer.OneLine(s.LastError, 300))
		}
	}
	if failing == 0 {
		d.note("schedules", healthOK, "", "%s, none fails", printer.Counted(int64(len(list)), "schedule"))
	}
}

// fires reports whether the user may fire schedules: then their queries are to be its own.
func (d *doctor) fires(ctx context.Context, db *database) bool {
	lacks, err := lacksOf(ctx, db, profileNamed("run"))
	return err == nil && len(lacks) == 0
}

// checkAbortCache asks the abort cache something.
func (d *doctor) checkAbortCache(ctx context.Context, s settings.Settings) {
	cache, err := s.OpenCache()
	if cache == nil && err == nil {
		return
	}
	began := time.Now()
	if err == nil {
		_, err = cache.Get(ctx, 0) // no job has this id
	}
	took := time.Since(began)
	if cache != nil {
		_ = cache.Close() // nothing was written
	}
	if err != nil {
		d.note("abort cache", healthWarning, "start it, or correct abort.cache; until then an abort needs the database", "%s: %s", settings.WithoutUser(s.Abort.URL), err)
		return
	}
	d.note("abort cache", healthOK, "", "%s answers in %s", settings.WithoutUser(s.Abort.URL), took.Round(10*time.Microsecond))
}
