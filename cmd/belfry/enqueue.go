package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/compose"
)

// previewLimit bounds --preview, which has to look at every candidate.
const previewLimit = 2 * time.Minute

func newEnqueueCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enqueue --type TYPE --category CATEGORY --title TITLE AUDIENCE",
		Short: "Request a bulk notification, or several of different types as a group",
		Long: `Request a bulk notification: one job, or with several types a group of jobs that
are shown, aborted and resumed together. The ids are printed, one to a line.

` + audienceHelp + `

Messages go by the category's media, or by those of --route. TITLE, TEXT and variants
may refer to the channel, as {{attributes.name | default "friend"}}; a channel gets the
variant of its locale where there is one.

With --title and --category, --preview shows what would come of it; without, it counts.
` + "` + previewHelp + `" + `

A job that did not start before --expires-at, because its lane was paused or
nothing ran, is EXPIRED rather than sent at 3 a.m.

Times: RFC 3339 as 2026-11-20T08:50:00+09:00, +10m from now, or "2026-11-20 08:50"
in the local time zone.

The same by SQL: INSERT INTO belfry.jobs (type, category, title) VALUES (…);`,
		Example: `  belfry enqueue --type inbox,push --category popular_content --title "This week" --everyone
  belfry enqueue --type push --category question_content --title "Who knows?" --city Seoul --radius 30km
  belfry enqueue --type push --category popular_content --title "This week" --variants week.json --route push,sms --everyone
  belfry enqueue --type inbox --category operator_notice --title "Maintenance" --platform ios,android --at "2026-11-20 08:50"
  belfry enqueue --near 37.57,126.98 --radius 30km --preview`,
		Args: noArgs,
	}
	e := addEnqueueFlags(a, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		audience, err := e.audience.audience(a, cmd)
		if err != nil {
			return err
		}
		if *e.preview && (*e.title == "" || *e.category == "") {
			return a.countAudience(cmd, audience, previewLimit, *e.json)
		}
		if *e.preview {
			return e.showPreview(a, cmd, audience)
		}
		return e.enqueue(a, cmd, audience)
	}
	return cmd
}

// late is how long ago a time may lie that was meant as now.
const late = time.Minute

// enqueueFlags are the flags of `belfry enqueue`.
type enqueueFlags struct {
	audience                audienceFlags
	types                   *[]string
	category, title, body   *string
	data, variants, lane    *string
	route                   *parsed[[]string]
	idempotencyKey, request *string
	priority                *parsed[int64]
	at, deliverAt           *parsed[time.Time]
	expiresAt               *parsed[time.Time]
	expiresIn               *parsed[time.Duration]
	confirmCount            *parsed[int64]
	yes, preview, json      *bool
}

func addEnqueueFlags(a *app, cmd *cobra.Command) enqueueFlags {
	f := cmd.Flags()
	f.SortFlags = false
	instant := instantParser(a.now, time.Local)
	return enqueueFlags{
		types:          f.StringSlice("type", nil, "job `TYPE`, as inbox or push; several make a group"),
		category:       f.String("category", "", "`CATEGORY`: popular_content, question_content, operator_notice, or your own"),
		title:          f.String("title", "", "`TITLE`, 1 to 200 characters"),
		body:           f.String("body", "", "`TEXT`, up to 10,000 characters"),
		data:           f.String("data", "", "further content as a `JSON` object, up to 16,384 bytes"),
		variants:       addVariants(cmd, ""),
		route:          addRoute(cmd),
		audience:       addAudienceFlags(cmd),
		at:             flagOf(f, "at", "TIME", "do not start before this time (default: now)", instant),
		deliverAt:      flagOf(f, "deliver-at", "TIME", "deliver messages at this time, which may be after --at (default: at once)", instant),
		expiresAt:      flagOf(f, "expires-at", "TIME", "EXPIRED if it did not start by this time (default: never)", instant),
		expiresIn:      flagOf(f, "expires-in", "DURATION", "EXPIRED if it did not start so long after --at", parseDuration),
		lane:           f.String("lane", "", "`LANE`: jobs in one lane exclude each other (default: default)"),
		priority:       flagOf(f, "priority", "N", "-1000 to 1000, higher is more urgent (default 0)", intBetween(-1000, 1000)),
		idempotencyKey: f.String("idempotency-key", "", "`KEY` with which repeating the request returns the first job"),
		request:        f.String("requested-by", "", "`WHO` asks (default: user@host)"),
		confirmCount:   flagOf(f, "confirm-count", "N", "enqueue only if the audience has exactly `N` channels now", intBetween(0, math.MaxInt64)),
		yes:            f.Bool("yes", false, "yes, --at may lie in the past"),
		preview:        f.Bool("preview", false, "enqueue nothing, show what would come of it"),
		json:           addJSON(cmd),
	}
}

// enqueue requests the jobs, if the audience has as many channels as it should have.
func (e enqueueFlags) enqueue(a *app, cmd *cobra.Command, audience channels.Audience) error {
	types, spec, err := e.spec(cmd.Context(), a, audience)
	if err != nil {
		return err
	}
	limit := statementDeadline
	if e.confirmCount.value != nil {
		limit = previewLimit
	}
	return a.withDatabase(cmd, schemaCurrent, limit, func(ctx context.Context, s settings, db *database) error {
		if n := e.confirmCount.value; n != nil {
			if err := confirmAudience(ctx, s, db, audience, *n); err != nil {
				return err
			}
		}
		if err := a.enqueue(ctx, db, types, spec, *e.json); err != nil || *e.json {
			return err
		}
		a.remarkUnknown(ctx, s, db, audience)
		return nil
	})
}

// spec checks what can be checked without the database.
func (e enqueueFlags) spec(ctx context.Context, a *app, audience channels.Audience) ([]string, job.Spec, error) {
	var missing []string
	for _, f := range []struct{ name, value string }{
		{"--type", strings.Join(*e.types, "")}, {"--category", *e.category}, {"--title", *e.title},
	} {
		if strings.TrimSpace(f.value) == "" {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		return nil, job.Spec{}, usagef("%s needed", strings.Join(missing, ", "))
	}
	if e.at.value != nil && e.deliverAt.value != nil && e.deliverAt.value.Before(*e.at.value) {
		return nil, job.Spec{}, usagef("--deliver-at is before --at; allowed values: the same time or a later one")
	}
	expires, err := e.expires(a)
	if err != nil {
		return nil, job.Spec{}, err
	}
	spec := job.Spec{
		Category: *e.category, Title: *e.title, Body: *e.body, Route: e.route.or(nil), Audience: audience, Lane: *e.lane,
		Priority: int(e.priority.or(0)), ScheduleAt: e.at.value, DeliverAt: e.deliverAt.value, ExpiresAt: expires,
		IdempotencyKey: *e.idempotencyKey, RequestedBy: *e.request,
	}
	if spec.RequestedBy == "" {
		spec.RequestedBy = a.whoami()
	}
	if *e.data != "" {
		if spec.Data, err = dataOf(*e.data); err != nil {
			return nil, job.Spec{}, err
		}
	}
	if *e.variants != "" {
		if spec.Variants, err = variantsOf(*e.variants); err != nil {
			return nil, job.Spec{}, err
		}
	}
	return *e.types, spec, e.confirmLate(ctx, a)
}

// confirmLate asks whether a time that lies in the past is meant; without a terminal
// only --yes says so.
func (e enqueueFlags) confirmLate(ctx context.Context, a *app) error {
	if e.at.value == nil || *e.yes {
		return nil
	}
	ago := a.now().Sub(*e.at.value)
	if ago <= late {
		return nil
	}
	why := fmt.Sprintf("--at %s is %s ago: the job would start at once", printer.Clock(*e.at.value), printer.Short(ago))
	agreed, err := a.agreed(ctx, why+". Enqueue it?")
	if err == nil && !agreed {
		err = usagef("%s; say --yes if that is meant", why)
	}
	return err
}

// showPreview shows what would come of the request.
func (e enqueueFlags) showPreview(a *app, cmd *cobra.Command, audience channels.Audience) error {
	what := compose.Content{
		Category: *e.category, Title: *e.title, Body: *e.body, Route: e.route.or(nil),
		Messages: len(*e.types) == 0 || slices.ContainsFunc(*e.types, func(t string) bool { return t != "inbox" }),
	}
	switch {
	case e.deliverAt.value != nil:
		what.At = *e.deliverAt.value
	case e.at.value != nil:
		what.At = *e.at.value
	}
	var err error
	if *e.data != "" {
		if what.Data, err = dataOf(*e.data); err != nil {
			return err
		}
	}
	if *e.variants != "" {
		if what.Variants, err = variantsOf(*e.variants); err != nil {
			return err
		}
	}
	return a.withDatabase(cmd, schemaCurrent, previewLimit, func(ctx context.Context, s settings, db *database) error {
		err := a.preview(ctx, s, db, what, audience, *e.json)
		if errors.Is(err, channels.ErrNoCategory) {
			return usagef("%w", admin.UnknownCategory(ctx, db.Pool, what.Category))
		}
		return err
	})
}

// expires is when the jobs expire; nil: never. Without --at, --expires-in counts
// from now, by this machine's clock.
func (e enqueueFlags) expires(a *app) (*time.Time, error) {
	due := a.now()
	if e.at.value != nil {
		due = *e.at.value
	}
	switch {
	case e.expiresAt.value != nil && e.expiresIn.value != nil:
		return nil, usagef("--expires-at and --expires-in exclude each other; give one")
	case e.expiresIn.value != nil && *e.expiresIn.value == 0:
		return nil, usagef("invalid argument \"0s\" for \"--expires-in\" flag: allowed values: durations above 0s, as 30m")
	case e.expiresIn.value != nil:
		at := due.Add(*e.expiresIn.value).UTC()
		return &at, nil
	case e.expiresAt.value != nil && e.at.value != nil && !e.expiresAt.value.After(due):
		return nil, usagef("--expires-at is not after --at; allowed values: later times")
	}
	return e.expiresAt.value, nil
}

// enqueue requests the jobs and prints their ids.
func (a *app) enqueue(ctx context.Context, db *database, types []string, spec job.Spec, asJSON bool) error {
	store := job.NewStore(db.Pool)
	before, err := db.now(ctx)
	if err != nil {
		return err
	}
	var ids []int64
	if len(types) == 1 {
		spec.Type = types[0]
		var id int64
		id, err = store.Enqueue(ctx, spec)
		ids = []int64{id}
	} else {
		ids, err = store.EnqueueGroup(ctx, types, spec)
	}
	if err != nil {
		return enqueueProblem(err, spec)
	}
	made := jobsAndGroup{Jobs: make([]job.Job, 0, len(ids))}
	for _, id := range ids {
		j, err := store.Get(ctx, id)
		if err != nil {
			return err
		}
		made.Jobs, made.GroupID = append(made.Jobs, j), j.GroupID
	}
	if asJSON {
		return a.printJSON(made)
	}
	for _, j := range made.Jobs {
		a.printf("%d\n", j.ID)
		if j.CreatedAt.Before(before) {
			a.remark("job %d was enqueued before, at %s, with the same idempotency key; it is %s%s", j.ID, printer.Clock(j.CreatedAt), j.Status, differing(j, spec))
			continue
		}
		a.remark("enqueued job %d (%s) in lane %s, due %s", j.ID, j.Type, j.Lane, due(j, before))
	}
	if made.GroupID != nil {
		a.remark("group %s", made.GroupID)
	}
	return nil
}

// differing names what a repeated request says otherwise than the first one's job does now.
func differing(j job.Job, spec job.Spec) string {
	var names []string
	for _, one := range []struct {
		name string
		same bool
	}{
		{"category", j.Category == spec.Category},
		{"title", j.Title == spec.Title},
		{"body", j.Body == spec.Body},
		{"audience", reflect.DeepEqual(j.Audience, spec.Audience)},
		{"route", spec.Route == nil || slices.Equal(j.Route, spec.Route)},
	} {
		if !one.same {
			names = append(names, one.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; warning: this request has another " + strings.Join(names, ", ") + ", and changes nothing"
}

// remarkUnknown names the channels that an audience lists and that there are not. A role
// that may only enqueue cannot look for them.
func (a *app) remarkUnknown(ctx context.Context, s settings, db *database, audience channels.Audience) {
	var n int64
	var sample []string
	store, err := channels.New(s.Channels)
	if err == nil {
		n, sample, err = store.Unknown(ctx, db.Pool, audience)
	}
	switch {
	case err != nil:
		a.remark("whether each listed channel is there could not be looked at: %s", printer.OneLine(err.Error(), 200))
	case n > 0:
		a.remark("%s without a channel now, as %s", printer.Counted(n, "listed id"), strings.Join(sample, ", "))
	}
}

func due(j job.Job, now time.Time) string {
	if wait := j.ScheduleAt.Sub(now); wait > time.Second {
		return printer.Clock(j.ScheduleAt) + ", in " + printer.Short(wait)
	}
	return "now; `belfry run` or a running daemon takes it"
}

// enqueueProblem names the flag at fault for what the database refused, and says
// how to repeat a request whose outcome is unknown.
func enqueueProblem(err error, spec job.Spec) error {
	var invalid *job.InvalidError
	if errors.As(err, &invalid) {
		return refused("jobs", invalid)
	}
	if errors.Is(err, job.ErrUnreachable) && spec.IdempotencyKey == "" {
		return fmt.Errorf("%w; the job may have been enqueued, see `belfry jobs list` before repeating (--idempotency-key makes repeating safe)", err)
	}
	return err
}

// countAudience prints how many channels an audience matches now.
func (a *app) countAudience(cmd *cobra.Command, audience channels.Audience, limit time.Duration, asJSON bool) error {
	return a.withDatabase(cmd, schemaCurrent, limit, func(ctx context.Context, s settings, db *database) error {
		store, err := channels.New(s.Channels)
		if err != nil {
			return err
		}
		n, err := store.Count(ctx, db.Pool, audience)
		if err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(audienceCount{audience, n})
		}
		a.printf("%d\n", n)
		a.remark("%s: %s", audience, printer.Counted(n, "active channel"))
		return nil
	})
}

// audienceCount is the JSON of a preview.
type audienceCount struct {
	Audience channels.Audience `json:"audience"`
	Channels int64             `json:"channels"`
}
