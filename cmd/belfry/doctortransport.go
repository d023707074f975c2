package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// checkTransport looks at the configured carrier, at who works on which, and at messages that
// are QUEUED for nobody.
func (d *doctor) checkTransport(ctx context.Context, s settings.Settings, db *database, live []outbox.RelayState) {
	const check = "transport"
	configured := s.Delivery.Carrier.Transport
	fine := d.checkBroker(ctx, s, check)
	var carriers []string
	for _, r := range live {
		if r.Transport != outbox.NoCarrier && !slices.Contains(carriers, r.Transport) {
			carriers = append(carriers, r.Transport)
		}
	}
	slices.Sort(carriers)
	switch {
	case len(carriers) > 1:
		fine = false
		d.note(check, healthWarning, "give all relays one delivery.transport and restart them", "live relays work on %s: messages go to one of them at a time, and the others' relays have nothing to do", strings.Join(carriers, " and "))
	case len(carriers) == 1 && carriers[0] != configured:
		fine = false
		d.note(check, healthWarning, "restart the relays, or look whether this is their configuration", "live relays work on %s, and delivery.transport is %s here", carriers[0], configured)
	}
	states, err := outbox.QueueStates(ctx, db.Pool)
	if err != nil {
		d.note(check, healthFailed, "", "%s", err)
		return
	}
	var queued int64
	for _, q := range states {
		if queued += q.Queued; q.Queued > 0 && q.LeadsUntil == nil {
			fine = false
			d.note(check, healthWarning, "start a relay: any takes them back, or pushes them again; `belfry transport drain` takes them back at once",
				"%s of the queue %s are QUEUED for %s, and no relay pushes", printer.Counted(q.Queued, "message"), q.Name, printer.OrNone(q.Transport))
		}
	}
	if fine {
		d.note(check, healthOK, "", "%s; %s QUEUED", configured, printer.Counted(queued, "message"))
	}
}

// checkBroker looks at the carrier's server, and reports whether all is well with it, or there
// is none.
func (d *doctor) checkBroker(ctx context.Context, s settings.Settings, check string) (fine bool) {
	broker, err := s.Delivery.Carrier.Open(s.Delivery.Relay, d.logger(s, d.stderr))
	if err != nil {
		d.note(check, healthFailed, "", "%s", err)
		return false
	}
	if broker == nil {
		return true
	}
	at, _ := s.Delivery.Carrier.At()
	at = s.Delivery.Carrier.Transport + " at " + at
	warnings, err := broker.Check(ctx)
	err = errors.Join(err, broker.Close())
	for _, w := range warnings {
		d.note(check, healthWarning, "", "%s: %s", at, w)
	}
	switch {
	case errors.Is(err, relay.ErrAway):
		d.note(check, healthFailed, "start that server, or correct its address; relays wait for it, and `belfry run --deliver` goes without", "%s: %s", at, err)
	case err != nil:
		d.note(check, healthFailed, "a relay that starts ends with this; change the server, or give it another one", "%s: %s", at, err)
	}
	return err == nil && len(warnings) == 0
}
