package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// jobVerb is what is to be done with jobs.
type jobVerb struct {
	done   string // aborted
	from   []job.Status
	goesOn bool
	rested bool // a job that came to rest later is younger
}

const aborted, recalled, triedAgain = "aborted", "recalled", "tried again"

func aborting() jobVerb { // others as well, with messages that are left
	return jobVerb{done: aborted, from: []job.Status{job.Pending, job.Running}}
}
func resuming() jobVerb {
	return jobVerb{done: "resumed", from: []job.Status{job.Aborted}, goesOn: true}
}
func correcting() jobVerb {
	return jobVerb{done: "corrected and resumed", from: []job.Status{job.Aborted, job.Failed}, goesOn: true}
}
func retrying() jobVerb {
	return jobVerb{done: "retried", from: []job.Status{job.Failed, job.Expired}, goesOn: true}
}
func recalling() jobVerb {
	return jobVerb{done: recalled, from: []job.Status{job.Aborted, job.Processed, job.Failed}, rested: true}
}
func retryingSkipped() jobVerb {
	return jobVerb{done: triedAgain, from: []job.Status{job.Processed, job.Failed}, goesOn: true, rested: true}
}

// jobsPlan is what an act would do to jobs, made of their rows and their own progress: no
// message is counted for it.
type jobsPlan struct {
	verb   jobVerb
	recall bool // what is aborted is recalled then, of a group its other jobs too
	asOf   time.Time
	lanes  []job.Lane
	stuck  map[int64]string // whom the act does not let go on, and why
}

// planJobs returns the plan of an act on jobs.
func planJobs(ctx context.Context, env *operation.Env, verb jobVerb, recall bool, c operation.PlanFlags, ids []int64, group *uuid.UUID) (actedJobs, error) {
	asOf, err := c.Moment(ctx, env)
	if err != nil {
		return actedJobs{}, err
	}
	jobs, err := chosenJobs(ctx, env, ids, group)
	if err != nil {
		return actedJobs{}, err
	}
	states, err := JobStates(ctx, env.DB, jobs)
	if err != nil {
		return actedJobs{}, err
	}
	lanes, err := env.Jobs.Lanes(ctx)
	if err != nil {
		return actedJobs{}, err
	}
	made := jobsPlan{verb: verb, recall: recall, asOf: asOf, lanes: lanes}
	if verb.goesOn {
		if made.stuck, err = env.Jobs.NotResumable(ctx, jobIDs(jobs)); err != nil {
			return actedJobs{}, err
		}
	}
	names := make([]string, len(states))
	p := &operation.Plan{AsOf: asOf, Outcomes: []operation.Outcome{}}
	for i, s := range states {
		names[i] = text.Int(s.ID)
		outcomes := made.outcomes(s, group != nil)
		if outcomes[0].Outcome == verb.done {
			p.Count++
		}
		p.Outcomes = append(p.Outcomes, outcomes...)
	}
	p.Selection = "jobs " + strings.Join(names, ", ")
	switch {
	case group != nil:
		p.Selection = "group " + group.String()
	case len(names) == 1:
		p.Selection = "job " + names[0]
	case len(names) > operation.NamedJobs:
		p.Selection = text.Counted(int64(len(names)), "job") + " from " + names[0] + " to " + names[len(names)-1]
	}
	return actedJobs{Plan: p, Jobs: []actedJob{}}, nil
}

// chosenJobs reads the jobs, each once, in the order of their ids.
func chosenJobs(ctx context.Context, env *operation.Env, ids []int64, group *uuid.UUID) (jobs []job.Job, err error) {
	if group != nil {
		jobs, err = env.Jobs.List(ctx, job.Filter{GroupID: group, Limit: maxGroup})
		if err == nil && len(jobs) == 0 {
			err = fmt.Errorf("group %s: %w", group, job.ErrNotFound)
		}
		slices.Reverse(jobs)
		return jobs, operation.NoSuchJob(err)
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		j, err := env.Jobs.Get(ctx, id)
		if err != nil {
			return nil, operation.NoSuchJob(err)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func jobIDs(jobs []job.Job) []int64 {
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	return ids
}

// outcomes are what becomes of one job: of the act first, and of a recall after an abort.
func (v jobsPlan) outcomes(s JobState, ofGroup bool) []operation.Outcome {
	first := v.outcome(s)
	if !v.recall || v.younger(s) || first.Outcome != aborted && (!ofGroup || !slices.Contains(recalling().from, s.Status)) {
		return []operation.Outcome{first}
	}
	return []operation.Outcome{first, takenBack(s)}
}

// younger reports whether the job is left because of its age.
func (v jobsPlan) younger(s JobState) bool {
	return s.CreatedAt.After(v.asOf) || v.verb.rested && s.FinishedAt != nil && s.FinishedAt.After(v.asOf)
}

// outcome is what becomes of one job. Its count is of people, as far as they are known: who
// gets nothing any more, or still gets it, or has what is taken back.
func (v jobsPlan) outcome(s JobState) operation.Outcome {
	o := operation.Outcome{Of: jobLabel(s.Job), Outcome: v.verb.done}
	if why := v.leaves(s); why != "" {
		o.Outcome, o.Detail = "left", why
		return o
	}
	switch v.verb.done {
	case recalled:
		return takenBack(s)
	case triedAgain:
		o.Count, o.Detail = s.Skipped, writtenOf(s)
		if s.Status == job.Failed {
			o.Detail += "; and whoever it has not reached"
		}
		o.Detail += v.collision(s.Job)
		return o
	}
	rest := "everybody else"
	total, known := recipientsOf(s.Job)
	if o.Unknown = !known; known {
		got := s.Messages.Sent + s.Messages.Dead + s.Messages.Cancelled // of a job without messages: who has a row
		if s.Messages.Messages == 0 {
			got = s.RowsWritten
		}
		o.Count = max(0, total-got)
		rest = text.Counted(o.Count, "recipient")
	}
	o.Detail = writtenOf(s)
	if v.verb.done == aborted {
		o.Detail += "; not for " + rest
		return o
	}
	o.Detail += "; still for " + rest + v.collision(s.Job)
	return o
}

// leaves says why a job stays as it is; "": it does not.
func (v jobsPlan) leaves(s JobState) string {
	held := v.verb.done == aborted && s.Messages.Waiting > 0 && (s.Status == job.Processed || s.Status == job.Failed)
	switch {
	case v.younger(s):
		return "it is younger"
	case !slices.Contains(v.verb.from, s.Status) && !held:
		return "it is " + string(s.Status)
	case v.verb.done == triedAgain && s.Skipped == 0:
		return "nobody was skipped"
	case v.stuck[s.ID] == "retention":
		return "retention deletes its rows"
	case v.stuck[s.ID] != "":
		return "it expired; change or remove its expires_at first"
	}
	return ""
}

// takenBack is what a recall would do to one job.
func takenBack(s JobState) operation.Outcome {
	o := operation.Outcome{Of: jobLabel(s.Job), Outcome: recalled, Count: s.Messages.Waiting, Detail: writtenOf(s)}
	if s.Messages.Messages == 0 {
		o.Count = max(0, s.RowsWritten-s.Recalled-s.Erased)
	}
	if o.Count == 0 {
		o.Detail += "; nothing is left to take back"
		return o
	}
	o.Detail += "; up to " + text.Counted(o.Count, "row") + " taken back"
	return o
}

// writtenOf says how far a job is.
func writtenOf(s JobState) string {
	line := text.Grouped(s.RowsWritten)
	if total, known := recipientsOf(s.Job); known && total > s.RowsWritten {
		line += " of about " + text.Grouped(total)
	}
	line += " written"
	if s.Messages.Messages > 0 {
		line += ", " + text.Grouped(s.Messages.Sent) + " sent"
	}
	return line
}

// recipientsOf is how many a job is for in all, if that can be told: those it matched, once its
// walk is complete, and before in proportion to the keys that are still to be read.
func recipientsOf(j job.Job) (int64, bool) {
	total, known := j.Total()
	switch {
	case j.WalkedAt != nil || j.Status == job.Processed:
		return j.ChannelsMatched, true
	case !known:
		return 0, false
	case j.ChannelsRead == 0:
		return total, true
	}
	return int64(float64(total) * float64(j.ChannelsMatched) / float64(j.ChannelsRead)), true
}

// collision says what a job that goes on waits for.
func (v jobsPlan) collision(j job.Job) string {
	if edited := v.verb.done == correcting().done; j.NeedsApproval && (j.ApprovedAt == nil || edited) {
		return "; waits for approval"
	}
	i := slices.IndexFunc(v.lanes, func(l job.Lane) bool { return l.Name == j.Lane })
	switch {
	case i < 0:
	case v.lanes[i].PausedAt != nil:
		return "; waits: lane " + j.Lane + " is paused"
	case v.lanes[i].Running != nil && j.WalkedAt == nil:
		return fmt.Sprintf("; waits: job %d runs in lane %s", *v.lanes[i].Running, j.Lane)
	}
	return ""
}
