package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// checkDelivery looks at the installation, routes, senders, relays, their carrier and what they have not sent.
func (d *doctor) checkDelivery(ctx context.Context, s settings.Settings, db *database) {
	d.checkInstallation(ctx, db)
	relays := d.checkSenders(ctx, s, db)
	d.checkRoutes(ctx, s, db, relays)
	d.checkTransport(ctx, s, db, relays)
	d.checkDue(ctx, s, db, relays)
	d.checkLeases(ctx, db, relays)
	d.checkDead(ctx, db)
}

// checkInstallation wants the database to be where belfry was made or adopted.
func (d *doctor) checkInstallation(ctx context.Context, db *database) {
	where, err := outbox.ReadInstallation(ctx, db.Pool)
	switch {
	case err != nil:
		d.note("installation", healthFailed, "", "%s", err)
	case !where.Adopted:
		d.note("installation", healthFailed, "`belfry adopt` shows what would leave, and lets it; leave it as it is where nothing is to be sent", "%s", where.Err())
	case where.Here.SystemIdentifier == nil:
		d.note("installation", healthWarning, "GRANT EXECUTE ON FUNCTION pg_control_system() to the owner of the schema belfry, then `belfry adopt`; some hosted servers tell nobody",
			"made or adopted here, in %s: a copy whose database has the same oid on another server would send as well", where.Here)
	default:
		d.note("installation", healthOK, "", "made or adopted here, in %s", where.Here)
	}
}

// checkRoutes wants a sender for every medium that a route names, of this configuration or
// of a relay that lives.
func (d *doctor) checkRoutes(ctx context.Context, s settings.Settings, db *database, live []outbox.RelayState) {
	var media []string
	for _, entry := range s.Senders {
		media = append(media, entry.Medium)
	}
	for _, r := range live {
		media = append(media, r.Media...)
	}
	if len(media) == 0 {
		d.note("routes", healthOK, "", "not looked at: no senders are configured here, and no relay lives")
		return
	}
	type named struct{ Medium, Sources string }
	rows, err := db.Pool.Query(ctx, queries.doctorRoutes, pgx.StrictNamedArgs{"media": media})
	var lacking []named
	if err == nil {
		lacking, err = pgx.CollectRows(rows, pgx.RowToStructByName[named])
	}
	if err != nil {
		d.note("routes", healthFailed, "", "%s", err)
		return
	}
	for _, l := range lacking {
		d.note("routes", healthWarning, "add a sender with medium: "+l.Medium+", or change the route with `belfry categories set`",
			"no sender here or of a live relay has medium %s, which is in the route of %s: what gets there waits", l.Medium, l.Sources)
	}
	if len(lacking) == 0 {
		d.note("routes", healthOK, "", "every medium of a route has a sender")
	}
}

// checkSenders wants a live relay for every configured sender, and says which are
// paused. It returns the relays that live.
func (d *doctor) checkSenders(ctx context.Context, s settings.Settings, db *database) (live []outbox.RelayState) {
	states, relays, err := outbox.SenderStates(ctx, db.Pool, admin.RelayAlive)
	if err != nil {
		d.note("senders", healthFailed, "", "%s", err)
		return nil
	}
	var served []string
	for _, r := range relays {
		if r.Live {
			live = append(live, r)
			served = append(served, r.Senders...)
		}
	}
	fine := true
	var idle []string
	for _, name := range s.Senders.Names() {
		if !slices.Contains(served, name) {
			idle = append(idle, name)
		}
	}
	if len(idle) > 0 {
		fine = false
		d.note("senders", healthWarning, "is a daemon or `belfry relay` running, with this configuration?", "no live relay has sender %s", strings.Join(idle, ", "))
	}
	for _, state := range states {
		if state.PausedAt != nil {
			fine = false
			d.note("senders", healthWarning, "`belfry senders resume "+state.Name+"` opens it", "sender %s is paused since %s by %s: %s",
				state.Name, printer.Clock(*state.PausedAt), state.PausedBy, printer.OrNone(printer.OneLine(state.PauseReason, 200)))
		}
	}
	if fine {
		d.note("senders", healthOK, "", "%s configured, %s alive", printer.Counted(int64(len(s.Senders)), "sender"), printer.Counted(int64(len(live)), "relay"))
	}
	if have := s.Database.MaxConnections; len(s.Senders) > 0 && have < relay.Connections {
		d.note("senders", healthWarning, fmt.Sprintf("set database.max_connections to %d or more", relay.Connections),
			"a relay uses up to %d connections, database.max_connections is %d", relay.Connections, have)
	}
	return live
}

// unmovedAfter is how long a message may be due before it looks as if nobody sent it.
const unmovedAfter = time.Minute

// checkDue looks for messages that are due and that nobody moves: at once where no relay
// could, after a while where one lives.
func (d *doctor) checkDue(ctx context.Context, s settings.Settings, db *database, live []outbox.RelayState) {
	type due struct {
		JobID  int64 // 0: activities
		For    time.Duration
		Reason string
	}
	told, err := d.checkCarriers(ctx, s, db)
	var list []due
	if err == nil {
		var rows pgx.Rows
		if rows, err = db.Pool.Query(ctx, queries.doctorUnsent, pgx.StrictNamedArgs{"longer_than": unmovedAfter}); err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByName[due])
		}
	}
	if err != nil {
		d.note("delivery", healthFailed, "", "%s", err)
		return
	}
	list = slices.DeleteFunc(list, func(m due) bool { return slices.Contains(told, m.JobID) })
	if len(list) == 0 && len(told) > 0 {
		return
	}
	inFlight := 0
	for _, r := range live {
		inFlight += r.InFlight
	}
	if len(list) == 0 || inFlight > 0 {
		d.note("delivery", healthOK, "", "%s with messages that are due for over %s; relays have %s in flight",
			printer.Counted(int64(len(list)), "job"), unmovedAfter, printer.Counted(int64(inFlight), "message"))
		return
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
		d.note("delivery", healthWarning, remedy, "%s are due for %s, and nobody moves them", of, printer.Short(m.For))
	}
}

// checkCarriers says which due messages no live relay could send, and returns their jobs.
func (d *doctor) checkCarriers(ctx context.Context, s settings.Settings, db *database) (told []int64, err error) {
	c, err := admin.CarriersOf(ctx, d.env(s, db))
	if err != nil {
		return nil, err
	}
	list, err := outbox.UnsentJobs(ctx, db.Pool, nil, unsentShown)
	if err != nil {
		return nil, err
	}
	for _, u := range list {
		due := u.DueIn == nil || *u.DueIn <= 0
		if still := c.Standstill(u, d.now()); due && !u.Held && !c.Alive(u.Route[0]) {
			told = append(told, u.JobID)
			d.note("delivery", healthWarning, still.Remedy, "%s of job %d not sent: %s", printer.Counted(u.Waiting, "message"), u.JobID, still.Why)
		}
	}
	return told, nil
}

// checkLeases looks for leases that ran out and were not taken back.
func (d *doctor) checkLeases(ctx context.Context, db *database, live []outbox.RelayState) {
	var n int64
	var longest time.Duration
	if err := db.Pool.QueryRow(ctx, queries.doctorLeases).Scan(&n, &longest); err != nil {
		d.note("leases", healthFailed, "", "%s", err)
		return
	}
	switch {
	case n > 0 && len(live) == 0:
		d.note("leases", healthWarning, "any relay takes them back: start one", "%s of relays that died, the first for %s", printer.Counted(n, "lease"), printer.Short(longest))
	case n > 0 && longest > unmovedAfter:
		d.note("leases", healthWarning, "look at the relays' log", "%s ran out, the first %s ago, and no relay takes them back", printer.Counted(n, "lease"), printer.Short(longest))
	default:
		d.note("leases", healthOK, "", "none is left behind")
	}
}

// checkDead counts the dead letters.
func (d *doctor) checkDead(ctx context.Context, db *database) {
	type dead struct {
		Reason string
		N      int64
	}
	rows, err := db.Pool.Query(ctx, queries.doctorDead, pgx.StrictNamedArgs{"most": deadCounted})
	var list []dead
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[dead])
	}
	if err != nil {
		d.note("dead letters", healthFailed, "", "%s", err)
		return
	}
	var total int64
	var reasons []string
	for _, l := range list {
		total += l.N
		reasons = append(reasons, l.Reason+" "+printer.Grouped(l.N))
	}
	if total == 0 {
		d.note("dead letters", healthOK, "", "none")
		return
	}
	text := printer.Counted(total, "message")
	if total >= deadCounted {
		text = printer.Grouped(total) + " messages or more"
	}
	d.note("dead letters", healthWarning, "`belfry dead-letters list` shows them, `belfry dead-letters redrive` and `discard` act on them", "%s: %s", text, strings.Join(reasons, ", "))
}

// deadCounted is up to how many dead letters are counted.
const deadCounted = 100_000
