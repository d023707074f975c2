package schedules

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// wouldMake is a job, or a group of several types, that a schedule would enqueue if it fired now.
type wouldMake struct {
	Types    []string          `json:"types"`
	Category string            `json:"category"`
	Title    string            `json:"title"`
	Lane     string            `json:"lane"`
	Audience channels.Audience `json:"audience"`
	// Channels is the number of active channels of the audience. Nil means that counting took too long.
	Channels *int64 `json:"channels"`
	Values   int    `json:"values,omitempty"` // recipients with a value; 0 if the query makes jobs
}

// scheduleCounts bounds the counting of the audiences of a schedule.
const scheduleCounts = 10 * time.Second

// trySchedule returns the jobs that a schedule would enqueue now. Its query has the rights of a
// firing by this process.
func trySchedule(ctx context.Context, env *operation.Env, s schedule.Schedule, act job.Act) ([]wouldMake, error) {
	made, err := schedule.NewStore(env.DB).Try(ctx, s, act)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, scheduleCounts)
	defer cancel()
	counted := make(map[string]*int64)
	list := make([]wouldMake, 0, len(made))
	for _, m := range made {
		r := m.Request
		audience := r.Spec.Audience.String()
		n, known := counted[audience]
		if !known {
			if count, err := env.Channels.Count(ctx, env.Reads(), r.Spec.Audience); err == nil {
				n = &count
			}
			counted[audience] = n
		}
		list = append(list, wouldMake{r.Types, r.Spec.Category, r.Spec.Title, cmp.Or(r.Spec.Lane, "default"), r.Spec.Audience, n, len(m.Values)})
	}
	return list, nil
}

// wouldMakeText summarizes the jobs that a schedule would enqueue now.
func wouldMakeText(list []wouldMake) string {
	if len(list) == 0 {
		return "its query returns no rows now: it would create no job"
	}
	var jobs int64
	audiences := make([]string, 0, 2)
	known := make(map[string]bool)
	for _, one := range list {
		jobs += int64(len(one.Types))
		text := one.audienceText()
		if known[text] {
			continue
		}
		if known[text] = true; len(known) <= cap(audiences) {
			audiences = append(audiences, text)
		}
	}
	line := "now it would create " + text.Counted(jobs, "job") + " for " + strings.Join(audiences, ", ")
	if more := len(known) - len(audiences); more > 0 {
		line += " and " + text.Counted(int64(more), "other audience")
	}
	return line
}

// audienceText returns the audience with its number of channels.
func (w wouldMake) audienceText() string {
	about := w.Audience.String()
	if w.Channels != nil {
		about += " (" + text.Counted(*w.Channels, "channel") + ")"
	}
	if w.Values > 0 {
		about += ", with values for " + text.Counted(int64(w.Values), "channel")
	}
	return about
}

func schedulePreviewOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "schedules preview", Short: "Show the jobs that a schedule would create now", Role: operation.Operator,
		Deadline: content.PreviewDeadline,
		Long: `Show the jobs that a schedule would create if it fired now: their types, titles, audiences
and numbers of channels. Its query runs read-only and in its role, like a firing by this
process, and the database checks each job. Nothing is enqueued.`,
		Example: "  belfry schedules preview digest",
	}, func(ctx context.Context, env *operation.Env, in scheduleRef) (operation.List[wouldMake], error) {
		s, err := schedule.NewStore(env.DB).Get(ctx, in.Name)
		if err != nil {
			return operation.List[wouldMake]{}, scheduleProblem(err)
		}
		list, err := trySchedule(ctx, env, s, job.Act{Actor: env.Actor})
		if schedule.OwnFault(err) {
			err = operation.Conflict("schedule %s would fail now: %s", in.Name, err)
		}
		return operation.List[wouldMake]{Items: list}, err
	}, func(p *text.Doc, _ scheduleRef, out operation.List[wouldMake]) {
		t := text.NewTable("TYPES", "TITLE", "AUDIENCE", ">CHANNELS", "LANE", "CATEGORY")
		for _, one := range out.Items {
			n := text.CellOf("unknown")
			if one.Channels != nil {
				n = text.Count(*one.Channels)
			}
			t.Add(strings.Join(one.Types, ","), text.OneLine(one.Title, 60), text.OneLine(one.Audience.String(), 60), n, one.Lane, one.Category)
		}
		if len(out.Items) > 0 {
			p.Table(t)
		}
		p.Note("%s", wouldMakeText(out.Items))
	})
}
