package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

// change is one KEY=VALUE of `belfry jobs set`.
type change struct {
	key    string // as it is written
	column string // of belfry.jobs
	allow  string // the allowed values, for errors and help
	// parse returns the column's value. It never sees a word that resets.
	parse func(text string) (any, error)
	// resets is whether `default` or nothing takes the column back to the runner's
	// setting, or lifts the time.
	resets bool
}

// changes lists what `belfry jobs set` can change: every column of job.Changes.
func (a *app) changes() []change {
	instant := instantParser(a.now, time.Local)
	when := func(text string) (any, error) {
		t, err := instant(text)
		return t, err
	}
	const times = `RFC 3339, +2h from now, or "2026-11-20 08:50" in local time`
	return []change{
		{"max_rows_per_second", "max_rows_per_second", "0 (no limit) to 10000000, or default", wholeBetween(0, 10_000_000), true},
		{"duty_cycle", "duty_cycle", "0.01 to 1 or 1% to 100%, the share of time spent in chunks, or default", parseShare, true},
		{"chunk_target", "chunk_target_ms", "durations of 1ms to 1m, or default", parseMilliseconds, true},
		{"max_chunk_rows", "max_chunk_rows", "1 to 1000000, or default", wholeBetween(1, 1_000_000), true},
		{"health_checks", "health_checks", "on, off, or default", parseSwitch, true},
		{"max_skips", "max_skips", "0 (skip nobody) to 10000000, or default", wholeBetween(0, 10_000_000), true},
		{"priority", "priority", "-1000 to 1000, higher is more urgent", wholeBetween(-1000, 1000), false},
		{"schedule_at", "schedule_at", times, when, false},
		{"deliver_at", "deliver_at", times + ", or default (at once)", when, true},
		{"expires_at", "expires_at", times + ", or default (never)", when, true},
		{"lane", "lane", "1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit", parseText, false},
		{"category", "category", "categories of belfry.categories", parseText, false},
		{"title", "title", "texts of 1 to 200 characters", parseText, false},
		{"body", "body", "texts of up to 10000 characters", parseText, false},
		{"data", "data", "JSON objects of up to 16384 bytes", parseObject, false},
		{"variants", "variants", "JSON objects of titles and bodies by locale, files with one, or none", parseVariants, false},
		{"route", "route", "media in the order in which they are tried, as push,sms, or default (the category's)", func(text string) (any, error) { return parseRoute(text) }, true},
		{"audience", "audience", "JSON as in belfry.jobs.audience", parseAudience, false},
	}
}

var errNotAllowed = errors.New("not allowed")

func parseText(text string) (any, error) { return text, nil }

func wholeBetween(low, high int64) func(string) (any, error) {
	return func(text string) (any, error) {
		n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil || n < low || n > high {
			return nil, errNotAllowed
		}
		return n, nil
	}
}

func parseShare(text string) (any, error) {
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(number, 64)
	if percent {
		share /= 100
	}
	if err != nil || math.IsNaN(share) || share < 0.01 || share > 1 {
		return nil, errNotAllowed
	}
	return share, nil
}

func parseMilliseconds(text string) (any, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond || d > time.Minute {
		return nil, errNotAllowed
	}
	return d.Milliseconds(), nil
}

func parseSwitch(text string) (any, error) {
	switch text {
	case "on", "true":
		return true, nil
	case "off", "false":
		return false, nil
	}
	return nil, errNotAllowed
}

func parseObject(text string) (any, error) {
	if !isObject([]byte(text)) {
		return nil, errNotAllowed
	}
	return json.RawMessage(text), nil
}

// parseVariants takes none as no variants: the column is never NULL.
func parseVariants(text string) (any, error) {
	if text == "" || text == "none" || text == "default" {
		return json.RawMessage("{}"), nil
	}
	variants, err := readVariants(text)
	if err != nil && !errors.Is(err, errNotAllowed) { // of a file
		return nil, fmt.Errorf("%w; allowed values: %s, or none", err, variantsWants)
	}
	return variants, err
}

func parseAudience(text string) (any, error) { return channels.ParseAudience([]byte(text)) }

// parseChanges understands KEY=VALUE arguments, or reports every one that it does
// not.
func (a *app) parseChanges(args []string) (job.Changes, error) {
	known := a.changes()
	names := make([]string, 0, len(known))
	for _, c := range known {
		names = append(names, c.key)
	}
	changes := make(job.Changes)
	var problems []string
	for _, arg := range args {
		key, text, ok := strings.Cut(arg, "=")
		i := slices.IndexFunc(known, func(c change) bool { return c.key == key || c.column == key })
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("%q is no change; write KEY=VALUE, as max_rows_per_second=5000", printer.OneLine(arg, 60)))
		case i < 0:
			problems = append(problems, fmt.Sprintf("%s: cannot be set; allowed keys: %s%s", printer.OneLine(key, 60), strings.Join(names, ", "), config.Hint(key, names)))
		default:
			c := known[i]
			if _, twice := changes[c.column]; twice {
				problems = append(problems, c.key+": given twice")
			}
			value, err := c.value(key, text)
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %s", key, err))
			}
			changes[c.column] = value
		}
	}
	if len(problems) > 0 {
		return nil, usagef("%s", strings.Join(problems, "\n  "))
	}
	return changes, nil
}

// value parses the text given for key; nil resets.
func (c change) value(key, text string) (any, error) {
	if c.resets && (text == "" || text == "default" || text == "none") {
		return nil, nil //nolint:nilnil // nil is a value: NULL
	}
	if key == "chunk_target_ms" && key == c.column { // the column's own unit
		text += "ms"
	}
	value, err := c.parse(text)
	switch {
	case errors.Is(err, errNotAllowed):
		return nil, fmt.Errorf("%q is not allowed; allowed values: %s", printer.OneLine(text, 60), c.allow)
	case err != nil && strings.HasPrefix(err.Error(), "allowed values"):
		return nil, fmt.Errorf("%q is not allowed; %w", printer.OneLine(text, 60), err)
	}
	return value, err
}

func newJobsSetCommand(a *app) *cobra.Command {
	var keys strings.Builder
	for _, c := range a.changes() {
		fmt.Fprintf(&keys, "  %-20s %s\n", c.key, c.allow)
	}
	cmd := &cobra.Command{
		Use:   "set ID KEY=VALUE...",
		Short: "Change a job: its load while it runs, its place in the queue, its content",
		Long: `Change a job. Settings of the walk, priority and times may change at any time, and
take effect with the next chunk; content, audience and lane stand still while the job
runs: abort it, ` + "`belfry resume ID --edit`" + ` corrects it. A route stays once the job has
started. Who, why, before and after are in the
job's events. ` + "`default`" + `, or nothing after the =, takes a setting back to the runner's.

Keys and allowed values:

` + strings.TrimRight(keys.String(), "\n") + `

The same by SQL: UPDATE belfry.jobs SET max_rows_per_second = 5000 WHERE id = 17;`,
		Example: `  belfry jobs set 17 max_rows_per_second=5000 --reason "checkout is slow"
  belfry jobs set 17 max_rows_per_second=default duty_cycle=25% chunk_target=50ms
  belfry jobs set 17 priority=100 expires_at=+2h`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("%s takes ID KEY=VALUE..., got %s", named(cmd), printer.Counted(int64(len(args)), "argument"))
			}
			return nil
		},
	}
	who := addActFlags(a, cmd, "the job's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		changes, err := a.parseChanges(args[1:])
		if err != nil {
			return err
		}
		return a.withStored(cmd, func(ctx context.Context, _ settings, store *job.Store, _ *database) error {
			j, err := store.Set(ctx, id, changes, who())
			if err != nil {
				return notFound(columnProblem(err))
			}
			if *asJSON {
				return a.printJSON(j)
			}
			a.printf("%s\n", statusLine(j))
			for _, line := range shownChanges(j, changes) {
				a.printf("  %s\n", line)
			}
			return nil
		})
	}
	return cmd
}

// shownChanges says what the changed columns are now.
func shownChanges(j job.Job, changes job.Changes) []string {
	var lines []string
	all := map[string]string{
		"category": j.Category, "title": j.Title, "body": j.Body, "data": string(j.Data), "variants": locales(j.Variants),
		"route": strings.Join(j.Route, ", "), "audience": fmt.Sprint(j.Audience),
		"lane": j.Lane, "priority": printer.Int(int64(j.Priority)), "schedule_at": printer.Clock(j.ScheduleAt),
		"deliver_at": printer.ClockOr(j.DeliverAt, "at once"), "expires_at": printer.ClockOr(j.ExpiresAt, "never"),
	}
	for _, s := range walkSettings(j) {
		all[s.column] = s.value
	}
	for column := range changes {
		lines = append(lines, strings.TrimSuffix(column, "_ms")+": "+printer.OneLine(all[column], 200))
	}
	slices.Sort(lines)
	return lines
}

// walkSetting is one setting of a job's walk.
type walkSetting struct {
	column, value string
	own           bool // the job's, not the runner's
}

// walkSettings returns the settings of a job's walk as they are shown.
func walkSettings(j job.Job) []walkSetting {
	number := func(n int) string { return printer.Grouped(int64(n)) }
	return []walkSetting{
		settingOf("max_rows_per_second", j.MaxRowsPerSecond, func(n int) string {
			if n == 0 {
				return "no limit"
			}
			return number(n)
		}),
		settingOf("duty_cycle", j.DutyCycle, func(share float64) string { return strconv.FormatFloat(share*100, 'f', -1, 64) + "%" }),
		settingOf("chunk_target_ms", j.ChunkTargetMS, func(n int) string { return (time.Duration(n) * time.Millisecond).String() }),
		settingOf("max_chunk_rows", j.MaxChunkRows, number),
		settingOf("health_checks", j.HealthChecks, func(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }),
		settingOf("max_skips", j.MaxSkips, number),
	}
}

// settingOf shows one setting; nil is the runner's.
func settingOf[T any](column string, value *T, show func(T) string) walkSetting {
	if value == nil {
		return walkSetting{column: column, value: "the runner's"}
	}
	return walkSetting{column, show(*value), true}
}

// columnProblem makes a value that the database refused a matter of usage, and
// names its key.
func columnProblem(err error) error {
	var invalid *job.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	text := strings.TrimPrefix(invalid.Message, "belfry.jobs.")
	return &exitError{codeUsage, errors.New(withHint(text, invalid.Hint))}
}
