package enqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// sendInput is the input of `send`.
type sendInput struct {
	Channel    *int64  `arg:"[CHANNEL]" is:"a channel's id"`
	ExternalID *string `flag:"external-id" label:"ID" help:"the channel with this external ID, instead of CHANNEL"`
	Category   string  `flag:"category" label:"CATEGORY" values:"categories list" default:"activity" help:"activity, or another of belfry.categories (default activity)"`
	ContentInput
	DeliverAt      *operation.Instant `flag:"deliver-at" label:"TIME" help:"deliver it at this time (default: at once)"`
	IdempotencyKey *string            `flag:"idempotency-key" label:"KEY" help:"repeating the command with it returns the first activity"`
	RequestedBy    string             `flag:"requested-by" local:"true" label:"WHO" help:"who asks, kept in {events} (default: user@host)"`
}

// SentEvents has what is sent by an operation to one channel.
const SentEvents = "the channel's events"

func (in sendInput) Check(o operation.Operation, _ time.Time) error {
	switch {
	case (in.Channel != nil) == (in.ExternalID != nil):
		return operation.Invalid("", "%s takes either CHANNEL, the id of one, or --external-id ID", o.Name)
	case strings.TrimSpace(in.Title) == "":
		return operation.Invalid("", "--title needed")
	}
	return nil
}

// sentActivity is an activity that was sent.
type sentActivity struct {
	outbox.Activity
	// AskedAt is the database's clock before.
	AskedAt time.Time `json:"asked_at"`
}

func sendOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "send", Short: "Send one message to one channel, ahead of every bulk",
		Usage: "{CHANNEL | --external-id ID} --title TITLE", Role: operation.Author, Changes: true, Events: SentEvents,
		Long: `Send one message to one channel: an activity, as a like, a comment or a receipt. It
waits behind no bulk job. Its id, which is negative, is printed; the message is due when
the command is done, and whatever relay runs delivers it. Who sent it to which channel is
in ` + "`belfry events list`" + `; of belfry.send, which an application calls, there is no event.

TITLE, TEXT and variants may refer to the channel, as {{attributes.name | default "friend"}}.`,
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
		ChannelID: channel, Category: in.Category, Title: in.Title, Body: in.Body, Data: json.RawMessage(in.Data), Variants: json.RawMessage(in.Variants),
		Route: in.Route, DeliverAt: in.DeliverAt.Given(env.Time()), IdempotencyKey: in.IdempotencyKey, RequestedBy: who,
	}, env.Role >= operation.Operator)
	if err != nil {
		return sentActivity{}, SendRefused(err, in.IdempotencyKey != nil)
	}
	if activity, err = outbox.ReadActivity(ctx, env.DB, activity.ID); err != nil {
		return sentActivity{}, err
	}
	return sentActivity{activity, now}, nil
}

func sentText(p *text.Doc, _ sendInput, sent sentActivity) {
	p.Printf("%d\n", sent.ID)
	by := strings.Join(sent.Route, ", ")
	switch {
	case sent.CreatedAt.Before(sent.AskedAt):
		p.Note("activity %d was sent before, at %s, with the same idempotency key; its message is %s", sent.ID, p.Clock(sent.CreatedAt), text.OrNone(sent.Status))
	case sent.DeliverAt != nil && sent.DeliverAt.Sub(sent.AskedAt) > time.Second:
		p.Note("activity %d to channel %d by %s, due %s, in %s", sent.ID, sent.ChannelID, by, p.Clock(*sent.DeliverAt), text.Short(sent.DeliverAt.Sub(sent.AskedAt)))
	default:
		p.Note("activity %d to channel %d by %s, due now; a running daemon or `belfry relay` delivers it", sent.ID, sent.ChannelID, by)
	}
}

// SendRefused names the parameter at fault for what the database refused, and says how to
// repeat an act whose outcome is unknown.
func SendRefused(err error, repeatable bool) error {
	var bad *job.InvalidError
	var server *pgconn.PgError
	switch {
	case errors.As(err, &bad):
		return refusedContent(bad)
	case errors.Is(err, job.ErrKeyHeld):
		return &operation.HeldError{Err: err}
	case errors.As(err, &server) && db.ClassOf(err) == db.Invalid: // a value no column takes: a NUL, a number beyond every type
		text := server.Message
		if server.Detail != "" {
			text += "\n  " + server.Detail
		}
		return operation.Invalid("", "%s", text)
	case server != nil && db.ClassOf(err) != db.Unreachable:
		return err
	}
	// Whatever is not the server's answer leaves the outcome open.
	if !errors.Is(err, job.ErrUnreachable) {
		err = fmt.Errorf("%w: %w", job.ErrUnreachable, err)
	}
	if repeatable {
		return operation.Advise(err, "it may have been sent; repeating it with the same --idempotency-key is safe")
	}
	return operation.Advise(err, "it may have been sent; --idempotency-key makes repeating safe")
}
