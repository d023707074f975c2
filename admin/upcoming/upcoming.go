package upcoming

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

const (
	// overlapsNamed is the number of overlapping entries that the list names for each entry.
	overlapsNamed = 3
	// runningRead is the number of running jobs that are compared with upcoming ones.
	runningRead = 1000
)

// upcomingInput is the input of `upcoming`.
type upcomingInput struct {
	Lane     string             `flag:"lane" label:"LANE" values:"lanes list" help:"only this lane, and schedules whose query specifies the lane"`
	From     *operation.Instant `flag:"from" label:"TIME" help:"only entries due at this time or later (default: also overdue ones)"`
	Until    *operation.Instant `flag:"until" label:"TIME" help:"only entries due before this time"`
	Each     int                `flag:"occurrences" label:"N" help:"the next N occurrences of each schedule, 1 to 100 (default 5)" min:"1" max:"100" default:"5"`
	SkipHeld bool               `flag:"skip-held" help:"leave out entries that a pause, an approval or a halt holds"`
	Limit    int                `flag:"limit" label:"N" help:"at most N entries, 1 to 500 (default 50)" min:"1" max:"500" default:"50"`
	After    *upcomingPosition  `flag:"after" label:"POSITION" help:"only entries after this position, for the next page"`
}

// upcomingPosition is the position of an entry in the list: TIME/LANE/JOB/SCHEDULE.
type upcomingPosition struct {
	at       time.Time
	lane     string
	job      int64 // 0 for an occurrence of a schedule
	schedule string
}

// UnmarshalText parses a position.
func (p *upcomingPosition) UnmarshalText(text []byte) error {
	parts := append(strings.SplitN(string(text), "/", 4), "", "", "")
	at, err1 := time.Parse(time.RFC3339Nano, parts[0])
	id, err2 := strconv.ParseInt(parts[2], 10, 64)
	if err1 != nil || err2 != nil {
		return &operation.NotAllowedError{Allowed: "a position from the page before, such as 2026-11-20T08:50:00Z/default/17/"}
	}
	*p = upcomingPosition{at.UTC(), parts[1], id, parts[3]}
	return nil
}

// MarshalText renders the position.
func (p upcomingPosition) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p upcomingPosition) String() string {
	return p.at.Format(time.RFC3339Nano) + "/" + p.lane + "/" + text.Int(p.job) + "/" + p.schedule
}

func (p upcomingPosition) compare(other upcomingPosition) int {
	return cmp.Or(p.at.Compare(other.at), cmp.Compare(p.lane, other.lane), cmp.Compare(p.job, other.job),
		cmp.Compare(p.schedule, other.schedule))
}

// Entry is a pending job or an occurrence of a schedule.
type Entry struct {
	At       time.Time `json:"at"`       // due time, UTC
	Name     string    `json:"name"`     // such as "job 17" or "schedule digest"
	Lane     string    `json:"lane"`     // empty if the query of the schedule specifies it
	JobID    *int64    `json:"job_id"`   // nil for an occurrence of a schedule
	Schedule string    `json:"schedule"` // empty for a job
	Types    []string  `json:"types"`    // a schedule with several types enqueues a group, whose jobs run one after the other
	Category string    `json:"category"`
	Title    string    `json:"title"`
	Priority int       `json:"priority"`
	// ExpectedMS is the expected duration of the walk. Nil means that no job of this kind was PROCESSED.
	ExpectedMS *int64 `json:"expected_ms"`
	// Overlaps names entries of the lane that are expected to run before this one and until after its
	// due time, three at most.
	Overlaps []string `json:"overlaps"`
	// Held is the reason why the entry does not start at its due time.
	Held string `json:"held"`
}

func (e Entry) position() upcomingPosition {
	return upcomingPosition{e.At, e.Lane, *cmp.Or(e.JobID, new(int64)), e.Schedule}
}

// interval returns when the entry is expected to run if nothing else runs in its lane. An unknown
// duration counts as one nanosecond.
func (e Entry) interval(now time.Time) (start, end time.Time) {
	start, end = latest(e.At, now), latest(e.At, now).Add(1)
	if e.ExpectedMS != nil {
		end = latest(end, start.Add(time.Duration(*e.ExpectedMS)*time.Millisecond))
	}
	return start, end
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func upcomingOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "upcoming", Short: "List pending jobs and occurrences of schedules by due time", Role: operation.Viewer,
		Long: `List pending jobs and the next occurrences of schedules, ordered by due time and lane. EXPECTED
is the expected duration: the median of the last five jobs of the type, category and lane.
A lane runs one job at a time. NOTE names earlier entries of the page, or a running job of
the lane, that are expected to run when the entry is due.

Jobs that wait for approval are not in the list. A paused schedule has one entry. A schedule
with a query specifies its lane and its jobs when it fires.`,
		Example: `  belfry upcoming
  belfry upcoming --lane night --until +24h
  belfry upcoming --from "2026-11-20 08:00" --json`,
	}, listUpcoming, upcomingText)
}

func listUpcoming(ctx context.Context, env *operation.Env, in upcomingInput) (page operation.List[Entry], err error) {
	q := upcomingQuery{lane: in.Lane, until: in.Until.Given(env.Time()), skipHeld: in.SkipHeld, occurrences: in.Each, limit: in.Limit + 1}
	if from := in.From.Given(env.Time()); from != nil {
		q.from = *from
	}
	if q.after = (upcomingPosition{at: q.from}); in.After != nil && in.After.compare(q.after) > 0 {
		q.after = *in.After
	}
	list, now, err := readUpcoming(ctx, env, q)
	if err != nil {
		return page, err
	}
	page = operation.PageOf(list, in.Limit, func(last Entry) string { return last.position().String() })
	running, err := expectDurations(ctx, env, in.Lane, page.Items, now)
	if err != nil {
		return page, err
	}
	markOverlaps(page.Items, running, now)
	return page, nil
}

// upcomingQuery selects entries.
type upcomingQuery struct {
	lane        string
	from        time.Time
	until       *time.Time
	after       upcomingPosition // at from or later
	skipHeld    bool
	occurrences int // of each schedule after from
	limit       int
}

// holds returns a function that returns the reason why the jobs of a lane do not start.
func holds(ctx context.Context, env *operation.Env) (func(lane string) string, error) {
	halt, err := env.Jobs.Halted(ctx)
	if err != nil {
		return nil, err
	}
	paused, err := env.Jobs.PausedLanes(ctx)
	return func(lane string) string {
		switch {
		case halt.At != nil:
			return "everything is halted"
		case slices.Contains(paused, lane):
			return "lane " + lane + " is paused"
		}
		return ""
	}, err
}

// readUpcoming returns entries in the order of their positions, and the database's clock.
func readUpcoming(ctx context.Context, env *operation.Env, q upcomingQuery) (list []Entry, now time.Time, err error) {
	if now, err = env.Jobs.Now(ctx); err != nil {
		return nil, now, err
	}
	held, err := holds(ctx, env)
	if err != nil {
		return nil, now, err
	}
	jobs, err := pendingJobs(ctx, env.DB, pendingFilter{
		Lane: q.lane, NotHeld: q.skipHeld, Until: q.until, After: q.after.at, AfterLane: q.after.lane, AfterID: q.after.job, Limit: q.limit,
	})
	if err != nil {
		return nil, now, err
	}
	schedules, err := schedule.NewStore(env.DB).List(ctx)
	if err != nil {
		return nil, now, err
	}
	add := func(e Entry) {
		e.Overlaps, e.Held = []string{}, cmp.Or(e.Held, held(e.Lane))
		if !q.skipHeld || e.Held == "" {
			list = append(list, e)
		}
	}
	for _, j := range jobs {
		add(Entry{At: j.ScheduleAt, Name: "job " + text.Int(j.ID), Lane: j.Lane, JobID: &j.ID, Types: []string{j.Type},
			Category: j.Category, Title: j.Title, Priority: j.Priority})
	}
	for _, s := range schedules {
		e := Entry{Name: "schedule " + s.Name, Schedule: s.Name, Types: s.Template.Types, Category: s.Template.Category,
			Title: s.Template.Title, Priority: s.Template.Priority}
		if s.Query == "" {
			e.Lane = cmp.Or(s.Template.Lane, "default")
		}
		switch {
		case q.lane != "" && e.Lane != "" && e.Lane != q.lane:
			continue
		case s.PausedAt != nil:
			e.Held = "the schedule is paused"
		case s.Template.NeedsApproval && s.Query == "":
			e.Held = "its jobs wait for approval"
		}
		for _, e.At = range occurrences(s, q, now) {
			if (q.until == nil || e.At.Before(*q.until)) && e.position().compare(q.after) > 0 {
				add(e)
			}
		}
	}
	slices.SortFunc(list, func(a, b Entry) int { return a.position().compare(b.position()) })
	return list[:min(len(list), q.limit)], now, nil
}

// occurrences returns when a schedule fires from q.from on. A paused schedule has its next occurrence only.
func occurrences(s schedule.Schedule, q upcomingQuery, now time.Time) (times []time.Time) {
	n, after := q.occurrences, latest(now, q.from.Add(-time.Nanosecond))
	if s.PausedAt != nil {
		n = 1
	} else if s.NextAt != nil { // it may be overdue, or moved
		if after = latest(after, *s.NextAt); !s.NextAt.Before(q.from) {
			times = append(times, *s.NextAt)
		}
	}
	next, err := s.Next(after, n-len(times))
	if err != nil {
		return times // `schedules show` reports the error
	}
	return append(times, next...)
}

// expectDurations sets the expected durations of entries. It returns the running jobs of a lane, or of
// all lanes, as entries that are due now and take the rest of their expected durations.
func expectDurations(ctx context.Context, env *operation.Env, lane string, entries []Entry, now time.Time) (running []Entry, err error) {
	jobs, err := env.Jobs.List(ctx, job.Filter{Statuses: []job.Status{job.Running}, Lane: lane, Limit: runningRead, Summary: true})
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		running = append(running, Entry{At: *cmp.Or(j.StartedAt, &now), Name: "job " + text.Int(j.ID), Lane: j.Lane,
			Types: []string{j.Type}, Category: j.Category, Priority: j.Priority})
	}
	kinds := make(map[kind]bool)
	for _, e := range slices.Concat(running, entries) {
		for _, t := range e.Types {
			kinds[kind{Type: t, Category: e.Category, Lane: e.Lane}] = true
		}
	}
	took, err := durations(ctx, env.DB, slices.Collect(maps.Keys(kinds)))
	if err != nil {
		return nil, err
	}
	expected := func(e Entry) *int64 {
		var ms int64
		for _, t := range e.Types {
			d, known := took[kind{Type: t, Category: e.Category, Lane: e.Lane}]
			if !known {
				return nil
			}
			ms += d.Milliseconds()
		}
		return &ms
	}
	for i, e := range entries {
		if e.Lane != "" {
			entries[i].ExpectedMS = expected(e)
		}
	}
	for i, e := range running {
		if ms := expected(e); ms != nil {
			running[i].ExpectedMS = new(*ms - now.Sub(e.At).Milliseconds())
		}
		running[i].At = now
	}
	return running, nil
}

// markOverlaps sets the overlaps of entries that are ordered by due time.
func markOverlaps(entries, running []Entry, now time.Time) {
	active := make(map[string][]Entry)
	for _, e := range running {
		active[e.Lane] = append(active[e.Lane], e)
	}
	for i, e := range entries {
		if e.Lane == "" || e.Held != "" {
			continue
		}
		start, _ := e.interval(now)
		before := slices.DeleteFunc(active[e.Lane], func(b Entry) bool {
			_, end := b.interval(now)
			return !end.After(start)
		})
		for _, b := range before[:min(len(before), overlapsNamed)] {
			entries[i].Overlaps = append(entries[i].Overlaps, b.Name)
		}
		active[e.Lane] = append(before, e)
	}
}

func upcomingText(p *text.Doc, in upcomingInput, out operation.List[Entry]) {
	if len(out.Items) == 0 && in.After == nil {
		p.Line("no pending job and no schedule matches; %s; %s",
			text.Command("enqueue").Usage("--at TIME …").To("plan a job"), text.Command("schedules add").Usage("NAME …").To("add a schedule"))
		return
	}
	t := text.NewTable("WHEN", "LANE", "JOB", "SCHEDULE", "TITLE", ">EXPECTED", "NOTE")
	for _, e := range out.Items {
		var id, lane, from, expected any = "", "?", "", "unknown"
		note := ""
		if e.JobID != nil {
			id = text.Ref("job", *e.JobID)
		}
		if e.Lane != "" {
			lane = text.Ref("lane", e.Lane)
		}
		if e.Schedule != "" {
			from = text.Ref("schedule", e.Schedule)
		}
		if e.ExpectedMS != nil {
			expected = time.Duration(*e.ExpectedMS) * time.Millisecond
		}
		switch {
		case e.Held != "":
			note = "held: " + e.Held
		case len(e.Overlaps) > 0:
			note = "overlaps " + strings.Join(e.Overlaps, ", ")
		case e.Lane == "":
			note = "its query specifies lane and jobs"
		}
		t.Add(e.At, lane, id, from, text.OneLine(e.Title, 60), expected, note)
	}
	p.Table(t)
	operation.More(p, "after", out.Next)
}
