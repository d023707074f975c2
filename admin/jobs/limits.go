package jobs

import (
	"context"
	"strconv"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// limitsChange is the input of `limits set`.
type limitsChange struct {
	Priority         operation.Change[int]              `change:"priority" min:"0" max:"1000" reset:"none" allowed:"0 to 1000, or none"`
	MaxRowsPerSecond operation.Change[int]              `change:"max_rows_per_second" min:"1" max:"10000000" reset:"none" allowed:"1 to 10000000, or none"`
	DutyCycle        operation.Change[operation.Share]  `change:"duty_cycle" reset:"none" allowed:"0.01 to 1, such as 0.5 or 50%, or none"`
	ChunkTarget      operation.Change[operation.Millis] `change:"chunk_target" reset:"none" allowed:"durations of 1ms to 1m, or none"`
	MaxChunkRows     operation.Change[int]              `change:"max_chunk_rows" min:"1" max:"1000000" reset:"none" allowed:"1 to 1000000, or none"`
	MaxSkips         operation.Change[int]              `change:"max_skips" min:"0" max:"10000000" reset:"none" allowed:"0 to 10000000, or none"`
	MaxRecipients    operation.Change[int]              `change:"max_recipients" min:"1" max:"2000000000" reset:"none" allowed:"1 to 2000000000, the maximum number of rows of a job, or none"`
	HealthChecks     operation.Change[bool]             `change:"health_checks" allowed:"on (required), off"`
	MinPriority      operation.Change[int]              `change:"min_priority" min:"-1000" max:"0" reset:"none" allowed:"-1000 to 0, or none"`
	MinRowsPerSecond operation.Change[int]              `change:"min_rows_per_second" min:"1" max:"10000000" reset:"none" allowed:"1 to 10000000, the minimum max_rows_per_second except 0, or none"`
	MinDutyCycle     operation.Change[operation.Share]  `change:"min_duty_cycle" reset:"none" allowed:"0.01 to 1, such as 0.5 or 50%, or none"`
	MinChunkTarget   operation.Change[operation.Millis] `change:"min_chunk_target" reset:"none" allowed:"durations of 1ms to 1m, or none"`
	MinChunkRows     operation.Change[int]              `change:"min_chunk_rows" min:"1" max:"1000000" reset:"none" allowed:"1 to 1000000, the minimum max_chunk_rows, or none"`
	operation.VersionFlag
	operation.Act
}

const subjectLimits = "limits"

func (limitsChange) Resource() operation.Resource {
	return operation.Resource{Subject: subjectLimits, Show: text.Command("limits list")}
}

func limitOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "limits list", Short: "List the limits for the settings of new jobs", Role: operation.Viewer, Rows: ".",
			Long: `List the limits for jobs of a database role that may INSERT jobs but not UPDATE them, and of
authors over HTTP. The INSERT of a job with a setting above a ceiling or below a floor (min_…)
fails. A job without max_recipients gets the ceiling. The limit of a setting does not apply to
roles that may UPDATE its column in belfry.jobs.`,
			SQL: `SELECT * FROM belfry.limits`,
		}, func(ctx context.Context, env *operation.Env, _ operation.None) (job.Limits, error) {
			return env.Jobs.Limits(ctx)
		},
			func(d *text.Doc, _ operation.None, l job.Limits) { limitsText(d, l) }),
		operation.Define(operation.Operation{
			Name: "limits set", Short: "Change the limits for the settings of new jobs", Role: operation.Admin, Changes: true,
			Events: "the events of the limits",
			Long: `Change the ceilings and floors for the settings of jobs whose role may INSERT jobs but not
UPDATE them; none removes a limit. A floor must not be above its ceiling. The limits apply
to jobs that are enqueued from now on. Keys:

{keys}`,
			SQL: `UPDATE belfry.limits SET priority = 100`,
			Example: `  belfry limits set priority=100 --reason "orders go first"
  belfry limits set max_chunk_rows=10000 chunk_target=200ms
  belfry limits set max_skips=none`,
		}, func(ctx context.Context, env *operation.Env, in limitsChange) (job.Limits, error) {
			changes := make(job.Changes)
			change(changes, "priority", in.Priority)
			change(changes, "max_rows_per_second", in.MaxRowsPerSecond)
			change(changes, "duty_cycle", in.DutyCycle)
			change(changes, "chunk_target_ms", in.ChunkTarget)
			change(changes, "max_chunk_rows", in.MaxChunkRows)
			change(changes, "max_skips", in.MaxSkips)
			change(changes, "max_recipients", in.MaxRecipients)
			change(changes, "health_checks", in.HealthChecks)
			change(changes, "min_priority", in.MinPriority)
			change(changes, "min_rows_per_second", in.MinRowsPerSecond)
			change(changes, "min_duty_cycle", in.MinDutyCycle)
			change(changes, "min_chunk_target_ms", in.MinChunkTarget)
			change(changes, "min_chunk_rows", in.MinChunkRows)
			l, err := env.Jobs.SetLimits(ctx, changes, operation.ActBy(env, in))
			return l, operation.Refused(err, nil)
		}, func(d *text.Doc, _ limitsChange, l job.Limits) { limitsText(d, l) }),
		operation.Timeline{
			Noun: "limits", Subject: "limits", Label: "NAME", Short: "Show when the limits were changed, newest first",
			Example: "  belfry limits events\n  belfry limits events --json", None: "the limits were never changed",
		}.Events(),
	}
}

// change adds the change of a column if the input has one.
func change[T any](changes job.Changes, column string, c operation.Change[T]) {
	switch {
	case c.To == nil && c.Asked:
		changes[column] = nil
	case c.To != nil:
		changes[column] = *c.To
		if span, is := any(*c.To).(operation.Millis); is {
			changes[column] = int64(span) // columns have no unit
		}
	}
}

func limitsText(d *text.Doc, l job.Limits) {
	whole := func(n *int, unit string) string {
		if n == nil {
			return "none"
		}
		return strconv.Itoa(*n) + unit
	}
	share := func(n *float64) string {
		if n == nil {
			return "none"
		}
		return strconv.FormatFloat(*n, 'g', -1, 64)
	}
	checks := "can be disabled"
	if l.HealthChecks {
		checks = "required"
	}
	t := text.NewTable("KEY", "CEILING", "FLOOR")
	t.Add("priority", whole(l.Priority, ""), whole(l.MinPriority, ""))
	t.Add("max_rows_per_second", whole(l.MaxRowsPerSecond, ""), whole(l.MinRowsPerSecond, ""))
	t.Add("duty_cycle", share(l.DutyCycle), share(l.MinDutyCycle))
	t.Add("chunk_target", whole(l.ChunkTargetMS, "ms"), whole(l.MinChunkTargetMS, "ms"))
	t.Add("max_chunk_rows", whole(l.MaxChunkRows, ""), whole(l.MinChunkRows, ""))
	t.Add("max_skips", whole(l.MaxSkips, ""), "")
	t.Add("max_recipients", whole(l.MaxRecipients, ""), "")
	t.Add("health_checks", checks, "")
	d.Table(t)
}
