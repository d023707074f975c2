package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// segments is a bar of the parts of a whole, the template part "segments".
type segments struct {
	Live  string // the name of the bar in the stream; "" means that it does not change
	About string // the text alternative
	Parts []segment
}

// segment is one part. X and Width are percentages of the bar.
type segment struct {
	Name, Tone       string
	N                int64
	X, Width, Amount string // Amount is the part in percent for people
}

// shortest is the smallest width of a part that is not empty, so that a few failures of a million are visible.
const shortest = 0.6

// segmentsOf draws parts. Empty parts have no width.
func segmentsOf(live, none string, parts ...segment) segments {
	var sum float64
	for i, p := range parts {
		parts[i].N = max(p.N, 0)
		sum += float64(parts[i].N)
	}
	widths, wide := make([]float64, len(parts)), 0.0
	for i, p := range parts {
		if p.N > 0 {
			widths[i] = max(100*float64(p.N)/sum, shortest)
			wide += widths[i]
		}
	}
	bar, x := segments{Live: live, Parts: parts}, 0.0
	var words []string
	for i := range parts {
		p := &bar.Parts[i]
		width := widths[i] * 100 / max(wide, 1)
		p.X, p.Width, p.Amount = share(x), share(width), ratio(float64(p.N), sum)
		x += width
		if p.N > 0 {
			words = append(words, p.Name+" "+text.Grouped(p.N)+" ("+p.Amount+")")
		}
	}
	if bar.About = none; len(words) > 0 {
		bar.About = strings.Join(words, ", ")
	}
	return bar
}

// Update is the bar in an event of the stream, as JSON.
func (s segments) Update() string {
	var event struct {
		Widths, Counts, Amounts []string
		About                   string
	}
	for _, p := range s.Parts {
		event.Widths, event.Counts, event.Amounts = append(event.Widths, p.Width), append(event.Counts, text.Grouped(p.N)), append(event.Amounts, p.Amount)
	}
	event.About = s.About
	return string(must(json.Marshal(event)))
}

// jobSegments draws the recipients of a job: written without a message, as in an inbox; with a sent, failed,
// cancelled or waiting message; and left, which is an estimate while the job runs.
func jobSegments(s jobs.JobState) segments {
	m := s.Messages
	left := segment{Name: "left", Tone: "left", N: recipientsLeft(s)}
	if s.Status == job.Aborted || s.Status == job.Failed || s.Status == job.Expired {
		left.Name = "not reached"
	}
	return segmentsOf(text.Int(s.ID)+".bar", "no recipients yet",
		segment{Name: "written", Tone: "done", N: s.RowsWritten - m.Messages}, segment{Name: "sent", Tone: "done", N: m.Sent},
		segment{Name: "failed", Tone: "bad", N: m.Dead}, segment{Name: "cancelled", Tone: "off", N: m.Cancelled},
		segment{Name: "waiting", Tone: "wait", N: m.Waiting}, left)
}

// recipientsLeft estimates the recipients that the walk has not reached, or returns 0 if it is unknown.
func recipientsLeft(s jobs.JobState) int64 {
	total, known := s.Total()
	if !known || s.Status == job.Processed || s.WalkedAt != nil {
		return 0
	}
	left := total - s.ChannelsRead
	if s.ChannelsRead > 0 {
		return int64(float64(left) * float64(s.RowsWritten) / float64(s.ChannelsRead))
	}
	return left
}

// point is an instant of a chart with the value of each series.
type point struct {
	At     time.Time
	Values []float64
}

// series is a row of values in a chart. The style sheet has a color for each tone: done, bad, wait, and s2
// to s5.
type series struct{ Name, Tone string }

// marker is an event in a chart.
type marker struct {
	At   time.Time
	Text string
	X    string
}

// sparkline is a small chart of one series, the template part "sparkline". Its box is 100 wide and 24 high.
type sparkline struct {
	About      string
	Line, Area string
	Last       string
	Table      *table
}

// sparklineOf draws the first series of points. It returns nil for fewer than two points.
func (c *Console) sparklineOf(title, unit string, points []point) *sparkline {
	if len(points) < 2 {
		return nil
	}
	lowest, highest := points[0].Values[0], points[0].Values[0]
	for _, p := range points {
		lowest, highest = min(lowest, p.Values[0]), max(highest, p.Values[0])
	}
	begin, length := points[0].At, points[len(points)-1].At.Sub(points[0].At).Seconds()
	s := &sparkline{Table: newTable(title, "time", ">"+unit)}
	var line strings.Builder
	for _, p := range points {
		x, y := 100*p.At.Sub(begin).Seconds()/max(length, 1), 23-22*p.Values[0]/max(highest, 1e-9)
		fmt.Fprintf(&line, "%s,%s ", decimal(x), decimal(y))
		c.add(s.Table, text.Instant(p.At), amount(p.Values[0]))
	}
	s.Line = strings.TrimSpace(line.String())
	s.Area = "0,24 " + s.Line + " 100,24"
	s.Last = amount(points[len(points)-1].Values[0])
	s.About = fmt.Sprintf("%s, %s: lowest %s, highest %s, last %s", title, unit, amount(lowest), amount(highest), s.Last)
	return s
}

// columns is a chart of stacked amounts over time, the template part "columns". A chart with one column is
// shown as its table.
type columns struct {
	ID       string // unique on the page
	Title    string
	About    string // the text alternative
	Top      string // the amount of the full height
	From, To template.HTML
	Series   []series
	Columns  []stack
	Markers  []marker
	Table    *table
	Note     string
}

// stack is a column of stacked parts. All numbers are percentages of the chart.
type stack struct {
	X, Width, About string
	Parts           []part
}

type part struct{ Y, Height, Tone string }

// columnsOf draws points of messages, each for a step of time, with events. of has the id, the title, and the series. It
// returns nil without points.
func (c *Console) columnsOf(of columns, step time.Duration, points []point, events []marker) *columns {
	if len(points) == 0 {
		return nil
	}
	begin, end := points[0].At, points[len(points)-1].At.Add(step)
	length, highest := end.Sub(begin).Seconds(), 0.0
	sums := make([]float64, len(of.Series))
	headings := []string{"from"}
	for _, s := range of.Series {
		headings = append(headings, ">"+s.Name)
	}
	for _, p := range points {
		highest = max(highest, sum(p.Values))
	}
	of.From, of.To, of.Table = c.instant(begin), c.instant(end), newTable(of.Title, headings...)
	for _, p := range points {
		one := stack{X: portion(p.At.Sub(begin).Seconds(), length), Width: portion(step.Seconds()*0.88, length)}
		below, cells, words := 0.0, []any{p.At}, []string{c.plain(text.Line{text.TimeOfDay(p.At)})}
		for i, value := range p.Values {
			sums[i] += value
			below += value
			one.Parts = append(one.Parts, part{portion(highest-below, highest), portion(value, highest), of.Series[i].Tone})
			cells = append(cells, amount(value))
			if value > 0 {
				words = append(words, of.Series[i].Name+" "+amount(value))
			}
		}
		one.About = strings.Join(words, ", ")
		of.Columns = append(of.Columns, one)
		c.add(of.Table, cells...)
	}
	var words []string
	for i, s := range of.Series {
		words = append(words, amount(sums[i])+" "+s.Name)
	}
	of.Top = fmt.Sprintf("%s messages in %s", amount(highest), span(step))
	of.About = fmt.Sprintf("Columns, one for each %s from %s to %s: %s in all; the highest is %s.", span(step),
		c.plain(text.Line{text.Instant(begin)}), c.plain(text.Line{text.Instant(end)}), strings.Join(words, " and "), amount(highest))
	for _, e := range events {
		if !e.At.Before(begin) && !e.At.After(end) {
			e.X = portion(e.At.Sub(begin).Seconds(), length)
			of.Markers = append(of.Markers, e)
			of.About += fmt.Sprintf(" %s at %s.", sentence(e.Text), c.plain(text.Line{text.Instant(e.At)}))
		}
	}
	return &of
}

func sum(values []float64) (all float64) {
	for _, v := range values {
		all += v
	}
	return all
}

// amount renders a value of a chart: whole numbers grouped, small fractions with a digit.
func amount(n float64) string {
	if n != math.Trunc(n) && math.Abs(n) < 10 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return text.Grouped(int64(math.Round(n)))
}

// decimal renders a coordinate.
func decimal(n float64) string { return strconv.FormatFloat(math.Round(n*100)/100, 'f', -1, 64) }

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
