package main

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/belfryhq/belfry/job/schedule"
)

// configKey is one setting.
type configKey struct {
	Name     string // dotted: runner.stale_after
	Variable string // BELFRY_RUNNER_STALE_AFTER
	Type     reflect.Type
	Default  any
}

// configKeys lists every setting, in the order of the structs.
func configKeys() []configKey {
	return structKeys("", reflect.ValueOf(defaultConfig()))
}

func structKeys(prefix string, v reflect.Value) []configKey {
	var keys []configKey
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		tag, option, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		if tag == "-" {
			continue // no setting
		}
		if option == "squash" {
			keys = append(keys, structKeys(prefix, v.Field(i))...)
			continue
		}
		name := prefix + cmp.Or(tag, strings.ToLower(field.Name))
		if field.Type.Kind() == reflect.Struct {
			keys = append(keys, structKeys(name+".", v.Field(i))...)
			continue
		}
		keys = append(keys, configKey{
			Name:     name,
			Variable: variablePrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "_")),
			Type:     field.Type,
			Default:  v.Field(i).Interface(),
		})
	}
	return keys
}

// convert turns a value from a file, a variable or a flag into type t. It is
// strict: a number is no duration, a quoted number is a number only where it
// came as text, nothing is rounded or guessed.
func convert(data any, t reflect.Type) (any, error) {
	if data == nil || reflect.TypeOf(data) == t {
		return data, nil
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return convertDuration(data)
	case t == reflect.TypeFor[[]schedule.Definition]():
		return convertSchedules(data)
	case t == reflect.TypeFor[senderList]():
		return convertSenders(data)
	case t.Kind() == reflect.String:
		if s, ok := data.(string); ok {
			return reflect.ValueOf(s).Convert(t).Interface(), nil
		}
		return nil, fmt.Errorf("%v is not text; put it in quotes", data)
	case t.Kind() == reflect.Bool:
		switch strings.ToLower(fmt.Sprint(data)) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, fmt.Errorf("%q is not allowed; allowed values: true, false", fmt.Sprint(data))
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return convertList(data)
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		n, err := strconv.ParseInt(fmt.Sprint(data), 10, 64)
		if err != nil || reflect.Zero(t).CanInt() && reflect.Zero(t).OverflowInt(n) {
			return nil, fmt.Errorf("%q is not a whole number", fmt.Sprint(data))
		}
		return reflect.ValueOf(n).Convert(t).Interface(), nil
	case t.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(fmt.Sprint(data), 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", fmt.Sprint(data))
		}
		return f, nil
	}
	return nil, fmt.Errorf("settings of type %s are not supported", t)
}

// isSections reports whether a setting is a list of sections, such as schedules.
func isSections(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

func convertDuration(data any) (any, error) {
	text, ok := data.(string)
	if !ok {
		return nil, fmt.Errorf("%v is not a duration; write it with its unit, as 30s, 5m or 1h30m", data)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a duration; write it with its unit, as 30s, 5m or 1h30m", text)
	}
	return d, nil
}

// convertList takes a list of texts, or one text with commas.
func convertList(data any) (any, error) {
	list := []string{}
	switch data := data.(type) {
	case string:
		for item := range strings.SplitSeq(data, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
		return list, nil
	case []any:
		for _, item := range data {
			text, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("%v is not text; put it in quotes", item)
			}
			list = append(list, text)
		}
		return list, nil
	}
	return nil, fmt.Errorf("%v is not a list; write it as [a, b]", data)
}

// compareNatural orders texts with the numbers in them by value, so that line 9
// comes before line 10.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		na, restA := leadingNumber(a)
		nb, restB := leadingNumber(b)
		if na != "" && nb != "" {
			if c := cmp.Or(cmp.Compare(len(na), len(nb)), cmp.Compare(na, nb)); c != 0 {
				return c
			}
			a, b = restA, restB
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingNumber(s string) (digits, rest string) {
	end := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsDigit(r) })
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:]
}
