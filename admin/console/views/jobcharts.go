package views

import (
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// JobProgress draws the recipients of a job: written without a message, as in an inbox; with a sent, failed,
// cancelled or waiting message; and left, which is an estimate while the job runs.
func JobProgress(s jobs.JobState) draw.Progress {
	m := s.Messages
	n, _ := RecipientsLeft(s)
	left := draw.Segment{Name: "left", Tone: "left", N: n}
	if s.Status == job.Aborted || s.Status == job.Failed || s.Status == job.Expired {
		left.Name = "not reached"
	}
	return draw.NewProgress(text.Int(s.ID)+".bar", "no recipients yet",
		draw.Segment{Name: "written", Tone: "done", N: s.RowsWritten - m.Messages}, draw.Segment{Name: "sent", Tone: "done", N: m.Sent},
		draw.Segment{Name: "failed", Tone: "bad", N: m.Dead}, draw.Segment{Name: "cancelled", Tone: "off", N: m.Cancelled},
		draw.Segment{Name: "waiting", Tone: "wait", N: m.Waiting}, left)
}

// JobResults draws the results of a job's rows by medium and reason. It returns nil without rows.
func JobResults(zone *time.Location, counts delivery.Counts) *draw.BarChart {
	var bars []draw.Bar
	add := func(medium string, reason, why outbox.Reason, n int64) {
		of := words.Result(reason, why)
		meaning := reason.Text()
		if why != "" {
			meaning = outbox.WhyText(reason, why)
		}
		bars = append(bars, draw.Bar{Name: medium + ": " + strings.ToLower(of.Word), Tone: string(of.Tone), About: meaning, N: n})
	}
	for _, m := range counts.Media {
		add(m.Medium, m.Reason, m.Why, m.Messages)
	}
	for _, of := range []struct {
		reason outbox.Reason
		n      int64
	}{{outbox.ReasonUnread, counts.Unread}, {outbox.ReasonRead, counts.Read}, {outbox.ReasonWithdrawn, counts.Withdrawn}} {
		if of.n > 0 {
			add("inbox", of.reason, "", of.n)
		}
	}
	return draw.NewBarChart(zone, "result", "recipients", bars)
}

// JobDelivery draws the times at which messages were sent or failed. It returns nil without any.
func JobDelivery(zone *time.Location, counts delivery.Counts) *draw.ColumnChart {
	points := make([]draw.Point, 0, len(counts.Flow.Bins))
	for _, b := range counts.Flow.Bins {
		points = append(points, draw.Point{At: b.At, Values: []float64{float64(b.Sent), float64(b.Dead)}})
	}
	return draw.NewColumnChart(zone, draw.ColumnChart{ID: "delivery", Title: "Delivery over time",
		Series: []draw.Series{{Name: "sent", Tone: "done"}, {Name: "failed", Tone: "bad"}}},
		time.Duration(counts.Flow.StepSeconds)*time.Second, points, nil)
}
