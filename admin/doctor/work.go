package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/channels/attach"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox"
)

// checkChannels looks at the contract of channels.relation.
func (d *doctor) checkChannels(ctx context.Context, check string) error {
	faults, err := faultsOf(ctx, d.Env)
	if err != nil {
		return err
	}
	relation := d.Channels.Relation()
	for _, f := range faults {
		d.note(check, healthOf(f), f.Remedy, "%s", faultText(relation, f))
	}
	if fatalFaults(faults) > 0 {
		return nil
	}
	switch m, err := d.Channels.Recorded(ctx, d.Reads()); {
	case err != nil:
		return err
	case m != nil && m.Was == m.Relation:
		d.warn(check, "if "+m.Owner+" can be trusted with the rights of every caller of SQL functions, "+m.Remedy(),
			"%s belongs to %s, and to %s when it was recorded: belfry.send_external refuses it", relation, m.Owner, m.WasOwner)
	case m != nil:
		d.warn(check, m.Remedy(), "SQL functions and checks of audiences read %s; channels.relation is %s", m.Was, relation)
	}
	bound, err := d.Channels.Bound(ctx, d.Reads())
	switch {
	case err != nil:
		return err
	case bound.IsZero():
		remedy, err := d.fillRemedy(ctx, relation)
		if err != nil {
			return err
		}
		d.warn(check, remedy, "%s is empty", relation)
	case len(faults) == 0:
		d.ok(check, "%s keeps the contract", relation)
	}
	return nil
}

// fillRemedy says how an empty relation of channels gets some: belfry writes only its own table, and that
// only if it follows no other.
func (d *doctor) fillRemedy(ctx context.Context, relation string) (string, error) {
	if relation != channels.DefaultRelation {
		return "insert users into what " + relation + " reads, or set channels.relation to the relation that has them", nil
	}
	attached, err := attach.Read(ctx, d.Reads())
	switch {
	case err != nil:
		return "", err
	case attached != nil:
		return "it follows " + attached.Relation + ": insert users there; `belfry channels verify` repairs what is not in step", nil
	}
	return "`belfry channels import FILE.csv` or `belfry channels generate 300000` fills it", nil
}

// overdueAfter is how long a due job may wait before it looks as if nobody came.
const overdueAfter = time.Minute

// checkJobs looks for jobs that are stale, due for long, or of a type that nobody runs.
func (d *doctor) checkJobs(ctx context.Context, check string) error {
	type stale struct {
		ID     int64
		Lane   string
		Runner string
		Age    time.Duration
	}
	list, err := collect[stale](ctx, d, queries.doctorStale, pgx.StrictNamedArgs{"stale_after": d.Setup.StaleAfter})
	if err != nil {
		return err
	}
	for _, j := range list {
		d.warn(check, "`belfry run` or a daemon that serves the lane takes it over", "job %d in lane %s is stale: RUNNING on %s without a heartbeat for %s", j.ID, j.Lane, j.Runner, text.Short(j.Age))
	}
	var waiting int64
	var longest time.Duration
	var unknown []string
	err = d.Reads().QueryRow(ctx, queries.doctorOverdue, pgx.StrictNamedArgs{"types": []string{outbox.TypeInbox, outbox.TypePush}}).Scan(&waiting, &longest, &unknown)
	switch {
	case err != nil:
		return err
	case len(unknown) > 0:
		d.warn(check, "run the program that was built with them", "due jobs are of types that this belfry does not run: %s", strings.Join(unknown, ", "))
	case longest > overdueAfter:
		d.warn(check, "is a daemon running, or `belfry run` scheduled?", "%s due, the first for %s", text.Counted(waiting, "job"), text.Short(longest))
	case len(list) == 0:
		d.ok(check, "%s due, none stale", text.Counted(waiting, "job"))
	}
	return nil
}

// approvalsCounted is how many jobs that wait for approval are counted.
const approvalsCounted = 1000

// checkApprovals tells of jobs that wait for a second person.
func (d *doctor) checkApprovals(ctx context.Context, check string) error {
	var n, first int64
	var longest time.Duration
	var by string
	err := d.Reads().QueryRow(ctx, queries.doctorAwaiting, pgx.StrictNamedArgs{"most": approvalsCounted + 1}).Scan(&n, &first, &longest, &by)
	switch {
	case err != nil:
		return err
	case n == 0:
		d.ok(check, "no job waits for approval")
	default:
		d.warn(check, fmt.Sprintf("`belfry jobs list --awaiting-approval` lists them, `belfry jobs approve %d --dry-run` shows this one", first),
			"%s to be approved; job %d, which %s requested, waits for %s", text.CountedTo(n, approvalsCounted, "job"), first, text.OneLine(by, 60), text.Short(longest))
	}
	return nil
}

// checkNames looks for names that two processes want.
func (d *doctor) checkNames(ctx context.Context, check string) error {
	type wanted struct{ Kind, Name, Holder, Rival string }
	list, err := collect[wanted](ctx, d, queries.doctorNames)
	for _, w := range list {
		key := map[string]string{lifecycle.RunnerName: "runner.name", lifecycle.RelayName: "delivery.name"}[w.Kind]
		d.warn(check, fmt.Sprintf("is a unit file copied? Leave %s out, or give each process its own", key),
			"%s %q belongs to process %s, and process %s wanted it within the last ten minutes: it does not run", key, text.OneLine(w.Name, 70), w.Holder, w.Rival)
	}
	if err == nil && len(list) == 0 {
		d.ok(check, "no two processes want one name")
	}
	return err
}

// checkLanes lists the lanes that are paused.
func (d *doctor) checkLanes(ctx context.Context, check string) error {
	lanes, err := job.NewStore(d.DB).Lanes(ctx)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		if l.PausedAt != nil {
			d.warn(check, "`belfry lanes resume "+l.Name+"` opens it", "lane %s is paused since %s by %s: %s; %s due",
				l.Name, text.LocalClock(*l.PausedAt), l.PausedBy, text.OrNone(text.OneLine(l.PauseReason, 200)), text.CountedTo(l.Due, job.LaneCounts, "job"))
		}
	}
	if d.quiet(check) {
		d.ok(check, "none is paused")
	}
	return nil
}

// checkSchedules lists the schedules that fail, and for a user that is to fire them those
// whose query it may not run.
func (d *doctor) checkSchedules(ctx context.Context, check string) error {
	store := schedule.NewStore(d.DB)
	list, err := store.List(ctx)
	if err != nil {
		return err
	}
	lacks, err := d.lacksOf(ctx, profileNamed("run"))
	fires := err == nil && len(lacks) == 0
	for _, s := range list {
		if s.LastError != "" {
			d.warn(check, "correct it; `belfry schedules run "+s.Name+"` makes up for what was missed", "schedule %s fails: %s", s.Name, text.OneLine(s.LastError, 300))
			continue
		}
		if !fires {
			continue
		}
		if err := store.CheckQuery(ctx, s); err != nil {
			d.warn(check, "correct it before it is due", "schedule %s will fail: %s", s.Name, text.OneLine(err.Error(), 300))
		}
	}
	if d.quiet(check) {
		d.ok(check, "%s, none fails", text.Counted(int64(len(list)), "schedule"))
	}
	return nil
}
