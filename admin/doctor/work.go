package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/channels/attach"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox"
)

// checkChannels checks the contract of channels.relation.
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
			"%s belongs to %s, and to %s when it was recorded: belfry.send_external rejects it", relation, m.Owner, m.WasOwner)
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
		d.ok(check, "%s fulfills the contract", relation)
	}
	return nil
}

// fillRemedy returns the remedy for an empty relation of channels. belfry writes only to its own table,
// and only if it follows no other.
func (d *doctor) fillRemedy(ctx context.Context, relation string) (text.Line, error) {
	if relation != channels.DefaultRelation {
		return text.Sprintf("insert users into the tables of %s, or set channels.relation to the relation that has them", relation), nil
	}
	attached, err := attach.Read(ctx, d.Reads())
	switch {
	case err != nil:
		return nil, err
	case attached != nil:
		return text.Sprintf("it follows %s: insert users there; %s", attached.Relation,
			text.Command("channels verify").To("repair differences")), nil
	}
	return text.Sprintf("fill it: %s or %s", text.Command("channels import").Usage("FILE.csv"), text.Command("channels generate", 300000)), nil
}

// overdueAfter is the age of a due job from which it counts as overdue.
const overdueAfter = time.Minute

// checkJobs warns about jobs that are stale, overdue, or of an unknown type.
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
		d.warn(check, text.Sprintf("take it over by a daemon that serves the lane, or by %s", text.Command("run")),
			"job %s in lane %s is stale: RUNNING on %s without a heartbeat for %s", text.Ref("job", j.ID), text.Ref("lane", j.Lane), j.Runner, j.Age)
	}
	var waiting int64
	var longest time.Duration
	var unknown []string
	err = d.Reads().QueryRow(ctx, queries.doctorOverdue,
		pgx.StrictNamedArgs{"types": []string{outbox.TypeInbox, outbox.TypePush}}).Scan(&waiting, &longest, &unknown)
	switch {
	case err != nil:
		return err
	case len(unknown) > 0:
		d.warn(check, "run the program that defines them", "due jobs have types that this belfry does not run: %s", strings.Join(unknown, ", "))
	case longest > overdueAfter:
		d.warn(check, text.Sprintf("start a daemon, or schedule %s", text.Command("run")), "%s due, the first for %s",
			text.Counted(waiting, "job"), longest)
	}
	if locked := d.Jobs.WaitingHolders(ctx); locked != "" {
		//sql:allow text for people
		d.warn(check, "SELECT pg_terminate_backend(number) ends a session", "due jobs are not claimed, because their rows are locked: %s", locked)
	}
	if d.quiet(check) {
		d.ok(check, "%s due, none stale", text.Counted(waiting, "job"))
	}
	return nil
}

// checkNames warns about process names that are configured twice.
func (d *doctor) checkNames(ctx context.Context, check string) error {
	type wanted struct{ Kind, Name, Holder, Rival string }
	list, err := collect[wanted](ctx, d, queries.doctorNames)
	for _, w := range list {
		key := map[string]string{lifecycle.RunnerName: "runner.name", lifecycle.RelayName: "delivery.name"}[w.Kind]
		d.warn(check, fmt.Sprintf("remove %s from a copied unit file, or use a different name for each process", key),
			"%s %q belongs to process %s, and process %s, which is configured with the same name, failed to start within "+
				"the last ten minutes", key, text.OneLine(w.Name, 70), w.Holder, w.Rival)
	}
	if err == nil && len(list) == 0 {
		d.ok(check, "no name is configured twice")
	}
	return err
}

// checkNotifications warns about a notification queue that is so full that belfry does not notify.
func (d *doctor) checkNotifications(ctx context.Context, check string) error {
	var rings bool
	var usage float64
	err := d.Reads().QueryRow(ctx, queries.doctorNotifications).Scan(&rings, &usage)
	switch {
	case err != nil:
		return err
	case !rings:
		d.warn(check, "docs/on-call.md, The notification queue is full: find the session that listens in an old transaction, "+
			"and end it with SELECT pg_terminate_backend(pid)",
			"the server's notification queue is %.0f %% full: belfry does not notify, and polling finds its work", usage*100)
	default:
		d.ok(check, "the server's notification queue is %.0f %% full", usage*100)
	}
	return nil
}

// checkPartitions warns if jobs will find no next partition when the newest one is full.
func (d *doctor) checkPartitions(ctx context.Context, check string) error {
	var part int64
	var ahead bool
	err := d.Reads().QueryRow(ctx, queries.doctorPartitions).Scan(&part, &ahead)
	if err == nil && !ahead {
		d.warn(check, fmt.Sprintf("as the owner of the schema: SELECT belfry.notifications_ahead(%d)", part),
			"no partition follows belfry.notifications_%d: it grows, and inbox jobs become slower", part)
	} else if err == nil {
		d.ok(check, "belfry.notifications_%d has a next partition", part)
	}
	return err
}

// checkStopped warns about what operators have stopped: everything, lanes and senders.
func (d *doctor) checkStopped(ctx context.Context, check string) error {
	s, err := operation.ReadStatus(ctx, d.Env, operation.None{})
	if err != nil {
		return err
	}
	if s.Halted() {
		d.warn(check, text.Command("unhalt").To("end the halt"), "%s", s.HaltLine())
	}
	for _, name := range s.PausedLanes {
		d.warn(check, text.Command("lanes resume", name).To("resume the lane"), "lane %s is paused", text.Ref("lane", name))
	}
	for _, name := range s.PausedSenders {
		d.warn(check, text.Command("senders resume", name).To("resume the sender"), "sender %s is paused", text.Ref("sender", name))
	}
	if d.quiet(check) {
		d.ok(check, "nothing: no halt, no paused lane or sender")
	}
	return nil
}

// checkSchedules warns about failing schedules, and, if the user may fire schedules, about queries that it
// may not run.
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
			d.warn(check, text.Sprintf("correct it; %s", text.Command("schedules run", s.Name).To("fire it again")),
				"schedule %s fails: %s", text.Ref("schedule", s.Name), text.OneLine(s.LastError, 300))
			continue
		}
		if !fires {
			continue
		}
		if err := store.CheckQuery(ctx, s); err != nil {
			d.warn(check, "correct it before it is due", "schedule %s will fail: %s", text.Ref("schedule", s.Name), text.OneLine(err.Error(), 300))
		}
	}
	for _, h := range db.LockHolders(ctx, d.DB, "schedules", "") {
		if h.Since == nil || d.Time().Sub(*h.Since) > overdueAfter {
			d.warn(check, h.Remedy(), "schedules do not fire while their rows are locked, by %s", h)
		}
	}
	if d.quiet(check) {
		d.ok(check, "%s, none fails", text.Counted(int64(len(list)), "schedule"))
	}
	return nil
}
