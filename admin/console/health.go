package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/internal/text"

	"github.com/belfryhq/belfry/admin/delivery"
)

// carrierTimeout limits the query of a carrier on the page Now.
const carrierTimeout = time.Second

// delivery returns the delivery rates of the senders that relays run or an operator has paused, or nil
// without any.
func (h *handler) delivery() (*table, error) {
	a, err := h.query("senders list", nil)
	if err != nil {
		return nil, err
	}
	all, _ := a.out.(delivery.Senders)
	slices.SortFunc(all.Senders, func(a, b delivery.SenderState) int {
		return cmp.Or(cmp.Compare(a.Medium, b.Medium), cmp.Compare(a.Name, b.Name))
	})
	t := newTable("delivery by sender", "medium", "sender", "state", ">sent/s", ">failed/s", ">waiting")
	for _, s := range all.Senders {
		if s.Relays > 0 || s.PausedAt != nil {
			h.add(t, s.Medium, text.Ref("sender", s.Name), s.Badge(), delivery.PerSecond(s.SentPerSecond),
				delivery.PerSecond(s.FailedPerSecond), s.Waiting)
		}
	}
	if len(t.Rows) == 0 {
		return nil, nil
	}
	return t, nil
}

// health renders the health of the server and the contents of the carriers in use. It returns nil if the
// operation does not exist.
func (h *handler) health() (*view, error) {
	a, err := h.query("health", nil)
	health, is := a.out.(doctor.ServerHealth)
	if err != nil || !is {
		return nil, err
	}
	t := h.render(a.Operation, a.in, health)
	carrier, there := h.named("transport status")
	if _, plain := health.Relays["postgres"]; len(health.Relays) == 0 || plain && len(health.Relays) == 1 || !there {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(h.req.Context(), carrierTimeout)
	defer cancel()
	inside, down := h.do(ctx, carrier, carrier.NewInput())
	if inside != nil {
		t.Blocks = append(t.Blocks, h.render(carrier, carrier.NewInput(), inside).Blocks...)
	}
	if down != nil { // shown beside the rest
		t.note("The carrier: %s", text.OfError(down))
	}
	return t, nil
}
