package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Plot is a result that is drawn: one panel for each foreground.
type Plot struct{ Panels []Panel }

// Panel is one foreground with the scenarios beside it.
type Panel struct {
	Title string
	Bars  []Bar
}

// Bar is one scenario: latencies of the foreground in ms, its transactions per
// second, and the rows per second that were written beside it.
type Bar struct {
	Label                    string
	P50, P95, P99, TPS, Rows float64
}

// The drawing's measures, in pixels.
const (
	plotWidth  = 900
	plotLeft   = 210 // labels end here
	plotRight  = 660 // the axis ends here, columns of numbers follow
	tpsColumn  = 745
	rowsColumn = 875
	rowHeight  = 30
	panelHead  = 46
	panelFoot  = 34
	plotTop    = 74
	dotSize    = 6
)

// svg writes one drawing.
type svg struct {
	b                     strings.Builder
	lowDecade, highDecade int
}

// WriteSVG draws the foreground's latencies per scenario on a logarithmic axis, with
// the speed of what runs beside it. It is an error when no such benchmark ran.
func (r Report) WriteSVG(w io.Writer) error {
	for _, result := range r.Results {
		if result.Plot == nil {
			continue
		}
		subtitle := fmt.Sprintf("%d CPUs, PostgreSQL %s, fsync %s, %s channels, medians of up to %d rounds",
			r.Machine.CPUs, r.Postgres.Version, r.Postgres.Fsync, grouped(r.Channels), r.Rounds)
		_, err := io.WriteString(w, result.Plot.draw(subtitle))
		return err
	}
	return fmt.Errorf("svg: no benchmark that is drawn has run; name one with --only: load")
}

func (p Plot) draw(subtitle string) string {
	d := &svg{}
	height := plotTop
	low, high := math.Inf(1), 0.0
	for _, panel := range p.Panels {
		height += panelHead + len(panel.Bars)*rowHeight + panelFoot
		for _, bar := range panel.Bars {
			low, high = min(low, bar.P50), max(high, bar.P99)
		}
	}
	d.lowDecade = int(math.Floor(math.Log10(max(low, 1e-3))))
	d.highDecade = max(int(math.Ceil(math.Log10(max(high, 1e-3)))), d.lowDecade+1)
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n",
		plotWidth, height, plotWidth, height)
	fmt.Fprintf(&d.b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, height)
	d.text(20, 28, "start", "#1b1f24", 17, "bold", "Latency of the others’ transactions, by what runs beside them")
	d.text(20, 50, "start", "#57606a", 12, "normal", subtitle)
	d.legend()
	y := plotTop
	for _, panel := range p.Panels {
		d.panel(panel, y)
		y += panelHead + len(panel.Bars)*rowHeight + panelFoot
	}
	d.b.WriteString("</svg>\n")
	return d.b.String()
}

// The three percentiles have a colour each, readable without one: they are in order.
const (
	colourP50, colourP95, colourP99 = "#1a7f37", "#bf8700", "#cf222e"
)

func (d *svg) legend() {
	for i, l := range []struct{ name, colour string }{{"p50", colourP50}, {"p95", colourP95}, {"p99", colourP99}} {
		x := tpsColumn - 6 + i*48
		d.dot(float64(x), 24, l.colour)
		d.text(x+9, 28, "start", "#57606a", 12, "normal", l.name)
	}
}

func (d *svg) panel(p Panel, y int) {
	d.text(20, y+20, "start", "#1b1f24", 14, "bold", p.Title)
	d.text(tpsColumn, y+20, "end", "#57606a", 12, "normal", "tps")
	d.text(rowsColumn, y+20, "end", "#57606a", 12, "normal", "rows/s beside it")
	top, bottom := y+panelHead-14, y+panelHead+len(p.Bars)*rowHeight-10
	for decade := d.lowDecade; decade <= d.highDecade; decade++ {
		x := d.x(math.Pow10(decade))
		fmt.Fprintf(&d.b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#d0d7de"/>`+"\n", x, top, x, bottom)
		d.text(int(x), bottom+16, "middle", "#57606a", 11, "normal", strconv.FormatFloat(math.Pow10(decade), 'f', -1, 64)+" ms")
	}
	for i, bar := range p.Bars {
		d.bar(bar, y+panelHead+i*rowHeight)
	}
}

func (d *svg) bar(bar Bar, y int) {
	d.text(plotLeft-14, y+4, "end", "#1b1f24", 13, "normal", bar.Label)
	fmt.Fprintf(&d.b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#afb8c1" stroke-width="3"/>`+"\n", d.x(bar.P50), y, d.x(bar.P99), y)
	d.dot(d.x(bar.P50), y, colourP50)
	d.dot(d.x(bar.P95), y, colourP95)
	d.dot(d.x(bar.P99), y, colourP99)
	d.text(int(d.x(bar.P99))+11, y+4, "start", "#57606a", 11, "normal", number(bar.P99))
	d.text(tpsColumn, y+4, "end", "#1b1f24", 13, "normal", grouped(int64(math.Round(bar.TPS))))
	speed := "–"
	if bar.Rows > 0 {
		speed = grouped(int64(math.Round(bar.Rows/100)) * 100)
	}
	d.text(rowsColumn, y+4, "end", "#1b1f24", 13, "normal", speed)
}

// x is where a latency in ms lies on the axis.
func (d *svg) x(ms float64) float64 {
	share := (math.Log10(max(ms, 1e-3)) - float64(d.lowDecade)) / float64(d.highDecade-d.lowDecade)
	return plotLeft + share*(plotRight-plotLeft-40)
}

func (d *svg) dot(x float64, y int, colour string) {
	fmt.Fprintf(&d.b, `<circle cx="%.1f" cy="%d" r="%d" fill="%s"/>`+"\n", x, y, dotSize, colour)
}

func (d *svg) text(x, y int, anchor, colour string, size int, weight, text string) {
	fmt.Fprintf(&d.b, `<text x="%d" y="%d" text-anchor="%s" fill="%s" font-size="%d" font-weight="%s">`, x, y, anchor, colour, size, weight)
	_ = xml.EscapeText(&d.b, []byte(text)) // a strings.Builder does not fail
	d.b.WriteString("</text>\n")
}
