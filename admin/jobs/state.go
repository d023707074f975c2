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

// JobState is a job with the progress of its messages.
type JobState struct {
	job.Job

	Messages outbox.Progress `json:"messages"`
	// GroupJob is the first job of the group. Only lists have it.
	GroupJob int64 `json:"group_job,omitempty"`
	// HaltedAt is the begin of the halt. Nil means that there is none, or that it does not concern the job.
	HaltedAt *time.Time `json:"halted_at"`
}

// JobStates returns jobs with the progress of their messages.
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
		states[i].Messages.JobID = j.ID // also of a job that has been pruned meanwhile
		if !states[i].AtRest() {
			states[i].HaltedAt = halt.At
		}
	}
	return states, nil
}

// Delivering reports whether the walk is complete and messages wait.
func (s JobState) Delivering() bool { return s.Status == job.Processed && s.Messages.Waiting > 0 }

// AtRest reports whether nothing happens to the job before an operator acts.
func (s JobState) AtRest() bool {
	switch s.Status {
	case job.Pending, job.Running:
		return false
	case job.Aborted: // waiting messages are held
		return true
	case job.Processed, job.Failed, job.Expired:
	}
	return s.Messages.Waiting == 0
}

// Shown returns the status for people: DELIVERING with its progress, or WAITS for approval.
func (s JobState) Shown() text.StatusCell {
	switch {
	case s.AwaitsApproval():
		return text.Status("WAITS", " for approval")
	case s.Delivering():
		return text.Status("DELIVERING", " "+Percent(s.Settled(), s.Messages.Messages))
	}
	return text.Status(s.Status)
}

// Settled returns the number of messages in a final status.
func (s JobState) Settled() int64 { return s.Messages.Messages - s.Messages.Waiting }

// Badge returns Shown with the marks " halted", " throttled" and " 3 skipped", as far as they apply.
func (s JobState) Badge() text.StatusCell { return s.marked(s.Shown()) }

func (s JobState) marked(c text.StatusCell) text.StatusCell {
	if s.HaltedAt != nil {
		c.More += " halted"
	}
	if s.Throttle != "" {
		c.More += " throttled"
	}
	if s.Skipped > 0 {
		c.More += " " + text.Grouped(s.Skipped) + " skipped"
	}
	return c
}

// Percentage returns the part of an incomplete whole in percent, at most 99.
func Percentage(part, whole int64) int64 { return min(99, 100*part/max(whole, 1)) }

// Percent renders Percentage.
func Percent(part, whole int64) string { return fmt.Sprintf("%d%%", Percentage(part, whole)) }

// MessagesText returns the counts of a job's messages by status.
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

// WalkDone returns the part of the keys that the walk has read, in percent, or "-" if it is unknown.
func WalkDone(j job.Job) string {
	total, known := j.Total()
	switch {
	case j.Status == job.Processed, j.WalkedAt != nil: // also if it was aborted after its walk
		return "100%"
	case !known:
		return "-"
	}
	return Percent(j.ChannelsRead, total) // the total is an estimate
}

// jobLabel returns the name of a job for people, with its type.
func jobLabel(j job.Job) string { return fmt.Sprintf("job %d (%s)", j.ID, j.Type) }

// jobRef returns a reference to a job with its label.
func jobRef(j job.Job) text.RefCell { return text.Ref("job", j.ID).As(jobLabel(j)) }

// statusLine returns the status of a job, its progress, and the next step.
func statusLine(j job.Job) text.Line {
	where := ""
	switch j.Status {
	case job.Processed:
		where = ": " + text.Counted(j.RowsWritten, "row")
	case job.Aborted, job.Failed, job.Expired, job.Pending:
		if j.Cursor != "" {
			where = " at cursor " + j.Cursor + ", " + text.Counted(j.RowsWritten, "row") + " written"
		}
	case job.Running:
		where = " on " + j.Runner
	}
	return text.Sprintf("%s %s%s%s", jobRef(j), text.Status(j.Status), where, NextStep(j))
}

// NextStep returns the next step of an operator after "; ". It is empty if the job needs none.
func NextStep(j job.Job) text.Line {
	switch {
	case j.AwaitsApproval():
		return text.Sprintf("; %s", approvalStep(j.ID))
	case j.Status == job.Aborted && j.WalkedAt != nil && j.RecalledAt != nil: // nothing is left
	case j.Status == job.Aborted && j.WalkedAt != nil:
		return text.Sprintf("; %s", text.Command("resume", j.ID).To("send its messages"))
	case j.Status == job.Aborted:
		return text.Sprintf("; %s", text.Command("resume", j.ID).To("continue from its cursor"))
	case j.Status == job.Failed:
		return text.Sprintf("; %s", text.Command("retry", j.ID).To("retry from its cursor"))
	case j.Status == job.Expired:
		unexpire := text.Command("jobs set", j.ID).Set("expires_at", "default").To("remove the expiry")
		return text.Sprintf("; to send it late, %s, then %s", unexpire, text.Command("retry", j.ID).To("retry the job"))
	case j.Status == job.Processed && j.Skipped > 0:
		return text.Sprintf("; %s skipped; %s", text.Counted(j.Skipped, "recipient"), text.Command("jobs skips", j.ID).To("list them"))
	}
	return nil
}

// approvalStep returns the command that previews the approval of a job.
func approvalStep(id int64) text.CommandCell {
	return text.Command("jobs approve", id).Flag("dry-run").To("preview the approval")
}

// ThrottledBy returns the reason why the run is throttled.
func ThrottledBy(j job.Job) string {
	if j.ThrottleDetail == "" {
		return j.Throttle
	}
	return j.Throttle + ": " + j.ThrottleDetail
}

// HideLocation implements the interface of results that depend on the location of recipients.
func (s *JobState) HideLocation() {
	if s.Audience.Kind == channels.KindRadius {
		s.HaltedAt = nil // it depends on waiting messages
		operation.Round(&s.Messages.Messages, &s.Messages.Sent, &s.Messages.Dead, &s.Messages.Cancelled, &s.Messages.Waiting)
	}
}
