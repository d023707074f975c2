package schedules

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job/schedule"
)

// scheduleInput is the input of `schedules add`.
type scheduleInput struct {
	scheduleRef
	Cron     string   `flag:"cron" label:"CRON" help:"minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly"`
	Every    string   `flag:"every" label:"DURATION" help:"between occurrences, 1s to 8784h"`
	TimeZone string   `flag:"time-zone" label:"ZONE" help:"of --cron, such as Asia/Seoul (default UTC)"`
	Types    []string `flag:"type" label:"TYPE" values:"types" help:"job type, such as inbox or push; several make a group"`
	Category string   `flag:"category" label:"CATEGORY" values:"categories list" help:"popular_content, question_content, operator_notice, or your own"`
	content.Input
	content.AudienceChoice
	Lane          string `flag:"lane" label:"LANE" values:"lanes list" help:"of the jobs (default: default)"`
	Priority      int    `flag:"priority" label:"N" help:"-1000 to 1000, higher is more urgent (default 0)" min:"-1000" max:"1000"`
	MaxRecipients *int   `flag:"max-recipients" label:"N" min:"1" max:"2000000000" help:"a job stops before it writes more rows (default: the category's ceiling)"`
	NeedsApproval bool   `flag:"needs-approval" help:"each job waits for a second person's approval, even if the category does not require it"`
	DeliverAfter  string `flag:"deliver-after" label:"DURATION" help:"deliver messages this long after the occurrence (default: immediately)"`
	ExpiresAfter  string `flag:"expires-after" label:"DURATION" help:"a job is EXPIRED if it did not start within this time after the occurrence (default: never)"`
	// A query runs with the rights of the daemon, which no token gives.
	Query        string `flag:"query" label:"SQL" help:"returns a row for each job, up to 100" local:"true"`
	Values       bool   `flag:"values" help:"the query returns the values of recipients: channel_id and value" local:"true"`
	QueryTimeout string `flag:"query-timeout" label:"DURATION" help:"maximum duration of the query, 1s to 5m (default 10s)" local:"true"`
	QueryRole    string `flag:"query-role" label:"ROLE" help:"database role of the query; you must be allowed to SET ROLE to it (default: the daemon's role)" local:"true"`
	Missed       string `flag:"missed" label:"POLICY" values:"missed" help:"how to fire missed occurrences: skip, once or all (default once)"`
	MissedAfter  string `flag:"missed-after" label:"DURATION" help:"an occurrence later than this is missed (default 10m)"`
	NoTry        bool   `flag:"no-try" help:"store it without a trial, for a query whose relations do not exist yet"`
	operation.VersionFlag
	operation.Act
}

func (in scheduleInput) Check(operation.Operation, time.Time) error {
	_, err := in.definition()
	return err
}

// Resource returns the schedule, which may not exist yet.
func (in scheduleInput) Resource() operation.Resource {
	r := scheduleRef{in.Name}.Resource()
	r.NotFound = nil
	return r
}

// definition returns the requested schedule.
func (in scheduleInput) definition() (d schedule.Definition, err error) {
	d = schedule.Definition{
		Name: in.Name, Cron: in.Cron, Every: in.Every, TimeZone: in.TimeZone, Query: in.Query, QueryTimeout: in.QueryTimeout,
		QueryRole: in.QueryRole, Missed: schedule.Policy(in.Missed), After: in.MissedAfter,
		Template: schedule.Template{
			Types: in.Types, Category: in.Category, Title: in.Title, Body: in.Body, Route: in.Route, Lane: in.Lane,
			Priority: in.Priority, MaxRecipients: in.MaxRecipients, NeedsApproval: in.NeedsApproval, DeliverAfter: in.DeliverAfter,
			ExpiresAfter: in.ExpiresAfter, Values: in.Values,
		},
	}
	var audience json.RawMessage
	if in.Given() || d.Query == "" || in.Values {
		var chosen channels.Audience
		if chosen, err = in.Audience(); err != nil {
			return d, err
		}
		if audience, err = json.Marshal(chosen); err != nil {
			return d, err
		}
	}
	for _, object := range []struct {
		param string
		text  json.RawMessage
		to    *map[string]any
	}{
		{"data", json.RawMessage(in.Data), &d.Template.Data},
		{"variants", json.RawMessage(in.Variants), &d.Template.Variants},
		{"audience", audience, &d.Template.Audience},
	} {
		if object.text == nil {
			continue
		}
		if err := config.ParseJSON(object.text, object.to); err != nil {
			return d, operation.Invalid(object.param, "%s", err)
		}
	}
	var bad operation.InvalidError
	for _, problem := range keys.Flatten(d.Validate("")) {
		param, text := "", problem.Error()
		if key, rest, ok := strings.Cut(text, ": "); ok {
			param, text = strings.TrimPrefix(key, "template."), rest
		}
		if param == "types" {
			param = "type"
		}
		bad.Add(param, "%s", text)
	}
	return d, bad.OrNil()
}

// storedSchedule is a schedule after a change.
type storedSchedule struct {
	schedule.Schedule
	Change schedule.Change `json:"change"`
	// WouldMake lists the jobs that it would enqueue now. It is empty with no_try.
	WouldMake []wouldMake `json:"would_make"`
}

func scheduleAddOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "schedules add", Short: "Define a schedule in the database, or change one", Role: operation.Operator, Changes: true,
		Events: scheduleEvents, Deadline: content.PreviewDeadline,
		Usage: "NAME {--cron CRON | --every DURATION} --type TYPE --category CATEGORY --title TITLE AUDIENCE",
		Long: `Define a schedule in the database, or change the schedule of that name. Each occurrence
enqueues one job, or a group if there are several types. With --query each row of the
query enqueues one job. Its columns have the names of the configuration keys (title, body,
data, variants, route, audience, category, lane, priority, max_recipients, needs_approval,
deliver_after, expires_after) and override the flags; the audience is optional then. The
query is read-only and runs for --query-timeout at most. With --values its columns are
channel_id and value instead: an occurrence enqueues one job with the content of single
recipients. With --query-role it runs with the
rights of that role and cannot leave it.

The schedule is tried before it is stored: its query runs once, the database checks the
jobs that it would create now, and the transaction is rolled back. A failed trial rejects
the schedule. --no-try stores it without a trial.

` + content.AudienceHelp + `

Schedules may be defined in the configuration file instead. A name has one definition.`,
		Example: `  belfry schedules add digest --cron '0 9 * * *' --time-zone Asia/Seoul --type inbox,push \
    --category popular_content --title "Ten things today" --everyone --expires-after 2h
  belfry schedules add popular --every 6h --type inbox --category popular_content --everyone \
    --query 'SELECT title, jsonb_build_object(''post'', id) AS data FROM posts ORDER BY views DESC LIMIT 1'`,
	}, func(ctx context.Context, env *operation.Env, in scheduleInput) (storedSchedule, error) {
		d, err := in.definition()
		if err != nil {
			return storedSchedule{}, err
		}
		store := schedule.NewStore(env.DB)
		var makes []wouldMake
		if !in.NoTry {
			if makes, err = trySchedule(ctx, env, schedule.Schedule{Definition: d}, operation.ActBy(env, in)); err != nil {
				return storedSchedule{}, trialFailed(err)
			}
		}
		change, err := store.Put(ctx, d, schedule.FromDatabase, operation.ActBy(env, in))
		if err != nil {
			return storedSchedule{}, scheduleProblem(err)
		}
		s, err := store.Get(ctx, d.Name)
		if err != nil {
			return storedSchedule{}, scheduleProblem(err)
		}
		return storedSchedule{s, change, makes}, nil
	}, func(p *text.Doc, in scheduleInput, out storedSchedule) {
		p.Line("schedule %s %s; %s", text.Ref("schedule", out.Name), strings.ToLower(string(out.Change)), nextCommand(out.Name))
		if !in.NoTry {
			p.Note("%s", wouldMakeText(out.WouldMake))
		}
	})
}

// trialFailed returns an error of the input if the definition caused a failed trial.
func trialFailed(err error) error {
	if schedule.OwnFault(err) {
		return operation.Invalid("", "the trial of the schedule failed, and it was not stored: %s; use --no-try to store it without a trial", err)
	}
	return err
}
