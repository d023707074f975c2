package views

import (
	"cmp"
	"context"
	"html/template"
	"iter"
	"net/url"
	"time"

	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/text"
)

// carrierTimeout limits the query of a carrier, which may not answer.
const carrierTimeout = time.Second

// Carrier is the contents of a carrier.
type Carrier struct {
	Name    string
	Note    string // why its contents are not known
	Fault   template.HTML
	Queues  []CarrierQueue
	Workers []CarrierWorker
	Actions []parts.Link
}

// CarrierQueue is a queue in the carrier and in the database.
type CarrierQueue struct {
	Name                              string
	Status                            words.Status
	Ready, Later, Taken, Dead, Queued string
	Oldest                            string
}

// CarrierWorker is a relay that takes ids from a queue.
type CarrierWorker struct {
	Name, Queue, Taken string
	Seen               template.HTML
}

// newCarrier returns the contents of the carrier, if a relay uses one. A carrier that does not answer is a fault of
// this part alone.
func newCarrier(ctx context.Context, r Request, relays []delivery.RelayState) *Carrier {
	if !UsesCarrier(transportsOf(relays, false)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, carrierTimeout)
	defer cancel()
	result, err := r.Query(ctx, CarrierOperation, nil)
	v := &Carrier{}
	if err != nil {
		v.Fault = r.fault(err)
	}
	out, _ := result.(*delivery.Transport)
	if out == nil {
		return v
	}
	if v.Name = out.Transport + " at " + text.OneLine(out.Server, 120); out.Server == "" {
		v.Name, v.Note = "", "Relays use a carrier that is not in the configuration of this process, so that its contents are not known here."
	}
	var queued int64
	for _, q := range out.Queues {
		queued += q.Queued
		one := CarrierQueue{Name: map[string]string{"activities": "Single messages", "bulk": "Jobs"}[q.Name], Status: carrierStatus(q),
			Queued: text.Bounded(q.Queued, delivery.QueueCounts)}
		one.Name = cmp.Or(one.Name, q.Name)
		if q.Oldest != nil {
			one.Oldest = words.Span(*q.Oldest)
		}
		if c := q.Carrier; c != nil {
			one.Ready, one.Later, one.Taken, one.Dead = text.Grouped(c.Ready), text.Grouped(c.Later), text.Grouped(c.Taken), text.Grouped(c.Dead)
			if c.Most > 0 {
				one.Taken += " of " + text.Grouped(c.Most)
			}
			for _, w := range c.Workers {
				worker := CarrierWorker{text.OneLine(w.Name, 80), one.Name, text.Grouped(w.Taken), "not alive"}
				if w.Seen != nil {
					worker.Seen = words.When(r.Zone, *w.Seen)
				}
				v.Workers = append(v.Workers, worker)
			}
		}
		v.Queues = append(v.Queues, one)
	}
	back := url.Values{BackParam: {r.Here}}
	used := UsesCarrier(transportsOf(relays, true))
	if used && queued > 0 {
		v.Actions = append(v.Actions, r.action("transport rebuild", "Hand over again…", back)...)
	}
	if !used {
		v.Actions = append(v.Actions, r.action("transport drain", "Take back and empty…", back)...)
	}
	return v
}

// transportsOf yields the transports of relays, or of live relays only.
func transportsOf(relays []delivery.RelayState, live bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, one := range relays {
			if (one.Live || !live) && !yield(one.Transport) {
				return
			}
		}
	}
}

// carrierStatus returns the status of a queue in the carrier.
func carrierStatus(q delivery.TransportQueue) words.Status {
	switch c := q.Carrier; {
	case q.LeadsUntil == nil && q.Queued > 0:
		return words.Status{Word: "No relay hands over", Tone: text.Bad}
	case c == nil:
		return words.Status{Word: "Unknown", Tone: text.Idle}
	case !c.InStep && q.Queued > 0:
		return words.Status{Word: "Memory lost, is rebuilt", Tone: text.Wait}
	case c.Full:
		return words.Status{Word: "Full", Tone: text.Wait}
	case c.Most > 0 && c.Taken+c.Later >= c.Most:
		return words.Status{Word: "Relays are at their limit", Tone: text.Wait}
	}
	return words.Status{Word: "In step", Tone: text.Done}
}
