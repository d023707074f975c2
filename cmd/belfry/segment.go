package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
)

func newSegmentCommand(a *app) *cobra.Command {
	return newGroup("segment", "Keep named sets of channels",
		newSegmentListCommand(a), newSegmentCreateCommand(a), newSegmentDropCommand(a),
		newMembersCommand(a, membersAct{"set", "Make the channels in FILE the members of a segment, and nobody else", (*channels.Store).SetSegment}),
		newMembersCommand(a, membersAct{"add", "Add the channels in FILE to a segment", (*channels.Store).AddToSegment}),
		newMembersCommand(a, membersAct{"remove", "Remove the channels in FILE from a segment", (*channels.Store).RemoveFromSegment}))
}

// withStore opens the database for work on channels.
func (a *app) withStore(cmd *cobra.Command, do func(ctx context.Context, store *channels.Store, db *database) error) error {
	return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings, db *database) error {
		store, err := channels.New(s.Channels)
		if err != nil {
			return err
		}
		return do(ctx, store, db)
	})
}

func newSegmentListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List segments by name", Args: noArgs}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withStore(cmd, func(ctx context.Context, store *channels.Store, db *database) error {
			ctx, cancel := context.WithTimeout(ctx, statementDeadline)
			defer cancel()
			list, err := store.ListSegments(ctx, db.Pool)
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(emptyList(list))
			}
			if len(list) == 0 {
				a.printf("no segments yet; make one with\n  belfry channels segment create NAME\n")
				return nil
			}
			t := printer.NewTable("NAME", ">MEMBERS", "CREATED", "DESCRIPTION")
			for _, s := range list {
				t.Add(s.Name, printer.Grouped(s.Members), printer.Clock(s.CreatedAt), printer.OneLine(s.Description, 80))
			}
			return t.Write(a.stdout)
		})
	}
	return cmd
}

func newSegmentCreateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Make an empty segment",
		Example: `  belfry channels segment create beta --description "beta testers"`,
		Args:    exactArgs("NAME"),
	}
	description := cmd.Flags().String("description", "", "what the segment is for")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withStore(cmd, func(ctx context.Context, store *channels.Store, db *database) error {
			ctx, cancel := context.WithTimeout(ctx, statementDeadline)
			defer cancel()
			if err := store.CreateSegment(ctx, db.Pool, args[0], *description); err != nil {
				return segmentProblem(args[0], err)
			}
			a.remark("created; fill it with\n  belfry channels segment add %s FILE", args[0])
			return nil
		})
	}
	return cmd
}

func newSegmentDropCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop NAME",
		Short: "Remove a segment, not its channels",
		Long: `Remove a segment, not its channels. A job on it that is under way finds no further
members and ends early.`,
		Args: exactArgs("NAME"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withStore(cmd, func(ctx context.Context, store *channels.Store, db *database) error {
			ctx, cancel := context.WithTimeout(ctx, statementDeadline)
			defer cancel()
			return segmentProblem(args[0], store.DropSegment(ctx, db.Pool, args[0]))
		})
	}
	return cmd
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
		Args:    exactArgs("NAME", "FILE"),
	}
	by := flagOf(cmd.Flags(), "by", "KEY", "what the lines are: external_id or id (default external_id)",
		oneOf(string(channels.ByExternalID), string(channels.ByID)))
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, _, err := openInput(args[1])
		if err != nil {
			return usagef("%s", config.ReadProblem(args[1], err))
		}
		defer func() { _ = file.Close() }() // read only
		return a.withStore(cmd, func(ctx context.Context, store *channels.Store, db *database) error {
			change, err := act.change(store, ctx, db.Pool, args[0], channels.MemberKey(by.or(string(channels.ByExternalID))), file)
			if err != nil {
				return segmentProblem(args[0], err)
			}
			if *asJSON {
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

// segmentProblem says where to look, and that a bad name is the caller's.
func segmentProblem(name string, err error) error {
	switch {
	case errors.Is(err, channels.ErrAudience):
		return &exitError{codeUsage, err}
	case errors.Is(err, channels.ErrSegmentExists):
		return fmt.Errorf("%w: %s", channels.ErrSegmentExists, name)
	case errors.Is(err, channels.ErrNoSegment):
		return withAdvice(err, "`belfry channels segment list` shows what there is")
	}
	return err
}
