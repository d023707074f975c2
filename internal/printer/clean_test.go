package printer_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/printer"
)

// Whatever a row says, a terminal only shows it: in each cell, line, field and remark.
func TestPage_TakesNothingThatATerminalObeys(t *testing.T) {
	t.Parallel()
	evil := "a\x1b[2J\x1b]0;title\a\r\b\u0085\u009b31m\u202eb\u2066\u2069\u202a\u2028c\x7f"
	var out, notes bytes.Buffer
	for _, colors := range []bool{false, true} {
		p := &printer.Page{Output: &out, Notes: &notes, Colors: colors, Columns: 80}
		table := printer.NewTable("STATUS", ">ONE", "LAST")
		table.Dispensable(10, "ONE")
		table.Add(evil, evil, evil+"\n"+evil+"\t")
		p.Table(table)
		p.Printf("%s: %s\n", evil, evil)
		p.Field("status", "%s", evil+"\n"+evil+"\t")
		p.Note("%s", evil)
		require.Equal(t, 4, strings.Count(out.String(), "\n"), "a heading and three lines: %q", out.String())
		for _, text := range []string{out.String(), notes.String()} {
			require.Contains(t, text, "a")
			require.False(t, strings.ContainsAny(text, "\x1b\a\r\b\t\x7f\u0085\u009b\u202a\u202e\u2066\u2069\u2028"), "%q", text)
		}
		out.Reset()
		notes.Reset()
	}
	p := &printer.Page{Output: &out, Colors: true}
	p.Printf("%s\n", p.Status("RUNNING since 09:00"))
	require.Equal(t, "\x1b[36mRUNNING\x1b[0m since 09:00\n", out.String(), "a status has its colour")
	out.Reset()
	p.Redraw([]string{evil})
	require.Equal(t, "\ra [2J ]0;title    ", out.String()[:len("\ra [2J ]0;title    ")])
	require.Equal(t, "one\ttwo\nthree", printer.Clean("one\ttwo\nthree"))
}
