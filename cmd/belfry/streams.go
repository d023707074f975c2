package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
)

// streams are the input and output of an invocation: standard output and error, the environment,
// the clock, and the flags that decide how text is rendered.
type streams struct {
	stdout, stderr io.Writer
	environ        []string
	now            func() time.Time

	color *parsed[string]
	times *parsed[text.Times]
}

// newApp returns an invocation that writes to stdout and stderr.
func newApp(stdout, stderr io.Writer, environ []string) *app {
	return &app{streams: &streams{stdout: stdout, stderr: stderr, environ: environ, now: time.Now}}
}

// printJSON writes the one JSON document of a command, indented unless it is deeply nested.
func (x *streams) printJSON(v any) error { return x.encodeJSON(v, "  ") }

// printLines writes JSON documents, one a line.
func (x *streams) printLines(documents ...any) error {
	for _, one := range documents {
		if err := x.encodeJSON(one, ""); err != nil {
			return err
		}
	}
	return nil
}

// encodeJSON writes a JSON document. Control characters in stored text are escaped, so that a
// terminal does not obey them.
func (x *streams) encodeJSON(v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := x.stdout.Write(text.EscapeJSON(text.IndentJSON(b.Bytes(), indent)))
	return err
}

// checkedWriter stores the first error, so that a command whose output is lost does not succeed.
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

// written returns the first error of standard output.
func (x *streams) written() error {
	if out, is := x.stdout.(*checkedWriter); is && out.err != nil {
		return fmt.Errorf("write standard output: %w", out.err)
	}
	return nil
}

// printf writes text to standard output.
func (x *streams) printf(format string, args ...any) { _, _ = fmt.Fprintf(x.stdout, format, args...) }

// remark writes a line to standard error. Arguments are those of [text.Sprintf].
func (x *streams) remark(format string, args ...any) {
	x.page().Show(func(d *text.Doc) { d.Note(format, args...) })
}

// page returns a page that renders a result as text.
func (x *streams) page() *text.Terminal {
	p := &text.Terminal{Output: x.stdout, Notes: x.stderr, Times: x.times.or(text.Times{})}
	fd, live := terminal(x.stdout, x.environ)
	if live {
		p.Columns, p.Rows = sizeOf(fd)
	}
	switch x.color.or("auto") {
	case "auto":
		p.Colors = live && x.variable("NO_COLOR") == ""
	case "always":
		p.Colors = true
	}
	return p
}

// timesWords are the values of --times besides the names of time zones.
var timesWords = []string{"local", "utc", "relative"}

// parseTimes parses --times.
func (x *streams) parseTimes(line string) (text.Times, error) {
	switch line {
	case "local":
		return text.Times{}, nil
	case "utc":
		return text.Times{Zone: time.UTC}, nil
	case "relative":
		return text.Times{Relative: true, Now: x.now}, nil
	}
	zone, err := time.LoadLocation(line)
	if err != nil || line == "" || line == "Local" { // LoadLocation accepts these two
		return text.Times{}, fmt.Errorf("allowed values: %s, or names of the IANA database such as UTC, Asia/Seoul, Europe/Berlin%s",
			strings.Join(timesWords, ", "), keys.Hint(line, timesWords))
	}
	return text.Times{Zone: zone}, nil
}

// variable returns an environment variable. The last setting wins, as in a shell.
func (x *streams) variable(name string) (value string) {
	for _, e := range x.environ {
		if set, is := strings.CutPrefix(e, name+"="); is {
			value = set
		}
	}
	return value
}

// whoami returns user@host, the actor that the audit log records.
func (x *streams) whoami() string {
	name := x.variable("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name == "" {
		name = fmt.Sprintf("uid-%d", os.Getuid())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// terminal reports whether w is a terminal that supports cursor movement, and returns its file
// descriptor.
func terminal(w io.Writer, environ []string) (fd int, ok bool) {
	fd, ok = onTerminal(w)
	return fd, ok && !slices.Contains(environ, "TERM=dumb")
}

// onTerminal reports whether w is a terminal of any kind, and returns its file descriptor.
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

// sizeOf returns the columns and lines of a terminal.
func sizeOf(fd int) (columns, rows int) {
	if w, h, err := term.GetSize(fd); err == nil && w > 0 && h > 0 {
		return w, h
	}
	return 80, 24
}

// emptyList returns an empty list for nil, so that its JSON is [] rather than null.
func emptyList[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
