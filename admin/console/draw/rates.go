package draw

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/internal/text"
)

// RateChart has a line for each series over the same time, each with a scale of its own, and events as markers
// across the lines. It is the template part "rates".
type RateChart struct {
	ID       string // unique on the page
	Title    string
	About    string // the text alternative
	From, To template.HTML
	Lines    []Line
	Markers  []Marker
	Table    *Table
}

// Line is a series of a RateChart. Its box is 100 wide and 24 high.
type Line struct {
	Series

	Top    string // the highest rate
	Points string
	Area   string
}

// nearest is the smallest distance of two labels of markers, in percent of the width.
const nearest = 2.5

// NewRateChart draws points of steps, with events. of has the id, the title and the series of the lines, whose
// values are rates in unit. It returns nil for fewer than two points.
func NewRateChart(zone *time.Location, of RateChart, unit string, step time.Duration, points []Point, events []Marker) *RateChart {
	if len(points) < 2 {
		return nil
	}
	begin, end := points[0].At, points[len(points)-1].At.Add(step)
	length := end.Sub(begin).Seconds()
	x := func(at time.Time) float64 { return 100 * at.Sub(begin).Seconds() / length }
	headings, phrases := []string{"from"}, []string(nil)
	for i := range of.Lines {
		line := &of.Lines[i]
		highest := 0.0
		for _, p := range points {
			highest = max(highest, p.Values[i])
		}
		var drawn strings.Builder
		for _, p := range points {
			fmt.Fprintf(&drawn, "%s,%s ", decimal(x(p.At.Add(step/2))), decimal(23-22*p.Values[i]/max(highest, 1e-9)))
		}
		line.Points, line.Top = strings.TrimSpace(drawn.String()), amount(highest)
		line.Area = decimal(x(begin.Add(step/2))) + ",24 " + line.Points + " " + decimal(x(end.Add(-step/2))) + ",24"
		headings, phrases = append(headings, ">"+line.Name), append(phrases, line.Name+" at most "+line.Top+" "+unit)
	}
	of.From, of.To, of.Table = words.When(zone, begin), words.When(zone, end), NewTable(of.Title, append(headings, "events")...)
	events = slices.SortedStableFunc(slices.Values(events), func(a, b Marker) int { return a.At.Compare(b.At) })
	for _, e := range events {
		if e.At.Before(begin) || e.At.After(end) {
			continue
		}
		at := x(e.At)
		e.X, e.N = share(at), len(of.Markers)+1
		e.Label = len(of.Markers) == 0 || at-x(of.Markers[len(of.Markers)-1].At) >= nearest
		of.Markers = append(of.Markers, e)
	}
	for _, p := range points {
		cells, during := []any{p.At}, []string(nil)
		for _, value := range p.Values {
			cells = append(cells, amount(value))
		}
		for _, m := range of.Markers {
			if !m.At.Before(p.At) && m.At.Before(p.At.Add(step)) {
				during = append(during, m.Text)
			}
		}
		of.Table.Add(zone, append(cells, strings.Join(during, "; "))...)
	}
	of.About = fmt.Sprintf("Lines from %s to %s: %s.", plain(zone, text.Instant(begin)), plain(zone, text.Instant(end)),
		strings.Join(phrases, "; "))
	return &of
}
