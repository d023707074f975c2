package recipients

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// preferenceLimit bounds the transaction of an opt-out or an opt-in.
const preferenceLimit = 10 * time.Second

type optOut struct {
	operation.ChannelRef
	Category string `flag:"category" label:"CATEGORY" values:"categories list" help:"only messages of this category"`
	Medium   string `flag:"medium" label:"MEDIUM" values:"media" help:"only by this medium"`
	operation.Act
}

type optIn struct {
	operation.ChannelRef
	Category string `flag:"category" label:"CATEGORY" values:"categories list" help:"the opt-out of this category"`
	Medium   string `flag:"medium" label:"MEDIUM" values:"media" help:"the opt-out by this medium"`
	operation.Act
}

// OptOuts is what a channel does not want.
type OptOuts struct {
	ChannelID        int64                     `json:"channel_id"`
	OptOuts          []channels.OptOut         `json:"opt_outs"`
	InvalidAddresses []channels.InvalidAddress `json:"invalid_addresses"`
}

func optOutOperations() []operation.Operation {
	const usage = "{--channel ID | --external-id ID}"
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "channels opt-outs", Short: "Show what a channel does not want, and its addresses that are no good", Usage: usage, Role: operation.Viewer, Rows: "opt_outs",
			Long: `Show what a channel does not want, and which of its addresses a provider called
invalid: those are not used again, and are kept by their SHA-256 only. A new address
takes effect at once.`,
			Example: "  belfry channels opt-outs --external-id user-4711",
		}, listOptOuts, OptOutsText),
		operation.Define(operation.Operation{
			Name: "channels opt-out", Short: "Record that a channel wants no messages", Usage: usage, Role: operation.Operator, Changes: true, Events: "the channel's events and with it",
			Long: `Record that a channel wants no messages: of one category or all, by one medium or all.
It takes effect for every message that is composed from then on: such a medium is
bypassed, and a message with no other is cancelled. Notifications are not concerned.
One that is recorded already stays as it is. Who recorded it is in the events, unlike what
the application records by SQL and a recipient by a link.`,
			SQL: `SELECT belfry.opt_out(4711, 'popular_content', 'sms', 'asked for it');`,
			Example: `  belfry channels opt-out --external-id user-4711
  belfry channels opt-out --channel 4711 --category popular_content --medium sms --reason "asked for it"`,
		}, func(ctx context.Context, env *operation.Env, in optOut) (OptedOut, error) {
			id, err := in.Find(ctx, env, "channels opt-out")
			if err != nil {
				return OptedOut{}, err
			}
			o := channels.OptOut{ChannelID: id, Category: in.Category, Medium: in.Medium, Reason: in.Reason}
			err = db.InTx(ctx, env.DB, db.Options{Limit: preferenceLimit}, func(ctx context.Context, tx pgx.Tx) error {
				o, err = channels.OptOutBy(ctx, tx, o, in.By(env).Actor)
				return err
			})
			return OptedOut{o}, preferenceRefused(err)
		}, func(p *text.Doc, _ optOut, o OptedOut) {
			p.Printf("channel %d wants no messages%s, since %s\n", o.ChannelID, unwanted(o.OptOut), p.Clock(o.OptedOutAt))
		}),
		operation.Define(operation.Operation{
			Name: "channels opt-in", Short: "Take an opt-out back", Usage: usage, Role: operation.Operator, Changes: true, Events: "the channel's events",
			Long: `Take exactly that opt-out back: without --category the one of every category, without
--medium the one by every medium. Others of the channel stay;
` + "`belfry channels opt-outs`" + ` lists them.`,
			SQL: `SELECT belfry.opt_in(4711, 'popular_content', 'sms');`,
			Example: `  belfry channels opt-in --external-id user-4711
  belfry channels opt-in --channel 4711 --category popular_content --medium sms`,
		}, optInChannel, optInText),
		operation.Timeline{
			Noun: "channels", Subject: "channel", Label: "CHANNEL", Short: "Show which channels operators opted out and in and sent to, and when one was forgotten, newest first",
			Example: "  belfry channels events\n  belfry channels events 4711 --json", None: "no channel was ever opted out or in, or sent to, by an operator, and none forgotten",
		}.Events(),
	}
}

func listOptOuts(ctx context.Context, env *operation.Env, in operation.ChannelRef) (OptOuts, error) {
	id, err := in.Find(ctx, env, "channels opt-outs")
	if err != nil {
		return OptOuts{}, err
	}
	return OptOutsOf(ctx, env, id)
}

// OptOutsOf are those of a channel.
func OptOutsOf(ctx context.Context, env *operation.Env, id int64) (OptOuts, error) {
	list, err := channels.OptOuts(ctx, env.Reads(), []int64{id})
	if err != nil {
		return OptOuts{}, err
	}
	addresses, err := channels.InvalidAddresses(ctx, env.Reads(), []int64{id})
	return OptOuts{id, list, addresses}, err
}

// OptOutsText renders the opt-outs of a channel.
func OptOutsText(p *text.Doc, _ operation.ChannelRef, out OptOuts) {
	if len(out.OptOuts) == 0 {
		p.Printf("channel %d has opted out of nothing\n", out.ChannelID)
	} else {
		t := text.NewTable("CATEGORY", "MEDIUM", "SINCE", "REASON")
		for _, o := range out.OptOuts {
			t.Add(anyText(o.Category, "category"), anyText(o.Medium, "medium"), p.Clock(o.OptedOutAt), text.OneLine(o.Reason, 120))
		}
		p.Table(t)
	}
	for _, one := range out.InvalidAddresses {
		p.Printf("an address for %s was called invalid: SHA-256 %x\n", one.Medium, one.SHA256)
	}
}

// OptedOut is an opt-out that is recorded, now or earlier.
type OptedOut struct{ channels.OptOut }

// Affected returns what a receipt counts.
func (o OptedOut) Affected(string) operation.Affected {
	return operation.Affected{N: 1, Since: &o.OptedOutAt}
}

// OptedIn are the opt-outs that were taken back: one, or none.
type OptedIn struct {
	OptOuts []channels.OptOut `json:"opt_outs"`
}

// Affected returns what a receipt counts.
func (o OptedIn) Affected(string) operation.Affected {
	return operation.Affected{N: int64(len(o.OptOuts)), Noun: "opt-out"}
}

func optInChannel(ctx context.Context, env *operation.Env, in optIn) (OptedIn, error) {
	id, err := in.Find(ctx, env, "channels opt-in")
	if err != nil {
		return OptedIn{}, err
	}
	var removed []channels.OptOut
	err = db.InTx(ctx, env.DB, db.Options{Limit: preferenceLimit}, func(ctx context.Context, tx pgx.Tx) error {
		removed, err = channels.OptInBy(ctx, tx, id, in.Category, in.Medium, in.By(env).Actor, in.Reason)
		return err
	})
	return OptedIn{removed}, preferenceRefused(err)
}

func optInText(p *text.Doc, in optIn, removed OptedIn) {
	for _, o := range removed.OptOuts {
		p.Printf("channel %d wants messages%s again\n", o.ChannelID, strings.TrimSuffix(unwanted(o), " at all"))
	}
	if len(removed.OptOuts) == 0 {
		p.Printf("%s had no such opt-out; `belfry channels opt-outs %s` lists what it has\n", in.Text(), in.Flags())
	}
}

// unwanted completes a sentence about messages with those of an opt-out.
func unwanted(o channels.OptOut) string {
	text := ""
	if o.Category != channels.Any {
		text += " of " + o.Category
	}
	if o.Medium != channels.Any {
		text += " by " + o.Medium
	}
	if text == "" {
		return " at all"
	}
	return text
}

// anyText is a category or a medium of an opt-out.
func anyText(name, noun string) string {
	if name == channels.Any {
		return "every " + noun
	}
	return name
}
