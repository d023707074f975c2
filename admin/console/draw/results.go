package draw

import (
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/outbox"
)

// JobResults draws the results of a job's rows by medium and reason. It returns nil without rows.
func JobResults(zone *time.Location, counts delivery.Counts) *BarChart {
	var bars []Bar
	add := func(medium string, reason, why outbox.Reason, n int64) {
		of := words.Result(reason, why)
		meaning := reason.Text()
		if why != "" {
			meaning = outbox.WhyText(reason, why)
		}
		bars = append(bars, Bar{Name: medium + ": " + strings.ToLower(of.Word), Tone: string(of.Tone), About: meaning, N: n})
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
	return NewBarChart(zone, "result", "recipients", bars)
}

// JobDelivery draws the times at which messages were sent or failed. It returns nil without any.
func JobDelivery(zone *time.Location, counts delivery.Counts) *ColumnChart {
	points := make([]Point, 0, len(counts.Flow.Bins))
	for _, b := range counts.Flow.Bins {
		points = append(points, Point{At: b.At, Values: []float64{float64(b.Sent), float64(b.Dead)}})
	}
	return NewColumnChart(zone, ColumnChart{ID: "delivery", Title: "Delivery over time",
		Series: []Series{{Name: "sent", Tone: "done"}, {Name: "failed", Tone: "bad"}}},
		time.Duration(counts.Flow.StepSeconds)*time.Second, points, nil)
}
