package console

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// bars is a bar chart with a label for each bar.
type bars struct {
	About string // the text alternative
	Bars  []outcomeBar
	Table *draw.Table
	Note  string
}

// outcomeBar is one bar. Part is its share of the longest in percent.
type outcomeBar struct {
	Name, Amount string
	Tone         string
	Part         string
}

// outcomes draws the outcomes of a job's rows by medium and reason. It returns nil without rows.
func (c *Console) outcomes(counts delivery.Counts) *bars {
	type amount struct {
		medium      string
		reason, why outbox.Reason
		n           int64
	}
	var all []amount
	for _, m := range counts.Media {
		all = append(all, amount{m.Medium, m.Reason, m.Why, m.Messages})
	}
	for _, of := range []struct {
		reason outbox.Reason
		n      int64
	}{{outbox.ReasonUnread, counts.Unread}, {outbox.ReasonRead, counts.Read}, {outbox.ReasonWithdrawn, counts.Withdrawn}} {
		if of.n > 0 {
			all = append(all, amount{"inbox", of.reason, "", of.n})
		}
	}
	if len(all) == 0 {
		return nil
	}
	var most, sum int64
	for _, a := range all {
		most, sum = max(most, a.n), sum+a.n
	}
	b := &bars{Table: draw.NewTable("outcomes", "medium", "outcome", "why", ">rows", ">share", "meaning")}
	var phrases []string
	for _, a := range all {
		name := a.medium + " " + string(a.reason)
		meaning := a.reason.Text()
		if a.why != "" {
			name += ", " + strings.ReplaceAll(string(a.why), "_", " ")
			meaning = outbox.WhyText(a.reason, a.why)
		}
		b.Bars = append(b.Bars, outcomeBar{Name: name, Amount: text.Grouped(a.n), Tone: string(text.Status(a.reason).Tone),
			Part: draw.Portion(max(float64(a.n), float64(most)/200), float64(most))})
		phrases = append(phrases, name+" "+text.Grouped(a.n))
		b.Table.Add(c.zone, a.medium, string(a.reason), string(a.why), a.n,
			strconv.FormatFloat(100*float64(a.n)/float64(sum), 'f', 1, 64)+" %", meaning)
	}
	b.About = "Bars, one for each outcome: " + strings.Join(phrases, "; ") + "."
	b.Note = uncounted(counts)
	return b
}

// deliveryOverTime draws the times at which messages were sent or failed. It returns nil without any.
func (c *Console) deliveryOverTime(counts delivery.Counts) *draw.ColumnChart {
	points := make([]draw.Point, 0, len(counts.Flow.Bins))
	for _, b := range counts.Flow.Bins {
		points = append(points, draw.Point{At: b.At, Values: []float64{float64(b.Sent), float64(b.Dead)}})
	}
	chart := draw.NewColumnChart(c.zone, draw.ColumnChart{ID: "delivery", Title: "Delivery over time", Series: []draw.Series{{Name: "sent", Tone: "done"}, {Name: "failed", Tone: "bad"}}},
		time.Duration(counts.Flow.StepSeconds)*time.Second, points, nil)
	if chart != nil {
		chart.Note = uncounted(counts)
	}
	return chart
}

// uncounted returns a remark on a count that stopped after its time, or "".
func uncounted(counts delivery.Counts) string {
	if counts.Complete {
		return ""
	}
	return fmt.Sprintf("Counted for two seconds: these are the channels up to %d.", counts.UpTo)
}
