package console

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"

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

// escaped returns text as HTML.
func escaped(text string) template.HTML {
	return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // it is escaped
}

// newTable returns a table without rows. A name that begins with > is a column of numbers.
func newTable(label string, names ...string) *table {
	t := &table{Label: label}
	for _, name := range names {
		name, right := strings.CutPrefix(name, ">")
		t.Columns = append(t.Columns, column{name, right})
	}
	return t
}

// add appends a row with a text for each column.
func (t *table) add(texts ...template.HTML) {
	var r row
	for i, text := range texts {
		r.Cells = append(r.Cells, cell{Name: t.Columns[i].Name, Text: text, Right: t.Columns[i].Right})
	}
	t.Rows = append(t.Rows, r)
}

// outcomes draws the outcomes of a job's rows by medium and reason. It returns nil without rows.
func outcomes(c delivery.Counts) *bars {
	type amount struct {
		medium      string
		reason, why outbox.Reason
		n           int64
	}
	var all []amount
	for _, m := range c.Media {
		all = append(all, amount{m.Medium, m.Reason, m.Why, m.Messages})
	}
	for _, of := range []struct {
		reason outbox.Reason
		n      int64
	}{{outbox.ReasonUnread, c.Unread}, {outbox.ReasonRead, c.Read}, {outbox.ReasonWithdrawn, c.Withdrawn}} {
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
		b.Bars = append(b.Bars, outcomeBar{Name: name, Amount: text.Grouped(a.n), Tone: string(text.Status(a.reason).Tone), Part: portion(max(float64(a.n), float64(most)/200), float64(most))})
		words = append(words, name+" "+text.Grouped(a.n))
		b.Table.add(escaped(a.medium), escaped(string(a.reason)), escaped(string(a.why)), escaped(text.Grouped(a.n)),
			escaped(strconv.FormatFloat(100*float64(a.n)/float64(sum), 'f', 1, 64)+" %"), escaped(meaning))
	}
	b.About = "Bars, one for each outcome: " + strings.Join(words, "; ") + "."
	if !c.Complete {
		b.Note = fmt.Sprintf("Counted for two seconds: these are the channels up to %d.", c.UpTo)
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
		chart.Table.add(c.instant(b.At), escaped(text.Grouped(b.Sent)), escaped(text.Grouped(b.Dead)))
	}
	if dead > 0 {
		chart.Top += " at most; dead messages are on top"
	}
	chart.About = fmt.Sprintf("Columns, one for each %s from %s to %s: %s sent and %s dead in all; the highest is %s.",
		text.Short(step), c.inZone(text.LocalClock(begin)), c.inZone(text.LocalClock(end)), text.Grouped(sent), text.Grouped(dead), text.Counted(int64(most), "message"))
	if !counts.Complete {
		chart.Note = fmt.Sprintf("Counted for two seconds: these are the channels up to %d.", counts.UpTo)
	}
	return chart
}

// walkOverTime draws the interval and the speed of each run of a job. It returns nil without runs.
func (c *Console) walkOverTime(runs jobs.JobRuns, now time.Time) *columns {
	if len(runs.Runs) == 0 {
		return nil
	}
	begin, end := runs.Runs[0].BeganAt, runs.Runs[0].BeganAt
	var most float64
	until := func(r jobs.JobRun) time.Time {
		if r.EndedAt != nil {
			return *r.EndedAt
		}
		return now
	}
	for _, r := range runs.Runs {
		if until(r).After(end) {
			end = until(r)
		}
		if r.RowsPerSecond != nil {
			most = max(most, *r.RowsPerSecond)
		}
	}
	chart := &columns{
		ID: "walk", Title: "The walk, run by run", Top: text.Grouped(int64(math.Round(most))) + " rows/s", From: c.instant(begin), To: c.instant(end),
		Table: newTable("the walk, run by run", "began", "ended", "how", "by", ">rows", ">chunks", ">rows/s", ">ms/chunk"),
	}
	span := end.Sub(begin).Seconds()
	var words []string
	for _, r := range runs.Runs {
		rate, ended := 0.0, escaped("-")
		if r.RowsPerSecond != nil {
			rate = *r.RowsPerSecond
		}
		if r.EndedAt != nil {
			ended = c.instant(*r.EndedAt)
		}
		one := stack{X: portion(r.BeganAt.Sub(begin).Seconds(), span), Width: portion(max(until(r).Sub(r.BeganAt).Seconds(), span/200), span)}
		one.Parts = append(one.Parts, part{portion(most-rate, most), portion(rate, most), "sent"})
		chart.Columns = append(chart.Columns, one)
		chart.Table.add(c.instant(r.BeganAt), ended, escaped(r.How()), escaped(r.Runner),
			escaped(text.Grouped(r.Rows)), escaped(text.Grouped(r.Chunks)), escaped(jobs.WholeOr(r.RowsPerSecond)), escaped(jobs.WholeOr(r.ChunkMS)))
		words = append(words, fmt.Sprintf("%s, %s rows/s", r.How(), jobs.WholeOr(r.RowsPerSecond)))
	}
	more := ""
	if n := len(words) - 10; n > 0 {
		words, more = words[:10], fmt.Sprintf("; and %d more", n)
	}
	chart.About = "Blocks, one for each run, as wide as it was long and as high as it was fast: " + strings.Join(words, "; ") + more + "."
	chart.Note = "Means over each run, pauses included; single chunks are not stored."
	if !runs.Complete {
		chart.Note += " The newest runs are left out."
	}
	return chart
}

// instant renders a time in the reader's zone.
func (c *Console) instant(t time.Time) template.HTML { return c.inline(text.LocalClock(t)) }

// charts are the charts of a job's page.
type charts struct {
	Outcomes       *bars
	Delivery, Walk *columns
}

// chartsOf returns the charts of a job.
func (h *handler) chartsOf(id string, counts *delivery.Counts) (drawn charts, err error) {
	if counts != nil {
		drawn.Outcomes, drawn.Delivery = outcomes(*counts), h.deliveryOverTime(*counts)
	}
	o, there := h.named("jobs runs")
	if !there {
		return drawn, nil
	}
	in, _ := read(o, url.Values{"id": {id}})
	out, err := h.do(h.req.Context(), o, in)
	if runs, is := out.(jobs.JobRuns); is {
		drawn.Walk = h.walkOverTime(runs, time.Now())
	}
	return drawn, err
}
