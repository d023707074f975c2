// Package keys lists the keys of a configuration struct, from the mapstructure tags of its fields. It
// knows no source of values; internal/config reads these.
package keys

import (
	"cmp"
	"reflect"
	"strings"
)

// VariablePrefix begins the name of every environment variable.
const VariablePrefix = "BELFRY_"

// Key is one setting.
type Key struct {
	Name     string // dotted: runner.stale_after
	Variable string // BELFRY_RUNNER_STALE_AFTER
	Value    any    // of the struct

	Field reflect.Value // its field in the struct
}

// Of lists every setting of a struct, or of a pointer to one, in the order of its fields.
func Of(of any) []Key {
	return list("", reflect.Indirect(reflect.ValueOf(of)))
}

func list(prefix string, section reflect.Value) (all []Key) {
	for _, f := range Fields(section) {
		name := prefix + f.Key
		if f.Value.Kind() == reflect.Struct {
			all = append(all, list(name+".", f.Value)...)
			continue
		}
		variable := VariablePrefix + cmp.Or(f.Variable, strings.ToUpper(strings.ReplaceAll(name, ".", "_")))
		all = append(all, Key{name, variable, f.Value.Interface(), f.Value})
	}
	return all
}

// Field is a field of a section.
type Field struct {
	Key      string
	Value    reflect.Value
	Variable string // without VariablePrefix; empty if it follows from the key
}

// Fields lists the fields of a struct, including the fields of squashed structs.
func Fields(section reflect.Value) (list []Field) {
	for i := range section.NumField() {
		field := section.Type().Field(i)
		tag, option, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		switch {
		case option == "squash":
			list = append(list, Fields(section.Field(i))...)
		case field.IsExported() && tag != "-":
			list = append(list, Field{cmp.Or(tag, strings.ToLower(field.Name)), section.Field(i), field.Tag.Get("variable")})
		}
	}
	return list
}

// Flatten returns the errors that err joins. Only its outermost layers are joins.
func Flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Flatten(e)...)
	}
	return all
}
