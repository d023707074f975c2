package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
)

func newSegmentCommand(a *app) *cobra.Command {
	return a.nounCommand("channels segment",
		newMembersCommand(a, membersAct{"set", "Make the channels in FILE the members of a segment, and nobody else", (*channels.Store).SetSegment}),
		newMembersCommand(a, membersAct{"add", "Add the channels in FILE to a segment", (*channels.Store).AddToSegment}),
		newMembersCommand(a, membersAct{"remove", "Remove the channels in FILE from a segment", (*channels.Store).RemoveFromSegment}))
}

// withStore opens the database for work on channels.
func (a *app) withStore(cmd *cobra.Command, do func(ctx context.Context, store *channels.Store, db *database) error) error {
	return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
		store, err := channels.New(s.Channels)
		if err != nil {
			return err
		}
		return do(ctx, store, db)
	})
}

// membersAct is a change of a segment's members from a list.
type membersAct struct {
	name, short string
	change      func(*channels.Store, context.Context, channels.Beginner, string, channels.MemberKey, io.Reader) (channels.SegmentChange, error)
}

func newMembersCommand(a *app, act membersAct) *cobra.Command {
	cmd := &cobra.Command{
		Use:   act.name + " NAME FILE",
		Short: act.short,
		Long: act.short + `. FILE has one key to a line, and may be - for
standard input. Keys without a channel are counted and left out. All of it is
done, or nothing.`,
		Example: "  belfry channels segment " + act.name + " beta users.txt\n  psql -Atc 'SELECT …' | belfry channels segment " + act.name + " beta - --by id",
		Args:    exactArgs("NAME", "FILE"), ValidArgsFunction: a.listed("channels segment list"),
	}
	by := choiceOf(cmd.Flags(), "by", "KEY", "what the lines are: external_id or id (default external_id)",
		string(channels.ByExternalID), string(channels.ByID))
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, _, err := openInput(args[1])
		if err != nil {
			return usagef("%s", config.ReadProblem(args[1], err))
		}
		defer func() { _ = file.Close() }() // read only
		return a.withStore(cmd, func(ctx context.Context, store *channels.Store, db *database) error {
			change, err := act.change(store, ctx, db.Pool, args[0], channels.MemberKey(by.or(string(channels.ByExternalID))), file)
			if err != nil {
				return admin.SegmentProblem(args[0], err)
			}
			if out.json() {
				change.UnknownSample = emptyList(change.UnknownSample)
				return a.printJSON(change)
			}
			a.printf("%s given: %s added, %s removed\n", printer.Counted(change.Given, "key"), printer.Grouped(change.Added), printer.Grouped(change.Removed))
			if change.Unknown > 0 {
				a.remark("%s without a channel left out, as %s", printer.Counted(change.Unknown, "key"), strings.Join(change.UnknownSample, ", "))
			}
			return nil
		})
	}
	return cmd
}
