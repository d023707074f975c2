package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// printJSON writes the one JSON document of a command.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// checkedWriter remembers the first error, so that a command whose data did not
// arrive does not claim to be done.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// printf writes data for people to standard output.
func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.stdout, format, args...) }

// remark writes a line for people to standard error.
func (a *app) remark(format string, args ...any) { _, _ = fmt.Fprintf(a.stderr, format+"\n", args...) }

// table is aligned text. A heading that starts with ">" is a column of numbers,
// flush right.
type table struct {
	headings []string
	rows     [][]string
}

func newTable(headings ...string) *table { return &table{headings: headings} }

// add appends a row, a cell for each heading.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// drop leaves a column out.
func (t *table) drop(heading string) {
	i := slices.IndexFunc(t.headings, func(h string) bool { return strings.TrimPrefix(h, ">") == heading })
	t.headings = slices.Delete(t.headings, i, i+1)
	for n, row := range t.rows {
		t.rows[n] = slices.Delete(row, i, i+1)
	}
}

// fit makes the table fit into a terminal of so many columns: it leaves out columns, in
// the given order, until the last column has room for at least so many characters, and
// cuts that one.
func (t *table) fit(columns, room int, dispensable ...string) {
	rest := func() int {
		used := 0
		widths := t.widths()
		for _, w := range widths[:len(widths)-1] {
			used += w + 2
		}
		return columns - used
	}
	for _, heading := range dispensable {
		if rest() >= room {
			break
		}
		t.drop(heading)
	}
	last := max(rest(), room)
	for _, row := range t.rows {
		row[len(row)-1] = oneLine(row[len(row)-1], last)
	}
}

// widths are those of the columns.
func (t *table) widths() []int {
	widths := make([]int, len(t.headings))
	for i, h := range t.headings {
		widths[i] = utf8.RuneCountInString(strings.TrimPrefix(h, ">"))
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	return widths
}

// write renders the table. No line ends in blanks.
func (t *table) write(w io.Writer) error {
	widths := t.widths()
	right := make([]bool, len(t.headings))
	head := make([]string, len(t.headings))
	for i, h := range t.headings {
		head[i], right[i] = strings.CutPrefix(h, ">")
	}
	all := append([][]string{head}, t.rows...)
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if right[i] {
				line.WriteString(pad + cell + "  ")
			} else {
				line.WriteString(cell + pad + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// page cuts a list that was read with one row more than limit, and reports whether there
// was that row.
func page[T any](list []T, limit int) (cut []T, more bool) {
	if len(list) > limit {
		return list[:limit], true
	}
	return list, false
}

// grouped renders a count with thousands separators: 1,234,567.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// counted renders a count with its noun: 1 job, 2 jobs.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(n) + " " + noun + "s"
}

// short renders a duration at the precision that people read.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	d = d.Round(time.Second)
	if d < time.Hour {
		return d.String()
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// clock renders an instant in local time, to the second, with its zone, as psql does and
// as --at reads it.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05-07:00") }

// oneLine keeps a text from breaking a table or a terminal: control characters
// become spaces, and it is cut at width.
func oneLine(s string, width int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// terminal reports whether w is a terminal that understands cursor movement, and
// its file descriptor.
func terminal(w io.Writer, environ []string) (fd int, ok bool) {
	if checked, is := w.(*checkedWriter); is {
		w = checked.w
	}
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	for _, e := range environ {
		if e == "TERM=dumb" {
			return 0, false
		}
	}
	return int(f.Fd()), true
}

// columnsOf is how many columns a terminal has.
func columnsOf(fd int) int {
	if w, _, err := term.GetSize(fd); err == nil && w > 0 {
		return w
	}
	return 80
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
