package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
)

// limits is the row of belfry.limits; nil: no ceiling.
type limits struct {
	Priority         *int     `json:"priority"`
	MaxRowsPerSecond *int     `json:"max_rows_per_second"`
	DutyCycle        *float64 `json:"duty_cycle"`
	ChunkTargetMS    *int     `json:"chunk_target_ms"`
	MaxChunkRows     *int     `json:"max_chunk_rows"`
	MaxSkips         *int     `json:"max_skips"`
	HealthChecks     bool     `json:"health_checks"`
}

func newLimitsCommand(a *app) *cobra.Command {
	return newGroup("limits", "Show or change how far enqueuers may go",
		newLimitsListCommand(a), newLimitsSetCommand(a),
		newControlEventsCommand(a, controlEvents{
			subject: "limits", argument: "NAME", short: "Show when the ceilings were changed, newest first",
			example: "  belfry limits events\n  belfry limits events --json", none: "the ceilings were never changed",
		}))
}

func newLimitsListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the ceilings of what a job may ask for",
		Long: `List how far a database role that may INSERT jobs, and not UPDATE them, may go in what
a job asks of the database and of other jobs. What is beyond a ceiling is refused at
the INSERT. Roles that may UPDATE a column of belfry.jobs are not bound by its ceiling.

The same by SQL: SELECT * FROM belfry.limits`,
		Args: noArgs,
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
			l, err := readLimits(ctx, db.Pool, queries.limitsGet, nil)
			if err != nil {
				return err
			}
			return a.printLimits(l, *asJSON)
		})
	}
	return cmd
}

// limitKeys are the keys of `limits set`, with what their values are.
var limitKeys = []struct {
	name    string
	allowed string
	parse   func(string) (any, error)
}{
	{"priority", "0 to 1000, or none", wholeBetween(0, 1000)},
	{"max_rows_per_second", "1 to 10000000, or none", wholeBetween(1, 10_000_000)},
	{"duty_cycle", "0.01 to 1, as 0.5 or 50%, or none", parseShare},
	{"chunk_target", "durations of 1ms to 1m, or none", parseMilliseconds},
	{"max_chunk_rows", "1 to 1000000, or none", wholeBetween(1, 1_000_000)},
	{"max_skips", "0 to 10000000, or none", wholeBetween(0, 10_000_000)},
	{"health_checks", "on (they may not be switched off), off", parseSwitch},
}

func newLimitsSetCommand(a *app) *cobra.Command {
	var b strings.Builder
	var keys []string
	for _, k := range limitKeys {
		keys = append(keys, k.name)
		b.WriteString("  " + k.name + strings.Repeat(" ", 21-len(k.name)) + k.allowed + "\n")
	}
	cmd := &cobra.Command{
		Use:   "set KEY=VALUE...",
		Short: "Change how far enqueuers may go",
		Long: `Change the ceilings for what a job may ask for when its role may INSERT jobs and not
UPDATE them; none lifts one. They count for jobs that are enqueued from now on. Keys:

` + b.String() + `
The same by SQL: UPDATE belfry.limits SET priority = 100`,
		Example: `  belfry limits set priority=100 --reason "orders go first"
  belfry limits set max_chunk_rows=10000 chunk_target=200ms
  belfry limits set max_skips=none`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s takes KEY=VALUE..., got none", named(cmd))
			}
			return nil
		},
	}
	who := addActFlags(a, cmd, "the events of the ceilings")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		changes, err := limitChanges(args, keys)
		if err != nil {
			return err
		}
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
			act := who()
			var l limits
			err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, queries.actSet, pgx.StrictNamedArgs{"actor": act.Actor, "reason": act.Reason}); err != nil {
					return err
				}
				l, err = readLimits(ctx, tx, queries.limitsSet, pgx.StrictNamedArgs{"changes": string(changes)})
				return err
			})
			if err != nil {
				return err
			}
			return a.printLimits(l, *asJSON)
		})
	}
	return cmd
}

// limitChanges are the arguments of `limits set`, as belfry.limits has them, in JSON.
func limitChanges(args, keys []string) ([]byte, error) {
	changes := make(map[string]any)
	err := keyValues(args, keys, func(key, value string) (err error) {
		for _, k := range limitKeys {
			if k.name != key {
				continue
			}
			var parsed any
			if value != "none" || key == "health_checks" {
				if parsed, err = k.parse(value); err != nil {
					return fmt.Errorf("%q is not allowed; allowed values: %s", printer.OneLine(value, 60), k.allowed)
				}
			}
			changes[strings.Replace(key, "chunk_target", "chunk_target_ms", 1)] = parsed
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(changes)
}

func readLimits(ctx context.Context, q interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, statement string, args pgx.StrictNamedArgs,
) (limits, error) {
	rows, err := q.Query(ctx, statement, args)
	if err != nil {
		return limits{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[limits])
}

func (a *app) printLimits(l limits, asJSON bool) error {
	if asJSON {
		return a.printJSON(l)
	}
	whole := func(n *int, unit string) string {
		if n == nil {
			return "none"
		}
		return strconv.Itoa(*n) + unit
	}
	share := "none"
	if l.DutyCycle != nil {
		share = strconv.FormatFloat(*l.DutyCycle, 'g', -1, 64)
	}
	checks := "may be switched off"
	if l.HealthChecks {
		checks = "may not be switched off"
	}
	t := printer.NewTable("KEY", "CEILING")
	t.Add("priority", whole(l.Priority, ""))
	t.Add("max_rows_per_second", whole(l.MaxRowsPerSecond, ""))
	t.Add("duty_cycle", share)
	t.Add("chunk_target", whole(l.ChunkTargetMS, "ms"))
	t.Add("max_chunk_rows", whole(l.MaxChunkRows, ""))
	t.Add("max_skips", whole(l.MaxSkips, ""))
	t.Add("health_checks", checks)
	return t.Write(a.stdout)
}
