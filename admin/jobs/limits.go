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
	DutyCycle        operation.Change[operation.Share]  `change:"duty_cycle" reset:"none" allowed:"0.01 to 1, as 0.5 or 50%, or none"`
	ChunkTarget      operation.Change[operation.Millis] `change:"chunk_target" reset:"none" allowed:"durations of 1ms to 1m, or none"`
	MaxChunkRows     operation.Change[int]              `change:"max_chunk_rows" min:"1" max:"1000000" reset:"none" allowed:"1 to 1000000, or none"`
	MaxSkips         operation.Change[int]              `change:"max_skips" min:"0" max:"10000000" reset:"none" allowed:"0 to 10000000, or none"`
	MaxRecipients    operation.Change[int]              `change:"max_recipients" min:"1" max:"2000000000" reset:"none" allowed:"1 to 2000000000, the most rows that a job may write, or none"`
	HealthChecks     operation.Change[bool]             `change:"health_checks" allowed:"on (they may not be switched off), off"`
	MinRowsPerSecond operation.Change[int]              `change:"min_rows_per_second" min:"1" max:"10000000" reset:"none" allowed:"1 to 10000000, the least max_rows_per_second but 0, or none"`
	MinDutyCycle     operation.Change[operation.Share]  `change:"min_duty_cycle" reset:"none" allowed:"0.01 to 1, as 0.5 or 50%, or none"`
	MinChunkTarget   operation.Change[operation.Millis] `change:"min_chunk_target" reset:"none" allowed:"durations of 1ms to 1m, or none"`
	MinChunkRows     operation.Change[int]              `change:"min_chunk_rows" min:"1" max:"1000000" reset:"none" allowed:"1 to 1000000, the least max_chunk_rows, or none"`
	operation.VersionFlag
	operation.Act
}

const subjectLimits = "limits"

func (limitsChange) Resource() operation.Resource {
	return operation.Resource{Subject: subjectLimits, Show: "limits list"}
}

func limitOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "limits list", Short: "List the ceilings and floors of what a job may ask for", Role: operation.Viewer, Rows: ".",
			Long: `List how far a database role that may INSERT jobs, and not UPDATE them, may go in what
a job asks of the database and of other jobs. What is beyond a ceiling, or below a floor
(min_…), is refused at the INSERT, and a job that asks for no max_recipients gets the
ceiling. Roles that may UPDATE a column of belfry.jobs are not bound by its limits.
Authors over HTTP are bound by all of them.`,
			SQL: `SELECT * FROM belfry.limits`,
		}, func(ctx context.Context, env *operation.Env, _ operation.None) (job.Limits, error) {
			return env.Jobs.Limits(ctx)
		},
			func(d *text.Doc, _ operation.None, l job.Limits) { limitsText(d, l) }),
		operation.Define(operation.Operation{
			Name: "limits set", Short: "Change how far enqueuers may go", Role: operation.Admin, Changes: true, Events: "the events of the ceilings",
			Long: `Change the ceilings and floors for what a job may ask for when its role may INSERT jobs
and not UPDATE them; none lifts one. A floor is not above its ceiling. They count for jobs that are enqueued from now on. Keys:

{keys}`,
			SQL: `UPDATE belfry.limits SET priority = 100`,
			Example: `  belfry limits set priority=100 --reason "orders go first"
  belfry limits set max_chunk_rows=10000 chunk_target=200ms
  belfry limits set max_skips=none`,
		}, func(ctx context.Context, env *operation.Env, in limitsChange) (job.Limits, error) {
			asked := make(job.Changes)
			ask(asked, "priority", in.Priority)
			ask(asked, "max_rows_per_second", in.MaxRowsPerSecond)
			ask(asked, "duty_cycle", in.DutyCycle)
			ask(asked, "chunk_target_ms", in.ChunkTarget)
			ask(asked, "max_chunk_rows", in.MaxChunkRows)
			ask(asked, "max_skips", in.MaxSkips)
			ask(asked, "max_recipients", in.MaxRecipients)
			ask(asked, "health_checks", in.HealthChecks)
			ask(asked, "min_rows_per_second", in.MinRowsPerSecond)
			ask(asked, "min_duty_cycle", in.MinDutyCycle)
			ask(asked, "min_chunk_target_ms", in.MinChunkTarget)
			ask(asked, "min_chunk_rows", in.MinChunkRows)
			l, err := env.Jobs.SetLimits(ctx, asked, operation.ActBy(env, in))
			return l, operation.Refused(err, nil)
		}, func(d *text.Doc, _ limitsChange, l job.Limits) { limitsText(d, l) }),
		operation.Timeline{
			Noun: "limits", Subject: "limits", Label: "NAME", Short: "Show when the ceilings were changed, newest first",
			Example: "  belfry limits events\n  belfry limits events --json", None: "the ceilings were never changed",
		}.Events(),
	}
}

// ask adds a change of a column, if one is asked for.
func ask[T any](changes job.Changes, column string, c operation.Change[T]) {
	switch {
	case c.To == nil && c.Asked:
		changes[column] = nil
	case c.To != nil:
		changes[column] = *c.To
		if span, is := any(*c.To).(operation.Millis); is {
			changes[column] = int64(span) // a column has no unit
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
	checks := "may be switched off"
	if l.HealthChecks {
		checks = "may not be switched off"
	}
	t := text.NewTable("KEY", "CEILING", "FLOOR")
	t.Add("priority", whole(l.Priority, ""), "")
	t.Add("max_rows_per_second", whole(l.MaxRowsPerSecond, ""), whole(l.MinRowsPerSecond, ""))
	t.Add("duty_cycle", share(l.DutyCycle), share(l.MinDutyCycle))
	t.Add("chunk_target", whole(l.ChunkTargetMS, "ms"), whole(l.MinChunkTargetMS, "ms"))
	t.Add("max_chunk_rows", whole(l.MaxChunkRows, ""), whole(l.MinChunkRows, ""))
	t.Add("max_skips", whole(l.MaxSkips, ""), "")
	t.Add("max_recipients", whole(l.MaxRecipients, ""), "")
	t.Add("health_checks", checks, "")
	d.Table(t)
}
