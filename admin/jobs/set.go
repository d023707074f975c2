package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/enqueue"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// jobChange is the input of `jobs set`: every column of job.Changes.
type jobChange struct {
	operation.JobRef
	MaxRowsPerSecond operation.Change[int]                `change:"max_rows_per_second" min:"0" max:"10000000" reset:"default,none" allowed:"0 (no limit) to 10000000, or default"`
	DutyCycle        operation.Change[operation.Share]    `change:"duty_cycle" reset:"default,none" allowed:"0.01 to 1 or 1% to 100%, the share of time spent in chunks, or default"`
	ChunkTarget      operation.Change[operation.Millis]   `change:"chunk_target" column:"chunk_target_ms" unit:"ms" reset:"default,none" allowed:"durations of 1ms to 1m, or default"`
	MaxChunkRows     operation.Change[int]                `change:"max_chunk_rows" min:"1" max:"1000000" reset:"default,none" allowed:"1 to 1000000, or default"`
	HealthChecks     operation.Change[bool]               `change:"health_checks" reset:"default,none" allowed:"on, off, or default"`
	MaxSkips         operation.Change[int]                `change:"max_skips" min:"0" max:"10000000" reset:"default,none" allowed:"0 (skip nobody) to 10000000, or default"`
	MaxRecipients    operation.Change[int]                `change:"max_recipients" min:"1" max:"2000000000" reset:"none" allowed:"1 to 2000000000, the most rows that it may write, or none"`
	Priority         operation.Change[int]                `change:"priority" min:"-1000" max:"1000" allowed:"-1000 to 1000, higher is more urgent"`
	ScheduleAt       operation.Change[operation.Instant]  `change:"schedule_at" allowed:"RFC 3339, +2h from now, or \"2026-11-20 08:50\" in local time"`
	DeliverAt        operation.Change[operation.Instant]  `change:"deliver_at" reset:"default,none" allowed:"RFC 3339, +2h from now, or \"2026-11-20 08:50\" in local time, or default (at once)"`
	ExpiresAt        operation.Change[operation.Instant]  `change:"expires_at" reset:"default,none" allowed:"RFC 3339, +2h from now, or \"2026-11-20 08:50\" in local time, or default (never)"`
	Lane             operation.Change[string]             `change:"lane" values:"lanes list" allowed:"1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit"`
	Category         operation.Change[string]             `change:"category" values:"categories list" allowed:"categories of belfry.categories"`
	Title            operation.Change[string]             `change:"title" allowed:"texts of 1 to 200 characters"`
	Body             operation.Change[string]             `change:"body" allowed:"texts of up to 10000 characters"`
	Data             operation.Change[enqueue.JSONObject] `change:"data" allowed:"JSON objects of up to 16384 bytes"`
	Variants         operation.Change[enqueue.JSONObject] `change:"variants" file:"true" reset:"none,default" allowed:"JSON objects of titles and bodies by locale, files with one, or none"`
	Route            operation.Change[[]string]           `change:"route" values:"media" reset:"default,none" allowed:"media in the order in which they are tried, as push,sms, or default (the category's)"`
	Audience         operation.Change[enqueue.AudienceOf] `change:"audience" allowed:"JSON as in belfry.jobs.audience"`
	operation.VersionFlag
	operation.Act
}

// changes are by column what the input asks for.
func (in jobChange) changes(env *operation.Env) job.Changes {
	asked := make(job.Changes)
	ask(asked, "max_rows_per_second", in.MaxRowsPerSecond)
	ask(asked, "duty_cycle", in.DutyCycle)
	ask(asked, "chunk_target_ms", in.ChunkTarget)
	ask(asked, "max_chunk_rows", in.MaxChunkRows)
	ask(asked, "health_checks", in.HealthChecks)
	ask(asked, "max_skips", in.MaxSkips)
	ask(asked, "max_recipients", in.MaxRecipients)
	ask(asked, "priority", in.Priority)
	for column, at := range map[string]operation.Change[operation.Instant]{"schedule_at": in.ScheduleAt, "deliver_at": in.DeliverAt, "expires_at": in.ExpiresAt} {
		if ask(asked, column, at); at.To != nil {
			asked[column] = at.To.At(env.Time())
		}
	}
	ask(asked, "lane", in.Lane)
	ask(asked, "category", in.Category)
	ask(asked, "title", in.Title)
	ask(asked, "body", in.Body)
	ask(asked, "data", in.Data)
	if ask(asked, "variants", in.Variants); in.Variants.Asked && in.Variants.To == nil {
		asked["variants"] = json.RawMessage("{}") // the column is never NULL
	}
	ask(asked, "route", in.Route)
	ask(asked, "audience", in.Audience)
	return asked
}

func jobSetOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "jobs set", Short: "Change a job: its load while it runs, its place in the queue, its content", Role: operation.Operator, Changes: true, Events: "the job's events",
		Long: `Change a job. Settings of the walk, priority and times may change at any time, and
take effect with the next chunk; content, audience and lane stand still while the job
runs: abort it, ` + "`belfry resume ID --edit`" + ` corrects it. A route stays once the job has
started. Who, why, before and after are in the
job's events. ` + "`default`" + `, or nothing after the =, takes a setting back to the runner's.

Keys and allowed values:

{keys}`,
		SQL: `UPDATE belfry.jobs SET max_rows_per_second = 5000 WHERE id = 17;`,
		Example: `  belfry jobs set 17 max_rows_per_second=5000 --reason "checkout is slow"
  belfry jobs set 17 max_rows_per_second=default duty_cycle=25% chunk_target=50ms
  belfry jobs set 17 priority=100 expires_at=+2h`,
	}, func(ctx context.Context, env *operation.Env, in jobChange) (job.Job, error) {
		j, err := env.Jobs.Set(ctx, in.ID, in.changes(env), operation.ActBy(env, in))
		return acted(j, operation.NoSuchJob(operation.Refused(err, map[string]string{"chunk_target_ms": "chunk_target"})))
	}, func(d *text.Doc, in jobChange, j job.Job) {
		d.Line("%s", statusLine(j))
		changes := in.changes(&operation.Env{})
		changedSettings(d, j, changes)
		if j.Status == job.Processed && slices.ContainsFunc(walkSettings(j), func(s walkSetting) bool { return changes[s.column] != nil }) {
			d.Note("job %s is PROCESSED: settings of the walk have no effect any more", text.Ref("job", j.ID))
		}
	})
}

// changedSettings writes the new values of the changed columns.
func changedSettings(d *text.Doc, j job.Job, changes job.Changes) {
	values := map[string]any{
		"category": j.Category, "title": j.Title, "body": j.Body, "data": operation.Compacted(j.Data), "variants": locales(j.Variants),
		"route": strings.Join(j.Route, ", "), "audience": fmt.Sprint(j.Audience),
		"lane": text.Ref("lane", j.Lane), "priority": text.Int(int64(j.Priority)), "schedule_at": j.ScheduleAt,
		"deliver_at": text.Or(j.DeliverAt, "at once"), "expires_at": text.Or(j.ExpiresAt, "never"),
	}
	for _, s := range walkSettings(j) {
		values[s.column] = s.value
	}
	for _, column := range slices.Sorted(maps.Keys(changes)) {
		value := values[column]
		if plain, is := value.(string); is {
			value = text.OneLine(plain, 200)
		}
		d.Line("  %s: %s", strings.TrimSuffix(column, "_ms"), value)
	}
}
