package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"text/template"
)

// panel is one foreground with the scenarios beside it.
type panel struct {
	Title string
	Bars  []bar
	Top   int // where it is drawn
}

// bar is one scenario.
type bar struct {
	Label                    string
	TPS, P50, P95, P99, Rows float64
}

//go:embed load.svg.tmpl
var drawing string

// The drawing's measures, in pixels: labels end at axisLeft, and columns of numbers follow
// axisRight.
const (
	axisLeft, axisRight             = 210, 620
	rowHeight, panelHead, panelFoot = 30, 46, 34
	panelsTop                       = 74
)

// writeSVG draws the foreground's latencies per scenario, on a logarithmic axis, with the
// speed of what runs beside it. It is an error when no benchmark that is drawn has run.
func (r report) writeSVG(w io.Writer) error {
	height, low, high := panelsTop, math.Inf(1), math.Inf(-1) // of the axis: powers of ten of ms
	power := func(ms float64) float64 { return math.Log10(max(ms, 1e-3)) }
	var panels []panel
	for _, one := range r.Results {
		for _, p := range one.Panels {
			p.Top = height
			height += panelHead + len(p.Bars)*rowHeight + panelFoot
			panels = append(panels, p)
			for _, b := range p.Bars {
				low = min(low, math.Floor(power(b.P50)))
				high = max(high, math.Ceil(power(b.P99)), low+1)
			}
		}
	}
	if len(panels) == 0 {
		return errors.New("svg: no benchmark that is drawn has run; name one with --only: load")
	}
	var decades []float64
	for decade := low; decade <= high; decade++ {
		decades = append(decades, math.Pow(10, decade))
	}
	t, err := template.New("load").Funcs(template.FuncMap{
		"number": number,
		"row":    func(top, i int) int { return top + panelHead + i*rowHeight },
		"plus":   func(a, b float64) float64 { return a + b },
		"round":  func(v, to float64) string { return grouped(int64(math.Round(v/to) * to)) },
		"x": func(ms float64) float64 {
			return math.Round(10*(axisLeft+(power(ms)-low)/(high-low)*(axisRight-axisLeft))) / 10
		},
	}).Parse(drawing)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Height": height, "Panels": panels, "Decades": decades,
		"Subtitle": fmt.Sprintf("%d CPUs, PostgreSQL %s, fsync %s, %s channels, medians of up to %d rounds",
			r.Machine.CPUs, r.Postgres.Version, r.Postgres.Fsync, grouped(r.Channels), r.Rounds),
	})
}
