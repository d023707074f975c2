package text_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

// A terminal shows the content of each cell, line, field and remark, and executes nothing of it.
func TestTerminal_ExecutesNothing(t *testing.T) {
	t.Parallel()
	evil := "a\x1b[2J\x1b]0;title\a\r\b\u0085\u009b31m\u202eb\u2066\u2069\u202a\u2028c\x7f"
	var out, notes bytes.Buffer
	for _, colors := range []bool{false, true} {
		(&text.Terminal{Output: &out, Notes: &notes, Columns: 80}).Show(func(d *text.Doc) {
			table := text.NewTable("STATUS", ">ONE", "LAST")
			table.Dispensable(10, "ONE")
			table.Add(evil, text.Command(evil).To(evil), evil+"\n"+evil+"\t")
			d.Table(table)
			d.Line("%s: %s", evil, text.Ref("job", evil))
			d.Field("status", "%s", evil+"\n"+evil+"\t")
			d.Note("%s", text.Live(evil, text.Status(evil, evil)))
		})
		require.Equal(t, 4, strings.Count(out.String(), "\n"), "a heading and three lines: %q", out.String())
		for _, text := range []string{out.String(), notes.String()} {
			require.Contains(t, text, "a")
			require.False(t, strings.ContainsAny(text, "\x1b\a\r\b\t\x7f\u0085\u009b\u202a\u202e\u2066\u2069\u2028"), "%v: %q", colors, text)
		}
		out.Reset()
		notes.Reset()
	}
	page := &text.Terminal{Output: &out, Colors: true}
	page.Show(func(d *text.Doc) { d.Line("%s since 09:00", text.Status("RUNNING")) })
	require.Equal(t, "\x1b[36mRUNNING\x1b[0m since 09:00\n", out.String(), "a status has its color")
	out.Reset()
	page.Show(func(d *text.Doc) { d.Redraw([]string{evil}) })
	require.Equal(t, "\ra [2J ]0;title    ", out.String()[:len("\ra [2J ]0;title    ")])
	require.Equal(t, "one\ttwo\nthree", text.Clean("one\ttwo\nthree"))
}

// Text of a document turns nothing around it; what a form sends back is unchanged.
func TestCleanHTML_BlanksWhatTurns(t *testing.T) {
	t.Parallel()
	require.Equal(t, "<p title=\"a\u202eb\">a b c\u200f</p><TEXTAREA>x</TEXTAREA><textarea name=\"x\">\u202ea</textarea><h1> é \u2028</h1>", string(text.CleanHTML([]byte(
		"<p title=\"a\u202eb\">a\u202eb\u2066c\u200f</p><TEXTAREA>x</TEXTAREA><textarea name=\"x\">\u202ea</textarea><h1>\u2069é\u202a\u2028</h1>"))))
	same := []byte("<p>ä\u200e</p>")
	require.Equal(t, same, text.CleanHTML(same))
}
