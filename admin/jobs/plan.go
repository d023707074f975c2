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

// jobVerb is a kind of change of jobs.
type jobVerb struct {
	done      string // such as "aborted"
	from      []job.Status
	continues bool // the job runs afterwards
	ended     bool // a job that ended after the plan is newer than the plan
}

const aborted, recalled, triedAgain = "aborted", "recalled", "tried again"

func aborting() jobVerb { // also PROCESSED and FAILED jobs with waiting messages
	return jobVerb{done: aborted, from: []job.Status{job.Pending, job.Running}}
}
func resuming() jobVerb {
	return jobVerb{done: "resumed", from: []job.Status{job.Aborted}, continues: true}
}
func correcting() jobVerb {
	return jobVerb{done: "corrected and resumed", from: []job.Status{job.Aborted, job.Failed}, continues: true}
}
func retrying() jobVerb {
	return jobVerb{done: "retried", from: []job.Status{job.Failed, job.Expired}, continues: true}
}
func recalling() jobVerb {
	return jobVerb{done: recalled, from: []job.Status{job.Aborted, job.Processed, job.Failed}, ended: true}
}
func retryingSkipped() jobVerb {
	return jobVerb{done: triedAgain, from: []job.Status{job.Processed, job.Failed}, continues: true, ended: true}
}

// jobsPlan is the plan of a change of jobs. It is derived from the jobs' rows and progress; it does not
// count messages.
type jobsPlan struct {
	verb   jobVerb
	recall bool // recall the aborted jobs, and the ended jobs of the group
	asOf   time.Time
	lanes  []job.Lane
	stuck  map[int64]string // the jobs that cannot continue, with the reason
}

// planJobs returns the plan of a change of jobs.
func planJobs(ctx context.Context, env *operation.Env, verb jobVerb, recall bool, c operation.PlanFlags, ids []int64,
	group *uuid.UUID) (jobsResult, error) {
	asOf, err := c.Moment(ctx, env)
	if err != nil {
		return jobsResult{}, err
	}
	jobs, err := selectedJobs(ctx, env, ids, group)
	if err != nil {
		return jobsResult{}, err
	}
	states, err := JobStates(ctx, env.DB, jobs)
	if err != nil {
		return jobsResult{}, err
	}
	lanes, err := env.Jobs.Lanes(ctx)
	if err != nil {
		return jobsResult{}, err
	}
	plan := jobsPlan{verb: verb, recall: recall, asOf: asOf, lanes: lanes}
	if verb.continues {
		if plan.stuck, err = env.Jobs.NotResumable(ctx, jobIDs(jobs)); err != nil {
			return jobsResult{}, err
		}
	}
	names := make([]string, len(states))
	p := &operation.Plan{AsOf: asOf, Outcomes: []operation.Outcome{}}
	for i, s := range states {
		names[i] = text.Int(s.ID)
		outcomes := plan.outcomes(s, group != nil)
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
	return jobsResult{Plan: p, Jobs: []jobResult{}}, nil
}

// selectedJobs returns the jobs, each once, by id.
func selectedJobs(ctx context.Context, env *operation.Env, ids []int64, group *uuid.UUID) (jobs []job.Job, err error) {
	if group != nil {
		members, err := env.Jobs.Members(ctx, *group)
		switch {
		case err != nil:
			return nil, operation.NoSuchJob(err)
		case len(members) > maxGroup:
			return nil, operation.Conflict("group %s has %s, and a plan covers up to %s; without one, the act changes all of them in steps", group,
				text.Counted(int64(len(members)), "job"), text.Grouped(maxGroup))
		}
		for _, m := range members {
			ids = append(ids, m.ID)
		}
		jobs, err = env.Jobs.Summaries(ctx, ids)
		return jobs, err
	}
	if ids = slices.Compact(slices.Sorted(slices.Values(ids))); len(ids) == 1 {
		j, err := env.Jobs.Get(ctx, ids[0])
		return []job.Job{j}, operation.NoSuchJob(err)
	}
	if jobs, err = env.Jobs.Summaries(ctx, ids); err != nil {
		return nil, err
	}
	for i, id := range ids {
		if i == len(jobs) || jobs[i].ID != id {
			return nil, operation.NoSuchJob(fmt.Errorf("job %d: %w", id, job.ErrNotFound))
		}
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

// outcomes returns the outcome for one job, and after an abort the outcome of its recall.
func (v jobsPlan) outcomes(s JobState, ofGroup bool) []operation.Outcome {
	first := v.outcome(s)
	if !v.recall || v.newer(s) || first.Outcome != aborted && (!ofGroup || !slices.Contains(recalling().from, s.Status)) {
		return []operation.Outcome{first}
	}
	return []operation.Outcome{first, recallOutcome(s)}
}

// newer reports whether the job is newer than the plan.
func (v jobsPlan) newer(s JobState) bool {
	return s.CreatedAt.After(v.asOf) || v.verb.ended && s.FinishedAt != nil && s.FinishedAt.After(v.asOf)
}

// outcome returns the outcome for one job. Its count is the number of recipients, if known: those who no
// longer get the job, those who still get it, or those whose rows are recalled.
func (v jobsPlan) outcome(s JobState) operation.Outcome {
	o := operation.Outcome{Of: jobLabel(s.Job), Outcome: v.verb.done}
	if why := v.skipReason(s); why != "" {
		o.Outcome, o.Detail = "left", why
		return o
	}
	switch v.verb.done {
	case recalled:
		return recallOutcome(s)
	case triedAgain:
		o.Count, o.Detail = s.Skipped, progressText(s)
		if s.Status == job.Failed {
			o.Detail += "; in addition to the recipients that it has not reached"
		}
		o.Detail += v.waitText(s.Job)
		return o
	}
	rest := "all other recipients"
	total, known := recipientsOf(s.Job)
	if o.Unknown = !known; known {
		got := s.Messages.Sent + s.Messages.Dead + s.Messages.Cancelled
		if s.Messages.Messages == 0 {
			got = s.RowsWritten
		}
		o.Count = max(0, total-got)
		rest = text.Counted(o.Count, "recipient")
	}
	o.Detail = progressText(s)
	if v.verb.done == aborted {
		o.Detail += "; not for " + rest
		return o
	}
	o.Detail += "; still for " + rest + v.waitText(s.Job)
	return o
}

// skipReason returns the reason why the change skips a job, or "".
func (v jobsPlan) skipReason(s JobState) string {
	held := v.verb.done == aborted && s.Messages.Waiting > 0 && (s.Status == job.Processed || s.Status == job.Failed)
	switch {
	case v.newer(s):
		return "it is newer"
	case !slices.Contains(v.verb.from, s.Status) && !held:
		return "it is " + string(s.Status)
	case v.verb.done == triedAgain && s.Skipped == 0:
		return "it skipped no recipient"
	case v.stuck[s.ID] == "retention":
		return "retention deletes its rows"
	case v.stuck[s.ID] != "":
		return "it expired; change or remove its expires_at first"
	}
	return ""
}

// recallOutcome returns the outcome of a recall for one job.
func recallOutcome(s JobState) operation.Outcome {
	o := operation.Outcome{Of: jobLabel(s.Job), Outcome: recalled, Count: s.Messages.Waiting, Detail: progressText(s)}
	if s.Messages.Messages == 0 {
		o.Count = max(0, s.RowsWritten-s.Recalled-s.Erased)
	}
	if o.Count == 0 {
		o.Detail += "; nothing to recall"
		return o
	}
	o.Detail += "; up to " + text.Counted(o.Count, "row") + " recalled"
	return o
}

// progressText returns the numbers of written rows and sent messages.
func progressText(s JobState) string {
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

// recipientsOf returns the total number of recipients of a job, if known: the matched channels of a
// complete walk, or an estimate from the part that was read.
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

// waitText returns the reason why a job has to wait before it continues, after "; ", or "".
func (v jobsPlan) waitText(j job.Job) string {
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
