package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

func newSchedulesCommand(a *app) *cobra.Command {
	return a.nounCommand("schedules", newSchedulesAddCommand(a))
}

// withSchedules opens the database for a short command about schedules.
func (a *app) withSchedules(cmd *cobra.Command, do func(context.Context, *schedule.Store, *database) error) error {
	return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
		return scheduleAdvice(do(ctx, schedule.NewStore(db.Pool), db))
	})
}

// scheduleAdvice says where to look, and that bad input is the caller's.
func scheduleAdvice(err error) error {
	var invalid *job.InvalidError
	switch {
	case errors.Is(err, schedule.ErrNotFound):
		return withAdvice(err, "`belfry schedules list` shows what there is")
	case errors.As(err, &invalid):
		return &exitError{codeUsage, errors.New(withHint(strings.TrimPrefix(invalid.Message, "belfry.schedules."), invalid.Hint))}
	}
	return err
}

// scheduleFlags are the flags of `belfry schedules add`.
type scheduleFlags struct {
	cron, every, zone          *string
	types                      *[]string
	category, title            *string
	body, data, variants, lane *string
	route                      *parsed[[]string]
	priority                   *parsed[int64]
	deliverAfter, expiresAfter *string
	query, missed, missedAfter *string
	queryTimeout, queryRole    *string
	audience                   audienceFlags
}

func newSchedulesAddCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME {--cron CRON | --every DURATION} --type TYPE --category CATEGORY --title TITLE AUDIENCE",
		Short: "Define a schedule in the database, or change one",
		Long: `Define a schedule in the database, or change the one of that name. Each occurrence
enqueues one job, or with several types a group. With --query each row of the query
enqueues one: its columns, named as the flags are in the configuration (title, body,
data, variants, route, audience, category, lane, priority, deliver_after, expires_after),
replace what the flags say, and no audience has to be given. A query runs read only, for
--query-timeout at the most, and as --query-role if one is named: it cannot leave that
role, and sees what that may see.

` + audienceHelp + `

Schedules may be kept in the configuration file instead; one name comes from one
place.`,
		Example: `  belfry schedules add digest --cron '0 9 * * *' --time-zone Asia/Seoul --type inbox,push \
    --category popular_content --title "Ten things today" --everyone --expires-after 2h
  belfry schedules add popular --every 6h --type inbox --category popular_content --everyone \
    --query 'SELECT title, jsonb_build_object(''post'', id) AS data FROM posts ORDER BY views DESC LIMIT 1'`,
		Args: exactArgs("NAME"),
	}
	f := addScheduleFlags(cmd)
	who := addActFlags(a, cmd, "the schedule's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := f.definition(a, cmd, args[0])
		if err != nil {
			return err
		}
		return a.withSchedules(cmd, func(ctx context.Context, store *schedule.Store, _ *database) error {
			change, err := store.Put(ctx, d, schedule.FromDatabase, who())
			if err != nil {
				return err
			}
			s, err := store.Get(ctx, d.Name)
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(s)
			}
			a.printf("schedule %s %s; `belfry schedules next %s` says when it fires\n", s.Name, strings.ToLower(string(change)), s.Name)
			return nil
		})
	}
	return cmd
}

func addScheduleFlags(cmd *cobra.Command) scheduleFlags {
	f := cmd.Flags()
	f.SortFlags = false
	return scheduleFlags{
		cron:         f.String("cron", "", "`CRON`: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly"),
		every:        f.String("every", "", "`DURATION` between occurrences, 1s to 8784h"),
		zone:         f.String("time-zone", "", "`ZONE` of --cron, as Asia/Seoul (default UTC)"),
		types:        f.StringSlice("type", nil, "job `TYPE`, as inbox or push; several make a group"),
		category:     f.String("category", "", "`CATEGORY`: popular_content, question_content, operator_notice, or your own"),
		title:        f.String("title", "", "`TITLE`, 1 to 200 characters"),
		body:         f.String("body", "", "`TEXT`, up to 10,000 characters"),
		data:         f.String("data", "", "further content as a `JSON` object, up to 16,384 bytes"),
		variants:     addVariants(cmd, ""),
		route:        addRoute(cmd),
		audience:     addAudienceFlags(cmd),
		lane:         f.String("lane", "", "`LANE` of the jobs (default: default)"),
		priority:     flagOf(f, "priority", "N", "-1000 to 1000, higher is more urgent (default 0)", intBetween(-1000, 1000)),
		deliverAfter: f.String("deliver-after", "", "deliver messages this `DURATION` after the occurrence (default: at once)"),
		expiresAfter: f.String("expires-after", "", "EXPIRED if a job did not start this `DURATION` after the occurrence (default: never)"),
		query:        f.String("query", "", "`SQL` that returns a row for each job, up to 100"),
		queryTimeout: f.String("query-timeout", "", "how long the query may take, a `DURATION` of 1s to 5m (default 10s)"),
		queryRole:    f.String("query-role", "", "the database `ROLE` that the query runs as, which you may become by SET ROLE (default: the daemon's)"),
		missed:       f.String("missed", "", "what becomes of missed occurrences: `skip, once or all` (default once)"),
		missedAfter:  f.String("missed-after", "", "an occurrence later than this `DURATION` is missed (default 10m)"),
	}
}

// definition checks what can be checked without the database.
func (f scheduleFlags) definition(a *app, cmd *cobra.Command, name string) (schedule.Definition, error) {
	d := schedule.Definition{
		Name: name, Cron: *f.cron, Every: *f.every, TimeZone: *f.zone, Query: *f.query, QueryTimeout: *f.queryTimeout, QueryRole: *f.queryRole, Missed: schedule.Policy(*f.missed), After: *f.missedAfter,
		Template: schedule.Template{
			Types: *f.types, Category: *f.category, Title: *f.title, Body: *f.body, Route: f.route.or(nil), Lane: *f.lane,
			Priority: int(f.priority.or(0)), DeliverAfter: *f.deliverAfter, ExpiresAfter: *f.expiresAfter,
		},
	}
	if *f.data != "" {
		if err := config.ParseJSON([]byte(*f.data), &d.Template.Data); err != nil || d.Template.Data == nil {
			return d, usagef("invalid argument %q for \"--data\" flag: allowed values: JSON objects of up to 16384 bytes", printer.OneLine(*f.data, 60))
		}
	}
	if *f.variants != "" {
		variants, err := variantsOf(*f.variants)
		if err == nil {
			err = config.ParseJSON(variants, &d.Template.Variants)
		}
		if err != nil {
			return d, err
		}
	}
	if f.audience.given(cmd) || d.Query == "" {
		audience, err := f.audience.audience(a, cmd)
		if err != nil {
			return d, err
		}
		encoded, err := json.Marshal(audience)
		if err == nil {
			err = config.ParseJSON(encoded, &d.Template.Audience)
		}
		if err != nil {
			return d, usagef("--audience: %w", err)
		}
	}
	if err := d.Validate(""); err != nil {
		var lines []string
		for _, one := range config.Flatten(err) {
			lines = append(lines, flagForKey(one.Error()))
		}
		return d, &exitError{codeUsage, errors.New(strings.Join(lines, "\n  "))}
	}
	return d, nil
}

// flagForKey puts a flag's name in place of a definition's key at the start of a
// message.
func flagForKey(message string) string {
	key, rest, ok := strings.Cut(message, ": ")
	if !ok {
		return message
	}
	switch key = strings.TrimPrefix(key, "template."); key {
	case "name":
		return "NAME: " + rest
	case "types":
		key = "type"
	}
	return fmt.Sprintf("--%s: %s", strings.ReplaceAll(key, "_", "-"), rest)
}
