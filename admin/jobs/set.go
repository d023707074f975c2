package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/content"
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
	MaxSkips         operation.Change[int]                `change:"max_skips" min:"0" max:"10000000" reset:"default,none" allowed:"0 (skip none) to 10000000, or default"`
	MaxRecipients    operation.Change[int]                `change:"max_recipients" min:"1" max:"2000000000" reset:"none" allowed:"1 to 2000000000, the maximum number of its rows, or none"`
	Priority         operation.Change[int]                `change:"priority" min:"-1000" max:"1000" allowed:"-1000 to 1000, higher is more urgent"`
	ScheduleAt       operation.Change[operation.Instant]  `change:"schedule_at" allowed:"RFC 3339, +2h from now, or \"2026-11-20 08:50\" in local time"`
	DeliverAt        operation.Change[operation.Instant]  `change:"deliver_at" reset:"default,none" allowed:"RFC 3339, +2h from now, or \"2026-11-20 08:50\" in local time, or default (at once)"`
	ExpiresAt        operation.Change[operation.Instant]  `change:"expires_at" reset:"default,none" allowed:"RFC 3339, +2h from now, or \"2026-11-20 08:50\" in local time, or default (never)"`
	Lane             operation.Change[string]             `change:"lane" values:"lanes list" allowed:"1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit"`
	Category         operation.Change[string]             `change:"category" values:"categories list" allowed:"categories of belfry.categories"`
	Title            operation.Change[string]             `change:"title" allowed:"texts of 1 to 200 characters"`
	Body             operation.Change[string]             `change:"body" allowed:"texts of up to 10000 characters"`
	Data             operation.Change[content.JSONObject] `change:"data" allowed:"JSON objects of up to 16384 bytes"`
	Variants         operation.Change[content.JSONObject] `change:"variants" file:"true" reset:"none,default" allowed:"JSON objects of titles and bodies by locale, files with one, or none"`
	Route            operation.Change[[]string]           `change:"route" values:"media" reset:"default,none" allowed:"media in the order of attempts, such as push,sms, or default (the category's)"`
	Audience         operation.Change[content.AudienceOf] `change:"audience" allowed:"JSON in the format of belfry.jobs.audience"`
	operation.VersionFlag
	operation.Act
}

// changes returns the changed columns.
func (in jobChange) changes(env *operation.Env) job.Changes {
	changes := make(job.Changes)
	change(changes, "max_rows_per_second", in.MaxRowsPerSecond)
	change(changes, "duty_cycle", in.DutyCycle)
	change(changes, "chunk_target_ms", in.ChunkTarget)
	change(changes, "max_chunk_rows", in.MaxChunkRows)
	change(changes, "health_checks", in.HealthChecks)
	change(changes, "max_skips", in.MaxSkips)
	change(changes, "max_recipients", in.MaxRecipients)
	change(changes, "priority", in.Priority)
	for column, at := range map[string]operation.Change[operation.Instant]{"schedule_at": in.ScheduleAt, "deliver_at": in.DeliverAt,
		"expires_at": in.ExpiresAt} {
		if change(changes, column, at); at.To != nil {
			changes[column] = at.To.At(env.Time())
		}
	}
	change(changes, "lane", in.Lane)
	change(changes, "category", in.Category)
	change(changes, "title", in.Title)
	change(changes, "body", in.Body)
	change(changes, "data", in.Data)
	if change(changes, "variants", in.Variants); in.Variants.Asked && in.Variants.To == nil {
		changes["variants"] = json.RawMessage("{}") // the column is never NULL
	}
	change(changes, "route", in.Route)
	change(changes, "audience", in.Audience)
	return changes
}

func jobSetOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "jobs set", Short: "Change a job: its load, its priority and times, its content", Role: operation.Operator, Changes: true,
		Events: "the job's events",
		Long: `Change a job. Settings of the walk, priority and times can change at any time, with effect
from the next chunk. Content, audience and lane cannot change while the job runs: abort it,
then correct it with ` + "`belfry resume ID --edit`" + `. The route cannot change after the start of
the job. The job's events have the actor, the reason, and the values before and after.
` + "`default`" + `, or nothing after the =, resets a setting to the runner's.

Keys and allowed values:

{keys}`,
		SQL: `UPDATE belfry.jobs SET max_rows_per_second = 5000 WHERE id = 17;`,
		Example: `  belfry jobs set 17 max_rows_per_second=5000 --reason "checkout is slow"
  belfry jobs set 17 max_rows_per_second=default duty_cycle=25% chunk_target=50ms
  belfry jobs set 17 priority=100 expires_at=+2h`,
	}, func(ctx context.Context, env *operation.Env, in jobChange) (job.Job, error) {
		j, err := env.Jobs.Set(ctx, in.ID, in.changes(env), operation.ActBy(env, in))
		return j, operation.NoSuchJob(operation.Refused(err, map[string]string{"chunk_target_ms": "chunk_target"}))
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
		"category": j.Category, "title": j.Title, "body": j.Body, "data": operation.CompactJSON(j.Data), "variants": locales(j.Variants),
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
