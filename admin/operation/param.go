package operation

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
)

// Place is the kind of a parameter on the command line.
type Place int

// The kinds.
const (
	Argument Place = iota + 1
	Flag
	Key // of KEY=VALUE
)

// Param is one parameter of an operation.
type Param struct {
	// Name is the name outside the command line, such as limit or chunk_target.
	Name  string
	Place Place
	// Flag is the name of the flag without dashes. Label represents its value in the help, such as LANE or N;
	// a switch has none.
	Flag, Label string
	Help        string
	// Allowed describes the allowed values. If it is empty, the error of the type describes them.
	Allowed string
	Default string
	// Is describes the value of an argument: "a job's id".
	Is string
	// Required parameters must be given. Repeated ones may be given several times.
	Required, Repeated bool
	// File means that the command line accepts the name of a file with the value.
	File bool
	// Column is another name of a key, the column's name. Its values are numbers of Unit.
	Column, Unit string
	// Local means that only the command line has the parameter.
	Local bool
	// Secret values are read from a prompt or from the file that the flag names, because other processes can
	// read flags.
	Secret bool

	whole     bool // a list does not split its texts at commas
	low, high float64
	several   bool         // a list
	of        reflect.Type // the type of one value
	choices   []string
	values    string // an operation that lists the values, or a vocabulary
	reset     []string
	index     []int
}

// Switch reports whether the parameter has no value.
func (p Param) Switch(in any) bool {
	return p.Place == Flag && p.field(reflect.ValueOf(in).Elem()).Kind() == reflect.Bool
}

// Moment reports whether the values are instants. Without a zone they are in the zone of the caller
// (ParseInstant).
func (p Param) Moment() bool {
	return p.of == reflect.TypeFor[Instant]() || p.of == reflect.TypeFor[Past]()
}

// Set parses text as the parameter's value, or as one more value of a list. The error contains the allowed
// values.
func (p Param) Set(in any, text string) error { return p.set(reflect.ValueOf(in).Elem(), text) }

// Given reports whether the parameter differs from its zero value.
func (p Param) Given(in any) bool { return !p.field(reflect.ValueOf(in).Elem()).IsZero() }

// readFrom is a value that is read as a stream.
type readFrom interface{ From(r io.ReadCloser) }

// Reads reports whether the value is a stream of any size. From sets its source, which the operation closes.
func (p Param) Reads(in any) bool {
	_, is := p.field(reflect.ValueOf(in).Elem()).Addr().Interface().(readFrom)
	return is
}

// From sets the source of a parameter for which Reads is true.
func (p Param) From(in any, r io.ReadCloser) {
	if value, is := p.field(reflect.ValueOf(in).Elem()).Addr().Interface().(readFrom); is {
		value.From(r)
	}
}

func (p Param) field(in reflect.Value) reflect.Value { return in.FieldByIndex(p.index) }

func (p Param) set(in reflect.Value, text string) error {
	field := p.field(in)
	if c, is := field.Addr().Interface().(changing); is {
		return p.change(c, text)
	}
	return p.parse(field, text)
}

// Resets reports whether text resets the parameter.
func (p Param) Resets(text string) bool {
	return slices.Contains(p.reset, text) || text == "" && len(p.reset) > 0
}

// change sets or resets a key of KEY=VALUE.
func (p Param) change(c changing, line string) error {
	if p.Resets(line) {
		c.clear()
		return nil
	}
	err := p.parse(c.value(), line)
	if err == nil {
		return nil
	}
	c.forget()
	if p.Allowed != "" && errors.As(err, new(*NotAllowedError)) {
		return fmt.Errorf("%q is not allowed; allowed values: %s", text.OneLine(line, 60), p.Allowed)
	}
	or := ""
	if len(p.reset) > 0 {
		or = ", or " + p.reset[0]
	}
	if strings.HasPrefix(err.Error(), "allowed values") {
		return fmt.Errorf("%q is not allowed; %w%s", text.OneLine(line, 60), err, or)
	}
	return fmt.Errorf("%w%s", err, or)
}

// NotAllowedError reports a value of the wrong type or range.
type NotAllowedError struct{ Allowed string }

func (e *NotAllowedError) Error() string { return "allowed values: " + e.Allowed }

func (p Param) notAllowed(otherwise string) error {
	if p.Allowed != "" {
		return &NotAllowedError{p.Allowed}
	}
	return &NotAllowedError{otherwise}
}

// parse parses text into v.
func (p Param) parse(v reflect.Value, text string) error {
	if v.Kind() == reflect.Pointer {
		fresh := reflect.New(v.Type().Elem())
		if err := p.parse(fresh.Elem(), text); err != nil {
			return err
		}
		v.Set(fresh)
		return nil
	}
	if known, is := v.Addr().Interface().(encoding.TextUnmarshaler); is {
		err := known.UnmarshalText([]byte(text))
		if wrong := new(*NotAllowedError); errors.As(err, wrong) {
			return p.notAllowed((*wrong).Allowed)
		}
		return err
	}
	switch v.Kind() {
	case reflect.String:
		if len(p.choices) > 0 && !slices.Contains(p.choices, text) {
			return p.notAllowed(strings.Join(p.choices, ", ") + keys.Hint(text, p.choices))
		}
		v.SetString(text)
	case reflect.Bool:
		on, known := map[string]bool{"on": true, "true": true, "off": false, "false": false}[text]
		if !known {
			return p.notAllowed("on, off")
		}
		v.SetBool(on)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil || float64(n) < p.low || float64(n) > p.high {
			return p.notAllowed("whole numbers" + p.span())
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || n < p.low || n > p.high {
			return p.notAllowed("numbers" + p.span())
		}
		v.SetFloat(n)
	case reflect.Slice:
		return p.appendTo(v, text)
	}
	return nil
}

// appendTo appends to a list. A flag's value may contain several values, separated by commas.
func (p Param) appendTo(v reflect.Value, text string) error {
	parts := []string{text}
	if p.Place != Argument && !p.whole {
		parts = strings.Split(text, ",")
	}
	list := v
	for _, part := range parts {
		one := reflect.New(v.Type().Elem()).Elem()
		if err := p.parse(one, strings.TrimSpace(part)); err != nil {
			return err
		}
		list = reflect.Append(list, one)
	}
	v.Set(list)
	return nil
}

// span describes the range of a number.
func (p Param) span() string {
	bound := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	switch {
	case math.IsInf(p.low, -1) && math.IsInf(p.high, 1):
		return ""
	case math.IsInf(p.high, 1):
		return " from " + bound(p.low)
	}
	return " from " + bound(p.low) + " to " + bound(p.high)
}

// paramsOf returns the parameters of an input.
func paramsOf(o Operation, in reflect.Type) []Param {
	var list []Param
	for _, f := range reflect.VisibleFields(in) {
		p := Param{
			index: f.Index, Help: strings.ReplaceAll(f.Tag.Get("help"), "{events}", o.Events), Label: f.Tag.Get("label"),
			Allowed: f.Tag.Get("allowed"), Default: f.Tag.Get("default"), Required: f.Tag.Get("required") == "true",
			Local: f.Tag.Get("local") == "true",
			File:  f.Tag.Get("file") == "true", whole: f.Tag.Get("list") == "one", Column: f.Tag.Get("column"),
			values: f.Tag.Get("values"), Is: f.Tag.Get("is"), Unit: f.Tag.Get("unit"),
			low: math.Inf(-1), high: math.Inf(1),
		}
		p.choices, p.reset = words(f.Tag.Get("choices")), words(f.Tag.Get("reset"))
		for tag, bound := range map[string]*float64{"min": &p.low, "max": &p.high} {
			text, given := f.Tag.Lookup(tag)
			if !given {
				continue
			}
			n, err := strconv.ParseFloat(text, 64)
			must(err == nil, "%s: %s of %s: %v", o.Name, tag, f.Name, err)
			*bound = n
		}
		switch arg, flag, key := f.Tag.Get("arg"), f.Tag.Get("flag"), f.Tag.Get("change"); {
		case arg != "":
			p.Place, p.Label = Argument, strings.Trim(strings.TrimSuffix(arg, "..."), "[]")
			p.Name = cmp.Or(f.Tag.Get("name"), strings.ReplaceAll(strings.ToLower(p.Label), "-", "_"))
			p.Repeated = strings.HasSuffix(arg, "...")
			p.Required = arg[0] != '['
		case flag != "":
			p.Place, p.Flag, p.Name = Flag, flag, strings.ReplaceAll(flag, "-", "_")
			if p.Secret = f.Tag.Get("secret") == "true"; p.Secret {
				p.Flag += "-file"
			}
			p.Name = cmp.Or(f.Tag.Get("name"), p.Name)
			p.Repeated = f.Type.Kind() == reflect.Slice && !readsText(f.Type)
		case key != "":
			p.Place, p.Name = Key, key
		default:
			continue
		}
		must(parseable(f.Type), "%s: no text can be parsed as a %s, the type of %s", o.Name, f.Type, f.Name)
		p.of, p.several = valueType(f.Type)
		list = append(list, p)
	}
	return list
}

// must panics with a message if a definition is invalid. Definitions are part of the program, so that every
// test and every start of belfry executes it.
func must(valid bool, format string, args ...any) {
	if !valid {
		panic("admin/operation: " + fmt.Sprintf(format, args...))
	}
}

// words splits the list in a tag.
func words(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// parseable reports whether parse supports a type.
func parseable(t reflect.Type) bool {
	if changes, is := reflect.New(t).Interface().(changing); is {
		return parseable(changes.value().Type())
	}
	if readsText(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return parseable(t.Elem())
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	}
	return false
}

func readsText(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// Change is an optional change. The zero value changes nothing.
type Change[T any] struct {
	// Asked means that the value is changed to To. A nil To resets it to the default.
	Asked bool
	To    *T
}

// changing is a Change of any type.
type changing interface {
	value() reflect.Value // marks the change as asked, and returns the place of its value
	clear()
	forget()
}

func (c *Change[T]) value() reflect.Value {
	c.Asked, c.To = true, new(T)
	return reflect.ValueOf(c.To).Elem()
}

func (c *Change[T]) clear()  { c.Asked, c.To = true, nil }
func (c *Change[T]) forget() { c.Asked, c.To = false, nil }

// MarshalJSON renders the new value, or null for a reset.
func (c Change[T]) MarshalJSON() ([]byte, error) { return json.Marshal(c.To) }

func allowedText(allowed, before string) string {
	if allowed == "" {
		return ""
	}
	return before + "allowed values: " + allowed
}
