package main

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// decodeStrict puts a section, as a file or JSON has it, into the struct that into
// points to, over what it holds. Keys are the fields' mapstructure tags, each written
// exactly so; values convert as those of other settings do. It returns every problem
// at once, each with its key path.
func decodeStrict(path string, section any, into any) error {
	return decodeSection(path, section, reflect.ValueOf(into).Elem())
}

func decodeSection(path string, section any, into reflect.Value) error {
	if section == nil {
		return nil // a section with everything commented out
	}
	given, ok := asSection(section)
	if !ok {
		return fmt.Errorf("%s: must be a section of keys", path)
	}
	fields := make(map[string]reflect.Value)
	gatherFields(into, fields)
	known := slices.Sorted(maps.Keys(fields))
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(given)) {
		field, ok := fields[key]
		if !ok {
			problems = append(problems, fmt.Errorf("%s.%s: unknown key; allowed keys: %s", path, key, strings.Join(known, ", ")))
			continue
		}
		problems = append(problems, decodeValue(path+"."+key, given[key], field))
	}
	return errors.Join(problems...)
}

// gatherFields lists a struct's fields by their key, those of squashed ones included.
func gatherFields(v reflect.Value, fields map[string]reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, option, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		switch {
		case option == "squash":
			gatherFields(v.Field(i), fields)
		case field.IsExported() && name != "-":
			fields[cmp.Or(name, strings.ToLower(field.Name))] = v.Field(i)
		}
	}
}

// asSection returns the keys of a section. Those that YAML reads as numbers, as in
// {404: permanent}, are taken as they are written.
func asSection(data any) (map[string]any, bool) {
	switch data := data.(type) {
	case map[string]any:
		return data, true
	case map[any]any:
		section := make(map[string]any, len(data))
		for key, value := range data {
			section[fmt.Sprint(key)] = value
		}
		return section, true
	}
	return nil, false
}

// errNotText and errNotTexts do not repeat what was given: it may be a secret.
var (
	errNotText  = errors.New("is not text; put it in quotes")
	errNotTexts = errors.New("is not a list of texts; write it as [a, b], numbers in quotes")
)

// decodeValue puts one value into a field. A key without a value keeps the default.
func decodeValue(path string, data any, into reflect.Value) error {
	if data == nil {
		return nil
	}
	if reader, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text, ok := data.(string)
		if !ok {
			return fmt.Errorf("%s: %w", path, errNotText)
		}
		if err := reader.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	_, isText := data.(string)
	switch kind := into.Kind(); {
	case kind == reflect.Interface: // the user's own
		into.Set(reflect.ValueOf(data))
		return nil
	case kind == reflect.String && !isText:
		return fmt.Errorf("%s: %w", path, errNotText)
	case kind == reflect.Struct:
		return decodeSection(path, data, into)
	case kind == reflect.Map:
		return decodeMap(path, data, into)
	case kind == reflect.Slice && into.Type().Elem().Kind() != reflect.String:
		return decodeList(path, data, into)
	}
	value, err := convert(data, into.Type())
	if err != nil && into.Kind() == reflect.Slice {
		err = errNotTexts
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	into.Set(reflect.ValueOf(value).Convert(into.Type()))
	return nil
}

// decodeMap takes a section whose keys are the user's own.
func decodeMap(path string, data any, into reflect.Value) error {
	given, ok := asSection(data)
	if !ok {
		return fmt.Errorf("%s: must be a section of keys", path)
	}
	made := reflect.MakeMapWithSize(into.Type(), len(given))
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(given)) {
		value := reflect.New(into.Type().Elem()).Elem()
		problems = append(problems, decodeValue(path+"."+key, given[key], value))
		made.SetMapIndex(reflect.ValueOf(key).Convert(into.Type().Key()), value)
	}
	into.Set(made)
	return errors.Join(problems...)
}

// decodeList takes a list of anything but texts, for which see convertList.
func decodeList(path string, data any, into reflect.Value) error {
	given, ok := data.([]any)
	if !ok {
		return fmt.Errorf("%s: %v is not a list; write it as [a, b]", path, data)
	}
	made := reflect.MakeSlice(into.Type(), len(given), len(given))
	var problems []error
	for i, item := range given {
		problems = append(problems, decodeValue(fmt.Sprintf("%s[%d]", path, i), item, made.Index(i)))
	}
	into.Set(made)
	return errors.Join(problems...)
}
