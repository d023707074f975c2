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
	"github.com/belfryhq/belfry/outbox/relay"
)

// checkDelivery looks at the installation, senders, relays, their carrier and what they have not sent.
func (d *doctor) checkDelivery(ctx context.Context) {
	states, relays, err := delivery.SenderStates(ctx, d.DB, delivery.RelayAlive)
	delivers := len(d.Senders) > 0 || slices.ContainsFunc(relays, func(r delivery.RelayState) bool { return r.Live })
	d.make(ctx,
		check{"installation", func(ctx context.Context, name string) error { return d.checkInstallation(ctx, name, delivers) }},
		check{"halt", d.checkHalt},
	)
	if err != nil {
		d.fail("senders", "", "%s", err)
		return
	}
	live := slices.DeleteFunc(relays, func(r delivery.RelayState) bool { return !r.Live })
	d.checkSenders("senders", states, live)
	d.make(ctx,
		check{"transport", func(ctx context.Context, name string) error { return d.checkTransport(ctx, name, live) }},
		check{"delivery", func(ctx context.Context, name string) error { return d.checkDue(ctx, name, live) }},
	)
}

// checkInstallation wants the database to be where belfry was made or adopted, and, if messages
// are delivered from it, a place that a copy of the server's files does not share.
func (d *doctor) checkInstallation(ctx context.Context, check string, delivers bool) error {
	where, err := outbox.ReadInstallation(ctx, d.DB)
	switch {
	case err != nil:
		return err
	case !where.Adopted:
		d.fail(check, "`belfry adopt` shows what would leave, and lets it; leave it as it is where nothing is to be sent", "%s", where.Err())
	case where.Here.SystemIdentifier == nil:
		d.warn(check, "GRANT EXECUTE ON FUNCTION pg_control_system() to the owner of the schema belfry, then `belfry adopt`; some hosted servers tell nobody",
			"made or adopted here, in %s: a copy whose database has the same oid on another server would send as well", where.Here)
	case where.Name == "" && delivers && !d.Setup.Private:
		d.warn(check, "set delivery.place in the configuration of the relays, then `belfry adopt --place NAME`",
			"made or adopted here, in %s; a copy of the server's files would send as well, since no delivery.place is recorded", where.Here)
	case where.Name == "":
		d.ok(check, "made or adopted here, in %s", where.Here)
	default:
		d.ok(check, "made or adopted here, in %s, for relays whose delivery.place is %s", where.Here, where.Name)
	}
	return nil
}

// checkHalt says whether everything is halted.
func (d *doctor) checkHalt(ctx context.Context, check string) error {
	h, err := d.Jobs.Halted(ctx)
	switch {
	case err != nil:
		return err
	case h.At != nil:
		d.warn(check, "`belfry unhalt` ends it", "%s", h.Err())
	default:
		d.ok(check, "belfry is not halted")
	}
	return nil
}

// checkSenders wants a live relay for every configured sender, and says which are
// paused.
func (d *doctor) checkSenders(check string, states []delivery.SenderState, live []delivery.RelayState) {
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
		d.warn(check, "is a daemon or `belfry relay` running, with this configuration?", "no live relay has sender %s", strings.Join(idle, ", "))
	}
	for _, state := range states {
		if state.PausedAt != nil {
			d.warn(check, "`belfry senders resume "+state.Name+"` opens it", "sender %s is paused since %s by %s: %s",
				state.Name, text.LocalClock(*state.PausedAt), state.PausedBy, text.OrNone(text.OneLine(state.PauseReason, 200)))
		}
	}
	if d.quiet(check) {
		d.ok(check, "%s configured, %s alive", text.Counted(int64(len(d.Senders)), "sender"), text.Counted(int64(len(live)), "relay"))
	}
}

// checkTransport looks at the configured carrier, at who works on which, and at messages that
// are QUEUED for nobody.
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
	switch {
	case len(carriers) > 1:
		d.warn(check, "give all relays one delivery.transport and restart them", "live relays work on %s: messages go to one of them at a time, and the others' relays have nothing to do", strings.Join(carriers, " and "))
	case len(carriers) == 1 && carriers[0] != configured:
		d.warn(check, "restart the relays, or look whether this is their configuration", "live relays work on %s, and delivery.transport is %s here", carriers[0], configured)
	}
	if most, need := d.Carrier.TakenMost, 2*len(live)*d.Carrier.InFlight; most > 0 && need > most {
		d.warn(check, fmt.Sprintf("set it to %d or more", need),
			"%s have up to %d ids of a queue in flight each, and %s is %d: when as many are out, everybody waits", text.Counted(int64(len(live)), "live relay"), d.Carrier.InFlight, d.Carrier.TakenKey, most)
	}
	states, err := delivery.QueueStates(ctx, d.DB)
	if err != nil {
		return err
	}
	var queued int64
	for _, q := range states {
		if queued += q.Queued; q.Queued > 0 && q.LeadsUntil == nil {
			d.warn(check, "start a relay: any takes them back, or pushes them again; `belfry transport drain` takes them back at once",
				"%s of the queue %s are QUEUED for %s, and no relay pushes", text.CountedTo(q.Queued, delivery.QueueCounts, "message"), q.Name, text.OrNone(q.Transport))
		}
	}
	if d.quiet(check) {
		d.ok(check, "%s; %s QUEUED", configured, text.CountedTo(queued, delivery.QueueCounts, "message"))
	}
	return nil
}

// checkBroker looks at the carrier's server, if there is one.
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
	case errors.Is(err, relay.ErrAway):
		d.fail(check, "start that server, or correct its address; relays wait for it, and `belfry run --deliver` goes without", "%s: %s", at, err)
	case err != nil:
		d.fail(check, "a relay that starts ends with this; change the server, or give it another one", "%s: %s", at, err)
	}
}

const (
	// unmovedAfter is how long a message may be due before it looks as if nobody sent it.
	unmovedAfter = time.Minute
	// unsentExamined is of how many jobs it is said why their messages wait.
	unsentExamined = 10
)

// checkDue looks for messages that are due and that nobody moves: at once where no relay
// could, after a while where one lives.
func (d *doctor) checkDue(ctx context.Context, check string, live []delivery.RelayState) error {
	type due struct {
		JobID  int64 // 0: activities
		For    time.Duration
		Reason string
	}
	told, err := d.checkCarriers(ctx, check)
	if err != nil {
		return err
	}
	list, err := collect[due](ctx, d, queries.doctorUnsent, pgx.StrictNamedArgs{"longer_than": unmovedAfter})
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(m due) bool { return slices.Contains(told, m.JobID) })
	if len(list) == 0 && len(told) > 0 {
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
	remedy := "start a daemon with senders, or `belfry relay`"
	if len(live) > 0 {
		remedy = "look at the relays' log: they live and hold nothing"
	}
	for _, m := range list {
		of := fmt.Sprintf("messages of job %d", m.JobID)
		if m.JobID == 0 {
			of = "messages of activities"
		}
		if m.Reason != "" {
			of += " (" + m.Reason + ")"
		}
		d.warn(check, remedy, "%s are due for %s, and nobody moves them", of, text.Short(m.For))
	}
	return nil
}

// checkCarriers says which due messages no live relay could send, and returns their jobs.
func (d *doctor) checkCarriers(ctx context.Context, check string) (told []int64, err error) {
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
			told = append(told, u.JobID)
			d.warn(check, still.Remedy, "%s of job %d not sent: %s", text.Counted(u.Waiting, "message"), u.JobID, still.Why)
		}
	}
	return told, nil
}
