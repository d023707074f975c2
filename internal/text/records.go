package text

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Records are the columns of the records of one type.
type Records struct {
	of      reflect.Type
	columns []column
	zone    *time.Location
}

// column is a field, or a field of a struct in the record.
type column struct {
	name  string
	path  []int // through structs and pointers to them
	depth int   // of embedding
}

// RecordsOf returns the columns of a struct, or of a pointer to a struct: its fields by their names
// in JSON. The fields of a struct in it are prefixed with its name and a dot. RecordsOf panics on
// other types.
func RecordsOf(t reflect.Type) *Records {
	r := &Records{of: pointed(t), zone: time.UTC}
	if r.of.Kind() != reflect.Struct {
		panic(fmt.Sprintf("a record is a struct, not a %s", t))
	}
	r.add(r.of, "", nil, 0)
	return r
}

func pointed(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// add adds the fields of a struct. Of two fields with one name the less deeply embedded one counts,
// as in JSON.
func (r *Records) add(t reflect.Type, prefix string, path []int, depth int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(slices.Clone(path), i)
		inner := pointed(f.Type)
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			r.add(inner, prefix, at, depth+1)
		case !f.IsExported():
		case inner.Kind() == reflect.Struct && !marshals(inner):
			r.add(inner, prefix+name+".", at, depth)
		default:
			if name == "" {
				name = f.Name
			}
			r.place(column{prefix + name, at, depth})
		}
	}
}

func (r *Records) place(c column) {
	i := slices.IndexFunc(r.columns, func(other column) bool { return other.name == c.name })
	switch {
	case i < 0:
		r.columns = append(r.columns, c)
	case c.depth < r.columns[i].depth:
		r.columns[i] = c
	}
}

// marshals reports whether a struct has its own JSON, so that it is one cell.
func marshals(t reflect.Type) bool {
	for _, own := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if t.Implements(own) || reflect.PointerTo(t).Implements(own) {
			return true
		}
	}
	return false
}

// Of returns the type of the records, a struct.
func (r *Records) Of() reflect.Type { return r.of }

// In returns the records with instants in a zone; without, they are in UTC.
func (r *Records) In(zone *time.Location) *Records {
	in := *r
	in.zone = zone
	return &in
}

// Names returns the headings.
func (r *Records) Names() []string {
	names := make([]string, len(r.columns))
	for i, c := range r.columns {
		names[i] = c.name
	}
	return names
}

// Each calls each with the cells of a record, or of each record of a slice.
func (r *Records) Each(records any, each func(cells ...string) error) error {
	v := reflect.ValueOf(records)
	if v.Kind() != reflect.Slice {
		cells, err := r.cells(v)
		if err != nil {
			return err
		}
		return each(cells...)
	}
	for i := range v.Len() {
		if err := r.Each(v.Index(i).Interface(), each); err != nil {
			return err
		}
	}
	return nil
}

func (r *Records) cells(v reflect.Value) ([]string, error) {
	if v = reached(v); !v.IsValid() || v.Type() != r.of {
		return nil, fmt.Errorf("a record is a %s, got %v", r.of, v)
	}
	cells := make([]string, len(r.columns))
	for i, c := range r.columns {
		field := v
		for _, n := range c.path {
			if field = reached(field); !field.IsValid() {
				break
			}
			field = field.Field(n)
		}
		text, err := r.cellOf(field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		cells[i] = text
	}
	return cells, nil
}

// reached dereferences pointers and interfaces. It returns the zero Value for nil.
func reached(v reflect.Value) reflect.Value {
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v = v.Elem()
	}
	return v
}

// cellOf renders a value: texts and numbers as they are, an instant as RFC 3339 to the second, a
// list of simple values with commas between them, and anything else as JSON. Null and the zero time
// are empty.
func (r *Records) cellOf(v reflect.Value) (string, error) {
	v = reached(v)
	if !v.IsValid() {
		return "", nil
	}
	value := v.Interface()
	if at, is := value.(time.Time); is {
		if at.IsZero() {
			return "", nil
		}
		return at.In(r.zone).Format(time.RFC3339), nil
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "", err
	}
	var simple []any
	document := strings.TrimSpace(text.String())
	d := json.NewDecoder(strings.NewReader(document))
	d.UseNumber()
	switch {
	case document == "null":
		return "", nil
	case document[0] == '"':
		return unquoted(document)
	case document[0] == '[' && d.Decode(&simple) == nil && !slices.ContainsFunc(simple, compound):
		parts := make([]string, len(simple))
		for i, one := range simple {
			parts[i] = fmt.Sprint(one)
		}
		return strings.Join(parts, ","), nil
	}
	return document, nil
}

func unquoted(document string) (text string, err error) {
	err = json.Unmarshal([]byte(document), &text)
	return text, err
}

// compound reports whether a value of JSON is neither a text nor a number nor a boolean.
func compound(value any) bool {
	switch value.(type) {
	case string, json.Number, bool:
		return false
	}
	return true
}
