package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

const (
	// groupStep is the number of jobs that a transaction of an act in steps changes.
	groupStep = 500
	// finishedStep is the number of finished jobs that a transaction of an abort examines. Each examination may
	// wait half a second for a locked table, and all read the messages of jobs for 5 seconds (belfry.has_unsent).
	finishedStep = 20
	// groupWait bounds the wait for jobs that other sessions lock.
	groupWait = 5 * time.Second
)

// groupSteps is the progress of an act on a group, or of an abort of several jobs, in steps.
type groupSteps struct {
	Jobs    int64 `json:"jobs"`    // of the act when it began
	Changed int64 `json:"changed"` // in committed steps
	Skipped int64 `json:"skipped"` // their status does not allow the act
	Left    int64 `json:"left"`    // to be changed by a repetition
}

func (s groupSteps) line(verb jobVerb) string {
	line := text.Grouped(s.Changed) + " of " + text.Counted(s.Jobs, "job") + " " + verb.done
	switch {
	case s.Skipped > 0 && verb.done == aborted:
		line += ", " + text.Grouped(s.Skipped) + " over already"
	case s.Skipped > 0:
		line += ", " + text.Grouped(s.Skipped) + " skipped because of their status"
	}
	if s.Left > 0 {
		line += ", " + text.Grouped(s.Left) + " left"
	}
	return line
}

// partialError reports an act in steps that has not changed all jobs. It hides the reason's type: the counts of
// the result are read after the failure, so that the outcome is not unknown.
type partialError struct {
	text string
	kind db.Kind
}

func (e *partialError) Error() string { return e.text }
func (e *partialError) Kind() db.Kind { return e.kind }

// groupAct is an act in steps.
type groupAct struct {
	jobsAct

	env      *operation.Env
	who      job.Act
	from     []job.Status
	finished map[int64]bool // the jobs of an abort that were PROCESSED or FAILED
	steps    groupSteps
	unknown  int   // the jobs of the failed step, if its outcome cannot be read
	failed   error // of the first job or step that cannot be changed
}

// abortEach stops jobs in steps, as runGroup does, RUNNING ones first, then PENDING ones. Jobs that are over do not fail
// it if it stops another. It
// returns the stopped jobs. If it cannot read the jobs, which an abort cache does not require, it stops one
// after the other.
func (act jobsAct) abortEach(ctx context.Context, env *operation.Env, ids []int64, who job.Act) (done jobsResult, err error) {
	jobs, unread := env.Jobs.Summaries(ctx, ids)
	if unread != nil {
		return act.run(ctx, env, operation.PlanFlags{}, ids, nil, who)
	}
	members := make([]job.Member, len(jobs))
	for i, j := range jobs {
		members[i] = job.Member{ID: j.ID, Status: j.Status}
	}
	urgent := []job.Status{job.Pending, job.Running} // the last first, and all others after these
	slices.SortStableFunc(members, func(a, b job.Member) int {
		return slices.Index(urgent, b.Status) - slices.Index(urgent, a.Status)
	})
	var missing error
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if !slices.ContainsFunc(members, func(m job.Member) bool { return m.ID == id }) {
			missing = errors.Join(missing, operation.NoSuchJob(fmt.Errorf("job %d: %w", id, job.ErrNotFound)))
		}
	}
	if len(members) == 0 {
		return done, missing
	}
	done, err = act.runSteps(ctx, env, members, who)
	done.Jobs = slices.DeleteFunc(done.Jobs, func(j jobResult) bool { // over before
		i := slices.IndexFunc(members, func(m job.Member) bool { return m.ID == j.ID })
		return j.Status != job.Aborted || members[i].Status == job.Aborted
	})
	return done, errors.Join(missing, err)
}

// runGroup changes the jobs of a group. An abort, and an act on more than groupStep jobs, has steps of a
// transaction each, in the order of job.Store.Members, without the jobs that other sessions lock. It waits for
// these at the end. A correction changes all jobs or none.
func (act jobsAct) runGroup(ctx context.Context, env *operation.Env, group uuid.UUID, who job.Act) (done jobsResult, err error) {
	members, err := env.Jobs.Members(ctx, group)
	if err != nil {
		return done, operation.NoSuchJob(err)
	}
	if act.verb.done != aborted && (act.verb.done == correcting().done || len(members) <= groupStep) {
		jobs, err := act.do(ctx, job.Selection{Group: &group}, who)
		return resultOf(jobs), operation.NoSuchJob(err)
	}
	return act.runSteps(ctx, env, members, who)
}

// runSteps changes jobs in steps.
func (act jobsAct) runSteps(ctx context.Context, env *operation.Env, members []job.Member, who job.Act) (done jobsResult, err error) {
	g := groupAct{jobsAct: act, env: env, who: who, from: act.verb.from, finished: make(map[int64]bool)}
	if act.verb.done == aborted {
		g.from = append(g.from, job.Processed, job.Failed)
	}
	var listed, todo []int64
	for _, m := range members {
		listed = append(listed, m.ID)
		if slices.Contains(g.from, m.Status) {
			todo = append(todo, m.ID)
		}
		if act.verb.done == aborted && (m.Status == job.Processed || m.Status == job.Failed) {
			g.finished[m.ID] = true
		}
	}
	slices.Sort(listed)
	listed = listed[:min(len(listed), maxGroup)]
	g.steps = groupSteps{Jobs: int64(len(members)), Left: int64(len(todo)), Skipped: int64(len(members) - len(todo))}
	if err = g.run(ctx, todo); err == nil {
		err = g.failed
	}
	if g.steps.Changed == 0 {
		if err == nil { // one job returns the reason
			_, err = act.do(ctx, job.One(listed[0]), who)
		}
		if err != nil {
			return done, err
		}
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), operation.DefaultDeadline)
	defer cancel()
	jobs, unread := env.Jobs.Summaries(brief, listed)
	done = resultOf(jobs)
	done.Group = &g.steps
	if done.Jobs == nil {
		done.Jobs = []jobResult{}
	}
	if err = cmp.Or(err, unread); err == nil || errors.As(err, new(*job.FlaggedError)) {
		return done, err
	}
	reason := &partialError{g.steps.line(act.verb), db.KindOf(err)}
	if g.unknown > 0 {
		reason.text += fmt.Sprintf(", of which %d may be %s too", g.unknown, act.verb.done)
		reason.kind = db.KindUnknown
	}
	reason.text += "; repeat the act for the rest: " + env.RedactError(err).Error()
	return done, reason
}

// run changes the jobs of todo.
func (g *groupAct) run(ctx context.Context, todo []int64) error {
	held, err := g.sweep(ctx, todo)
	for began := time.Now(); err == nil && len(held) > 0; {
		waited := g.step(ctx, held[:1], nil) // waits for one job alone, and so locks no other meanwhile
		locked := errors.Is(waited, job.ErrLocked)
		switch {
		case waited != nil && !locked:
			return waited
		case !locked:
			held = held[1:]
		}
		if held, err = g.sweep(ctx, held); err == nil && len(held) > 0 && (locked || time.Since(began) > groupWait) {
			if err = waited; !locked || len(held) > 1 {
				err = fmt.Errorf("%w: %s", job.ErrLocked, g.env.Jobs.Holders(ctx, held[:min(len(held), operation.NamedJobs)]...))
			}
			if errors.As(waited, new(*job.FlaggedError)) {
				err = &job.FlaggedError{JobIDs: held, Err: err} // sweep has flagged them
			}
		}
	}
	return err
}

// sweep changes jobs in steps, and returns those that other sessions lock. Each step tries the locked ones again.
func (g *groupAct) sweep(ctx context.Context, todo []int64) (held []int64, err error) {
	for len(todo) > 0 {
		n, again := g.next(todo), min(finishedStep, len(held))
		var still []int64
		if err := g.step(ctx, slices.Concat(todo[:n], held[:again]), &still); err != nil {
			return nil, err
		}
		if todo, held = todo[n:], append(still, held[again:]...); len(todo) > 0 {
			g.env.Progressf("%s", g.steps.line(g.verb))
		}
	}
	return held, nil
}

// next returns how many jobs of todo the next step has. Finished jobs are in steps of their own.
func (g *groupAct) next(todo []int64) (n int) {
	most := groupStep
	if g.finished[todo[0]] {
		most = finishedStep
	}
	for n < min(most, len(todo)) && g.finished[todo[n]] == g.finished[todo[0]] {
		n++
	}
	return n
}

// step changes jobs in one transaction. Without held it waits for the locked ones. If the database rejects the
// change of a job, it halves the step until it has found that job, and leaves it out. A step that fails while
// the database answers does not prevent the others: its error is in failed.
func (g *groupAct) step(ctx context.Context, ids []int64, held *[]int64) error {
	jobs, err := g.do(ctx, job.Selection{IDs: ids, Held: held}, g.who)
	if errors.As(err, new(*job.WrongStatusError)) || errors.Is(err, job.ErrNotFound) { // changed or deleted meanwhile
		err = nil
	}
	changed, skipped := len(jobs), len(ids)-len(jobs)
	switch {
	case errors.As(err, new(*job.InvalidError)) || slices.Contains([]db.Class{db.Invalid, db.Violation, db.Raised}, db.ClassOf(err)):
		if len(ids) == 1 {
			g.failed = cmp.Or(g.failed, err)
			return nil
		}
		var first, second []int64
		err = errors.Join(g.step(ctx, ids[:len(ids)/2], &first), g.step(ctx, ids[len(ids)/2:], &second))
		*held = append(first, second...)
		return err
	case err != nil && !errors.Is(err, job.ErrLocked):
		changed, skipped = g.reread(ctx, ids), 0
		if ctx.Err() == nil && slices.Contains([]db.Class{db.TooSlow, db.Conflict, db.Internal}, db.ClassOf(err)) {
			g.fail(err)
			err = nil
		}
	case err != nil:
		skipped = 0
	case held != nil:
		skipped -= len(*held)
	}
	g.steps.Changed += int64(changed)
	g.steps.Skipped += int64(skipped)
	g.steps.Left -= int64(changed + skipped)
	return err
}

// fail records the failure of a step. The jobs of several flagged steps are in one error.
func (g *groupAct) fail(err error) {
	var before, now *job.FlaggedError
	if errors.As(g.failed, &before) && errors.As(err, &now) {
		before.JobIDs = slices.Concat(before.JobIDs, now.JobIDs)
	}
	g.failed = cmp.Or(g.failed, err)
}

// reread returns how many jobs of a failed step were changed, which is unknown after the loss of the connection
// or an interruption.
func (g *groupAct) reread(ctx context.Context, ids []int64) (changed int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), groupWait)
	defer cancel()
	jobs, err := g.env.Jobs.Summaries(ctx, ids)
	if err != nil {
		g.unknown += len(ids)
	}
	for _, j := range jobs {
		if !slices.Contains(g.from, j.Status) {
			changed++
		}
	}
	return changed
}
