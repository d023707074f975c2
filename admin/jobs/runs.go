package jobs

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// runEvents is how many events of a job are read for its runs, in pages of
// eventsRead.
const (
	runEvents  = 10_000
	eventsRead = 1000
)

// JobRuns are the runs of a job, oldest first.
type JobRuns struct {
	Runs []JobRun `json:"runs"`
	// Complete tells that all are here. Otherwise the job has more events than are read, and the
	// newest runs are left out.
	Complete bool `json:"complete"`
}

// JobRun is one run of a job. What is told of it is told by the events of its begin
// and its end, between which nothing is kept of single chunks.
type JobRun struct {
	Fence   int64      `json:"fence"` // its fencing token
	Runner  string     `json:"runner"`
	BeganAt time.Time  `json:"began_at"`
	EndedAt *time.Time `json:"ended_at"` // nil: it goes on
	Ended   string     `json:"ended"`    // the kind of the event that ended it, lost: another run took over; "": it goes on
	Rows    int64      `json:"rows"`
	Chunks  int64      `json:"chunks"`
	// RowsPerSecond and ChunkMS are means over the whole run, pauses included; nil: it wrote none.
	RowsPerSecond *float64 `json:"rows_per_second"`
	ChunkMS       *float64 `json:"chunk_ms"`
}

// runLost ends a run that another took over.
const runLost = "lost"

func runsOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "jobs runs", Short: "Show the runs of a job: when, by whom, how much, how fast", Role: operation.Viewer, Rows: "runs",
		Long: `Show the runs of a job, oldest first: when each began and ended, how it ended, and how many
rows and chunks it wrote. ROWS/S and MS/CHUNK are means over the whole run, its pauses
included: nothing is kept of single chunks. A run that was lost to another is followed
by that one.`,
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
	events, complete, err := timelineOf(ctx, env, in.ID)
	runs := runsOf(j, events, complete, now)
	if !env.Role.ReadsContents() && j.Audience.Kind == channels.KindRadius {
		for i := range runs.Runs {
			run := &runs.Runs[i]
			if run.Rows <= operation.MostHidden {
				run.Rows, run.Chunks, run.RowsPerSecond, run.ChunkMS = 0, 0, nil, nil
			}
		}
	}
	return runs, err
}

// timelineOf reads the events of a job, oldest first, and whether they are all.
func timelineOf(ctx context.Context, env *operation.Env, id int64) (all []job.Event, complete bool, err error) {
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

// runsOf are the runs that a job's events tell of.
func runsOf(j job.Job, events []job.Event, complete bool, now time.Time) JobRuns {
	var t runTeller
	for _, e := range events {
		t.tell(e)
	}
	switch {
	case complete:
		t.goesOn(j, now)
	case t.open: // how it ended was not read
		t.runs = t.runs[:len(t.runs)-1]
	}
	return JobRuns{t.runs, complete}
}

// runTeller makes runs of a job's events.
type runTeller struct {
	runs []JobRun
	from standing // where the job was when the last run began
	open bool     // the last run goes on
}

// standing is how far a job was.
type standing struct {
	Rows   int64 `json:"rows_written"`
	Chunks int64 `json:"chunks"`
}

// tell takes the next event. One of another shape is none of a run's.
func (t *runTeller) tell(e job.Event) {
	type state struct {
		Status job.Status `json:"status"`
		Fence  int64      `json:"fence"`
	}
	var d struct {
		Before, After state
		standing
	}
	if json.Unmarshal(e.Detail, &d) != nil || d.Before.Status == "" || d.After.Status == "" {
		return
	}
	if t.open && (d.After.Status != job.Running || d.After.Fence != d.Before.Fence) {
		how := e.Kind
		if d.After.Status == job.Running {
			how = runLost
		}
		t.end(how, e.At, d.standing)
	}
	if d.After.Status == job.Running && d.After.Fence != d.Before.Fence {
		t.runs = append(t.runs, JobRun{Fence: d.After.Fence, Runner: e.Actor, BeganAt: e.At.UTC()})
		t.from, t.open = d.standing, true
	}
}

// end closes the last run.
func (t *runTeller) end(how string, at time.Time, s standing) {
	r := &t.runs[len(t.runs)-1]
	at = at.UTC()
	r.Ended, r.EndedAt = how, &at
	t.open = false
	r.measure(at, s, t.from)
}

// goesOn measures the run that has not ended, if there is one.
func (t *runTeller) goesOn(j job.Job, now time.Time) {
	if t.open && j.Status == job.Running {
		t.runs[len(t.runs)-1].measure(now, standing{j.RowsWritten, j.Chunks}, t.from)
	}
}

// measure says how much a run did until a moment.
func (r *JobRun) measure(at time.Time, s, from standing) {
	r.Rows, r.Chunks = s.Rows-from.Rows, s.Chunks-from.Chunks
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

// How says how a run ended.
func (r JobRun) How() string {
	if r.Ended == "" {
		return "goes on"
	}
	return r.Ended
}

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

// WholeOr is a number without its fraction, unless it is small; nil: "-".
func WholeOr(n *float64) string {
	switch {
	case n == nil:
		return "-"
	case *n < 10:
		return strconv.FormatFloat(*n, 'f', 1, 64)
	}
	return text.Grouped(int64(*n))
}
