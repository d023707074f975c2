package enqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// sendInput is the input of `send`.
type sendInput struct {
	Channel    *int64  `arg:"[CHANNEL]" is:"a channel's id"`
	ExternalID *string `flag:"external-id" label:"ID" help:"the channel with this external ID, instead of CHANNEL"`
	Category   string  `flag:"category" label:"CATEGORY" values:"categories list" default:"activity" help:"activity, or another of belfry.categories (default activity)"`
	content.Input
	DeliverAt      *operation.Instant `flag:"deliver-at" label:"TIME" help:"deliver it at this time (default: at once)"`
	IdempotencyKey *string            `flag:"idempotency-key" label:"KEY" help:"a repeated command with this key returns the first activity"`
	RequestedBy    string             `flag:"requested-by" local:"true" label:"WHO" help:"the requester, stored in {events} (default: user@host)"`
}

func (in sendInput) Check(o operation.Operation, _ time.Time) error {
	switch {
	case (in.Channel != nil) == (in.ExternalID != nil):
		return operation.Invalid("", "%s takes either CHANNEL, a channel id, or --external-id ID", o.Name)
	case strings.TrimSpace(in.Title) == "":
		return operation.Invalid("", "--title is required")
	}
	return nil
}

// sentActivity is an activity that was sent.
type sentActivity struct {
	outbox.Activity
	// AskedAt is the time of the request, by the database's clock.
	AskedAt time.Time `json:"asked_at"`
}

func sendOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "send", Short: "Send one message to one channel, ahead of every bulk",
		Usage: "{CHANNEL | --external-id ID} --title TITLE", Role: operation.Author, Changes: true, Events: content.SentEvents,
		Long: `Send one message to one channel: an activity, such as a like, a comment or a receipt. It
does not wait for bulk jobs. The output is its id, which is negative. The message is due
when the command ends, and any relay delivers it. ` + "`belfry events list`" + ` shows the sender and
the channel; messages of an application by belfry.send have no events.

TITLE, TEXT and variants may refer to the channel, such as {{attributes.name | default "friend"}}.`,
		SQL: `SELECT belfry.send(4711, 'activity', 'Ann likes your photo');`,
		Example: `  belfry send 4711 --title "Ann likes your photo"
  belfry send --external-id user-4711 --title "Your order is on its way" --category operator_notice \
    --route push,alimtalk,sms --idempotency-key order-17-shipped
  belfry send 4711 --title "Good morning" --variants '{"ko": {"title": "좋은 아침"}}' --deliver-at "2026-11-20 08:50"`,
	}, send, sentText)
}

func send(ctx context.Context, env *operation.Env, in sendInput) (sent sentActivity, err error) {
	channel, err := operation.ChannelRef{Channel: in.Channel, ExternalID: in.ExternalID}.Find(ctx, env, "send")
	if err != nil {
		return sentActivity{}, err
	}
	now, err := env.Jobs.Now(ctx)
	if err != nil {
		return sentActivity{}, err
	}
	who := in.RequestedBy
	if who == "" {
		who = env.Actor
	}
	activity, err := outbox.SendActivity(ctx, env.DB, outbox.Activity{
		ChannelID: channel, Category: in.Category, Title: in.Title, Body: in.Body, Data: json.RawMessage(in.Data),
		Variants: json.RawMessage(in.Variants),
		Route:    in.Route, DeliverAt: in.DeliverAt.Given(env.Time()), IdempotencyKey: in.IdempotencyKey, RequestedBy: who,
	}, env.Role >= operation.Operator)
	if err != nil {
		return sentActivity{}, content.SendRefused(err, in.IdempotencyKey != nil)
	}
	sent.AskedAt = now
	if sent.Activity, err = outbox.ReadActivity(ctx, env.DB, activity.ID); err != nil {
		return sentActivity{}, operation.AfterCommit(err, fmt.Sprintf("activity %d is in the outbox: do not repeat it", activity.ID))
	}
	return sent, nil
}

func sentText(p *text.Doc, _ sendInput, sent sentActivity) {
	p.Line("%d", sent.ID)
	by := strings.Join(sent.Route, ", ")
	switch {
	case sent.CreatedAt.Before(sent.AskedAt):
		p.Note("activity %d was sent before, at %s, with the same idempotency key; its message is %s", sent.ID, sent.CreatedAt,
			text.Status(text.OrNone(sent.Status)))
	case sent.DeliverAt != nil && sent.DeliverAt.Sub(sent.AskedAt) > time.Second:
		p.Note("activity %d to channel %s by %s, due %s, in %s", sent.ID, text.Ref("channel", sent.ChannelID), by, *sent.DeliverAt,
			sent.DeliverAt.Sub(sent.AskedAt))
	default:
		p.Note("activity %d to channel %s by %s, due now; a daemon delivers it, or %s", sent.ID, text.Ref("channel", sent.ChannelID),
			by, text.Command("relay"))
	}
}
