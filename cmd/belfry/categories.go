package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
)

func newCategoriesCommand(a *app) *cobra.Command {
	return newGroup("categories", "List and add categories, or change a route, quiet hours or a cap",
		newCategoriesListCommand(a), newCategoriesAddCommand(a), newCategoriesSetCommand(a),
		newControlEventsCommand(a, controlEvents{
			subject: "category", argument: "CATEGORY", short: "Show when categories were changed, newest first",
			example: "  belfry categories events\n  belfry categories events operator_notice --json", none: "no category was ever changed",
		}))
}

func newCategoriesListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List categories, and what holds for their messages",
		Long: `List categories: the route by which their messages go, the time of day in which none
is sent, and how many a channel gets at most within a time.

` + "`belfry categories add`" + ` makes one, and so does INSERT INTO belfry.categories.`,
		Args: noArgs,
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
			list, err := channels.Categories(ctx, db.Pool)
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(emptyList(list))
			}
			t := printer.NewTable("CATEGORY", "ROUTE", "QUIET HOURS", "CAP", "DESCRIPTION")
			for _, c := range list {
				t.Add(c.Name, strings.Join(c.Route, ", "), quietText(c), capText(c), printer.OneLine(c.Description, 80))
			}
			return t.Write(a.stdout)
		})
	}
	return cmd
}

func quietText(c channels.Category) string {
	if c.Quiet == nil {
		return "none"
	}
	return c.Quiet.String()
}

func capText(c channels.Category) string {
	if c.Cap == nil {
		return "none"
	}
	return c.Cap.String()
}

func newCategoriesSetCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set CATEGORY KEY=VALUE...",
		Short: "Change a category's route, quiet hours or cap",
		Long: `Change what holds for the messages of a category. A route counts for jobs and
activities that are enqueued from now on, quiet hours and the cap for every message that
is not sent yet. Keys:

  route          media in the order in which they are tried, as push,sms,alimtalk
  quiet_hours    a time of day in each channel's time zone, as 21:00-08:00, or none:
                 what would be sent then waits until it is over
  cap            how many messages a channel gets at most within a time, as 3/24h, or
                 none: what is above is cancelled`,
		Example: `  belfry categories set operator_notice route=push,sms
  belfry categories set popular_content quiet_hours=21:00-08:00 cap=3/24h --reason "fewer at night"
  belfry categories set popular_content quiet_hours=none`,
		Args: nameAndChanges("CATEGORY"),
	}
	who := addActFlags(a, cmd, "the category's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, err := parseCategoryChange(args[1:])
		if err != nil {
			return err
		}
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
			act := who()
			c, err := channels.SetCategory(ctx, db.Pool, args[0], change, act.Actor, act.Reason)
			switch {
			case errors.Is(err, channels.ErrNoCategory):
				return unknownCategory(ctx, db, args[0])
			case err != nil:
				return preferenceProblem(err)
			case *asJSON:
				return a.printJSON(c)
			}
			a.printf("category %s: route %s, quiet hours %s, cap %s\n", c.Name, strings.Join(c.Route, ", "), quietText(c), capText(c))
			return nil
		})
	}
	return cmd
}

func newCategoriesAddCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add CATEGORY [KEY=VALUE...]",
		Short: "Add a category",
		Long: `Add a category: 1 to 63 of a-z, 0-9 and _, starting with a letter. Its messages go by
push, at any time and without a cap, unless keys say otherwise; they are those of
` + "`belfry categories set`" + `.

The same by SQL: INSERT INTO belfry.categories (name, description) VALUES (…);`,
		Example: `  belfry categories add digest --description "the weekly digest"
  belfry categories add digest route=email,push quiet_hours=21:00-08:00 cap=1/24h`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s needs CATEGORY, the name of the new one", named(cmd))
			}
			return nil
		},
	}
	description := cmd.Flags().String("description", "", "what the category is for")
	who := addActFlags(a, cmd, "the category's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, err := parseCategoryChange(args[1:])
		if err != nil {
			return err
		}
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
			act := who()
			c, err := channels.AddCategory(ctx, db.Pool, args[0], *description, change, act.Actor, act.Reason)
			var server *pgconn.PgError
			switch {
			case errors.Is(err, channels.ErrCategoryExists):
				return withAdvice(channels.ErrCategoryExists, "`belfry categories set "+args[0]+" …` changes it")
			case errors.Is(err, channels.ErrPreference) && !errors.As(err, &server):
				return &exitError{codeUsage, err}
			case err != nil:
				return preferenceProblem(err)
			case *asJSON:
				return a.printJSON(c)
			}
			a.printf("category %s: route %s, quiet hours %s, cap %s\n", c.Name, strings.Join(c.Route, ", "), quietText(c), capText(c))
			return nil
		})
	}
	return cmd
}

func parseCategoryChange(args []string) (c channels.CategoryChange, err error) {
	err = keyValues(args, []string{"route", "quiet_hours", "cap"}, func(key, value string) error {
		none := value == "" || value == "none"
		switch key {
		case "route":
			for medium := range strings.SplitSeq(value, ",") {
				c.Route = append(c.Route, strings.TrimSpace(medium))
			}
		case "quiet_hours":
			if c.ClearQuiet = none; none {
				return nil
			}
			h, err := channels.ParseQuietHours(value)
			c.Quiet = &h
			return orNoneAllowed(err)
		case "cap":
			if c.ClearCap = none; none {
				return nil
			}
			most, err := channels.ParseCap(value)
			c.Cap = &most
			return orNoneAllowed(err)
		}
		return nil
	})
	return c, err
}

func orNoneAllowed(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(err.Error() + ", or none")
}

// unknownCategory is the error of a category that there is not.
func unknownCategory(ctx context.Context, db *database, name string) error {
	list, err := channels.Categories(ctx, db.Pool)
	if err != nil {
		return err
	}
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.Name
	}
	slices.Sort(names)
	return usagef("CATEGORY: %q is not a category; allowed values: %s%s", printer.OneLine(name, 60), strings.Join(names, ", "), config.Hint(name, names))
}

// preferenceProblem makes what the database refused a matter of usage.
func preferenceProblem(err error) error {
	var server *pgconn.PgError
	if !errors.Is(err, channels.ErrPreference) || !errors.As(err, &server) {
		return err
	}
	text := strings.TrimPrefix(server.Message, "belfry.")
	for _, table := range []string{"categories.", "opt_outs."} {
		text = strings.TrimPrefix(text, table)
	}
	return usagef("%s", withHint(text, server.Hint))
}
