package schedules

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/enqueue"
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
	TimeZone string   `flag:"time-zone" label:"ZONE" help:"of --cron, as Asia/Seoul (default UTC)"`
	Types    []string `flag:"type" label:"TYPE" values:"types" help:"job type, as inbox or push; several make a group"`
	Category string   `flag:"category" label:"CATEGORY" values:"categories list" help:"popular_content, question_content, operator_notice, or your own"`
	enqueue.ContentInput
	enqueue.AudienceChoice
	Lane          string `flag:"lane" label:"LANE" values:"lanes list" help:"of the jobs (default: default)"`
	Priority      int    `flag:"priority" label:"N" help:"-1000 to 1000, higher is more urgent (default 0)" min:"-1000" max:"1000"`
	MaxRecipients *int   `flag:"max-recipients" label:"N" min:"1" max:"2000000000" help:"a job stops before it writes more rows (default: the category's ceiling)"`
	NeedsApproval bool   `flag:"needs-approval" help:"each job waits for a second person's approval, also where the category does not demand it"`
	DeliverAfter  string `flag:"deliver-after" label:"DURATION" help:"deliver messages so long after the occurrence (default: at once)"`
	ExpiresAfter  string `flag:"expires-after" label:"DURATION" help:"EXPIRED if a job did not start so long after the occurrence (default: never)"`
	// A query runs with the rights of the daemon, which no token gives.
	Query        string `flag:"query" label:"SQL" help:"returns a row for each job, up to 100" local:"true"`
	QueryTimeout string `flag:"query-timeout" label:"DURATION" help:"how long the query may take, 1s to 5m (default 10s)" local:"true"`
	QueryRole    string `flag:"query-role" label:"ROLE" help:"the database's role that the query runs as, which you may become by SET ROLE (default: the daemon's)" local:"true"`
	Missed       string `flag:"missed" label:"POLICY" values:"missed" help:"what becomes of missed occurrences: skip, once or all (default once)"`
	MissedAfter  string `flag:"missed-after" label:"DURATION" help:"an occurrence later than this is missed (default 10m)"`
	NoTry        bool   `flag:"no-try" help:"store it untried, for a query whose relations come later"`
	operation.VersionFlag
	operation.Act
}

func (in scheduleInput) Check(operation.Operation, time.Time) error {
	_, err := in.definition()
	return err
}

// resource is a schedule that may not exist yet.
func (in scheduleInput) Resource() operation.Resource {
	r := scheduleRef{in.Name}.Resource()
	r.NotFound = nil
	return r
}

// definition is the schedule that is asked for.
func (in scheduleInput) definition() (d schedule.Definition, err error) {
	d = schedule.Definition{
		Name: in.Name, Cron: in.Cron, Every: in.Every, TimeZone: in.TimeZone, Query: in.Query, QueryTimeout: in.QueryTimeout,
		QueryRole: in.QueryRole, Missed: schedule.Policy(in.Missed), After: in.MissedAfter,
		Template: schedule.Template{
			Types: in.Types, Category: in.Category, Title: in.Title, Body: in.Body, Route: in.Route, Lane: in.Lane,
			Priority: in.Priority, MaxRecipients: in.MaxRecipients, NeedsApproval: in.NeedsApproval, DeliverAfter: in.DeliverAfter, ExpiresAfter: in.ExpiresAfter,
		},
	}
	var audience json.RawMessage
	if in.Given() || d.Query == "" {
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

// keptSchedule is a schedule as it is kept now.
type keptSchedule struct {
	schedule.Schedule
	// Change is what became of it.
	Change schedule.Change `json:"change"`
	// WouldMake is what it would enqueue now; none with no_try: it was not tried.
	WouldMake []wouldMake `json:"would_make"`
}

func scheduleAddOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "schedules add", Short: "Define a schedule in the database, or change one", Role: operation.Operator, Changes: true, Events: scheduleEvents, Deadline: enqueue.PreviewDeadline,
		Usage: "NAME {--cron CRON | --every DURATION} --type TYPE --category CATEGORY --title TITLE AUDIENCE",
		Long: `Define a schedule in the database, or change the one of that name. Each occurrence
enqueues one job, or with several types a group. With --query each row of the query
enqueues one: its columns, named as the flags are in the configuration (title, body,
data, variants, route, audience, category, lane, priority, max_recipients, needs_approval,
deliver_after, expires_after), replace what the flags say, and no audience has to be
given. A query runs read only, for --query-timeout at the most, and as --query-role if
one is named: it cannot leave that role, and sees what that may see.

The schedule is tried before it is stored: its query runs once, the database checks the
jobs that it would make now, and these are rolled back and counted. A fault refuses the
schedule, unless --no-try stores it untried.

` + enqueue.AudienceHelp + `

Schedules may be kept in the configuration file instead; one name comes from one
place.`,
		Example: `  belfry schedules add digest --cron '0 9 * * *' --time-zone Asia/Seoul --type inbox,push \
    --category popular_content --title "Ten things today" --everyone --expires-after 2h
  belfry schedules add popular --every 6h --type inbox --category popular_content --everyone \
    --query 'SELECT title, jsonb_build_object(''post'', id) AS data FROM posts ORDER BY views DESC LIMIT 1'`,
	}, func(ctx context.Context, env *operation.Env, in scheduleInput) (keptSchedule, error) {
		d, err := in.definition()
		if err != nil {
			return keptSchedule{}, err
		}
		store := schedule.NewStore(env.DB)
		var makes []wouldMake
		if !in.NoTry {
			if makes, err = trySchedule(ctx, env, schedule.Schedule{Definition: d}, operation.ActBy(env, in)); err != nil {
				return keptSchedule{}, untried(err)
			}
		}
		change, err := store.Put(ctx, d, schedule.FromDatabase, operation.ActBy(env, in))
		if err != nil {
			return keptSchedule{}, scheduleProblem(err)
		}
		s, err := store.Get(ctx, d.Name)
		if err != nil {
			return keptSchedule{}, scheduleProblem(err)
		}
		return keptSchedule{s, change, makes}, nil
	}, func(p *text.Doc, in scheduleInput, out keptSchedule) {
		p.Printf("schedule %s %s; `belfry schedules next %s` says when it fires\n", out.Name, strings.ToLower(string(out.Change)), out.Name)
		if !in.NoTry {
			p.Note("%s", wouldMakeText(out.WouldMake))
		}
	})
}

// untried makes a fault of a definition that was tried a matter of the input.
func untried(err error) error {
	if schedule.OwnFault(err) {
		return operation.Invalid("", "the schedule was tried and not stored: %s; --no-try stores it untried", err)
	}
	return err
}
