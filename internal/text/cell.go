package text

import (
	"fmt"
	"strings"
	"time"
)

// Cell is a typed value. String returns it as a terminal in the machine's zone shows it.
type Cell interface {
	fmt.Stringer
	// in is String in a zone.
	in(times Times) string
}

// Text is plain text.
type Text string

// Instant is a point in time.
type Instant time.Time

// TimeOfDay is an instant of today, without its date.
type TimeOfDay time.Time

// Duration is a span of time.
type Duration time.Duration

// Count is a number of things.
type Count int64

// Code is a literal text, such as the name of a key or a flag.
type Code string

// Line is a sequence of cells without line breaks.
type Line []Cell

// RefCell names one thing, such as a job. Ref makes it.
type RefCell struct {
	Kind, ID string
	Label    string // what is shown instead of the id; "" means the id
}

// LiveCell is a value that changes while a page is open. Live makes it.
type LiveCell struct {
	Name  string
	Value Cell
}

// CellOf returns the natural cell of a value: an Instant of a time.Time, a Duration of a
// time.Duration, a Count of an integer, and plain text of everything else. A nil *time.Time is
// empty text.
func CellOf(value any) Cell {
	switch v := value.(type) {
	case Cell:
		return v
	case time.Time:
		return Instant(v)
	case *time.Time:
		return Or(v, "")
	case time.Duration:
		return Duration(v)
	case int:
		return Count(v)
	case int64:
		return Count(v)
	case string:
		return Text(v)
	}
	return Text(fmt.Sprint(value))
}

// Or returns an instant, or a text if there is none.
func Or(at *time.Time, otherwise string) Cell {
	if at == nil {
		return Text(otherwise)
	}
	return Instant(*at)
}

// Ref returns a reference to a thing by its kind, such as "job" or "lane", and its id, a string or
// an integer.
func Ref(kind string, id any) RefCell {
	if n, is := id.(int64); is {
		return RefCell{Kind: kind, ID: Int(n)}
	}
	return RefCell{Kind: kind, ID: fmt.Sprint(id)}
}

// As returns a reference that is shown by a label, such as a job's title.
func (c RefCell) As(label string) RefCell {
	c.Label = label
	return c
}

// Live returns a value under the name by which a page receives its changes.
func Live(name string, value any) LiveCell { return LiveCell{name, CellOf(value)} }

// Sprintf returns a line by a format, whose verbs are those of package fmt. An argument that is a
// cell, an instant or a duration becomes that cell; a count is [Count] of it, since %d is also used
// for ids.
func Sprintf(format string, args ...any) Line {
	if false {
		_ = fmt.Sprintf(format, args...) // has vet check formats
	}
	var line Line
	add := func(c Cell) {
		if one, is := c.(Text); is && len(line) > 0 {
			if before, is := line[len(line)-1].(Text); is {
				line[len(line)-1] = before + one
				return
			}
		}
		line = append(line, c)
	}
	for format != "" {
		at := strings.IndexByte(format, '%')
		if at < 0 {
			add(Text(format))
			break
		}
		if at > 0 {
			add(Text(format[:at]))
		}
		end := at + 1
		for end < len(format)-1 && strings.IndexByte("+-# 0123456789.", format[end]) >= 0 {
			end++
		}
		verb := format[at : end+1]
		format = format[end+1:]
		if verb == "%%" {
			add(Text("%"))
			continue
		}
		if len(args) == 0 {
			add(Text(verb + "(missing)"))
			continue
		}
		arg := args[0]
		args = args[1:]
		switch arg := arg.(type) {
		case Line:
			for _, one := range arg {
				add(one)
			}
		case Cell, time.Time, *time.Time, time.Duration:
			add(CellOf(arg))
		default:
			add(Text(fmt.Sprintf(verb, arg)))
		}
	}
	return line
}

// Join returns cells with a separator between them.
func Join[T any](values []T, sep string) Line {
	var line Line
	for i, v := range values {
		if i > 0 {
			line = append(line, Text(sep))
		}
		line = append(line, CellOf(v))
	}
	return line
}

func (c Text) in(Times) string        { return string(c) }
func (c Instant) in(t Times) string   { return t.Clock(time.Time(c)) }
func (c TimeOfDay) in(t Times) string { return t.TimeOfDay(time.Time(c)) }
func (c Duration) in(Times) string    { return Short(time.Duration(c)) }
func (c Count) in(Times) string       { return Grouped(int64(c)) }
func (c Code) in(Times) string        { return "`" + string(c) + "`" }
func (c LiveCell) in(t Times) string  { return c.Value.in(t) }

func (c RefCell) in(Times) string {
	if c.Label != "" {
		return c.Label
	}
	return c.ID
}

func (l Line) in(t Times) string {
	var b strings.Builder
	for _, c := range l {
		b.WriteString(c.in(t))
	}
	return b.String()
}

// String implements fmt.Stringer.
func (c Text) String() string { return string(c) }

// String implements fmt.Stringer.
func (c Instant) String() string { return c.in(Times{}) }

// String implements fmt.Stringer.
func (c TimeOfDay) String() string { return c.in(Times{}) }

// String implements fmt.Stringer.
func (c Duration) String() string { return c.in(Times{}) }

// String implements fmt.Stringer.
func (c Count) String() string { return c.in(Times{}) }

// String implements fmt.Stringer.
func (c Code) String() string { return c.in(Times{}) }

// String implements fmt.Stringer.
func (c RefCell) String() string { return c.in(Times{}) }

// String implements fmt.Stringer.
func (c LiveCell) String() string { return c.in(Times{}) }

// String implements fmt.Stringer.
func (l Line) String() string { return l.in(Times{}) }

// MarshalText implements encoding.TextMarshaler, so that a line is a string in JSON.
func (l Line) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. The line is plain text.
func (l *Line) UnmarshalText(line []byte) error {
	*l = nil
	if len(line) > 0 {
		*l = Line{Text(line)}
	}
	return nil
}

// Plain returns a cell as text with instants in a zone.
func Plain(c Cell, times Times) string { return c.in(times) }
