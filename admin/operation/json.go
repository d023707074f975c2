package operation

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
)

// Shape describes the values of a parameter in JSON.
type Shape struct {
	// Types are types of JSON Schema: string, integer, number, boolean, object.
	Types []string
	// List means an array of such values.
	List bool
	// Nullable means that null resets the value.
	Nullable bool
	// Choices are the allowed texts; empty means any text.
	Choices []string
	// Low and High are the range of a number; nil means no limit.
	Low, High *float64
}

// Shape returns the shape of the parameter's values.
func (p Param) Shape(in any) Shape {
	v := p.element(p.field(reflect.ValueOf(in).Elem()).Type())
	s := Shape{Types: jsonTypes(v), Nullable: p.Place == Key && len(p.reset) > 0, Choices: p.choices}
	_, s.List = p.list(p.field(reflect.ValueOf(in).Elem()).Type())
	if !math.IsInf(p.low, 0) {
		s.Low = &p.low
	}
	if !math.IsInf(p.high, 0) {
		s.High = &p.high
	}
	return s
}

// list unwraps pointers and a Change, and reports whether the rest is a list.
func (p Param) list(t reflect.Type) (reflect.Type, bool) {
	if c, is := reflect.New(t).Interface().(changing); is {
		t = c.value().Type()
	}
	t = pointed(t)
	return t, t.Kind() == reflect.Slice && !texts(t)
}

// element returns the type of one value.
func (p Param) element(t reflect.Type) reflect.Type {
	t, isList := p.list(t)
	if isList {
		return p.element(t.Elem())
	}
	return t
}

// texts reports whether a type implements encoding.TextUnmarshaler.
func texts(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// objectValue is a value that is an object in JSON, which is also its text.
type objectValue interface{ IsObject() }

// arrayValue is a value that is an array of objects in JSON, which is also its text. The objects have the
// fields of an operation.
type arrayValue interface{ Each() Operation }

// Each returns the operation whose fields the objects of an array have. It returns false for other
// parameters.
func (p Param) Each(in any) (Operation, bool) {
	list, is := p.field(reflect.ValueOf(in).Elem()).Interface().(arrayValue)
	if !is {
		return Operation{}, false
	}
	return list.Each(), true
}

// jsonTypes returns the JSON types of a value.
func jsonTypes(t reflect.Type) []string {
	switch {
	case t.Implements(reflect.TypeFor[objectValue]()):
		return []string{"object"}
	case t.Implements(reflect.TypeFor[arrayValue]()):
		return []string{"array"}
	case texts(t) && t.Kind() == reflect.Float64: // a share is 0.5 or "50%"
		return []string{"number", "string"}
	case texts(t):
		return []string{"string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return []string{"boolean"}
	case reflect.Int, reflect.Int64:
		return []string{"integer"}
	case reflect.Float64:
		return []string{"number"}
	}
	return []string{"string"}
}

// JSON returns the parameter's value in the form of SetJSON, which depends on no time zone. It returns nil
// for the default.
func (p Param) JSON(in any, o Operation) (json.RawMessage, error) {
	value := p.field(reflect.ValueOf(in).Elem()).Interface()
	if reflect.DeepEqual(value, p.field(reflect.ValueOf(o.NewInput()).Elem()).Interface()) {
		return nil, nil
	}
	raw, err := json.Marshal(value)
	if own := new(json.MarshalerError); errors.As(err, &own) {
		err = own.Err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return raw, nil
}

// SetJSON sets the parameter from JSON. The error contains the allowed values.
func (p Param) SetJSON(in any, raw json.RawMessage) error {
	if halved(raw) {
		return errHalf
	}
	field, shape := p.field(reflect.ValueOf(in).Elem()), p.Shape(in)
	raw = bytes.TrimSpace(raw)
	c, isChange := field.Addr().Interface().(changing)
	switch {
	case string(raw) == "null" && shape.Nullable:
		c.clear()
		return nil
	case !shape.List:
		text, err := p.jsonText(raw, shape)
		if err != nil {
			return err
		}
		return p.set(reflect.ValueOf(in).Elem(), text)
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil || items == nil {
		return fmt.Errorf("%s is not allowed; allowed values: arrays of %ss", text.OneLine(string(raw), 60), strings.Join(shape.Types, " or "))
	}
	v := field
	if isChange {
		v = c.value()
	}
	one := p
	one.Place = Argument // a comma does not separate values
	for _, item := range items {
		text, err := p.jsonText(item, shape)
		if err == nil {
			err = one.appendTo(v, text)
		}
		if err == nil {
			continue
		}
		if isChange {
			c.forget()
		} else {
			v.SetZero()
		}
		return err
	}
	return nil
}

// jsonText returns a JSON value as text for the command line.
func (p Param) jsonText(raw json.RawMessage, shape Shape) (string, error) {
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return "", fmt.Errorf("is not JSON: %w", err)
	}
	for _, kind := range shape.Types {
		switch v := value.(type) {
		case string:
			if kind == "string" {
				return v, nil
			}
		case bool:
			if kind == "boolean" {
				return fmt.Sprint(v), nil
			}
		case []any:
			if kind == "array" {
				return string(raw), nil
			}
		case map[string]any:
			if kind == "object" {
				return string(raw), nil
			}
		case json.Number:
			if kind == "number" || kind == "integer" {
				return v.String(), nil
			}
		}
	}
	allowed := strings.Join(shape.Types, " or ") + "s"
	switch {
	case shape.Types[0] == "integer" && !p.Repeated:
		allowed = "whole numbers" + p.span()
	case shape.Types[0] == "boolean":
		allowed = "true, false"
	}
	err := p.notAllowed(allowed)
	if shape.Nullable && p.Allowed == "" {
		err = errors.New(err.Error() + ", or null")
	}
	return "", fmt.Errorf("%s is not allowed; %w", text.OneLine(string(raw), 60), err)
}
