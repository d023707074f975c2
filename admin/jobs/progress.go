package jobs

import (
	"fmt"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Events of [job.Progress] that are not entries of a timeline.
const (
	EventChunk = "chunk"
	eventLost  = "lost"
)

// ProgressLine renders an event of a running job as one line.
func ProgressLine(u job.Progress) string {
	if u.Event == EventChunk {
		return progressLine(u)
	}
	return eventLine(u)
}

// progressLine renders the progress of a running job as one line.
func progressLine(u job.Progress) string {
	j := u.Job
	line := jobLabel(j) + ": " + walkedLine(j)
	if u.KeysPerSecond > 0 {
		line += fmt.Sprintf(", %s/s", text.Grouped(int64(u.KeysPerSecond)))
	}
	if u.ETA >= 0 {
		line += ", " + text.Short(u.ETA) + " left"
	}
	return line
}

// walkedLine renders the number of channels and rows of a job.
func walkedLine(j job.Job) string {
	line := text.Grouped(j.ChannelsRead)
	if total, known := j.Total(); known {
		line += fmt.Sprintf(" / %s channels, %s", text.Grouped(total), WalkDone(j))
	} else {
		line += " channels"
	}
	return line + ", " + text.Counted(j.RowsWritten, "row")
}

// eventLine renders an event of a job as one line.
func eventLine(u job.Progress) string {
	j := u.Job
	from := "from the start"
	if j.Cursor != "" {
		from = "from cursor " + j.Cursor
	}
	switch u.Event {
	case job.EventClaimed:
		return jobLabel(j) + ": claimed, " + from + ": " + text.OneLine(j.Title, 60)
	case job.EventResumed:
		return jobLabel(j) + ": taken over, its run was stale, " + from
	case job.EventFinished:
		return jobLabel(j) + ": processed, " + text.Counted(j.RowsWritten, "row") + " in " + text.Counted(j.Chunks, EventChunk) + tookLine(j)
	case job.EventAborted:
		return jobLabel(j) + ": aborted at cursor " + text.OrNone(j.Cursor) + ", " + text.Counted(j.RowsWritten, "row") + " written" +
			NextStep(j).String()
	case job.EventFailed:
		return jobLabel(j) + ": failed at cursor " + text.OrNone(j.Cursor) + ": " + text.OneLine(j.LastError, 500) + NextStep(j).String()
	case job.EventInterrupted:
		return jobLabel(j) + ": handed back at cursor " + text.OrNone(j.Cursor) + ", " + text.Counted(j.RowsWritten, "row") +
			" written; the next run resumes there"
	case job.EventPreempted:
		return jobLabel(j) + ": handed back at cursor " + text.OrNone(j.Cursor) + " for a more urgent job of lane " + j.Lane
	case job.EventLanePaused:
		return jobLabel(j) + ": handed back at cursor " + text.OrNone(j.Cursor) + ", lane " + j.Lane + " was paused; " +
			text.Command("lanes resume", j.Lane).To("resume the lane").String()
	case job.EventExpired:
		return jobLabel(j) + ": expired, it did not start in time" + NextStep(j).String()
	case job.EventThrottled:
		return jobLabel(j) + ": slowed down, " + ThrottledBy(j)
	case job.EventReleased:
		return jobLabel(j) + ": at full speed again"
	case eventLost:
		return jobLabel(j) + ": this run is over, another runner has the job"
	}
	return jobLabel(j) + ": " + u.Event
}

// tookLine renders the time from the first claim of a job to its end, pauses included.
func tookLine(j job.Job) string {
	if j.StartedAt == nil || j.FinishedAt == nil {
		return ""
	}
	return ", " + text.Short(j.FinishedAt.Sub(*j.StartedAt))
}
