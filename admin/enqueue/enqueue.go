package enqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
)

// enqueueInput is the input of `enqueue`.
type enqueueInput struct {
	Types    []string `flag:"type" label:"TYPE" values:"types" help:"job type, such as inbox or push; several make a group"`
	Category string   `flag:"category" label:"CATEGORY" values:"categories list" help:"popular_content, question_content, operator_notice, or your own"`
	content.Input
	content.AudienceChoice
	At             *operation.Instant `flag:"at" label:"TIME" help:"do not start before this time (default: now)"`
	DeliverAt      *operation.Instant `flag:"deliver-at" label:"TIME" help:"deliver messages at this time, which may be after --at (default: at once)"`
	ExpiresAt      *operation.Instant `flag:"expires-at" label:"TIME" help:"EXPIRED if it did not start by this time (default: never)"`
	ExpiresIn      *operation.Span    `flag:"expires-in" label:"DURATION" help:"EXPIRED if it did not start within this time after --at"`
	Lane           string             `flag:"lane" label:"LANE" values:"lanes list" help:"jobs in one lane exclude each other (default: default)"`
	Priority       int                `flag:"priority" label:"N" min:"-1000" max:"1000" help:"-1000 to 1000, higher is more urgent (default 0)"`
	MaxRecipients  *int               `flag:"max-recipients" label:"N" min:"1" max:"2000000000" help:"maximum number of rows of each job (default: the category's ceiling)"`
	MaxRows        *int               `flag:"max-rows-per-second" label:"N" min:"0" max:"10000000" help:"rows written per second at most; 0: no limit (default: the runner's setting)"`
	NeedsApproval  bool               `flag:"needs-approval" help:"wait for a second person's approval, even if the category does not require it"`
	IdempotencyKey string             `flag:"idempotency-key" label:"KEY" help:"a repeated request with this key returns the first job"`
	RequestedBy    string             `flag:"requested-by" local:"true" label:"WHO" help:"the requester (default: user@host)"`
	ConfirmCount   *int64             `flag:"confirm-count" label:"N" min:"0" help:"enqueue only if the audience has exactly N channels now"`
	Preview        bool               `flag:"preview" help:"enqueue nothing, show the expected recipients and messages"`
}

func (in enqueueInput) Plans() bool { return in.Preview }

// Check validates the input without the database.
func (in enqueueInput) Check(_ operation.Operation, now time.Time) error {
	if _, err := in.Audience(); err != nil || in.Preview {
		return err
	}
	var missing []string
	for _, f := range []struct{ flag, value string }{
		{"--type", strings.Join(in.Types, "")}, {"--category", in.Category}, {"--title", in.Title},
	} {
		if strings.TrimSpace(f.value) == "" {
			missing = append(missing, f.flag)
		}
	}
	at, expires, deliver := in.At.Given(now), in.ExpiresAt.Given(now), in.DeliverAt.Given(now)
	switch {
	case len(missing) > 0:
		return operation.Invalid("", "%s needed", strings.Join(missing, ", "))
	case at != nil && deliver != nil && deliver.Before(*at):
		return operation.Invalid("deliver_at", "is before --at; allowed values: the same time or a later one")
	case in.ExpiresAt != nil && in.ExpiresIn != nil:
		return operation.Invalid("", "--expires-at and --expires-in exclude each other; give one")
	case expires != nil && at != nil && !expires.After(*at):
		return operation.Invalid("expires_at", "is not after --at; allowed values: later times")
	}
	return nil
}

// late is the age from which a past time needs a confirmation.
const late = time.Minute

// confirmLate requests a confirmation of a time in the past.
func confirmLate(ctx context.Context, env *operation.Env, in enqueueInput) (operation.Question, error) {
	at := in.At.Given(env.Time())
	if at == nil || in.Preview || env.Time().Sub(*at) <= late {
		return operation.Question{}, nil
	}
	why := fmt.Sprintf("--at %s is %s ago: the job would start at once", text.LocalClock(*at), text.Short(env.Time().Sub(*at)))
	return operation.Question{Why: why, Text: why + ". Enqueue it?", If: "that is meant"}.ToMany(in.reach(ctx, env)), nil
}

// reach returns the number of channels of the audience, or 0 if it cannot be counted in time. The
// operation itself reports an invalid audience.
func (in enqueueInput) reach(ctx context.Context, env *operation.Env) int64 {
	audience, err := in.Audience()
	if err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, content.PreviewDeadline)
	defer cancel()
	n, err := env.Channels.Count(ctx, env.Reads(), audience)
	if err != nil {
		return 0
	}
	return n
}

// spec returns the request for one job.
func (in enqueueInput) spec(env *operation.Env, audience channels.Audience) job.Spec {
	now := env.Time()
	spec := job.Spec{
		Category: in.Category, Title: in.Title, Body: in.Body, Data: json.RawMessage(in.Data), Variants: json.RawMessage(in.Variants),
		Route: in.Route, Audience: audience, Lane: in.Lane, Priority: in.Priority, MaxRecipients: in.MaxRecipients,
		MaxRowsPerSecond: in.MaxRows,
		NeedsApproval:    in.NeedsApproval || env.Role.NeedsApproval(audience),
		ScheduleAt:       in.At.Given(now), DeliverAt: in.DeliverAt.Given(now), ExpiresAt: in.ExpiresAt.Given(now),
		IdempotencyKey: in.IdempotencyKey, RequestedBy: in.RequestedBy,
	}
	if in.ExpiresIn != nil { // without --at from now, by this machine's clock
		if spec.ScheduleAt != nil {
			now = *spec.ScheduleAt
		}
		expires := now.Add(time.Duration(*in.ExpiresIn)).UTC()
		spec.ExpiresAt = &expires
	}
	if spec.RequestedBy == "" {
		spec.RequestedBy = env.Actor
	}
	return spec
}

// enqueued is the result of a request: jobs, a preview or a count. One of its fields is set, and
// its JSON is the JSON of that field.
type enqueued struct {
	jobs    *enqueuedJobs
	preview *Preview
	count   *audienceCount
}

// MarshalJSON returns the JSON of the field that is set.
func (e enqueued) MarshalJSON() ([]byte, error) {
	switch {
	case e.jobs != nil:
		return json.Marshal(e.jobs)
	case e.preview != nil:
		return json.Marshal(e.preview)
	}
	return json.Marshal(e.count)
}

// UnmarshalJSON sets the field that the keys indicate.
func (e *enqueued) UnmarshalJSON(b []byte) error {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(b, &has); err != nil {
		return err
	}
	switch {
	case has["jobs"] != nil:
		return json.Unmarshal(b, &e.jobs)
	case has["has_messages"] != nil:
		return json.Unmarshal(b, &e.preview)
	}
	return json.Unmarshal(b, &e.count)
}

func (enqueued) JSONTypes() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[enqueuedJobs](), reflect.TypeFor[Preview](), reflect.TypeFor[audienceCount]()}
}

// Preview returns the preview, or nil.
func (e enqueued) Preview() *Preview { return e.preview }

// Jobs returns the enqueued jobs.
func (e enqueued) Jobs() []job.Job {
	if e.jobs == nil {
		return nil
	}
	return e.jobs.Jobs
}

// Remarks are probable mistakes in the request.
func (e enqueued) Remarks() []string {
	if e.jobs == nil {
		return nil
	}
	return e.jobs.Remarks
}

// Repeated reports whether an earlier request with the same idempotency key created a job.
func (e enqueued) Repeated(j job.Job) bool {
	return e.jobs != nil && j.CreatedAt.Before(e.jobs.AskedAt)
}

// Masked masks the field that is set.
func (e enqueued) Masked(mask func(any) any) any {
	e.jobs, _ = mask(e.jobs).(*enqueuedJobs)
	e.preview, _ = mask(e.preview).(*Preview)
	e.count, _ = mask(e.count).(*audienceCount)
	return e
}

func (e enqueued) Affected(string) operation.Affected {
	if e.jobs == nil {
		return operation.Affected{Nothing: true}
	}
	return operation.Affected{N: int64(len(e.jobs.Jobs)), Noun: "job"}
}

// enqueuedJobs are the jobs of a request. Jobs of several types are a group.
type enqueuedJobs struct {
	GroupID *uuid.UUID `json:"group_id"`
	Jobs    []job.Job  `json:"jobs"`
	// AskedAt is the time of the request, by the database's clock. An older job belongs to an earlier
	// request with the same idempotency key.
	AskedAt time.Time `json:"asked_at"`
	// Remarks are probable mistakes in the request.
	Remarks []string `json:"remarks,omitempty"`
}

func enqueueOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "enqueue", Short: "Request a bulk notification, or several of different types as a group",
		Usage: "--type TYPE --category CATEGORY --title TITLE AUDIENCE", Role: operation.Author, Changes: true, Deadline: content.PreviewDeadline,
		Confirm: operation.Confirming(confirmLate),
		Long: `Request a bulk notification: one job, or with several types a group of jobs that
are shown, aborted and resumed together. The output is the ids, one per line.

` + content.AudienceHelp + `

Messages go by the category's route, or by --route. TITLE, TEXT and variants may refer to
the channel, such as {{attributes.name | default "friend"}}. A channel gets the variant of
its locale, if there is one.

With --category, --preview shows the expected messages; without it, it counts channels.
` + previewHelp + `

A job is ABORTED before it writes more rows than --max-recipients; its error contains the
next step. With --confirm-count the default is the count plus half of it, and plus 10 at
least, unless the category has a lower ceiling. This stops a job whose audience has grown
unexpectedly.

A job of a category with approval_above waits for a second person (` + "`belfry jobs approve`" + `)
unless its --max-recipients is not above that; with --needs-approval any job does.

A time in the past needs a confirmation at a terminal, and --yes elsewhere. For more than
1,000 channels, the confirmation is their number.

A job that did not start before --expires-at, because its lane was paused or no runner was
alive, becomes EXPIRED instead of being sent at 3 a.m.

Times: RFC 3339 such as 2026-11-20T08:50:00+09:00, +10m from now, or "2026-11-20 08:50"
in the local time zone.`,
		SQL: `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'popular_content', 'This week');`,
		Example: `  belfry enqueue --type inbox,push --category popular_content --title "This week" --everyone
  belfry enqueue --type push --category question_content --title "Who knows?" --near 37.57,126.98 --radius 30km
  belfry enqueue --type push --category popular_content --title "This week" --variants week.json --route push,sms --everyone
  belfry enqueue --type inbox --category operator_notice --title "Maintenance" --platform ios,android --at "2026-11-20 08:50"
  belfry enqueue --near 37.57,126.98 --radius 30km --preview`,
	}, enqueue, enqueuedText)
}

func enqueue(ctx context.Context, env *operation.Env, in enqueueInput) (made enqueued, err error) {
	audience, err := in.Audience()
	if err != nil {
		return enqueued{}, err
	}
	if err := env.Role.MayFind(audience); err != nil {
		return enqueued{}, err
	}
	switch {
	case in.Preview && in.Category == "":
		made.count, err = countOf(ctx, env, audience)
	case in.Preview:
		made.preview, err = preview(ctx, env, in.content(env.Time()), audience)
		if err == nil {
			err = in.withinLimits(ctx, env, audience)
		}
		if err == nil && len(in.Types) > 0 {
			made.preview.Lane = upcoming.ConflictsOf(ctx, env, job.Request{Types: in.Types, Spec: in.spec(env, audience)})
		}
	default:
		if err = in.confirmCount(ctx, env, audience); err == nil {
			in.MaxRecipients, err = in.ceiling(ctx, env)
		}
		if err == nil {
			made.jobs, err = enqueueJobs(ctx, env, in.Types, in.spec(env, audience))
		}
		if err == nil {
			made.jobs.Remarks = unknownChannels(ctx, env, audience)
		}
	}
	if err != nil {
		return enqueued{}, err
	}
	return made, nil
}

// withinLimits rejects a preview of a request that exceeds the limits of its role. The database checks
// the job in a transaction that is rolled back. Limits concern only the priority, max_recipients
// and max_rows_per_second.
func (in enqueueInput) withinLimits(ctx context.Context, env *operation.Env, audience channels.Audience) error {
	if env.Role >= operation.Operator || in.Priority <= 0 && in.MaxRecipients == nil && in.MaxRows == nil {
		return nil
	}
	request := in
	request.IdempotencyKey = ""
	if len(request.Types) == 0 {
		request.Types = []string{outbox.TypeInbox}
	}
	if strings.TrimSpace(request.Title) == "" {
		request.Title = "-"
	}
	spec := request.spec(env, audience)
	_, err := env.Enqueuer().EnqueueAll(ctx, []job.Request{{Types: request.Types, Spec: spec}},
		func([]job.Requested) error { return operation.ErrPlanned })
	var at *job.RequestError
	switch {
	case errors.Is(err, operation.ErrPlanned):
		return nil
	case errors.As(err, &at):
		return enqueueRefused(at.Err, spec)
	}
	return err
}

// content returns the content for a preview.
func (in enqueueInput) content(now time.Time) compose.Content {
	what := compose.Content{
		Category: in.Category, Title: in.Title, Body: in.Body, Data: json.RawMessage(in.Data), Variants: json.RawMessage(in.Variants),
		Route:    in.Route,
		Messages: len(in.Types) == 0 || slices.ContainsFunc(in.Types, func(t string) bool { return t != outbox.TypeInbox }),
	}
	for _, at := range []*operation.Instant{in.DeliverAt, in.At} {
		if at != nil && what.At.IsZero() {
			what.At = at.At(now)
		}
	}
	return what
}

// confirmCount returns an error if the size of the audience differs from the confirmed count.
func (in enqueueInput) confirmCount(ctx context.Context, env *operation.Env, audience channels.Audience) error {
	if in.ConfirmCount == nil {
		return nil
	}
	c, err := countOf(ctx, env, audience)
	if err != nil {
		return err
	}
	if confirmed, _ := env.Role.Coarse(*in.ConfirmCount, audience); c.Channels == confirmed {
		return nil
	}
	return operation.Conflict("the audience has %s channels now, but --confirm-count is %s; nothing was enqueued",
		operation.AtMostText(c.Channels, c.AtMost), text.Grouped(*in.ConfirmCount))
}

// leastGrowth is the growth of a confirmed audience that is always allowed.
const leastGrowth = 10

// ceiling returns the maximum number of rows of a job: max_recipients, or 1.5 times the confirmed count,
// so that an audience that doubles after the confirmation stops the job. Nil means the category's
// ceiling, because it is lower or no count was confirmed.
func (in enqueueInput) ceiling(ctx context.Context, env *operation.Env) (*int, error) {
	if in.ConfirmCount == nil || in.MaxRecipients != nil {
		return in.MaxRecipients, nil
	}
	n := int(min(*in.ConfirmCount, job.MostRecipients/2))
	n += max(n/2, leastGrowth)
	lower, err := env.Enqueuer().HasCeiling(ctx, in.Category, n)
	if err != nil || lower {
		return nil, err
	}
	return &n, nil
}

// enqueueJobs requests the jobs.
func enqueueJobs(ctx context.Context, env *operation.Env, types []string, spec job.Spec) (*enqueuedJobs, error) {
	ctx, cancel := context.WithTimeout(ctx, operation.DefaultDeadline)
	defer cancel()
	now, err := env.Jobs.Now(ctx)
	if err != nil {
		return nil, err
	}
	made := &enqueuedJobs{Jobs: make([]job.Job, 0, len(types)), AskedAt: now}
	var ids []int64
	if len(types) == 1 {
		spec.Type = types[0]
		ids = make([]int64, 1)
		ids[0], err = env.Enqueuer().Enqueue(ctx, spec)
	} else {
		ids, err = env.Enqueuer().EnqueueGroup(ctx, types, spec)
	}
	if err != nil {
		return nil, enqueueRefused(err, spec)
	}
	for _, id := range ids {
		j, err := env.Jobs.Get(ctx, id)
		if err != nil {
			return nil, operation.AfterCommit(err, fmt.Sprintf("the request was enqueued: `belfry jobs show %d`", ids[0]))
		}
		made.Jobs, made.GroupID = append(made.Jobs, j), j.GroupID
	}
	return made, nil
}

// enqueueRefused attributes an error of the database to a parameter, and adds the next step if the
// outcome is unknown.
func enqueueRefused(err error, spec job.Spec) error {
	var bad *job.InvalidError
	switch {
	case errors.As(err, &bad):
		return content.Refused(bad)
	case errors.Is(err, job.ErrKeyHeld):
		return &operation.HeldError{Err: err}
	case errors.Is(err, job.ErrUnreachable) && spec.IdempotencyKey == "":
		return operation.Advise(err,
			"the job may have been enqueued; check `belfry jobs list` before you repeat the request (--idempotency-key makes that safe)")
	}
	return err
}

// unknownChannels returns a remark about listed channels that do not exist. A database role that may
// only enqueue cannot check them.
func unknownChannels(ctx context.Context, env *operation.Env, audience channels.Audience) []string {
	n, sample, err := env.Channels.Unknown(ctx, env.Reads(), audience)
	switch {
	case err != nil:
		return []string{"the existence of the listed channels could not be checked: " + text.OneLine(err.Error(), 200)}
	case n > 0:
		return []string{text.Counted(n, "listed id") + " without a channel now, such as " + strings.Join(sample, ", ")}
	}
	return nil
}

func enqueuedText(p *text.Doc, in enqueueInput, out enqueued) {
	switch {
	case out.jobs != nil:
		out.jobs.text(p, in)
	case out.preview != nil:
		out.preview.Text(p)
	case out.count != nil:
		out.count.text(p)
	}
	if out.jobs != nil {
		for _, remark := range out.jobs.Remarks {
			p.Note("%s", remark)
		}
	}
}

// text writes the jobs' ids, and notes about them.
func (e *enqueuedJobs) text(p *text.Doc, in enqueueInput) {
	for _, j := range e.Jobs {
		id := text.Ref("job", j.ID)
		p.Line("%s", id)
		if j.CreatedAt.Before(e.AskedAt) {
			p.Note("job %s was enqueued before, at %s, with the same idempotency key; it is %s%s", id, j.CreatedAt, text.Status(j.Status),
				in.differing(j))
			continue
		}
		due := text.Sprintf("now; a daemon runs it, or %s", text.Command("run"))
		if wait := j.ScheduleAt.Sub(e.AskedAt); wait > time.Second {
			due = text.Sprintf("%s, in %s", j.ScheduleAt, wait)
		}
		p.Note("enqueued job %s (%s) in lane %s, due %s", id, j.Type, text.Ref("lane", j.Lane), due)
		if j.AwaitsApproval() {
			p.Note("it waits for the approval of a second person: %s", text.Command("jobs approve", j.ID).Flag("dry-run"))
		}
	}
	if e.GroupID != nil {
		p.Note("group %s", text.Ref("group", e.GroupID))
	}
}

// differing lists the fields in which a repeated request differs from the existing job.
func (in enqueueInput) differing(j job.Job) string {
	audience, err := in.Audience()
	var names []string
	for _, one := range []struct {
		name string
		same bool
	}{
		{"category", j.Category == in.Category},
		{"title", j.Title == in.Title},
		{"body", j.Body == in.Body},
		{"audience", err == nil && reflect.DeepEqual(j.Audience, audience)},
		{"route", in.Route == nil || slices.Equal(j.Route, in.Route)},
	} {
		if !one.same {
			names = append(names, one.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; warning: this request has a different " + strings.Join(names, ", ") + ", which is ignored"
}
