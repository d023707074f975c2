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

// OptOuts are the opt-outs of a channel and its invalid addresses.
type OptOuts struct {
	ChannelID        int64                     `json:"channel_id"`
	OptOuts          []channels.OptOut         `json:"opt_outs"`
	InvalidAddresses []channels.InvalidAddress `json:"invalid_addresses"`
}

func optOutOperations() []operation.Operation {
	const usage = "{--channel ID | --external-id ID}"
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "channels opt-outs", Short: "Show the opt-outs of a channel, and its invalid addresses", Usage: usage,
			Role: operation.Viewer, Rows: "opt_outs",
			Long: `Show the opt-outs of a channel, and its addresses that a provider reported as invalid.
They are not used again, and only their SHA-256 is stored. A new address takes effect
immediately.`,
			Example: "  belfry channels opt-outs --external-id user-4711",
		}, listOptOuts, OptOutsText),
		operation.Define(operation.Operation{
			Name: "channels opt-out", Short: "Record that a channel wants no messages", Usage: usage, Role: operation.Operator,
			Changes: true, Events: "the channel's events and with it",
			Long: `Record that a channel wants no messages: of one category or all, by one medium or all.
It applies to every message that is composed from then on: the medium is skipped, and a
message without another medium is cancelled. Notifications are not affected. An existing
opt-out does not change. The event names the operator; opt-outs by SQL and by a recipient's
link have no events.`,
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
			p.Line("channel %s wants no messages%s, since %s", text.Ref("channel", o.ChannelID), unwanted(o.OptOut), o.OptedOutAt)
		}),
		operation.Define(operation.Operation{
			Name: "channels opt-in", Short: "Undo an opt-out", Usage: usage, Role: operation.Operator, Changes: true, Events: "the channel's events",
			Long: `Remove exactly one opt-out. Without --category it is the opt-out of every category, without
--medium the opt-out by every medium. Other opt-outs of the channel do not change; list
them with ` + "`belfry channels opt-outs`" + `.`,
			SQL: `SELECT belfry.opt_in(4711, 'popular_content', 'sms');`,
			Example: `  belfry channels opt-in --external-id user-4711
  belfry channels opt-in --channel 4711 --category popular_content --medium sms`,
		}, optInChannel, optInText),
		operation.Timeline{
			Noun: "channels", Subject: "channel", Label: "CHANNEL",
			Short:   "Show opt-outs, opt-ins, messages and erasures by operators, newest first",
			Example: "  belfry channels events\n  belfry channels events 4711 --json", None: "no channel has events",
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

// OptOutsOf returns the opt-outs of a channel.
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
		p.Line("channel %s has no opt-outs", text.Ref("channel", out.ChannelID))
	} else {
		t := text.NewTable("CATEGORY", "MEDIUM", "SINCE", "REASON")
		for _, o := range out.OptOuts {
			t.Add(anyText(o.Category, "category"), anyText(o.Medium, "medium"), o.OptedOutAt, text.OneLine(o.Reason, 120))
		}
		p.Table(t)
	}
	for _, one := range out.InvalidAddresses {
		p.Line("invalid address for %s: SHA-256 %x", one.Medium, one.SHA256)
	}
}

// OptedOut is an opt-out that is recorded, now or earlier.
type OptedOut struct{ channels.OptOut }

// Affected returns one opt-out and its time.
func (o OptedOut) Affected(string) operation.Affected {
	return operation.Affected{N: 1, Since: &o.OptedOutAt}
}

// OptedIn are the removed opt-outs: one, or none.
type OptedIn struct {
	OptOuts []channels.OptOut `json:"opt_outs"`
}

// Affected returns the number of opt-outs.
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
		p.Line("channel %s wants messages%s again", text.Ref("channel", o.ChannelID), strings.TrimSuffix(unwanted(o), " at all"))
	}
	if len(removed.OptOuts) == 0 {
		list := text.Command("channels opt-outs")
		if in.ExternalID != nil {
			list = list.Flag("external-id", *in.ExternalID)
		} else {
			list = list.Flag("channel", *in.Channel)
		}
		p.Line("%s had no such opt-out; %s", in.Text(), list.To("list its opt-outs"))
	}
}

// unwanted returns the category and medium of an opt-out, for a sentence about messages.
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

// anyText returns a category or a medium of an opt-out.
func anyText(name, noun string) string {
	if name == channels.Any {
		return "every " + noun
	}
	return name
}
