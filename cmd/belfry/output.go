package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
)

// printJSON writes the one JSON document of a command.
func (a *app) printJSON(v any) error { return a.encodeJSON(v, "  ") }

// printLines writes JSON documents, one a line.
func (a *app) printLines(documents []any) error {
	for _, one := range documents {
		if err := a.encodeJSON(one, ""); err != nil {
			return err
		}
	}
	return nil
}

// encodeJSON writes a JSON document in which stored text has no character that a terminal obeys.
func (a *app) encodeJSON(v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := a.stdout.Write(printer.EscapeJSON(b.Bytes()))
	return err
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

// written returns the error of standard output, after which more results are lost.
func (a *app) written() error {
	if out, is := a.stdout.(*checkedWriter); is && out.err != nil {
		return fmt.Errorf("write standard output: %w", out.err)
	}
	return nil
}

// printf writes data for people to standard output.
func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.stdout, format, args...) }

// remark writes a line for people to standard error.
func (a *app) remark(format string, args ...any) {
	_, _ = io.WriteString(a.stderr, printer.Clean(fmt.Sprintf(format, args...))+"\n")
}

// page is where the command's result is told in text.
func (a *app) page() *printer.Page {
	p := &printer.Page{Output: a.stdout, Notes: a.stderr, Times: a.times.or(printer.Times{})}
	fd, live := terminal(a.stdout, a.environ)
	if live {
		p.Columns, p.Rows = sizeOf(fd)
	}
	switch a.color.or("auto") {
	case "auto":
		p.Colors = live && !a.hasVariable("NO_COLOR")
	case "always":
		p.Colors = true
	}
	return p
}

// timesWords are what --times takes beside names of time zones.
var timesWords = []string{"local", "utc", "relative"}

// parseTimes parses --times.
func (a *app) parseTimes(text string) (printer.Times, error) {
	switch text {
	case "local":
		return printer.Times{}, nil
	case "utc":
		return printer.Times{Zone: time.UTC}, nil
	case "relative":
		return printer.Times{Relative: true, Now: a.now}, nil
	}
	zone, err := time.LoadLocation(text)
	if err != nil || text == "" || text == "Local" { // which it takes for zones as well
		return printer.Times{}, fmt.Errorf("allowed values: %s, or names of the IANA database, as UTC, Asia/Seoul, Europe/Berlin%s",
			strings.Join(timesWords, ", "), config.Hint(text, timesWords))
	}
	return printer.Times{Zone: zone}, nil
}

// terminal reports whether w is a terminal that understands cursor movement, and
// its file descriptor.
func terminal(w io.Writer, environ []string) (fd int, ok bool) {
	fd, ok = onTerminal(w)
	return fd, ok && !slices.Contains(environ, "TERM=dumb")
}

// onTerminal reports whether w is a terminal of any kind, and its file descriptor.
func onTerminal(w io.Writer) (fd int, ok bool) {
	if checked, is := w.(*checkedWriter); is {
		w = checked.w
	}
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}

// sizeOf is how many columns and lines a terminal has.
func sizeOf(fd int) (columns, rows int) {
	if w, h, err := term.GetSize(fd); err == nil && w > 0 && h > 0 {
		return w, h
	}
	return 80, 24
}

// columnsOf is how many columns a terminal has.
func columnsOf(fd int) int {
	columns, _ := sizeOf(fd)
	return columns
}

// emptyList makes the JSON of no rows [] rather than null.
func emptyList[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
