package console

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/admin/doctor"

	"github.com/belfryhq/belfry/admin/delivery"
)

// carrierTimeout limits the query of a carrier on the page Now.
const carrierTimeout = time.Second

// senders returns the senders that relays run or an operator has paused.
func (h *handler) senders(ctx context.Context) ([]delivery.SenderState, error) {
	list, there := h.named("senders list")
	if !there {
		return nil, nil
	}
	out, err := h.do(ctx, list, list.NewInput())
	if err != nil {
		return nil, err
	}
	all, _ := out.(delivery.Senders)
	senders := slices.DeleteFunc(all.Senders, func(s delivery.SenderState) bool { return s.Relays == 0 && s.PausedAt == nil })
	slices.SortFunc(senders, func(a, b delivery.SenderState) int {
		return cmp.Or(cmp.Compare(a.Medium, b.Medium), cmp.Compare(a.Name, b.Name))
	})
	return senders, nil
}

// delivery returns the delivery rates by medium and sender, or nil without senders.
func (h *handler) delivery() (*table, error) {
	senders, err := h.senders(h.req.Context())
	if err != nil || len(senders) == 0 {
		return nil, err
	}
	t := &table{Label: "delivery by sender", Columns: []column{{Name: "medium"}, {Name: "sender"}, {Name: "state"}, {Name: "sent/s", Right: true}, {Name: "failed/s", Right: true}, {Name: "waiting", Right: true}}}
	list, _ := h.named("senders list")
	for _, s := range senders {
		t.Rows = append(t.Rows, row{Cells: []cell{
			{Name: "medium", Text: h.inline(s.Medium)}, {Name: "sender", Text: h.inline(s.Name), Link: h.linkWith(list, nil)},
			{Name: "state", Status: statusOf(delivery.SenderShown(s), "")},
			{Name: "sent/s", Text: h.inline(delivery.PerSecond(s.SentPerSecond)), Right: true}, {Name: "failed/s", Text: h.inline(delivery.PerSecond(s.FailedPerSecond)), Right: true},
			{Name: "waiting", Text: h.inline(strconv.Itoa(s.Waiting)), Right: true},
		}})
	}
	return t, nil
}

// health renders the health of the server and the contents of the carriers in use. It returns nil if the
// operation does not exist.
func (h *handler) health() (*view, error) {
	o, there := h.named("health")
	if !there {
		return nil, nil
	}
	out, err := h.do(h.req.Context(), o, o.NewInput())
	if err != nil {
		return nil, err
	}
	health, _ := out.(doctor.ServerHealth)
	t := h.render(o, o.NewInput(), out)
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
		t.note("The carrier: %s", down.Error())
	}
	return t, nil
}
