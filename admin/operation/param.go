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

// Place is where the command line has a parameter.
type Place int

// The places.
const (
	Argument Place = iota + 1
	Flag
	Key // of KEY=VALUE
)

// Param is one parameter of an operation.
type Param struct {
	// Name is what it is called outside of the command line: limit, chunk_target.
	Name  string
	Place Place
	// Flag is its name as a flag, without the dashes; Label what stands for its value:
	// LANE, N. A switch has none.
	Flag, Label string
	Help        string
	// Allowed says in words what may be given; empty: the type's own error does.
	Allowed string
	Default string
	// Is says in words what the value of an argument is: "a job's id".
	Is string
	// Required tells that it has to be given, Repeated that it may be given several times.
	Required, Repeated bool
	// File tells that the command line may name a file with the value instead.
	File bool
	// Column is another name of a key, that of its column, whose values have no unit: Unit
	// is theirs.
	Column, Unit string
	// Local is a parameter of the command line alone.
	Local bool
	// Secret is one that the command line asks for, or reads from the file that the flag names:
	// other processes see the values of flags.
	Secret bool

	whole     bool // a list takes each text as one
	low, high float64
	several   bool         // a list
	of        reflect.Type // of one value
	choices   []string
	values    string // where values are: an operation that lists them, or a vocabulary
	reset     []string
	index     []int
}

// Switch reports whether it is given without a value.
func (p Param) Switch(in any) bool {
	return p.Place == Flag && p.field(reflect.ValueOf(in).Elem()).Kind() == reflect.Bool
}

// Moment reports whether the values are moments, which without a zone are in the zone of whoever
// gives them (ParseInstant).
func (p Param) Moment() bool {
	return p.of == reflect.TypeFor[Instant]() || p.of == reflect.TypeFor[Past]()
}

// Set understands text as the parameter's value, or adds one to those that were given
// before. The error says what is allowed.
func (p Param) Set(in any, text string) error { return p.set(reflect.ValueOf(in).Elem(), text) }

// Given reports whether the parameter differs from not given at all.
func (p Param) Given(in any) bool { return !p.field(reflect.ValueOf(in).Elem()).IsZero() }

// readFrom is a value that can be read as it is used.
type readFrom interface{ From(r io.ReadCloser) }

// Reads reports whether the parameter's value may be of any size where it is read as it is used:
// From says what from, which whoever uses it closes.
func (p Param) Reads(in any) bool {
	_, is := p.field(reflect.ValueOf(in).Elem()).Addr().Interface().(readFrom)
	return is
}

// From has the parameter's value, which Reads, be read from r.
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

// Resets reports whether text takes the parameter back.
func (p Param) Resets(text string) bool {
	return slices.Contains(p.reset, text) || text == "" && len(p.reset) > 0
}

// change sets a key of KEY=VALUE, or takes it back.
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

// NotAllowedError is a value of another kind or range.
type NotAllowedError struct{ Allowed string }

func (e *NotAllowedError) Error() string { return "allowed values: " + e.Allowed }

func (p Param) notAllowed(otherwise string) error {
	if p.Allowed != "" {
		return &NotAllowedError{p.Allowed}
	}
	return &NotAllowedError{otherwise}
}

// parse understands text as v's type.
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

// appendTo adds to a list: a flag's value may hold several, separated by commas.
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

// span is the range of a number, in words.
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

// paramsOf are the parameters of an input.
func paramsOf(o Operation, in reflect.Type) []Param {
	var list []Param
	for _, f := range reflect.VisibleFields(in) {
		p := Param{
			index: f.Index, Help: strings.ReplaceAll(f.Tag.Get("help"), "{events}", o.Events), Label: f.Tag.Get("label"),
			Allowed: f.Tag.Get("allowed"), Default: f.Tag.Get("default"), Required: f.Tag.Get("required") == "true", Local: f.Tag.Get("local") == "true",
			File: f.Tag.Get("file") == "true", whole: f.Tag.Get("list") == "one", Column: f.Tag.Get("column"), values: f.Tag.Get("values"), Is: f.Tag.Get("is"), Unit: f.Tag.Get("unit"),
			low: math.Inf(-1), high: math.Inf(1),
		}
		p.choices, p.reset = words(f.Tag.Get("choices")), words(f.Tag.Get("reset"))
		for tag, bound := range map[string]*float64{"min": &p.low, "max": &p.high} {
			text, given := f.Tag.Lookup(tag)
			if !given {
				continue
			}
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				panic(fmt.Sprintf("%s: %s of %s: %v", o.Name, tag, f.Name, err))
			}
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
		if !understood(f.Type) {
			panic(fmt.Sprintf("%s: %s is of a type that no text can be understood as: %s", o.Name, f.Name, f.Type))
		}
		p.of, p.several = valueType(f.Type)
		list = append(list, p)
	}
	return list
}

// words splits a tag's list.
func words(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// understood reports whether parse knows a type.
func understood(t reflect.Type) bool {
	if changes, is := reflect.New(t).Interface().(changing); is {
		return understood(changes.value().Type())
	}
	if readsText(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return understood(t.Elem())
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	}
	return false
}

func readsText(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// Change is one of the things that an operation may be asked to change. The zero value
// asks for nothing.
type Change[T any] struct {
	// Asked tells that it is to be changed, To to what; nil: back to what holds without.
	Asked bool
	To    *T
}

// changing is a Change of any type.
type changing interface {
	value() reflect.Value // asks for the change, and is where its value goes
	clear()
	forget()
}

func (c *Change[T]) value() reflect.Value {
	c.Asked, c.To = true, new(T)
	return reflect.ValueOf(c.To).Elem()
}

func (c *Change[T]) clear()  { c.Asked, c.To = true, nil }
func (c *Change[T]) forget() { c.Asked, c.To = false, nil }

// MarshalJSON is what it is changed to; null takes it back.
func (c Change[T]) MarshalJSON() ([]byte, error) { return json.Marshal(c.To) }

func allowedText(allowed, before string) string {
	if allowed == "" {
		return ""
	}
	return before + "allowed values: " + allowed
}
