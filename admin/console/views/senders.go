package views

import (
	"cmp"
	"context"
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox/samples"
)

// SenderCard is a sender with its figures and the chart of its last hour.
type SenderCard struct {
	Name, Medium          string
	Link                  string // of its place on the page Delivery
	Status                words.Status
	Rate, Failed, Waiting string
	Fails                 bool
	Since                 template.HTML // of its pause; "" unless it is paused
	PausedBy, Reason      string
	Held                  string          // the messages that wait for its end
	Chart                 *draw.Sparkline // nil if it sent nothing
}

// chartedSenders is the number of senders with a chart.
const chartedSenders = 12

// SenderCards returns the senders that relays run or an operator has paused. It sorts list.
func SenderCards(ctx context.Context, r Request, list []delivery.SenderState) (cards []SenderCard, err error) {
	sortSenders(list)
	for _, s := range list {
		if s.Relays == 0 && s.PausedAt == nil {
			continue
		}
		card, err := senderCard(ctx, r, s, len(cards) < chartedSenders)
		if err != nil {
			return nil, err
		}
		cards = append(cards, card)
	}
	return cards, nil
}

// sortSenders sorts senders: those that relays run, by medium and name, then the others.
func sortSenders(list []delivery.SenderState) {
	idle := func(s delivery.SenderState) int { return map[bool]int{true: 1}[s.Relays == 0] }
	slices.SortFunc(list, func(a, b delivery.SenderState) int {
		return cmp.Or(cmp.Compare(idle(a), idle(b)), cmp.Compare(a.Medium, b.Medium), cmp.Compare(a.Name, b.Name))
	})
}

// placeOf returns the id of a sender's place on the page Delivery.
func placeOf(s delivery.SenderState) string { return "sender-" + url.PathEscape(s.Name) }

// senderCard returns a sender, with its chart if it is to be drawn.
func senderCard(ctx context.Context, r Request, s delivery.SenderState, draws bool) (SenderCard, error) {
	card := SenderCard{
		Name: text.OneLine(s.Name, 80), Medium: s.Medium, Link: r.Link(SendersOperation, nil) + "#" + placeOf(s),
		Status: senderStatus(s), Rate: words.PerSecond(s.SentPerSecond, ""),
		Failed: words.Ratio(s.FailedPerSecond, s.SentPerSecond+s.FailedPerSecond), Waiting: text.Grouped(int64(s.Waiting)),
		Fails: s.FailedPerSecond > 0, PausedBy: text.OneLine(s.PausedBy, 80), Reason: text.OneLine(s.PauseReason, 300),
	}
	if s.PausedAt != nil {
		card.Since, card.Held = words.When(r.Zone, *s.PausedAt), heldBy(s)
	}
	if !draws {
		return card, nil
	}
	hour, err := readSamples(ctx, r, s.Name, "1h", "1m")
	if err != nil {
		return card, err
	}
	var points []draw.Point
	var sent int64
	for _, p := range hour {
		points, sent = append(points, draw.Point{At: p.At, Values: []float64{float64(p.Sent)}}), sent+p.Sent
	}
	if sent > 0 {
		card.Chart = draw.NewSparkline(r.Zone, "Sent by "+card.Name, "messages a minute", points)
	}
	return card, nil
}

// senderStatus returns the status of a sender.
func senderStatus(s delivery.SenderState) words.Status {
	switch s.Condition() {
	case delivery.Paused:
		return words.Status{Word: "Paused", Tone: words.ToneHold}
	case delivery.Open:
		return words.Status{Word: "Blocked after failures", Tone: text.Bad}
	case delivery.HalfOpen:
		return words.Status{Word: "Trying again", Tone: text.Wait}
	case delivery.NoRelay:
		return words.Status{Word: "No relay", Tone: text.Idle}
	case delivery.Ready:
	}
	if s.SentPerSecond > 0 || s.Calling > 0 {
		return words.Status{Word: "Sending", Tone: text.Go}
	}
	return words.Status{Word: "Ready", Tone: text.Done}
}

// heldBy returns the messages that wait for a paused sender, in the database or in relays.
func heldBy(s delivery.SenderState) string {
	if s.Held == nil {
		return "its messages wait"
	}
	switch n := max(*s.Held, int64(s.Waiting)); n {
	case 0: // single messages are not counted
		return ""
	case 1:
		return "1 message waits"
	default:
		return text.Counted(n, "message") + " wait"
	}
}

// readSamples returns the figures of a sender since a time ago.
func readSamples(ctx context.Context, r Request, name, since, step string) ([]samples.Point, error) {
	out, err := r.Query(ctx, SamplesOperation, url.Values{"kind": {string(samples.Sender)}, "name": {name}, "since": {since}, "step": {step}})
	list, _ := out.(operation.List[samples.Point])
	return list.Items, err
}

// DayOfDelivery draws the messages of the last 24 hours: sent by medium, and failed attempts. It returns nil
// without any.
func DayOfDelivery(ctx context.Context, r Request, list []delivery.SenderState) (*draw.ColumnChart, error) {
	var of []draw.Series
	var points []draw.Point
	var all int64
	media := make(map[string]int)
	tones := []string{"done", "s2", "s3", "s4", "s5"}
	for _, s := range list {
		if _, known := media[s.Medium]; !known && s.Medium != "" && len(media) < len(tones) {
			of, media[s.Medium] = append(of, draw.Series{Name: s.Medium + " sent", Tone: tones[len(media)]}), len(media)
		}
	}
	of = append(of, draw.Series{Name: "failed", Tone: "bad"})
	for _, s := range list[:min(len(list), chartedSenders)] {
		medium, known := media[s.Medium]
		if !known {
			continue
		}
		steps, err := readSamples(ctx, r, s.Name, "24h", "30m")
		if err != nil {
			return nil, err
		}
		for i, step := range steps {
			if i == len(points) {
				points = append(points, draw.Point{At: step.At, Values: make([]float64, len(of))})
			}
			points[i].Values[medium] += float64(step.Sent)
			points[i].Values[len(of)-1] += float64(step.Failed)
			all += step.Sent + step.Failed
		}
	}
	if all == 0 {
		return nil, nil
	}
	return draw.NewColumnChart(r.Zone, draw.ColumnChart{ID: "day", Title: "Delivery of the last 24 hours", Series: of}, 30*time.Minute,
		points, nil), nil
}
