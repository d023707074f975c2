package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
)

// optOutsReport is the JSON of `belfry channels opt-outs`.
type optOutsReport struct {
	ChannelID        int64                     `json:"channel_id"`
	OptOuts          []channels.OptOut         `json:"opt_outs"`
	InvalidAddresses []channels.InvalidAddress `json:"invalid_addresses"`
}

// channelFlags name one channel.
type channelFlags struct {
	id       *parsed[int64]
	external *string
}

func addChannelFlags(cmd *cobra.Command) channelFlags {
	f := cmd.Flags()
	return channelFlags{
		id:       flagOf(f, "channel", "ID", "the channel with this id", parseChannel),
		external: f.String("external-id", "", "the channel with this external `ID`"),
	}
}

// with opens the database and calls do with the channel, which exists.
func (c channelFlags) with(a *app, cmd *cobra.Command, do func(context.Context, *database, int64) error) error {
	byExternal := cmd.Flags().Changed("external-id")
	if (c.id.value != nil) == byExternal {
		return usagef("%s takes either --channel ID or --external-id ID", named(cmd))
	}
	return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, s settings, db *database) error {
		store, err := channels.New(s.Channels)
		if err != nil {
			return err
		}
		if byExternal {
			id, err := store.Resolve(ctx, db.Pool, *c.external)
			if err != nil {
				return err
			}
			return do(ctx, db, id)
		}
		found, err := store.Recipients(ctx, db.Pool, []int64{*c.id.value})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%w with id %d in %s", channels.ErrNoChannel, *c.id.value, store.Relation())
		}
		return do(ctx, db, *c.id.value)
	})
}

func newOptOutCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "opt-out {--channel ID | --external-id ID}",
		Short: "Record that a channel wants no messages",
		Long: `Record that a channel wants no messages: of one category or all, by one medium or all.
It takes effect for every message that is composed from then on: such a medium is
bypassed, and a message with no other is cancelled. Notifications are not concerned.
One that is recorded already stays as it is.

The same by SQL: SELECT belfry.opt_out(4711, 'popular_content', 'sms', 'asked for it');`,
		Example: `  belfry channels opt-out --external-id user-4711
  belfry channels opt-out --channel 4711 --category popular_content --medium sms --reason "asked for it"`,
		Args: noArgs,
	}
	channel := addChannelFlags(cmd)
	category := cmd.Flags().String("category", "", "only messages of this `CATEGORY`")
	medium := cmd.Flags().String("medium", "", "only by this `MEDIUM`")
	reason := cmd.Flags().String("reason", "", "why, kept with it")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return channel.with(a, cmd, func(ctx context.Context, db *database, id int64) error {
			o, err := channels.OptOutChannel(ctx, db.Pool, channels.OptOut{ChannelID: id, Category: *category, Medium: *medium, Reason: *reason})
			if err != nil {
				return preferenceProblem(err)
			}
			if *asJSON {
				return a.printJSON(o)
			}
			a.printf("channel %d wants no messages%s, since %s\n", o.ChannelID, unwanted(o), printer.Clock(o.OptedOutAt))
			return nil
		})
	}
	return cmd
}

func newOptInCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "opt-in {--channel ID | --external-id ID}",
		Short: "Take an opt-out back",
		Long: `Take exactly that opt-out back: without --category the one of every category, without
--medium the one by every medium. Others of the channel stay;
` + "`belfry channels opt-outs`" + ` lists them.

The same by SQL: SELECT belfry.opt_in(4711, 'popular_content', 'sms');`,
		Example: `  belfry channels opt-in --external-id user-4711
  belfry channels opt-in --channel 4711 --category popular_content --medium sms`,
		Args: noArgs,
	}
	channel := addChannelFlags(cmd)
	category := cmd.Flags().String("category", "", "the opt-out of this `CATEGORY`")
	medium := cmd.Flags().String("medium", "", "the opt-out by this `MEDIUM`")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return channel.with(a, cmd, func(ctx context.Context, db *database, id int64) error {
			removed, err := channels.OptInChannel(ctx, db.Pool, id, *category, *medium)
			if err != nil {
				return preferenceProblem(err)
			}
			if *asJSON {
				return a.printJSON(emptyList(removed))
			}
			for _, o := range removed {
				a.printf("channel %d wants messages%s again\n", o.ChannelID, strings.TrimSuffix(unwanted(o), " at all"))
			}
			if len(removed) == 0 {
				a.printf("channel %d had no such opt-out; `belfry channels opt-outs --channel %d` lists what it has\n", id, id)
			}
			return nil
		})
	}
	return cmd
}

func newOptOutsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "opt-outs {--channel ID | --external-id ID}",
		Short: "Show what a channel does not want, and its addresses that are no good",
		Long: `Show what a channel does not want, and which of its addresses a provider called
invalid: those are not used again, and are kept by their SHA-256 only. A new address
takes effect at once.`,
		Example: "  belfry channels opt-outs --external-id user-4711",
		Args:    noArgs,
	}
	channel := addChannelFlags(cmd)
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return channel.with(a, cmd, func(ctx context.Context, db *database, id int64) error {
			list, err := channels.OptOuts(ctx, db.Pool, []int64{id})
			if err != nil {
				return err
			}
			invalid, err := channels.InvalidAddresses(ctx, db.Pool, []int64{id})
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(optOutsReport{id, emptyList(list), emptyList(invalid)})
			}
			return a.listOptOuts(id, list, invalid)
		})
	}
	return cmd
}

func (a *app) listOptOuts(id int64, list []channels.OptOut, invalid []channels.InvalidAddress) error {
	if len(list) == 0 {
		a.printf("channel %d has opted out of nothing\n", id)
	} else {
		t := printer.NewTable("CATEGORY", "MEDIUM", "SINCE", "REASON")
		for _, o := range list {
			t.Add(anyText(o.Category, "category"), anyText(o.Medium, "medium"), printer.Clock(o.OptedOutAt), printer.OneLine(o.Reason, 120))
		}
		if err := t.Write(a.stdout); err != nil {
			return err
		}
	}
	for _, one := range invalid {
		a.printf("an address for %s was called invalid: SHA-256 %x\n", one.Medium, one.SHA256)
	}
	return nil
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
