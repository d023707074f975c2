package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// bars is a bar chart with a label for each bar.
type bars struct {
	About string // the text alternative
	Bars  []outcomeBar
	Table *table
	Note  string
}

// outcomeBar is one bar. Part is its share of the longest in percent.
type outcomeBar struct {
	Name, Amount string
	Tone         string
	Part         string
}

// columns is a chart of amounts over time. A chart with one column is shown as its table.
type columns struct {
	ID       string
	Title    string
	About    string
	Top      string // the amount of the full height
	From, To template.HTML
	Columns  []stack
	Table    *table
	Note     string
}

// stack is a column of stacked parts. All numbers are percentages of the chart.
type stack struct {
	X, Width string
	Parts    []part
}

type part struct{ Y, Height, Class string }

// share renders a percentage for an attribute.
func share(n float64) string {
	return strconv.FormatFloat(math.Round(n*1000)/1000, 'f', -1, 64) + "%"
}

// portion renders a part of a whole as a percentage.
func portion(part, whole float64) string {
	if whole <= 0 {
		return "0%"
	}
	return share(100 * part / whole)
}

// newTable returns a table without rows. A name that begins with > is a column of numbers.
func newTable(label string, names ...string) *table {
	t := &table{Label: label}
	for _, name := range names {
		name, right := strings.CutPrefix(name, ">")
		t.Columns = append(t.Columns, column{strings.ToLower(name), right})
	}
	return t
}

// add appends a row with a value for each column (see text.CellOf).
func (c *Console) add(t *table, values ...any) {
	cells := make([]text.Cell, len(values))
	for i, value := range values {
		cells[i] = text.CellOf(value)
	}
	t.Rows = append(t.Rows, c.row(t, cells))
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
	b := &bars{Table: newTable("outcomes", "medium", "outcome", "why", ">rows", ">share", "meaning")}
	var words []string
	for _, a := range all {
		name := a.medium + " " + string(a.reason)
		meaning := a.reason.Text()
		if a.why != "" {
			name += ", " + strings.ReplaceAll(string(a.why), "_", " ")
			meaning = outbox.WhyText(a.reason, a.why)
		}
		b.Bars = append(b.Bars, outcomeBar{Name: name, Amount: text.Grouped(a.n), Tone: string(text.Status(a.reason).Tone),
			Part: portion(max(float64(a.n), float64(most)/200), float64(most))})
		words = append(words, name+" "+text.Grouped(a.n))
		c.add(b.Table, a.medium, string(a.reason), string(a.why), a.n,
			strconv.FormatFloat(100*float64(a.n)/float64(sum), 'f', 1, 64)+" %", meaning)
	}
	b.About = "Bars, one for each outcome: " + strings.Join(words, "; ") + "."
	if !counts.Complete {
		b.Note = fmt.Sprintf("Counted for two seconds: these are the channels up to %d.", counts.UpTo)
	}
	return b
}

// deliveryOverTime draws the times at which messages were sent or died. It returns nil without any.
func (c *Console) deliveryOverTime(counts delivery.Counts) *columns {
	f := counts.Flow
	if len(f.Bins) == 0 {
		return nil
	}
	step := time.Duration(f.StepSeconds) * time.Second
	begin := f.Bins[0].At
	end := f.Bins[len(f.Bins)-1].At.Add(step)
	var most float64
	for _, b := range f.Bins {
		most = max(most, float64(b.Sent+b.Dead))
	}
	chart := &columns{
		ID: "delivery", Title: "Delivery over time", Top: fmt.Sprintf("%s in %s", text.Counted(int64(most), "message"), text.Short(step)),
		From: c.instant(begin), To: c.instant(end), Table: newTable("delivery over time", "from", ">sent", ">dead"),
	}
	span := end.Sub(begin).Seconds()
	var sent, dead int64
	for _, b := range f.Bins {
		sent, dead = sent+b.Sent, dead+b.Dead
		one := stack{X: portion(b.At.Sub(begin).Seconds(), span), Width: portion(step.Seconds()*0.92, span)}
		one.Parts = append(one.Parts, part{portion(most-float64(b.Sent), most), portion(float64(b.Sent), most), "sent"},
			part{portion(most-float64(b.Sent+b.Dead), most), portion(float64(b.Dead), most), "dead"})
		chart.Columns = append(chart.Columns, one)
		c.add(chart.Table, b.At, b.Sent, b.Dead)
	}
	if dead > 0 {
		chart.Top += " at most; dead messages are on top"
	}
	chart.About = fmt.Sprintf("Columns, one for each %s from %s to %s: %s sent and %s dead in all; the highest is %s.",
		text.Short(step), c.plain(text.Line{text.Instant(begin)}), c.plain(text.Line{text.Instant(end)}), text.Grouped(sent),
		text.Grouped(dead), text.Counted(int64(most), "message"))
	if !counts.Complete {
		chart.Note = fmt.Sprintf("Counted for two seconds: these are the channels up to %d.", counts.UpTo)
	}
	return chart
}
