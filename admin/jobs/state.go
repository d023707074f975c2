package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// JobState is a job and what has become of its messages.
type JobState struct {
	job.Job

	Messages outbox.Progress `json:"messages"`
	// GroupJob is the first job of the group, the group's name for people; of lists only.
	GroupJob int64 `json:"group_job,omitempty"`
	// HaltedAt is since when everything is halted, this job too; nil: it is not, or nothing of
	// the job is to be done.
	HaltedAt *time.Time `json:"halted_at"`
}

// JobStates adds what has become of their messages to jobs.
func JobStates(ctx context.Context, pool *pgxpool.Pool, jobs []job.Job) ([]JobState, error) {
	progress, err := outbox.ProgressOf(ctx, pool, jobIDs(jobs))
	if err != nil {
		return nil, err
	}
	halt, err := job.NewStore(pool).Halted(ctx)
	if err != nil {
		return nil, err
	}
	states := make([]JobState, len(jobs))
	for i, j := range jobs {
		states[i] = JobState{Job: j, Messages: progress[j.ID]}
		states[i].Messages.JobID = j.ID // also of one that was pruned in between
		if !states[i].AtRest() {
			states[i].HaltedAt = halt.At
		}
	}
	return states, nil
}

// Delivering reports whether the walk is over and messages are left to send.
func (s JobState) Delivering() bool { return s.Status == job.Processed && s.Messages.Waiting > 0 }

// AtRest reports whether nothing of the job goes on before an operator acts.
func (s JobState) AtRest() bool {
	switch s.Status {
	case job.Pending, job.Running:
		return false
	case job.Aborted: // what waits is held
		return true
	case job.Processed, job.Failed, job.Expired:
	}
	return s.Messages.Waiting == 0
}

// Shown is the status for people: what the job is doing, and how far it is with that.
func (s JobState) Shown() string {
	if s.AwaitsApproval() {
		return "WAITS for approval"
	}
	if s.Delivering() {
		return "DELIVERING " + Percent(s.Settled(), s.Messages.Messages)
	}
	return string(s.Status)
}

// Settled is how many messages are final.
func (s JobState) Settled() int64 { return s.Messages.Messages - s.Messages.Waiting }

// Marks is what an operator should know beside the status: " halted", " throttled", " 3 skipped".
func (s JobState) Marks() string {
	line := ""
	if s.HaltedAt != nil {
		line += " halted"
	}
	if s.Throttle != "" {
		line += " throttled"
	}
	if s.Skipped > 0 {
		line += " " + text.Grouped(s.Skipped) + " skipped"
	}
	return line
}

// Percent is a part of a whole that is not complete.
func Percent(part, whole int64) string {
	return fmt.Sprintf("%d%%", min(99, 100*part/max(whole, 1)))
}

// MessagesText is what became of a job's messages.
func MessagesText(p outbox.Progress) string {
	line := fmt.Sprintf("%s of %s sent", text.Grouped(p.Sent), text.Grouped(p.Messages))
	for _, part := range []struct {
		n    int64
		what string
	}{{p.Dead, "dead"}, {p.Cancelled, "cancelled"}, {p.Waiting, "waiting"}} {
		if part.n > 0 {
			line += ", " + text.Grouped(part.n) + " " + part.what
		}
	}
	return line
}

// WalkDone is how far a job's walk is, in percent of the keys to examine; "-" when there is
// no telling.
func WalkDone(j job.Job) string {
	total, known := j.Total()
	switch {
	case j.Status == job.Processed, j.WalkedAt != nil: // one that was stopped after its walk as well
		return "100%"
	case !known:
		return "-"
	}
	return Percent(j.ChannelsRead, total) // the total is an estimate
}

// JobLabel names a job to a person.
func JobLabel(j job.Job) string { return fmt.Sprintf("job %d (%s)", j.ID, j.Type) }

// statusLine is one line about where a job is.
func statusLine(j job.Job) string {
	line := JobLabel(j) + " " + string(j.Status)
	switch j.Status {
	case job.Processed:
		line += ": " + text.Counted(j.RowsWritten, "row")
	case job.Aborted, job.Failed, job.Expired, job.Pending:
		if j.Cursor != "" {
			line += " at cursor " + j.Cursor + ", " + text.Counted(j.RowsWritten, "row") + " written"
		}
	case job.Running:
		line += " on " + j.Runner
	}
	return line + NextStep(j)
}

// NextStep is what an operator can do about a job that is at rest.
func NextStep(j job.Job) string {
	if j.AwaitsApproval() {
		return fmt.Sprintf("; `belfry jobs approve %d --dry-run` shows what a second person is to approve", j.ID)
	}
	switch j.Status {
	case job.Aborted:
		if j.WalkedAt != nil {
			return fmt.Sprintf("; `belfry resume %d` lets its messages go out", j.ID)
		}
		return fmt.Sprintf("; `belfry resume %d` goes on from its cursor", j.ID)
	case job.Failed:
		return fmt.Sprintf("; `belfry retry %d` tries again from its cursor", j.ID)
	case job.Expired:
		return fmt.Sprintf("; to send it late: `belfry jobs set %d expires_at=default`, then `belfry retry %d`", j.ID, j.ID)
	case job.Processed:
		if j.Skipped > 0 {
			return fmt.Sprintf("; %s skipped, `belfry jobs skips %d` says why", text.Counted(j.Skipped, "recipient"), j.ID)
		}
	case job.Pending, job.Running:
	}
	return ""
}

// ThrottledBy is what holds a run back now.
func ThrottledBy(j job.Job) string {
	if j.ThrottleDetail == "" {
		return j.Throttle
	}
	return j.Throttle + ": " + j.ThrottleDetail
}

// heldBack is for how long a job's runs were held back, in all.
func heldBack(j job.Job) time.Duration { return time.Duration(j.ThrottledMS) * time.Millisecond }

// HideLocation implements locating.
func (s *JobState) HideLocation() {
	if s.Audience.Kind == channels.KindRadius {
		s.HaltedAt = nil // while messages wait
		operation.ZeroFew(&s.Messages.Messages, &s.Messages.Sent, &s.Messages.Dead, &s.Messages.Cancelled, &s.Messages.Waiting)
	}
}
