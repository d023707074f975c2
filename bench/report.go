package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// report is what one run of the benchmarks found, ready to be JSON.
type report struct {
	StartedAt time.Time `json:"started_at"` // process clock, UTC
	Seconds   float64   `json:"seconds"`
	Machine   machine   `json:"machine"`
	Postgres  postgres  `json:"postgres"`
	Channels  int64     `json:"channels"`
	Rounds    int64     `json:"rounds"`
	Quick     bool      `json:"quick"` // sizes too small to judge by
	Results   []result  `json:"results"`
	GoalsMet  bool      `json:"goals_met"` // of those benchmarks that ran
}

// machine is the class of machine; figures compare within one class at best.
type machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

// postgres is the server measured and the settings that matter most.
type postgres struct {
	Version           string `json:"version"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronous_commit"`
	SharedBuffers     string `json:"shared_buffers"`
	MaxWALSize        string `json:"max_wal_size"`
	JIT               string `json:"jit"`
	Private           bool   `json:"private"`
}

// result is what one benchmark found.
type result struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Seconds float64  `json:"seconds"`
	Figures []figure `json:"figures"`
	Table   *table   `json:"table,omitempty"` // a series, where single figures do not show it
	Notes   []string `json:"notes,omitempty"`
	Panels  []panel  `json:"-"` // what writeSVG draws
}

// figure is one number, never NaN or infinite.
type figure struct {
	Name  string  `json:"name"` // unique in its result, stable: for scripts
	Label string  `json:"label"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Goal  *goal   `json:"goal,omitempty"`
	Met   *bool   `json:"met,omitempty"` // nil without a goal
}

// table is a series of measurements. Every cell is a number or a text.
type table struct {
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
}

// The units of figures that have a form of their own in the table.
const (
	unitRatio = "ratio"
	unitTimes = "times"
	unitCount = "count"
	unitMS    = "ms"
	unitSpeed = "rows/s"
)

// goal is a bound, which itself meets it: what the project promised itself.
type goal struct {
	Compare string  `json:"compare"` // "<=" or ">="
	Value   float64 `json:"value"`
}

func atLeast(value float64) goal { return goal{">=", value} }

func atMost(value float64) goal { return goal{"<=", value} }

func (g goal) met(v float64) bool {
	if g.Compare == ">=" {
		return v >= g.Value
	}
	return v <= g.Value
}

// figure adds one number to the result, with its goal if there is one.
func (r *result) figure(name, label string, value float64, unit string, goals ...goal) {
	f := figure{Name: name, Label: label, Value: value, Unit: unit}
	for _, g := range goals {
		met := g.met(value)
		f.Goal, f.Met = &g, &met
	}
	r.Figures = append(r.Figures, f)
}

func (r *result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// missed returns the figures that miss their goal, each as benchmark/figure.
func (r report) missed() (missed []string) {
	for _, one := range r.Results {
		for _, f := range one.Figures {
			if f.Met != nil && !*f.Met {
				missed = append(missed, one.Name+"/"+f.Name)
			}
		}
	}
	return missed
}

// show writes the report as data or, for people, as plain text of about 80 columns.
func (r report) show(asJSON bool, w io.Writer) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(r)
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "%d CPUs, %s/%s, %s; PostgreSQL %s, fsync %s, jit %s; %s channels, %d rounds\n",
		r.Machine.CPUs, r.Machine.OS, r.Machine.Arch, r.Machine.Go, r.Postgres.Version, r.Postgres.Fsync, r.Postgres.JIT,
		grouped(r.Channels), r.Rounds)
	if r.Quick {
		fmt.Fprintln(b, "Quick: the sizes are too small to judge by.")
	}
	for _, one := range r.Results {
		one.write(b)
	}
	if missed := r.missed(); len(missed) > 0 {
		fmt.Fprintf(b, "\n%d of the goals MISSED: %s\n", len(missed), strings.Join(missed, ", "))
	} else {
		fmt.Fprint(b, "\nAll goals of these benchmarks are met.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes one benchmark's part; a strings.Builder does not fail.
func (r result) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s: %s (%.0f s)\n", r.Name, r.What, r.Seconds)
	out := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, f := range r.Figures {
		fmt.Fprintf(out, "  %s\t%s\t%s\n", f.Label, quantity(f.Value, f.Unit), f.verdict())
	}
	_ = out.Flush()
	if r.Table != nil {
		out = tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(out, "\n%s\t\n", strings.Join(r.Table.Columns, "\t"))
		for _, row := range r.Table.Rows {
			for _, cell := range row {
				fmt.Fprintf(out, "%s\t", cellText(cell))
			}
			fmt.Fprintln(out)
		}
		_ = out.Flush()
	}
	for _, note := range r.Notes {
		fmt.Fprintf(b, "  %s\n", note)
	}
}

func (f figure) verdict() string {
	if f.Goal == nil {
		return ""
	}
	sign, word := map[string]string{"<=": "≤", ">=": "≥"}[f.Goal.Compare], "met"
	if !*f.Met {
		word = "MISSED"
	}
	return fmt.Sprintf("goal %s %v: %s", sign, f.Goal.Value, word)
}

// quantity writes a value as its unit is read.
func quantity(value float64, unit string) string {
	switch unit {
	case unitRatio:
		return fmt.Sprintf("%.3f", value)
	case unitTimes:
		return number(value) + "×"
	case unitCount:
		return grouped(int64(value))
	}
	return number(value) + " " + unit
}

// cellText writes a text, or a number as number and grouped do.
func cellText(cell any) string {
	if v, ok := cell.(float64); ok {
		return number(v)
	}
	return message.NewPrinter(language.English).Sprint(cell)
}

// number writes about three digits, and thousands grouped.
func number(v float64) string {
	digits := 2 - min(int(math.Log10(max(math.Abs(v), 1))), 2)
	return message.NewPrinter(language.English).Sprintf("%.*f", digits, v)
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string { return cellText(n) }
