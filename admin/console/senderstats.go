package console

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/admin/doctor"

	"github.com/belfryhq/belfry/admin/delivery"
)

const (
	// statsInterval is the interval of queries of senders, for all streams of the process together.
	statsInterval = 3 * time.Second
	// carrierTimeout limits the query of a carrier on the page Now.
	carrierTimeout = time.Second
)

// senderStats caches the cells of senders for all streams of the process.
type senderStats struct {
	querying sync.Mutex
	newest   atomic.Pointer[statsSnapshot]
}

// statsSnapshot is the result of one query. Its cells are nil if the query failed.
type statsSnapshot struct {
	at    time.Time
	cells map[string]string
}

// read returns the newest snapshot. The first caller after it has expired queries again; the others do not
// wait, since the database may be down.
func (g *senderStats) read(query func() ([]delivery.SenderState, error)) map[string]string {
	last := g.newest.Load()
	if last != nil && time.Since(last.at) < statsInterval*9/10 || !g.querying.TryLock() {
		if last == nil {
			return nil
		}
		return last.cells
	}
	defer g.querying.Unlock()
	found := new(statsSnapshot)
	if senders, err := query(); err == nil {
		found.cells = make(map[string]string)
		for _, s := range senders {
			for name, text := range senderCells(s) {
				found.cells[senderCell(s, name)] = text
			}
		}
	}
	found.at = time.Now()
	g.newest.Store(found)
	return found.cells
}

func senderCell(s delivery.SenderState, name string) string { return "sender." + s.Name + "." + name }

// senderCells returns the values of a sender that change, by the names of their cells.
func senderCells(s delivery.SenderState) map[string]string {
	shown := delivery.SenderShown(s)
	return map[string]string{
		"status": shown, "tone": toneOf(shown), "sent": delivery.PerSecond(s.SentPerSecond), "failed": delivery.PerSecond(s.FailedPerSecond), "waiting": strconv.Itoa(s.Waiting),
	}
}

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
		texts := senderCells(s)
		r := row{Cells: []cell{
			{Name: "medium", Text: h.inline(s.Medium)}, {Name: "sender", Text: h.inline(s.Name), Link: h.linkWith(list, nil)},
			{Name: "state", Status: statusOf(texts["status"], senderCell(s, "status"))},
		}}
		for _, name := range []string{"sent", "failed", "waiting"} {
			c := cell{Name: name, Text: h.inline(texts[name]), Right: true, Live: senderCell(s, name)}
			if name != "waiting" {
				c.Name += "/s"
			}
			r.Cells = append(r.Cells, c)
		}
		t.Rows = append(t.Rows, r)
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
