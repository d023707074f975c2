package views

import (
	"cmp"
	"context"
	"html/template"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// Delivery shows the senders with the acts on them, the errors, the carrier, and the relays.
type Delivery struct {
	Summary string
	Done    *Outcome // of an act of another page
	Senders []Sender
	Day     *draw.ColumnChart // of the last 24 hours; nil without messages
	Errors  Errors
	Carrier *Carrier // nil if no relay uses a carrier
	Relays  []Relay
	More    string // about relays that are not listed
}

// Sender is a sender with its limits. A form is nil if its act is not possible now, or not allowed.
type Sender struct {
	SenderCard

	ID            string // of its place on the page
	History       string // the page of its events
	Calls, Relays string
	Limits, From  string // the limits in words, and who set them
	Why           string // why it does not send
	Set           *LimitsForm
	Pause, Resume *Form
	Done          *Outcome // of any of its forms
	Idle          bool     // no relay runs it
}

// LimitsForm is the form of a sender's limits.
type LimitsForm struct {
	Form

	Rate, Slots       string // of an operator, or typed
	RateNow, SlotsNow string // in force
}

// Relay is a relay.
type Relay struct {
	Name, InFlight, Senders string
	Status                  words.Status
	Heartbeat, Started      template.HTML
}

// listedRelays is the number of relays on the page.
const listedRelays = 50

// NewDelivery reads the parts of the page until one fails.
func NewDelivery(ctx context.Context, r Request) (d Delivery, err error) {
	out, err := r.Query(ctx, SendersOperation, nil)
	if err != nil {
		return d, err
	}
	list, _ := out.(delivery.Senders)
	d.Summary, d.Done = deliverySummary(list), r.Outcome.At("")
	sortSenders(list.Senders)
	for i, s := range list.Senders {
		one, err := newSender(ctx, r, s, i)
		if err != nil {
			return d, err
		}
		d.Senders = append(d.Senders, one)
	}
	if d.Day, err = DayOfDelivery(ctx, r, list.Senders); err != nil {
		return d, err
	}
	d.Carrier = newCarrier(ctx, r, list.Relays)
	d.Errors = newErrors(ctx, r)
	d.Relays, d.More = newRelays(r, list.Relays)
	return d, nil
}

// deliverySummary returns the sums of all senders.
func deliverySummary(list delivery.Senders) string {
	var sent, failed float64
	var waiting, live int
	for _, s := range list.Senders {
		sent, failed, waiting = sent+s.SentPerSecond, failed+s.FailedPerSecond, waiting+s.Waiting
	}
	for _, r := range list.Relays {
		if r.Live {
			live++
		}
	}
	if live == 0 {
		return "No relay is running, so nothing is sent. Start the daemon or a relay."
	}
	return strings.Join([]string{"Sent " + words.PerSecond(sent, ""), "failed " + words.Ratio(failed, sent+failed),
		text.Counted(int64(waiting), "message") + " in queues", text.Counted(int64(live), "relay")}, " · ")
}

// newSender returns a sender with its forms.
func newSender(ctx context.Context, r Request, s delivery.SenderState, i int) (one Sender, err error) {
	card, err := senderCard(ctx, r, s, i < chartedSenders)
	one = Sender{SenderCard: card, ID: placeOf(s), History: r.Link(SenderEventsOperation, url.Values{"sender": {s.Name}}),
		Calls:  text.Grouped(int64(s.Calling)),
		Relays: text.Grouped(int64(s.Relays)), Limits: words.Sentence(limitsOf(s)), Idle: s.Relays == 0,
		Why: whyNotSending(s)}
	if s.RatePerSecond != nil || s.Concurrency != nil {
		one.From = "set by an operator"
	}
	form := func(verb string) *Form {
		place := "sender " + verb + " " + s.Name
		one.Done = cmp.Or(one.Done, r.Outcome.At(place))
		f := r.Form("senders "+verb, place, url.Values{"sender": {s.Name}, "if_version": {text.Int(s.Version)}})
		if f != nil {
			f.Action += "#" + one.ID
		}
		return f
	}
	if set := form("set"); set != nil {
		one.Set = newLimitsForm(s, *set)
	}
	pause, resume := form("pause"), form("resume")
	if s.PausedAt == nil {
		one.Pause = pause
	} else {
		one.Resume = resume
	}
	return one, err
}

// whyNotSending returns why a sender does not send, or "".
func whyNotSending(s delivery.SenderState) string {
	switch s.Condition() {
	case delivery.Open:
		return "Its provider keeps failing. Calls stop for a while and are tried again automatically."
	case delivery.HalfOpen:
		return "The provider failed. A few calls are tried before it sends at full speed again."
	case delivery.NoRelay:
		return "No relay runs it: start a relay with this sender in its configuration."
	case delivery.Ready, delivery.Paused:
	}
	return ""
}

// newLimitsForm returns the form of a sender's limits: an operator's settings, and the limits in force as a hint.
func newLimitsForm(s delivery.SenderState, form Form) *LimitsForm {
	f := &LimitsForm{Form: form, RateNow: "as configured", SlotsNow: "as configured"}
	if s.RatePerSecond != nil {
		f.Rate = strconv.FormatFloat(*s.RatePerSecond, 'f', -1, 64)
	} else if len(s.InForce) > 0 {
		f.RateNow = ratesOf(s.InForce, "")
	}
	if s.Concurrency != nil {
		f.Slots = strconv.Itoa(*s.Concurrency)
	} else if len(s.InForce) > 0 {
		f.SlotsNow = slotsOf(s.InForce)
	}
	f.Hidden = append(f.Hidden, Field{PreviousPrefix + "rate_per_second", f.Rate}, Field{PreviousPrefix + "concurrency", f.Slots})
	if form.Failed() { // with the typed values
		f.Rate, f.Slots = form.Values.Get("rate_per_second"), form.Values.Get("concurrency")
	}
	return f
}

// limitsOf returns the limits of a sender in words, such as "500/s, 8 calls at once on each relay".
func limitsOf(s delivery.SenderState) string {
	rate, slots := ratesOf(s.InForce, perSecond), slotsOf(s.InForce)
	if s.RatePerSecond != nil {
		rate = rateOf(*s.RatePerSecond, perSecond)
	}
	if s.Concurrency != nil {
		slots = text.Grouped(int64(*s.Concurrency))
	}
	switch {
	case rate == "" && slots == "":
		return "limits as configured"
	case slots == "":
		return rate + ", concurrency as configured"
	case rate == "":
		return "rate as configured, " + slots + " at once on each relay"
	}
	return rate + ", " + slots + " at once on each relay"
}

// perSecond is the unit of a rate in a sentence.
const perSecond = "/s"

// ratesOf returns the different rates of the relays in a unit.
func ratesOf(limits []outbox.SenderLimits, unit string) string {
	return differing(limits, func(l outbox.SenderLimits) string {
		if l.RatePerSecond == 0 {
			return "no limit"
		}
		return rateOf(l.RatePerSecond, unit)
	})
}

// rateOf returns a limit, which is exact, in a unit, such as "12.5/s".
func rateOf(rate float64, unit string) string {
	if rate == math.Trunc(rate) {
		return text.Grouped(int64(rate)) + unit
	}
	return strconv.FormatFloat(rate, 'f', -1, 64) + unit
}

// slotsOf returns the different concurrencies of the relays.
func slotsOf(limits []outbox.SenderLimits) string {
	return differing(limits, func(l outbox.SenderLimits) string { return text.Grouped(int64(l.Concurrency)) })
}

func differing(limits []outbox.SenderLimits, of func(outbox.SenderLimits) string) string {
	var all []string
	for _, l := range limits {
		if one := of(l); !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return strings.Join(all, " or ")
}

// newRelays returns the relays, live ones first, and a sentence about others.
func newRelays(r Request, list []delivery.RelayState) (rows []Relay, more string) {
	slices.SortStableFunc(list, func(a, b delivery.RelayState) int {
		return map[bool]int{true: 1}[!a.Live] - map[bool]int{true: 1}[!b.Live]
	})
	if n := len(list) - listedRelays; n > 0 {
		list, more = list[:listedRelays], text.Counted(int64(n), "more relay")+" are not listed."
	}
	for _, one := range list {
		row := Relay{Name: text.OneLine(one.Name, 80), InFlight: text.Grouped(int64(one.InFlight)),
			Senders: text.OneLine(strings.Join(one.Senders, ", "), 300), Status: words.Status{Word: "Live", Tone: text.Go},
			Heartbeat: words.When(r.Zone, one.HeartbeatAt), Started: words.When(r.Zone, one.StartedAt)}
		if !one.Live {
			row.Status = words.Status{Word: "Silent", Tone: text.Idle}
		}
		rows = append(rows, row)
	}
	return rows, more
}
