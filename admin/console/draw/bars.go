package draw

import (
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/internal/text"
)

// BarChart has a horizontal bar for each amount, the template part "bars".
type BarChart struct {
	About string // the text alternative
	Bars  []Bar
	Table *Table
	Note  string
}

// Bar is one amount of a BarChart. Width is in percent of the longest bar.
type Bar struct {
	Name, Tone    string
	About         string // in the table
	N             int64
	Amount, Width string
}

// NewBarChart draws amounts. It returns nil without any.
func NewBarChart(zone *time.Location, label, unit string, bars []Bar) *BarChart {
	var most, sum int64
	for _, b := range bars {
		most, sum = max(most, b.N), sum+b.N
	}
	if sum == 0 {
		return nil
	}
	c := &BarChart{Bars: bars, Table: NewTable(label, label, ">"+unit, ">share", "meaning")}
	var phrases []string
	for i, b := range bars {
		share := words.Ratio(float64(b.N), float64(sum))
		bars[i].Amount, bars[i].Width = text.Grouped(b.N), Portion(max(float64(b.N), float64(most)/200), float64(most))
		c.Table.Add(zone, b.Name, b.N, share, b.About)
		phrases = append(phrases, b.Name+" "+text.Grouped(b.N))
	}
	c.About = "Bars, one for each result: " + strings.Join(phrases, "; ") + "."
	return c
}
