package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

const (
	runEvents  = 10_000 // the maximum number of events that are read for the runs of a job
	eventsRead = 1000   // the number of events of a page
)

// JobRuns is the list of a job's runs, oldest first.
type JobRuns struct {
	Runs []JobRun `json:"runs"`
	// Complete is false if the job has more events than are read. The newest runs are omitted then.
	Complete bool `json:"complete"`
}

// JobRun is one run of a job, according to the events of its begin and its end. Single chunks have no
// events.
type JobRun struct {
	Fence   int64      `json:"fence"` // its fencing token
	Runner  string     `json:"runner"`
	BeganAt time.Time  `json:"began_at"`
	EndedAt *time.Time `json:"ended_at"` // null means that it is in progress
	Ended   string     `json:"ended"`    // the kind of the event that ended it; "lost" after a takeover; "" in progress
	Rows    int64      `json:"rows"`
	Chunks  int64      `json:"chunks"`
	// RowsPerSecond and ChunkMS are means over the whole run with its pauses. Nil means no rows, or no
	// chunks.
	RowsPerSecond *float64 `json:"rows_per_second"`
	ChunkMS       *float64 `json:"chunk_ms"`
}

// runLost is the end of a run by a takeover.
const runLost = "lost"

func runsOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "jobs runs", Short: "Show the runs of a job: times, runners, rows and rates", Role: operation.Viewer, Rows: "runs",
		Long: `Show the runs of a job, oldest first, with the begin, the end, and the numbers of rows and
chunks. ROWS/S and MS/CHUNK are means over the whole run with its pauses. A lost run was
taken over by the next one.`,
		Example: "  belfry jobs runs 17",
	}, jobRuns, jobRunsText)
}

func jobRuns(ctx context.Context, env *operation.Env, in operation.JobRef) (JobRuns, error) {
	j, err := env.Jobs.Get(ctx, in.ID)
	if err != nil {
		return JobRuns{}, operation.NoSuchJob(err)
	}
	now, err := env.Jobs.Now(ctx)
	if err != nil {
		return JobRuns{}, err
	}
	events, complete, err := allEvents(ctx, env, in.ID)
	runs := runsOf(j, events, complete, now)
	if err != nil {
		return runs, err
	}
	locates, err := env.Locates(ctx, in.ID)
	for i := range runs.Runs {
		if run := &runs.Runs[i]; locates {
			operation.Round(&run.Rows)
			run.Chunks, run.RowsPerSecond, run.ChunkMS = 0, nil, nil
		}
	}
	return runs, err
}

// allEvents returns the first events of a job, and whether they are complete.
func allEvents(ctx context.Context, env *operation.Env, id int64) (all []job.Event, complete bool, err error) {
	var after int64
	for range runEvents / eventsRead {
		events, err := env.Jobs.Events(ctx, id, after, eventsRead)
		if err != nil {
			return nil, false, operation.NoSuchJob(err)
		}
		all = append(all, events...)
		if len(events) < eventsRead {
			return all, true, nil
		}
		after = events[len(events)-1].ID
	}
	return all, false, nil
}

// runsOf derives the runs of a job from its events.
func runsOf(j job.Job, events []job.Event, complete bool, now time.Time) JobRuns {
	var b runBuilder
	for _, e := range events {
		b.add(e)
	}
	switch last := len(b.runs) - 1; {
	case !b.open:
	case !complete: // its end was not read
		b.runs = b.runs[:last]
	case j.Status == job.Running:
		b.runs[last].measure(now, written{j.RowsWritten, j.Chunks}, b.from)
	}
	return JobRuns{b.runs, complete}
}

// runBuilder builds runs from events.
type runBuilder struct {
	runs []JobRun
	from written // at the begin of the last run
	open bool    // the last run is in progress
}

// written is the number of rows and chunks that a job has written.
type written struct {
	Rows   int64 `json:"rows_written"`
	Chunks int64 `json:"chunks"`
}

// add adds the next event. It ignores events that are not about runs.
func (b *runBuilder) add(e job.Event) {
	type state struct {
		Status job.Status `json:"status"`
		Fence  int64      `json:"fence"`
	}
	var d struct {
		Before, After state
		written
	}
	if json.Unmarshal(e.Detail, &d) != nil || d.Before.Status == "" || d.After.Status == "" {
		return
	}
	if b.open && (d.After.Status != job.Running || d.After.Fence != d.Before.Fence) {
		r := &b.runs[len(b.runs)-1]
		r.Ended, r.EndedAt = e.Kind, new(e.At.UTC())
		if d.After.Status == job.Running {
			r.Ended = runLost
		}
		r.measure(e.At, d.written, b.from)
		b.open = false
	}
	if d.After.Status == job.Running && d.After.Fence != d.Before.Fence {
		b.runs = append(b.runs, JobRun{Fence: d.After.Fence, Runner: e.Actor, BeganAt: e.At.UTC()})
		b.from, b.open = d.written, true
	}
}

// measure sets the counts and the rates of a run up to a time.
func (r *JobRun) measure(at time.Time, to, from written) {
	r.Rows, r.Chunks = to.Rows-from.Rows, to.Chunks-from.Chunks
	took := at.Sub(r.BeganAt)
	if took <= 0 {
		return
	}
	if r.Rows > 0 {
		r.RowsPerSecond = new(float64(r.Rows) / took.Seconds())
	}
	if r.Chunks > 0 {
		r.ChunkMS = new(float64(took.Milliseconds()) / float64(r.Chunks))
	}
}

// How returns the end of a run, or "in progress".
func (r JobRun) How() string { return cmp.Or(r.Ended, "in progress") }

func jobRunsText(d *text.Doc, in operation.JobRef, out JobRuns) {
	if len(out.Runs) == 0 {
		d.Line("job %s has not run", text.Ref("job", in.ID))
		return
	}
	t := text.NewTable("BEGAN", "ENDED", "HOW", "BY", ">ROWS", ">CHUNKS", ">ROWS/S", ">MS/CHUNK")
	for _, r := range out.Runs {
		t.Add(r.BeganAt, text.Or(r.EndedAt, "-"), r.How(), r.Runner, r.Rows, r.Chunks, WholeOr(r.RowsPerSecond), WholeOr(r.ChunkMS))
	}
	d.Table(t)
	if !out.Complete {
		d.Note("these are the runs of the first %s events of the job; newer runs are omitted", text.Count(runEvents))
	}
}

// WholeOr renders a number, with one decimal below 10, and nil as "-".
func WholeOr(n *float64) string {
	switch {
	case n == nil:
		return "-"
	case *n < 10:
		return strconv.FormatFloat(*n, 'f', 1, 64)
	}
	return text.Grouped(int64(*n))
}
