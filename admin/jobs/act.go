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

GROUP is a group's id or the id of any job of it: ` + "`belfry jobs list`" + ` shows the jobs,
` + "`belfry jobs show ID`" + ` the group. A job that is in no group is one by itself.

--dry-run shows the effect on each job, and for how many people. With the token of that
plan (--plan) the act is one transaction on as many jobs, or on none; it leaves jobs that
do not allow it, and newer ones.`

// maxGroup bounds a group that is acted on job by job: it has a job for each type.
const maxGroup = 1000

// jobsOrGroup names jobs, or all of a group.
type jobsOrGroup struct {
	IDs   []int64   `arg:"[ID]..." values:"jobs list" is:"a job's id" min:"1" allowed:"whole numbers from 1, as belfry jobs list shows them"`
	Group *groupRef `flag:"group" label:"GROUP" values:"jobs list:group_job" help:"every job of this group: its id, or that of a job of it"`
}

const jobsOrGroupUsage = "{ID... | --group GROUP}"

func (r jobsOrGroup) Check(o operation.Operation, _ time.Time) error {
	if (len(r.IDs) > 0) == (r.Group != nil) {
		return operation.Invalid("", "%s takes either the ids of jobs or --group GROUP", o.Name)
	}
	return nil
}

// resource is the one job; several jobs, or a group, have no version.
func (r jobsOrGroup) Resource() operation.Resource {
	if len(r.IDs) != 1 || r.Group != nil {
		return operation.Resource{}
	}
	return operation.JobRef{ID: r.IDs[0]}.Resource()
}

// find returns the jobs' ids, or the group.
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

// actedJob is one job that was acted on.
type actedJob struct {
	job.Job

	Recall *delivery.Recalled `json:"recall,omitempty"` // only where it was recalled
}

// actedJobs are those that were acted on, and with a group its others.
type actedJobs struct {
	Plan *operation.Plan `json:"plan,omitempty"` // then nothing was done
	Jobs []actedJob      `json:"jobs"`
}

// ResourceVersion returns the version of the one job.
func (a actedJobs) ResourceVersion() (version int64, one bool) {
	if a.Plan != nil || len(a.Jobs) != 1 {
		return 0, false
	}
	return a.Jobs[0].Version, true
}

func (a actedJobs) Affected(string) operation.Affected {
	return operation.Affected{N: int64(len(a.Jobs)), Noun: "job", Plan: a.Plan}
}

// planText writes the plan, if there is one.
func (a actedJobs) planText(d *text.Doc, verb jobVerb) {
	if a.Plan != nil {
		a.Plan.Text(d, "job", verb.done)
	}
}

// text writes the plan, or the status of each job.
func (a actedJobs) text(d *text.Doc, verb jobVerb) {
	a.planText(d, verb)
	for _, j := range a.Jobs {
		d.Line("%s", statusLine(j.Job))
	}
}

// recallText writes the result of each recall.
func (a actedJobs) recallText(d *text.Doc) {
	for _, j := range a.Jobs {
		if j.Recall != nil {
			d.Line("%s", recalledLine(j))
		}
	}
}

// jobsAct is an act on jobs.
type jobsAct struct {
	verb jobVerb
	do   func(context.Context, job.Selection, job.Act) ([]job.Job, error)
}

// planned returns the plan of an act, or acts: on a group, and on what a plan or a version
// describes, in one transaction; on other jobs one by one, so that a job which cannot be changed
// does not keep the others from it.
func (act jobsAct) planned(ctx context.Context, env *operation.Env, c operation.PlanFlags, ids []int64, group *uuid.UUID, who job.Act) (done actedJobs, err error) {
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
		return actedJobsOf(jobs), operation.NoSuchJob(unlike(err, sel, act.verb))
	case group != nil:
		if jobs, err = act.do(ctx, job.Selection{Group: group}, who); err != nil {
			err = recallInstead(operation.NoSuchJob(err), "--group "+group.String(), func() bool {
				members, unread := env.Jobs.List(ctx, job.Filter{GroupID: group, Type: outbox.TypeInbox, Limit: 1})
				return unread == nil && len(members) > 0
			})
		}
		return actedJobsOf(jobs), err
	}
	for _, id := range ids {
		one, failed := act.do(ctx, job.One(id), who)
		if failed != nil {
			err = errors.Join(err, recallInstead(operation.NoSuchJob(act.unsure(failed, id)), text.Int(id), func() bool {
				j, unread := env.Jobs.Get(ctx, id)
				return unread == nil && j.Type == outbox.TypeInbox
			}))
		}
		jobs = append(jobs, one...)
	}
	return actedJobsOf(jobs), err
}

func actedJobsOf(jobs []job.Job) (done actedJobs) {
	for _, j := range jobs {
		done.Jobs = append(done.Jobs, actedJob{Job: j})
	}
	return done
}

// selection is the jobs of an act that has to match its plan.
func selection(ctx context.Context, env *operation.Env, c operation.PlanFlags, ids []int64, group *uuid.UUID) (job.Selection, error) {
	asOf, err := c.Moment(ctx, env)
	return job.Selection{IDs: ids, Group: group, Count: c.Expected(), AsOf: &asOf}, err
}

// unlike adds the plan's parameter to the error of another count.
func unlike(err error, sel job.Selection, verb jobVerb) error {
	var count *job.CountError
	if !errors.As(err, &count) {
		return err
	}
	return operation.Unexpected(count.Would, count.Expected, "job", verb.done, *sel.AsOf)
}

// unsure adds how to see whether a job was acted on, if the answer to the act is missing.
func (act jobsAct) unsure(err error, id int64) error {
	if !errors.As(operation.UnlessUnknown(err), new(*operation.UnknownOutcomeError)) || errors.As(err, new(*job.FlaggedError)) {
		return err
	}
	return operation.Advise(err, fmt.Sprintf("the job may be %s all the same: `belfry jobs show %d` shows it, and repeating is safe", act.verb.done, id))
}

// recallInstead names the recall if an abort comes too late for a job that wrote notifications.
func recallInstead(err error, of string, notifies func() bool) error {
	var wrong *job.WrongStatusError
	if !errors.As(err, &wrong) || wrong.Act != "abort" || !wrong.Delivered || wrong.Status != job.Processed || !notifies() {
		return err
	}
	return operation.Advise(err, "`belfry recall "+of+"` takes back notifications that are not read yet")
}

type jobsInput struct {
	jobsOrGroup
	operation.PlanFlags
	operation.VersionFlag
	operation.Act
}

type abortInput struct {
	jobsOrGroup
	Recall bool `flag:"recall" help:"then take back what nobody has seen yet, as belfry recall does"`
	operation.PlanFlags
	operation.VersionFlag
	operation.Act
}

func jobActOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "abort", Short: "Stop a job at once, in its walk or while its messages go out",
			Usage: jobsOrGroupUsage, Role: operation.Operator, Changes: true, Stops: true, Events: "the job's events", Need: operation.NeedNothing, Deadline: -1,
			Long: `Stop a job at once. When the command has returned, no further row of the job is
committed, and no message of it that was not handed to a provider is sent: they are
held until it is resumed. No runner or relay has to be alive for that. A job that is
PROCESSED or FAILED is stopped as well, as long as messages of it are left. With
--recall, unsent messages are then cancelled and unread notifications withdrawn, with
--group also those of its jobs that are PROCESSED already.

With abort.cache the job is flagged there first: a run stops before its next chunk
although the database does not answer. The command says so and ends with exit code
69; repeat it when the database is back.` + groupHelp,
			SQL: `UPDATE belfry.jobs SET abort_requested = true WHERE id = 17;`,
			Example: `  belfry abort 17 --reason "wrong link"
  belfry abort --group 17 --recall`,
		}, abortJobs, func(d *text.Doc, _ abortInput, out actedJobs) {
			out.text(d, aborting())
			out.recallText(d)
		}),
		resumeOperation(),
		operation.Define(operation.Operation{
			Name: "retry", SQL: "SELECT * FROM belfry.retry(17, 'kim', 'provider is back');", Short: "Try a FAILED or EXPIRED job again from its cursor",
			Usage: jobsOrGroupUsage, Role: operation.Operator, Changes: true, Events: "the job's events",
			Long: `Try a FAILED job again from its cursor: it is PENDING again. ` + "`belfry jobs show`" + `
says what went wrong; ` + "`belfry resume ID --edit`" + ` corrects it on the way.

An EXPIRED job is tried again once its time is lifted or lies ahead:
belfry jobs set 17 expires_at=+2h` + groupHelp,
			Example: `  belfry retry 17 --reason "disk is bigger now"
  belfry retry --group 17`,
		}, func(ctx context.Context, env *operation.Env, in jobsInput) (actedJobs, error) {
			ids, group, err := in.find(ctx, env.Jobs)
			if err != nil {
				return actedJobs{}, err
			}
			return jobsAct{retrying(), env.Jobs.Retry}.planned(ctx, env, in.PlanFlags, ids, group, operation.ActBy(env, in))
		}, func(d *text.Doc, _ jobsInput, out actedJobs) { out.text(d, retrying()) }),
		recallOperation(),
	}
}

func recallOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "recall", Short: "Take back what a job wrote and nobody has seen yet",
		Usage: jobsOrGroupUsage, Role: operation.Operator, Changes: true, Events: "the jobs' events", Deadline: -1,
		Long: `Take back what an ABORTED, PROCESSED or FAILED job wrote: messages that are not sent
are cancelled, notifications that are not read are withdrawn, in bounded chunks. What
was sent or read stays, and is counted. Messages that a relay has in flight are counted
apart: those whose call is under way are sent or die, and the others become CANCELLED a
moment later, which ` + "`belfry jobs show`" + ` counts. With --group every such job of the group.

Interrupted, it leaves what it took back taken back; repeating it goes on.` + groupHelp,
		Example: `  belfry recall 17 --reason "wrong link"
  belfry abort 17 --recall --reason "wrong link"
  belfry recall --group 17 --json`,
	}, func(ctx context.Context, env *operation.Env, in jobsInput) (actedJobs, error) {
		ids, group, err := in.find(ctx, env.Jobs)
		if err != nil {
			return actedJobs{}, err
		}
		if in.DryRun {
			return planJobs(ctx, env, recalling(), false, in.PlanFlags, ids, group)
		}
		return recallJobs(ctx, env, in.PlanFlags, ids, group, operation.ActBy(env, in))
	}, func(d *text.Doc, _ jobsInput, out actedJobs) {
		out.planText(d, recalling())
		out.recallText(d)
	})
}

// abortJobs stops jobs within the deadline of a short act, and recalls them without one if
// that is wanted.
func abortJobs(ctx context.Context, env *operation.Env, in abortInput) (actedJobs, error) {
	who := operation.ActBy(env, in)
	brief, cancel := context.WithTimeout(ctx, operation.DefaultDeadline)
	defer cancel()
	ids, group, err := in.find(brief, env.Jobs)
	if err != nil {
		return actedJobs{}, err
	}
	if in.DryRun {
		return planJobs(brief, env, aborting(), in.Recall, in.PlanFlags, ids, group)
	}
	done, err := jobsAct{aborting(), env.Jobs.Abort}.planned(brief, env, in.PlanFlags, ids, group, who)
	var flagged *job.FlaggedError
	if errors.As(err, &flagged) {
		names := make([]string, len(flagged.JobIDs))
		for i, id := range flagged.JobIDs {
			names[i] = text.Int(id)
		}
		err = operation.Advise(err, "repeat `belfry abort "+strings.Join(names, " ")+"` when the database answers")
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
	if group != nil {
		back = in.alsoRecalled(done.Jobs)
	}
	who.If = nil // the abort has met it, and changed the version
	recalled, recallErr := recallJobs(ctx, env, operation.PlanFlags{}, back, nil, who)
	for _, r := range recalled.Jobs {
		if i := slices.Index(stopped, r.ID); i >= 0 {
			done.Jobs[i] = r
		}
	}
	return done, errors.Join(err, recallErr)
}

// alsoRecalled are the jobs of a group that an abort recalls: those that it stopped, and those
// that were at rest before.
func (in abortInput) alsoRecalled(jobs []actedJob) (ids []int64) {
	for _, j := range jobs {
		younger := in.Plan != nil && (j.CreatedAt.After(in.Plan.AsOf) || j.Status != job.Aborted && j.FinishedAt != nil && j.FinishedAt.After(in.Plan.AsOf))
		if slices.Contains(recalling().from, j.Status) && !younger {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// recallJobs takes jobs back, one after the other, or those of a group that can be. One that
// cannot be recalled does not keep the others from it, unless they are to be as a plan says.
func recallJobs(ctx context.Context, env *operation.Env, c operation.PlanFlags, ids []int64, group *uuid.UUID, who job.Act) (done actedJobs, err error) {
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
			return done, operation.NoSuchJob(unlike(err, sel, recalling()))
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
		one, failed := recallOne(ctx, env, ids[i], run)
		if one.Recall != nil {
			done.Jobs = append(done.Jobs, one)
		}
		if err = errors.Join(err, operation.NoSuchJob(failed)); ctx.Err() != nil {
			break
		}
	}
	return done, err
}

// recallable lists the jobs of a group that can be recalled, oldest first.
func recallable(ctx context.Context, store *job.Store, group uuid.UUID) ([]int64, error) {
	members, err := store.List(ctx, job.Filter{GroupID: &group, Limit: maxGroup})
	if err != nil {
		return nil, err
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("group %s: %w", group, job.ErrNotFound)
	}
	var ids []int64
	for _, j := range members {
		if j.Status == job.Aborted || j.Status == job.Processed || j.Status == job.Failed {
			ids = append(ids, j.ID)
		}
	}
	if len(ids) == 0 {
		return nil, operation.Conflict("group %s has no job that is ABORTED, PROCESSED or FAILED; abort it first", group)
	}
	slices.Sort(ids)
	return ids, nil
}

func recallOne(ctx context.Context, env *operation.Env, id int64, run func(context.Context, func(delivery.RecallProgress)) (delivery.Recalled, error)) (actedJob, error) {
	done, err := run(ctx, func(p delivery.RecallProgress) {
		env.Progressf("job %d: %s looked at, %s recalled", id, text.Grouped(p.Looked), text.Counted(p.Messages+p.Notifications, "row"))
	})
	if err != nil && done == (delivery.Recalled{}) {
		return actedJob{}, err
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), operation.DefaultDeadline)
	defer cancel()
	j, getErr := env.Jobs.Get(brief, id)
	return actedJob{Job: j, Recall: &done}, errors.Join(err, getErr)
}

// recalledLine returns the counts of a recall.
func recalledLine(one actedJob) text.Line {
	r := one.Recall
	line := text.Sprintf("%s: %s withdrawn, %s read before; %s cancelled, %s sent, %s dead", jobRef(one.Job),
		text.Counted(r.Notifications, "notification"), text.Count(r.Read), text.Counted(r.Messages, "message"), text.Count(r.Sent), text.Count(r.Dead))
	if r.Awaiting > 0 {
		line = text.Sprintf("%s, %s with the provider, without receipts so far", line, text.Count(r.Awaiting))
	}
	if r.InFlight > 0 {
		line = text.Sprintf("%s; %s in flight, sent only if their call was under way; %s", line, text.Count(r.InFlight), text.Command("jobs show", one.ID).To("show their outcome"))
	}
	return line
}
