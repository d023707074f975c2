package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for people, plain text of up to about 80 columns.
func (r Report) WriteTable(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%d CPUs, %s/%s, %s; PostgreSQL %s, fsync %s, jit %s; %s channels, %d rounds\n",
		r.Machine.CPUs, r.Machine.OS, r.Machine.Arch, r.Machine.Go, r.Postgres.Version, r.Postgres.Fsync, r.Postgres.JIT,
		grouped(r.Channels), r.Rounds)
	if r.Quick {
		fmt.Fprintln(b, "Quick: the sizes are too small to judge by.")
	}
	for _, result := range r.Results {
		if err := result.write(b); err != nil {
			return err
		}
	}
	fmt.Fprintln(b)
	switch missed := r.Missed(); {
	case len(missed) > 0:
		fmt.Fprintf(b, "%d of the goals MISSED: %s\n", len(missed), strings.Join(missed, ", "))
	default:
		fmt.Fprintln(b, "All goals of these benchmarks are met.")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Result) write(b *strings.Builder) error {
	fmt.Fprintf(b, "\n%s: %s (%.0f s)\n", r.Name, r.What, r.Seconds)
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, f := range r.Figures {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", f.Label, quantity(f.Value, f.Unit), verdict(f))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if r.Table != nil {
		fmt.Fprintln(b)
		table = tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(table, "%s\t\n", strings.Join(r.Table.Columns, "\t"))
		for _, row := range r.Table.Rows {
			for _, cell := range row {
				fmt.Fprintf(table, "%s\t", cellText(cell))
			}
			fmt.Fprintln(table)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(b, "  %s\n", note)
	}
	return nil
}

func verdict(f Figure) string {
	if f.Goal == nil {
		return ""
	}
	sign, word := "≤", "met"
	if f.Goal.Compare == ">=" {
		sign = "≥"
	}
	if !*f.Met {
		word = "MISSED"
	}
	return fmt.Sprintf("goal %s %s: %s", sign, strconv.FormatFloat(f.Goal.Value, 'f', -1, 64), word)
}

// quantity writes a value as its unit is read.
func quantity(v float64, unit string) string {
	switch unit {
	case unitRatio:
		return fmt.Sprintf("%.3f", v)
	case unitTimes:
		return fmt.Sprintf("%s×", number(v))
	case unitCount:
		return grouped(int64(v))
	}
	return number(v) + " " + unit
}

func cellText(cell any) string {
	switch v := cell.(type) {
	case int64:
		return grouped(v)
	case int:
		return grouped(int64(v))
	case float64:
		return number(v)
	}
	return fmt.Sprint(cell)
}

// number writes about three digits, and thousands grouped.
func number(v float64) string {
	switch magnitude := math.Abs(v); {
	case magnitude >= 100:
		return grouped(int64(math.Round(v)))
	case magnitude >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// The units of figures that have a form of their own in the table.
const (
	unitRatio = "ratio"
	unitTimes = "times"
	unitCount = "count"
	unitMS    = "ms"
	unitSpeed = "rows/s"
	unitMiB   = "MiB"
	unitMicro = "µs"

	unitPerSecond = "/s"
	unitPercent   = "%"
)
