package main

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// jobState is a job and what has become of its messages.
type jobState struct {
	job.Job

	Messages outbox.Progress `json:"messages"`
}

// statesOf adds what has become of their messages to jobs.
func statesOf(ctx context.Context, db *database, jobs []job.Job) ([]jobState, error) {
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	progress, err := outbox.ProgressOf(ctx, db.Pool, ids)
	if err != nil {
		return nil, err
	}
	states := make([]jobState, len(jobs))
	for i, j := range jobs {
		states[i] = jobState{j, progress[j.ID]}
		states[i].Messages.JobID = j.ID // also of one that was pruned in between
	}
	return states, nil
}

// delivering reports whether the walk is over and messages are left to send.
func (s jobState) delivering() bool { return s.Status == job.Processed && s.Messages.Waiting > 0 }

// atRest reports whether nothing of the job goes on before an operator acts.
func (s jobState) atRest() bool {
	switch s.Status {
	case job.Pending, job.Running:
		return false
	case job.Aborted: // what waits is held
		return true
	case job.Processed, job.Failed, job.Expired:
	}
	return s.Messages.Waiting == 0
}

// shown is the status for people: what the job is doing, and how far it is with that.
func (s jobState) shown() string {
	if s.delivering() {
		return "DELIVERING " + percent(s.settled(), s.Messages.Messages)
	}
	return string(s.Status)
}

// settled is how many messages are final.
func (s jobState) settled() int64 { return s.Messages.Messages - s.Messages.Waiting }

// percent is a part of a whole that is not complete.
func percent(part, whole int64) string {
	return fmt.Sprintf("%d%%", min(99, 100*part/max(whole, 1)))
}

// messagesText is what became of a job's messages.
func messagesText(p outbox.Progress) string {
	text := fmt.Sprintf("%s of %s sent", printer.Grouped(p.Sent), printer.Grouped(p.Messages))
	for _, part := range []struct {
		n    int64
		what string
	}{{p.Dead, "dead"}, {p.Cancelled, "cancelled"}, {p.Waiting, "waiting"}} {
		if part.n > 0 {
			text += ", " + printer.Grouped(part.n) + " " + part.what
		}
	}
	return text
}

// pace measures how fast a count grows, as an exponential average over some seconds.
type pace struct {
	at    time.Time // of the last look; zero: none yet
	n     int64
	rate  float64 // a second
	known bool
	since time.Time // when it grew first after a look; zero: not yet
}

const (
	paceWindow = 5 * time.Second // over which a pace forgets
	moving     = 0.5             // a second: below that nothing goes on, or an average fades out
	steady     = 3 * time.Second // of growth before it says how long the rest takes: at first there is little
)

// look takes note of the count at a time.
func (p *pace) look(now time.Time, n int64) {
	took := now.Sub(p.at)
	switch {
	case p.at.IsZero():
	case took <= 0:
		return
	default:
		rate := max(float64(n-p.n)/took.Seconds(), 0)
		weight := min(float64(took)/float64(paceWindow), 1)
		if !p.known {
			weight = 1
		}
		p.rate += (rate - p.rate) * weight
		p.known = true
		if p.since.IsZero() && n > p.n {
			p.since = p.at
		}
	}
	p.at, p.n = now, n
}

// left is how long so many more take; negative: it cannot be told, or not yet.
func (p *pace) left(rest int64) time.Duration {
	if p.rate < moving || p.since.IsZero() || p.at.Sub(p.since) < steady {
		return -1
	}
	return time.Duration(float64(rest) / p.rate * float64(time.Second))
}

// text is the rate, and how long the rest takes at that; "" until it is known.
func (p *pace) text(rest int64) string {
	if !p.known {
		return ""
	}
	text := fmt.Sprintf(", %s/s", printer.Grouped(int64(p.rate+0.5)))
	if left := p.left(rest); left >= 0 && rest > 0 {
		text += ", " + printer.Short(left) + " left"
	}
	return text
}

// bar draws a part of a whole in so many characters.
func bar(part, whole int64, width int) string {
	const full, empty = "########################################", "----------------------------------------"
	width = min(width, len(full))
	n := 0
	if whole > 0 {
		n = int(max(0, min(int64(width), int64(width)*part/whole)))
	}
	return "[" + full[:n] + empty[:width-n] + "]"
}
