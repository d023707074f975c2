package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// checkDelivery checks the installation, senders, relays, their carrier and unsent messages.
func (d *doctor) checkDelivery(ctx context.Context) {
	_, relays, err := delivery.SenderStates(ctx, d.DB, delivery.RelayAlive)
	delivers := len(d.Senders) > 0 || slices.ContainsFunc(relays, func(r delivery.RelayState) bool { return r.Live })
	d.run(ctx, "installation", func(ctx context.Context, name string) error { return d.checkInstallation(ctx, name, delivers) })
	if err != nil {
		d.fail("senders", "", "%s", err)
		return
	}
	live := slices.DeleteFunc(relays, func(r delivery.RelayState) bool { return !r.Live })
	d.checkSenders("senders", live)
	d.runAll(ctx,
		check{"transport", func(ctx context.Context, name string) error { return d.checkTransport(ctx, name, live) }},
		check{"delivery", func(ctx context.Context, name string) error { return d.checkDue(ctx, name, live) }},
	)
}

// checkInstallation fails unless belfry was created or adopted in this database, and for the place of this
// configuration if it has senders. If messages are delivered from it, it warns about a missing delivery.place,
// without which a copy of the server's files would send as well.
func (d *doctor) checkInstallation(ctx context.Context, check string, delivers bool) error {
	where, err := outbox.ReadInstallation(ctx, d.DB)
	switch {
	case err != nil:
		return err
	case !where.Adopted:
		d.fail(check, text.Sprintf("%s; do nothing if this copy must not send messages",
			text.Command("adopt").To("show the waiting messages and adopt the database")), "%s", where.Err())
	case len(d.Senders) > 0 && where.Name != d.Setup.Place:
		d.fail(check, text.Sprintf("set delivery.place to %q in this configuration if its messages may leave this database, or %s",
			where.Name, text.Command("adopt").Usage("--place NAME")),
			"relays of this configuration deliver nothing: delivery.place is %q, and the database is adopted for %q", d.Setup.Place, where.Name)
	case where.Here.SystemIdentifier == nil:
		d.warn(check, text.Sprintf(
			"GRANT EXECUTE ON FUNCTION pg_control_system() to the owner of the schema belfry, then %s; some hosted "+
				"servers do not support it", text.Command("adopt")),
			"made or adopted here, in %s: a copy whose database has the same oid on another server would send as well", where.Here)
	case where.Name == "" && delivers && !d.Setup.Private:
		d.warn(check, text.Sprintf("set delivery.place in the configuration of the relays, then %s", text.Command("adopt").Usage("--place NAME")),
			"made or adopted here, in %s; a copy of the server's files would send as well, since no delivery.place is recorded", where.Here)
	case where.Name == "":
		d.ok(check, "made or adopted here, in %s", where.Here)
	default:
		d.ok(check, "made or adopted here, in %s, for relays whose delivery.place is %s", where.Here, where.Name)
	}
	return nil
}

// checkSenders warns about configured senders without a live relay.
func (d *doctor) checkSenders(check string, live []delivery.RelayState) {
	var served, idle []string
	for _, r := range live {
		served = append(served, r.Senders...)
	}
	for _, name := range d.Senders {
		if !slices.Contains(served, name) {
			idle = append(idle, name)
		}
	}
	if len(idle) > 0 {
		d.warn(check, text.Sprintf("start a daemon or %s with this configuration", text.Command("relay")),
			"no live relay has sender %s", strings.Join(idle, ", "))
	}
	if d.quiet(check) {
		d.ok(check, "%s configured, %s alive", text.Counted(int64(len(d.Senders)), "sender"), text.Counted(int64(len(live)), "relay"))
	}
}

// checkTransport checks the configured carrier, the carriers of live relays, and messages that are QUEUED
// but not pushed, or for long.
func (d *doctor) checkTransport(ctx context.Context, check string, live []delivery.RelayState) error {
	configured := d.Carrier.Transport
	d.checkBroker(ctx, check)
	var carriers []string
	for _, r := range live {
		if r.Transport != outbox.NoCarrier && !slices.Contains(carriers, r.Transport) {
			carriers = append(carriers, r.Transport)
		}
	}
	slices.Sort(carriers)
	if len(carriers) == 0 {
		carriers = []string{outbox.NoCarrier}
	}
	switch {
	case len(carriers) > 1:
		d.warn(check, "give all relays one delivery.transport and restart them",
			"live relays use %s: messages go to one carrier at a time, and relays on other carriers are idle", strings.Join(carriers, " and "))
	case len(live) > 0 && carriers[0] != configured:
		d.warn(check, "restart the relays, or check that this is their configuration",
			"live relays use %s, but delivery.transport is %s here", carriers[0], configured)
	}
	if most, need := d.Carrier.TakenMost, 2*len(live)*d.Carrier.InFlight; most > 0 && need > most {
		d.warn(check, fmt.Sprintf("set %s to %d or more", d.Carrier.TakenKey, need),
			"%s have up to %d ids of a queue in flight each, but %s is %d: at this limit all relays wait",
			text.Counted(int64(len(live)), "live relay"), d.Carrier.InFlight, d.Carrier.TakenKey, most)
	}
	states, err := delivery.QueueStates(ctx, d.DB)
	if err != nil {
		return err
	}
	late, err := d.queuedLate(ctx)
	if err != nil {
		return err
	}
	var queued int64
	for _, q := range states {
		if n := late[q.Name]; n > 0 && q.LeadsUntil != nil {
			d.warn(check, text.Sprintf("start more relays if %s shows as many copies; otherwise the carrier has lost some: %s",
				text.Command("transport status"), text.Command("transport rebuild").To("push them again")),
				"%s of the queue %s are QUEUED for longer than delivery.requeue_after (%s)",
				text.CountedTo(n, delivery.QueueCounts, "message"), q.Name, text.Short(d.Carrier.RequeueAfter))
		}
		if queued += q.Queued; q.Queued > 0 && q.LeadsUntil == nil {
			begin := "start a relay"
			if slices.Contains(carriers, q.Transport) {
				begin = "read why in the log of the relays, which are alive, or start another one"
			}
			d.warn(check, text.Sprintf("%s, which takes them back or pushes them again; %s", begin,
				text.Command("transport drain").To("take them back now")),
				"%s of the queue %s are QUEUED for %s, and no relay pushes", text.CountedTo(q.Queued, delivery.QueueCounts, "message"),
				q.Name, text.OrNone(q.Transport))
		}
	}
	if d.quiet(check) {
		d.ok(check, "%s; %s QUEUED", configured, text.CountedTo(queued, delivery.QueueCounts, "message"))
	}
	return nil
}

// queuedLate returns the number of messages of each queue that are QUEUED for longer than RequeueAfter.
func (d *doctor) queuedLate(ctx context.Context) (late map[string]int64, err error) {
	if d.Carrier.RequeueAfter == 0 {
		return nil, nil
	}
	type queued struct {
		Name string
		N    int64
	}
	list, err := collect[queued](ctx, d, queries.doctorQueued, pgx.StrictNamedArgs{
		"seconds": d.Carrier.RequeueAfter.Seconds(), "most": delivery.QueueCounts + 1,
	})
	late = make(map[string]int64)
	for _, q := range list {
		late[q.Name] = q.N
	}
	return late, err
}

// checkBroker checks the carrier's server, if there is one.
func (d *doctor) checkBroker(ctx context.Context, check string) {
	if d.Carrier.Open == nil {
		return
	}
	broker, err := d.Carrier.Open()
	if err != nil {
		d.fail(check, "", "%s", err)
		return
	}
	at := d.Carrier.Transport + " at " + d.Carrier.Server
	warnings, err := broker.Check(ctx)
	err = errors.Join(err, broker.Close())
	for _, w := range warnings {
		d.warn(check, "", "%s: %s", at, w)
	}
	switch {
	case errors.Is(err, outbox.ErrAway):
		d.fail(check, text.Sprintf("start that server, or correct its address; relays wait for it, but %s does not need it",
			text.Command("run").Flag("deliver")), "%s: %s", at, err)
	case err != nil:
		d.fail(check, "a relay fails to start with this error; change the configuration of the server, or use another server", "%s: %s", at, err)
	case d.Carrier.CheckHints != nil:
		if err := d.Carrier.CheckHints(ctx); err != nil {
			d.warn(check, "correct this: grant the rights that it names",
				"%s: marks do not reach clients of other nodes of the notification centre: %s", at, err)
		}
	}
}

const (
	// unmovedAfter is the age of a due message from which it counts as unsent.
	unmovedAfter = time.Minute
	// unsentExamined is the number of jobs whose unsent messages are explained.
	unsentExamined = 10
)

// checkDue warns about due messages that are not sent: immediately if no live relay can send them,
// otherwise after unmovedAfter.
func (d *doctor) checkDue(ctx context.Context, check string, live []delivery.RelayState) error {
	type due struct {
		JobID  int64 // 0 means activities
		For    time.Duration
		Reason string
	}
	reported, err := d.checkCarriers(ctx, check)
	if err != nil {
		return err
	}
	list, err := collect[due](ctx, d, queries.doctorUnsent, pgx.StrictNamedArgs{"longer_than": unmovedAfter})
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(m due) bool { return slices.Contains(reported, m.JobID) })
	if len(list) == 0 && len(reported) > 0 {
		return nil
	}
	inFlight := 0
	for _, r := range live {
		inFlight += r.InFlight
	}
	if len(list) == 0 || inFlight > 0 {
		d.ok(check, "%s with messages that are due for over %s; relays have %s in flight",
			text.Counted(int64(len(list)), "job"), unmovedAfter, text.Counted(int64(inFlight), "message"))
		return nil
	}
	remedy := text.Sprintf("start a daemon with senders, or %s", text.Command("relay"))
	if len(live) > 0 {
		remedy = text.Sprintf("check the log of the relays, which are alive but send nothing")
	}
	for _, m := range list {
		of := text.Sprintf("messages of job %s", text.Ref("job", m.JobID))
		if m.JobID == 0 {
			of = text.Sprintf("messages of activities")
		}
		if m.Reason != "" {
			of = text.Sprintf("%s (%s)", of, m.Reason)
		}
		d.warn(check, remedy, "%s are due for %s and not sent", of, m.For)
	}
	return nil
}

// checkCarriers warns about due messages that no live relay can send, and returns their jobs.
func (d *doctor) checkCarriers(ctx context.Context, check string) (reported []int64, err error) {
	c, err := delivery.CarriersOf(ctx, d.Env)
	if err != nil {
		return nil, err
	}
	list, err := delivery.UnsentJobs(ctx, d.DB, nil, unsentExamined)
	if err != nil {
		return nil, err
	}
	for _, u := range list {
		due := u.DueIn == nil || *u.DueIn <= 0
		if still := c.Standstill(u, d.Time()); due && !u.Held && !c.Alive(u.Route[0]) {
			reported = append(reported, u.JobID)
			d.warn(check, still.Remedy, "%s of job %s not sent: %s", text.Counted(u.Waiting, "message"), text.Ref("job", u.JobID), still.Why)
		}
	}
	return reported, nil
}
