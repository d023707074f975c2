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
	// gaugedAfter is between two looks at what senders do, of all streams of the process together.
	gaugedAfter = 3 * time.Second
	// carrierTime is how long Now waits for a carrier, which may be away.
	carrierTime = time.Second
)

// gauges are the cells about senders of the newest look.
type gauges struct {
	looking sync.Mutex
	newest  atomic.Pointer[gauged]
}

// gauged is what a look found; its cells are nil when it failed.
type gauged struct {
	at    time.Time
	cells map[string]string
}

// read is the newest look. One that is too old has whoever comes first look again, which nobody else
// waits for: the database may be away.
func (g *gauges) read(look func() ([]delivery.SenderState, error)) map[string]string {
	last := g.newest.Load()
	if last != nil && time.Since(last.at) < gaugedAfter*9/10 || !g.looking.TryLock() {
		if last == nil {
			return nil
		}
		return last.cells
	}
	defer g.looking.Unlock()
	found := new(gauged)
	if senders, err := look(); err == nil {
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

// senderCells are the texts about a sender that change, by the names of their cells.
func senderCells(s delivery.SenderState) map[string]string {
	shown := delivery.SenderShown(s)
	return map[string]string{
		"status": shown, "tone": toneOf(shown), "sent": delivery.PerSecond(s.SentPerSecond), "failed": delivery.PerSecond(s.FailedPerSecond), "waiting": strconv.Itoa(s.Waiting),
	}
}

// senders asks what they do, of those that relays have or an operator has paused.
func (v *visit) senders(ctx context.Context) ([]delivery.SenderState, error) {
	list, there := v.named("senders list")
	if !there {
		return nil, nil
	}
	out, err := v.do(ctx, list, list.NewInput())
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

// delivery is how fast messages go, by medium and sender; nil: nobody delivers.
func (v *visit) delivery() (*table, error) {
	senders, err := v.senders(v.req.Context())
	if err != nil || len(senders) == 0 {
		return nil, err
	}
	t := &table{Label: "delivery by sender", Columns: []column{{Name: "medium"}, {Name: "sender"}, {Name: "state"}, {Name: "sent/s", Right: true}, {Name: "failed/s", Right: true}, {Name: "waiting", Right: true}}}
	list, _ := v.named("senders list")
	for _, s := range senders {
		texts := senderCells(s)
		r := row{Cells: []cell{
			{Name: "medium", Text: v.inline(s.Medium)}, {Name: "sender", Text: v.inline(s.Name), Link: v.linkWith(list, nil)},
			{Name: "state", Status: statusOf(texts["status"], senderCell(s, "status"))},
		}}
		for _, name := range []string{"sent", "failed", "waiting"} {
			c := cell{Name: name, Text: v.inline(texts[name]), Right: true, Live: senderCell(s, name)}
			if name != "waiting" {
				c.Name += "/s"
			}
			r.Cells = append(r.Cells, c)
		}
		t.Rows = append(t.Rows, r)
	}
	return t, nil
}

// health is how the server is, and what is in the carriers that relays use; nil: nobody may know.
func (v *visit) health() (*told, error) {
	o, there := v.named("health")
	if !there {
		return nil, nil
	}
	out, err := v.do(v.req.Context(), o, o.NewInput())
	if err != nil {
		return nil, err
	}
	health, _ := out.(doctor.ServerHealth)
	t := v.tell(o, o.NewInput(), out)
	carrier, there := v.named("transport status")
	if _, plain := health.Relays["postgres"]; len(health.Relays) == 0 || plain && len(health.Relays) == 1 || !there {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(v.req.Context(), carrierTime)
	defer cancel()
	inside, down := v.do(ctx, carrier, carrier.NewInput())
	if inside != nil {
		t.Blocks = append(t.Blocks, v.tell(carrier, carrier.NewInput(), inside).Blocks...)
	}
	if down != nil { // which is to be seen, and hides nothing else
		t.note("The carrier: %s", down.Error())
	}
	return t, nil
}
