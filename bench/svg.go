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
}

// bar is one scenario.
type bar struct {
	Label string
	measured
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

// axis is logarithmic, from one power of ten of ms to another.
type axis struct{ low, high float64 }

// X is where a latency in ms lies.
func (a axis) X(ms float64) float64 {
	share := (math.Log10(max(ms, 1e-3)) - a.low) / (a.high - a.low)
	return math.Round(10*(axisLeft+share*(axisRight-axisLeft))) / 10
}

// Decades are its marks, in ms.
func (a axis) Decades() (marks []float64) {
	for decade := a.low; decade <= a.high; decade++ {
		marks = append(marks, math.Pow(10, decade))
	}
	return marks
}

// writeSVG draws the foreground's latencies per scenario with the speed of what runs beside
// it. It is an error when no benchmark that is drawn has run.
func (r report) writeSVG(w io.Writer) error {
	var panels []panel
	for _, one := range r.Results {
		panels = append(panels, one.Panels...)
	}
	if len(panels) == 0 {
		return errors.New("svg: no benchmark that is drawn has run; name one with --only: load")
	}
	scale, height := axis{low: math.Inf(1), high: math.Inf(-1)}, panelsTop
	var tops []int
	for _, p := range panels {
		tops = append(tops, height)
		height += panelHead + len(p.Bars)*rowHeight + panelFoot
		for _, b := range p.Bars {
			scale.low = min(scale.low, math.Floor(math.Log10(max(b.p50, 1e-3))))
			scale.high = max(scale.high, math.Ceil(math.Log10(max(b.p99, 1e-3))), scale.low+1)
		}
	}
	t, err := template.New("load").Funcs(template.FuncMap{
		"number": number,
		"row":    func(top, i int) int { return top + panelHead + i*rowHeight },
		"plus":   func(a, b float64) float64 { return a + b },
		"round":  func(v, to float64) string { return grouped(int64(math.Round(v/to) * to)) },
		"values": func(b bar) map[string]float64 {
			return map[string]float64{"p50": b.p50, "p95": b.p95, "p99": b.p99, "tps": b.tps, "rows": b.rows}
		},
	}).Parse(drawing)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Height": height, "Panels": panels, "Tops": tops, "Axis": scale,
		"Subtitle": fmt.Sprintf("%d CPUs, PostgreSQL %s, fsync %s, %s channels, medians of up to %d rounds",
			r.Machine.CPUs, r.Postgres.Version, r.Postgres.Fsync, grouped(r.Channels), r.Rounds),
	})
}
