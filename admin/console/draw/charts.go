package draw

import (
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/internal/text"
)

// Progress is a bar of the parts of a whole, the template part "segments".
type Progress struct {
	Live  string // the name of the bar in the stream; "" means that it does not change
	About string // the text alternative
	Parts []Segment
}

// Segment is one part. X and Width are percentages of the bar.
type Segment struct {
	Name, Tone       string
	N                int64
	X, Width, Amount string // Amount is the part in percent for people
}

// shortest is the smallest width of a part that is not empty, so that a few failures of a million are visible.
const shortest = 0.6

// NewProgress draws parts. Empty parts have no width.
func NewProgress(live, none string, parts ...Segment) Progress {
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
	bar, x := Progress{Live: live, Parts: parts}, 0.0
	var phrases []string
	for i := range parts {
		p := &bar.Parts[i]
		width := widths[i] * 100 / max(wide, 1)
		p.X, p.Width, p.Amount = share(x), share(width), words.Ratio(float64(p.N), sum)
		x += width
		if p.N > 0 {
			phrases = append(phrases, p.Name+" "+text.Grouped(p.N)+" ("+p.Amount+")")
		}
	}
	if bar.About = none; len(phrases) > 0 {
		bar.About = strings.Join(phrases, ", ")
	}
	return bar
}

// Update is the bar in an event of the stream, as JSON.
func (s Progress) Update() string {
	var event struct {
		Widths, Counts, Amounts []string
		About                   string
	}
	for _, p := range s.Parts {
		event.Widths, event.Counts, event.Amounts = append(event.Widths, p.Width), append(event.Counts, text.Grouped(p.N)),
			append(event.Amounts, p.Amount)
	}
	event.About = s.About
	return string(text.Must(json.Marshal(event)))
}

// Point is an instant of a chart with the value of each series.
type Point struct {
	At     time.Time
	Values []float64
}

// Series is a row of values in a chart. The style sheet has a color for each tone: done, bad, wait, and s2
// to s5.
type Series struct{ Name, Tone string }

// Marker is an event in a chart.
type Marker struct {
	At    time.Time
	When  template.HTML
	Text  string
	X     string // in percent of the width
	N     int    // its number in the chart
	Label bool   // the chart has room for the number
}

// Sparkline is a small chart of one series, the template part "sparkline". Its box is 100 wide and 24 high.
type Sparkline struct {
	About      string
	Line, Area string
	Last       string
	Table      *Table
}

// NewSparkline draws the first series of points. It returns nil for fewer than two points.
func NewSparkline(zone *time.Location, title, unit string, points []Point) *Sparkline {
	if len(points) < 2 {
		return nil
	}
	lowest, highest := points[0].Values[0], points[0].Values[0]
	for _, p := range points {
		lowest, highest = min(lowest, p.Values[0]), max(highest, p.Values[0])
	}
	begin, length := points[0].At, points[len(points)-1].At.Sub(points[0].At).Seconds()
	s := &Sparkline{Table: NewTable(title, "time", ">"+unit)}
	var line strings.Builder
	for _, p := range points {
		x, y := 100*p.At.Sub(begin).Seconds()/max(length, 1), 23-22*p.Values[0]/max(highest, 1e-9)
		fmt.Fprintf(&line, "%s,%s ", decimal(x), decimal(y))
		s.Table.Add(zone, text.Instant(p.At), amount(p.Values[0]))
	}
	s.Line = strings.TrimSpace(line.String())
	s.Area = "0,24 " + s.Line + " 100,24"
	s.Last = amount(points[len(points)-1].Values[0])
	s.About = fmt.Sprintf("%s, %s: lowest %s, highest %s, last %s", title, unit, amount(lowest), amount(highest), s.Last)
	return s
}

// ColumnChart is a chart of stacked amounts over time, the template part "columns". A chart with one column is
// shown as its table.
type ColumnChart struct {
	ID       string // unique on the page
	Title    string
	About    string // the text alternative
	Top      string // the amount of the full height
	From, To template.HTML
	Series   []Series
	Columns  []Stack
	Markers  []Marker
	Table    *Table
	Note     string
}

// Stack is a column of stacked parts. All numbers are percentages of the chart.
type Stack struct {
	X, Width, About string
	Parts           []Part
}

// Part is one part of a column.
type Part struct{ Y, Height, Tone string }

// NewColumnChart draws points of messages, each for a step of time, with events. of has the id, the title, and
// the series. It returns nil without points.
func NewColumnChart(zone *time.Location, of ColumnChart, step time.Duration, points []Point, events []Marker) *ColumnChart {
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
	of.From, of.To, of.Table = words.TimeOfDay(zone, begin), words.TimeOfDay(zone, end), NewTable(of.Title, headings...)
	for _, p := range points {
		one := Stack{X: Portion(p.At.Sub(begin).Seconds(), length), Width: Portion(step.Seconds()*0.88, length)}
		below, cells, phrases := 0.0, []any{p.At}, []string{plain(zone, text.TimeOfDay(p.At))}
		for i, value := range p.Values {
			sums[i] += value
			below += value
			one.Parts = append(one.Parts, Part{Portion(highest-below, highest), Portion(value, highest), of.Series[i].Tone})
			cells = append(cells, amount(value))
			if value > 0 {
				phrases = append(phrases, of.Series[i].Name+" "+amount(value))
			}
		}
		one.About = strings.Join(phrases, ", ")
		of.Columns = append(of.Columns, one)
		of.Table.Add(zone, cells...)
	}
	var phrases []string
	for i, s := range of.Series {
		phrases = append(phrases, amount(sums[i])+" "+s.Name)
	}
	of.Top = fmt.Sprintf("%s messages in %s", amount(highest), words.Span(step))
	of.About = fmt.Sprintf("Columns, one for each %s from %s to %s: %s in all; the highest is %s.", words.Span(step),
		plain(zone, text.Instant(begin)), plain(zone, text.Instant(end)), strings.Join(phrases, " and "), amount(highest))
	for _, e := range events {
		if !e.At.Before(begin) && !e.At.After(end) {
			e.X = Portion(e.At.Sub(begin).Seconds(), length)
			of.Markers = append(of.Markers, e)
			of.About += fmt.Sprintf(" %s at %s.", words.Sentence(e.Text), plain(zone, text.Instant(e.At)))
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

// Portion renders a part of a whole as a percentage.
func Portion(part, whole float64) string {
	if whole <= 0 {
		return "0%"
	}
	return share(100 * part / whole)
}

// plain returns a cell as text in a zone.
func plain(zone *time.Location, c text.Cell) string { return text.Plain(c, text.Times{Zone: zone}) }
