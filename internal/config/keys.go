package config

import (
	"cmp"
	"reflect"
	"strings"
)

// Key is one setting.
type Key struct {
	Name     string // dotted: runner.stale_after
	Variable string // BELFRY_RUNNER_STALE_AFTER
	Value    any    // of the struct

	field reflect.Value
}

// Keys lists every setting of a struct, or a pointer to one, in the order of its fields.
func Keys(of any) []Key {
	return keys("", reflect.Indirect(reflect.ValueOf(of)))
}

func keys(prefix string, section reflect.Value) (list []Key) {
	for _, f := range Fields(section) {
		name := prefix + f.Key
		if f.Value.Kind() == reflect.Struct {
			list = append(list, keys(name+".", f.Value)...)
			continue
		}
		variable := variablePrefix + cmp.Or(f.Variable, strings.ToUpper(strings.ReplaceAll(name, ".", "_")))
		list = append(list, Key{name, variable, f.Value.Interface(), f.Value})
	}
	return list
}

// Field is a field of a section by its key there.
type Field struct {
	Key      string
	Value    reflect.Value
	Variable string // its variable, without BELFRY_, where that is not its key
}

// Fields lists the fields of a struct, those of squashed ones included.
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
