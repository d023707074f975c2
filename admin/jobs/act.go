package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// groupHelp completes the help of operations on jobs or a group.
const groupHelp = `

GROUP is a group's id or the id of one of its jobs, see ` + "`belfry jobs list`" + ` and
` + "`belfry jobs show ID`" + `. A job without a group is a group of one.

--dry-run shows the effect on each job, with the number of recipients. With the token of
this plan (--plan), the operation is one transaction: it changes exactly the planned number
of jobs or fails. It skips newer jobs and jobs in another status.`

// maxGroup is the number of a group's jobs that a plan covers and a result lists.
const maxGroup = 1000

// jobsOrGroup names jobs, or all jobs of a group.
type jobsOrGroup struct {
	IDs   []int64   `arg:"[ID]..." values:"jobs list" is:"a job's id" min:"1" allowed:"whole numbers from 1, see belfry jobs list"`
	Group *groupRef `flag:"group" label:"GROUP" values:"jobs list:group_job" help:"all jobs of this group: its id, or the id of one of its jobs"`
}

const jobsOrGroupUsage = "{ID... | --group GROUP}"

func (r jobsOrGroup) Check(o operation.Operation, _ time.Time) error {
	if (len(r.IDs) > 0) == (r.Group != nil) {
		return operation.Invalid("", "%s takes either the ids of jobs or --group GROUP", o.Name)
	}
	return nil
}

// Resource returns the single job. Several jobs, or a group, have no version.
func (r jobsOrGroup) Resource() operation.Resource {
	if len(r.IDs) != 1 || r.Group != nil {
		return operation.Resource{}
	}
	return operation.JobRef{ID: r.IDs[0]}.Resource()
}

// find returns the ids of the jobs, or the id of the group.
func (r jobsOrGroup) find(ctx context.Context, store *job.Store) ([]int64, *uuid.UUID, error) {
	if r.Group == nil {
		return r.IDs, nil, nil
	}
	id, err := r.Group.find(ctx, store)
	if err == nil && id == nil {
		return []int64{r.Group.jobID}, nil, nil
	}
	return nil, id, operation.NoSuchJob(err)
}

// jobResult is a job after an operation.
type jobResult struct {
	job.Job

	Recall *delivery.Recalled `json:"recall,omitempty"` // only if it was recalled
}

// jobsResult is the result of an operation on jobs: its plan, or the changed jobs, and with a group its
// other jobs.
type jobsResult struct {
	Plan  *operation.Plan `json:"plan,omitempty"`  // then nothing was changed
	Group *groupSteps     `json:"group,omitempty"` // of an act in steps
	Jobs  []jobResult     `json:"jobs" doc:"of an act in steps, the first 1,000; several jobs have no body, data and variants, and ten entries of a list of channels"`
}

// ResourceVersion returns the version of the single job.
func (a jobsResult) ResourceVersion() (version int64, one bool) {
	if a.Plan != nil || len(a.Jobs) != 1 {
		return 0, false
	}
	return a.Jobs[0].Version, true
}

func (a jobsResult) Affected(string) operation.Affected {
	if a.Group != nil {
		return operation.Affected{N: a.Group.Changed, Noun: "job"}
	}
	return operation.Affected{N: int64(len(a.Jobs)), Noun: "job", Plan: a.Plan}
}

// Recalls returns the results of the recalls, for other packages.
func (a jobsResult) Recalls() (list []delivery.Recalled) {
	for _, j := range a.Jobs {
		if j.Recall != nil {
			list = append(list, *j.Recall)
		}
	}
	return list
}

// planText writes the plan, if there is one.
func (a jobsResult) planText(d *text.Doc, verb jobVerb) {
	if a.Plan != nil {
		a.Plan.Text(d, "job", verb.done)
	}
}

// text writes the plan, or the status of each job.
func (a jobsResult) text(d *text.Doc, verb jobVerb) {
	a.planText(d, verb)
	if a.Group != nil && a.Group.Jobs > maxGroup {
		d.Line("%s", a.Group.line(verb))
		return
	}
	if a.Group != nil {
		d.Note("%s", a.Group.line(verb))
	}
	for _, j := range a.Jobs {
		d.Line("%s", statusLine(j.Job))
	}
	if verb.continues && slices.ContainsFunc(a.Jobs, func(j jobResult) bool { return j.Status == job.Pending }) {
		d.Note("a daemon, or the next `belfry run`, runs PENDING jobs")
	}
}

// recallText writes the result of each recall.
func (a jobsResult) recallText(d *text.Doc) {
	for _, j := range a.Jobs {
		if j.Recall != nil {
			d.Line("%s", recalledLine(j))
		}
	}
}

// jobsAct changes jobs.
type jobsAct struct {
	verb jobVerb
	do   func(context.Context, job.Selection, job.Act) ([]job.Job, error)
}

// run returns the plan of the change, or applies it. Jobs with a plan or an expected version change in one
// transaction, and a group as runGroup describes. Other jobs change one by one, so that one job in the wrong
// status does not prevent the change of the others.
func (act jobsAct) run(ctx context.Context, env *operation.Env, c operation.PlanFlags, ids []int64, group *uuid.UUID,
	who job.Act) (done jobsResult, err error) {
	var jobs []job.Job
	switch {
	case c.DryRun:
		return planJobs(ctx, env, act.verb, false, c, ids, group)
	case c.Bound() || who.If != nil:
		sel, err := selection(ctx, env, c, ids, group)
		if err != nil {
			return done, err
		}
		jobs, err = act.do(ctx, sel, who)
		return resultOf(jobs), operation.NoSuchJob(countMismatch(err, sel, act.verb))
	case group != nil:
		if done, err = act.runGroup(ctx, env, *group, who); err != nil {
			err = recallInstead(operation.NoSuchJob(err), "--group "+group.String(), func() bool {
				members, unread := env.Jobs.List(ctx, job.Filter{GroupID: group, Type: outbox.TypeInbox, Limit: 1, Summary: true})
				return unread == nil && len(members) > 0
			})
		}
		return done, err
	}
	for _, id := range ids {
		one, failed := act.do(ctx, job.Selection{IDs: []int64{id}, Summary: len(ids) > 1}, who)
		if failed != nil {
			err = errors.Join(err, recallInstead(operation.NoSuchJob(act.adviseUnknown(failed, id)), text.Int(id), func() bool {
				j, unread := env.Jobs.Summary(ctx, id)
				return unread == nil && j.Type == outbox.TypeInbox
			}))
		}
		jobs = append(jobs, one...)
	}
	return resultOf(jobs), err
}

func resultOf(jobs []job.Job) (done jobsResult) {
	for _, j := range jobs {
		done.Jobs = append(done.Jobs, jobResult{Job: j})
	}
	return done
}

// selection returns the jobs of a plan.
func selection(ctx context.Context, env *operation.Env, c operation.PlanFlags, ids []int64, group *uuid.UUID) (job.Selection, error) {
	asOf, err := c.Moment(ctx, env)
	return job.Selection{IDs: ids, Group: group, Count: c.Expected(), AsOf: &asOf}, err
}

// countMismatch replaces the error of a count that differs from the plan.
func countMismatch(err error, sel job.Selection, verb jobVerb) error {
	var count *job.CountError
	if !errors.As(err, &count) {
		return err
	}
	return operation.Unexpected(count.Would, count.Expected, "job", verb.done, *sel.AsOf)
}

// adviseUnknown adds advice to the error of a change with an unknown outcome.
func (act jobsAct) adviseUnknown(err error, id int64) error {
	if !errors.As(operation.UnlessUnknown(err), new(*operation.UnknownOutcomeError)) || errors.As(err, new(*job.FlaggedError)) {
		return err
	}
	return operation.Advise(err,
		fmt.Sprintf("the job may be %s nevertheless, see `belfry jobs show %d`; repeating is safe", act.verb.done, id))
}

// recallInstead adds advice to recall if an abort is too late for a job that wrote notifications.
func recallInstead(err error, of string, notifies func() bool) error {
	var wrong *job.WrongStatusError
	if !errors.As(err, &wrong) || wrong.Act != "abort" || !wrong.Delivered || wrong.Status != job.Processed || !notifies() {
		return err
	}
	return operation.Advise(err, "`belfry recall "+of+"` withdraws unread notifications")
}

type jobsInput struct {
	jobsOrGroup
	operation.PlanFlags
	operation.VersionFlag
	operation.Act
}

type abortInput struct {
	jobsOrGroup
	Recall bool `flag:"recall" help:"then recall the jobs, see belfry recall"`
	operation.PlanFlags
	operation.VersionFlag
	operation.Act
}

func jobActOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "abort", Short: "Stop a job immediately, in its walk or its delivery",
			Usage: jobsOrGroupUsage, Role: operation.Operator, Changes: true, Stops: true, Events: "the job's events",
			Need: operation.NeedNothing, Deadline: -1,
			Long: `Stop a job immediately. When the command has returned, no further row of the job is
committed, and no further message of it is handed to a provider; its messages are held
until the job is resumed. This requires no live runner or relay. A PROCESSED or FAILED
job is stopped as well while messages of it wait. With --recall, unsent messages are then
cancelled and unread notifications withdrawn, with --group also those of PROCESSED jobs.

Several jobs, or a group, are stopped in steps of a transaction each. Jobs that are over
already are counted; it is an error only if nothing was stopped.

With abort.cache, the job is flagged in the cache first: a run stops before its next chunk
although the database is down. In this case the command ends with exit code 69; repeat it
when the database is back.` + groupHelp,
			SQL: `UPDATE belfry.jobs SET abort_requested = true WHERE id = 17;`,
			Example: `  belfry abort 17 --reason "wrong link"
  belfry abort --group 17 --recall`,
		}, abortJobs, func(d *text.Doc, _ abortInput, out jobsResult) {
			out.text(d, aborting())
			out.recallText(d)
		}),
		resumeOperation(),
		operation.Define(operation.Operation{
			Name: "retry", SQL: "SELECT * FROM belfry.retry(17, 'kim', 'provider is back');", Short: "Retry a FAILED or EXPIRED job from its cursor",
			Usage: jobsOrGroupUsage, Role: operation.Operator, Changes: true, Events: "the job's events", Deadline: -1,
			Long: `Retry a FAILED job from its cursor: it is PENDING again. For its error see
` + "`belfry jobs show`" + `; to correct the job at the same time, use ` + "`belfry resume ID --edit`" + `.

Before the retry of an EXPIRED job, change or remove its expires_at:
belfry jobs set 17 expires_at=+2h` + groupHelp,
			Example: `  belfry retry 17 --reason "disk is bigger now"
  belfry retry --group 17`,
		}, func(ctx context.Context, env *operation.Env, in jobsInput) (jobsResult, error) {
			ids, group, err := in.find(ctx, env.Jobs)
			if err != nil {
				return jobsResult{}, err
			}
			return jobsAct{retrying(), env.Jobs.Retry}.run(ctx, env, in.PlanFlags, ids, group, operation.ActBy(env, in))
		}, func(d *text.Doc, _ jobsInput, out jobsResult) { out.text(d, retrying()) }),
		recallOperation(),
	}
}

func recallOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "recall", Short: "Cancel a job's unsent messages and withdraw its unread notifications",
		Usage: jobsOrGroupUsage, Role: operation.Operator, Changes: true, Events: "the jobs' events", Deadline: -1,
		Long: `Recall an ABORTED, PROCESSED or FAILED job: cancel its unsent messages and withdraw its
unread notifications, in chunks of limited size. Sent messages and read notifications
remain, and are counted. Messages in flight are counted separately: those in a call of
the provider become SENT or DEAD, the others CANCELLED a moment later; see
` + "`belfry jobs show`" + `. With --group, recall each such job of the group.

An interrupted recall keeps its progress; repeat it to continue.` + groupHelp,
		Example: `  belfry recall 17 --reason "wrong link"
  belfry abort 17 --recall --reason "wrong link"
  belfry recall --group 17 --json`,
	}, func(ctx context.Context, env *operation.Env, in jobsInput) (jobsResult, error) {
		ids, group, err := in.find(ctx, env.Jobs)
		if err != nil {
			return jobsResult{}, err
		}
		if in.DryRun {
			return planJobs(ctx, env, recalling(), false, in.PlanFlags, ids, group)
		}
		return recallJobs(ctx, env, in.PlanFlags, ids, group, operation.ActBy(env, in))
	}, func(d *text.Doc, _ jobsInput, out jobsResult) {
		out.planText(d, recalling())
		out.recallText(d)
	})
}

// abortJobs stops a job within the default deadline, and a group or several jobs in steps with a deadline each.
// With Recall, it recalls them without a deadline.
func abortJobs(ctx context.Context, env *operation.Env, in abortInput) (jobsResult, error) {
	who := operation.ActBy(env, in)
	brief, cancel := context.WithTimeout(ctx, operation.DefaultDeadline)
	defer cancel()
	ids, group, err := in.find(brief, env.Jobs)
	if err != nil {
		return jobsResult{}, err
	}
	if in.DryRun {
		return planJobs(brief, env, aborting(), in.Recall, in.PlanFlags, ids, group)
	}
	inSteps := !in.Bound() && (group != nil || len(ids) > 1 && !in.Recall)
	if inSteps {
		brief = ctx
	}
	act := jobsAct{aborting(), env.Jobs.Abort}
	var done jobsResult
	if inSteps && group == nil {
		done, err = act.abortEach(brief, env, ids, who)
	} else {
		done, err = act.run(brief, env, in.PlanFlags, ids, group, who)
	}
	var flagged *job.FlaggedError
	if errors.As(err, &flagged) && group != nil {
		err = operation.Advise(err, "repeat `belfry abort --group "+group.String()+"` when the database is back")
	} else if errors.As(err, &flagged) {
		names := make([]string, len(flagged.JobIDs))
		for i, id := range flagged.JobIDs {
			names[i] = text.Int(id)
		}
		err = operation.Advise(err, "repeat `belfry abort "+strings.Join(names, " ")+"` when the database is back")
	}
	if !in.Recall || len(done.Jobs) == 0 {
		return done, err
	}
	var stopped []int64
	for _, j := range done.Jobs {
		stopped = append(stopped, j.ID)
		env.Progressf("%s", statusLine(j.Job))
	}
	back := stopped
	switch {
	case group != nil && in.Bound():
		back = in.alsoRecalled(done.Jobs)
	case group != nil:
		var unread error
		if back, unread = recallable(ctx, env.Jobs, *group); unread != nil {
			return done, errors.Join(err, unread)
		}
	}
	who.If = nil // the abort has changed the version
	recalled, recallErr := recallJobs(ctx, env, operation.PlanFlags{}, back, nil, who)
	for _, r := range recalled.Jobs {
		if i := slices.Index(stopped, r.ID); i >= 0 {
			done.Jobs[i] = r
		}
	}
	return done, errors.Join(err, recallErr)
}

// alsoRecalled returns the jobs of a group that an abort recalls: the stopped jobs, and the jobs that had
// ended before.
func (in abortInput) alsoRecalled(jobs []jobResult) (ids []int64) {
	for _, j := range jobs {
		newer := in.Plan != nil &&
			(j.CreatedAt.After(in.Plan.AsOf) || j.Status != job.Aborted && j.FinishedAt != nil && j.FinishedAt.After(in.Plan.AsOf))
		if slices.Contains(recalling().from, j.Status) && !newer {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// recallJobs recalls jobs one after the other, or the recallable jobs of a group. Without a plan, a job
// that cannot be recalled does not prevent the recall of the others.
func recallJobs(ctx context.Context, env *operation.Env, c operation.PlanFlags, ids []int64, group *uuid.UUID,
	who job.Act) (done jobsResult, err error) {
	if group != nil {
		if ids, err = recallable(ctx, env.Jobs, *group); err != nil {
			return done, operation.NoSuchJob(err)
		}
	}
	var runs []func(context.Context, func(delivery.RecallProgress)) (delivery.Recalled, error)
	if c.Bound() {
		sel, err := selection(ctx, env, c, ids, nil)
		if err != nil {
			return done, err
		}
		begun, err := delivery.BeginRecalls(ctx, env.DB, sel, who)
		if err != nil {
			return done, operation.NoSuchJob(countMismatch(err, sel, recalling()))
		}
		ids = nil
		for _, r := range begun {
			ids, runs = append(ids, r.JobID()), append(runs, r.Run)
		}
	} else {
		for _, id := range ids {
			runs = append(runs, func(ctx context.Context, observe func(delivery.RecallProgress)) (delivery.Recalled, error) {
				return delivery.Recall(ctx, env.DB, id, who, observe)
			})
		}
	}
	for i, run := range runs {
		one, failed := recallOne(ctx, env, ids[i], len(runs) > 1, run)
		if one.Recall != nil && len(done.Jobs) < maxGroup {
			done.Jobs = append(done.Jobs, one)
		}
		if err = errors.Join(err, operation.NoSuchJob(failed)); ctx.Err() != nil {
			break
		}
	}
	return done, err
}

// recallable returns the recallable jobs of a group, oldest first.
func recallable(ctx context.Context, store *job.Store, group uuid.UUID) ([]int64, error) {
	members, err := store.Members(ctx, group)
	if err != nil {
		return nil, err
	}
	var ids []int64
	for _, j := range members {
		if slices.Contains(recalling().from, j.Status) {
			ids = append(ids, j.ID)
		}
	}
	if len(ids) == 0 {
		return nil, operation.Conflict("group %s has no job that is ABORTED, PROCESSED or FAILED; abort it first", group)
	}
	slices.Sort(ids)
	return ids, nil
}

// recallOne runs the recall of a job and returns the job, without contents for a summary.
func recallOne(ctx context.Context, env *operation.Env, id int64, summary bool,
	run func(context.Context, func(delivery.RecallProgress)) (delivery.Recalled, error)) (jobResult, error) {
	done, err := run(ctx, func(p delivery.RecallProgress) {
		env.Progressf("job %d: %s examined, %s recalled", id, text.Grouped(p.Looked), text.Counted(p.Messages+p.Notifications, "row"))
	})
	if err != nil && done == (delivery.Recalled{}) {
		return jobResult{}, err
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), operation.DefaultDeadline)
	defer cancel()
	read := env.Jobs.Get
	if summary {
		read = env.Jobs.Summary
	}
	j, getErr := read(brief, id)
	return jobResult{Job: j, Recall: &done}, errors.Join(err, getErr)
}

// recalledLine returns the counts of a recall.
func recalledLine(one jobResult) text.Line {
	r := one.Recall
	line := text.Sprintf("%s: %s withdrawn, %s read before; %s cancelled, %s sent, %s dead", jobRef(one.Job),
		text.Counted(r.Notifications, "notification"), text.Count(r.Read), text.Counted(r.Messages, "message"), text.Count(r.Sent),
		text.Count(r.Dead))
	if r.Awaiting > 0 {
		line = text.Sprintf("%s, %s with the provider, without receipts so far", line, text.Count(r.Awaiting))
	}
	if r.InFlight > 0 {
		line = text.Sprintf("%s; %s in flight, sent only if their call was under way; %s", line, text.Count(r.InFlight),
			text.Command("jobs show", one.ID).To("show their outcome"))
	}
	return line
}
