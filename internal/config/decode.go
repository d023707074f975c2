package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/keys"
)

// Decode decodes data of a file or of JSON into the value at into, over its present content. The keys of
// structs are their fields' mapstructure tags, each written exactly so. It returns every problem at once,
// each with its path.
func Decode(path string, data any, into any) error {
	return decodeValue(path, data, reflect.ValueOf(into).Elem())
}

// ParseJSON parses one JSON document and keeps the digits of its numbers.
func ParseJSON(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// Section returns the keys of a section. Those that YAML reads as numbers, as in
// {404: permanent}, are taken as they are written.
func Section(data any) (map[string]any, bool) {
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

// The short forms do not repeat the value.
var (
	errNotText  = errors.New("is not text; put it in quotes")
	errNotTexts = errors.New("is not a list of texts; write it as [a, b], numbers in quotes")
)

// decodeValue puts one value into a field. A key without a value keeps the default.
func decodeValue(path string, data any, into reflect.Value) error {
	var err error
	secret := strings.Contains(path, "[") // in a list of sections it may be one in the wrong place
	kind := into.Kind()
	if _, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		kind = reflect.String // whatever it is, it is written as text
	}
	switch {
	case data == nil:
		return nil
	case kind == reflect.Struct:
		return decodeSection(path, data, into)
	case kind == reflect.Map:
		return decodeMap(path, data, into)
	case kind == reflect.Slice && into.Type().Elem().Kind() != reflect.String:
		return decodeList(path, data, into)
	case kind == reflect.Slice:
		if err = decodeTexts(data, into); err != nil && secret {
			err = errNotTexts
		}
	default:
		if err = decodeScalar(data, into); errors.Is(err, errNotText) && !secret {
			err = fmt.Errorf("%v %w", data, err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// decodeScalar takes one value. A quoted number is a number only where it came as text.
func decodeScalar(data any, into reflect.Value) error {
	text, isText := data.(string)
	written := fmt.Sprint(data)
	if reader, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if !isText {
			return errNotText
		}
		return reader.UnmarshalText([]byte(text))
	}
	switch kind := into.Kind(); {
	case kind == reflect.Interface: // the user's own
		into.Set(reflect.ValueOf(data))
	case into.Type() == reflect.TypeFor[time.Duration]():
		const unit = "is not a duration; write it with its unit, as 30s, 5m or 1h30m"
		if !isText {
			return fmt.Errorf("%v %s", data, unit)
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q %s", text, unit)
		}
		into.SetInt(int64(d))
	case kind == reflect.String:
		if !isText {
			return errNotText
		}
		into.SetString(text)
	case kind == reflect.Bool:
		on := strings.EqualFold(written, "true")
		if !on && !strings.EqualFold(written, "false") {
			return fmt.Errorf("%q is not allowed; allowed values: true, false", written)
		}
		into.SetBool(on)
	case into.CanInt():
		n, err := strconv.ParseInt(written, 10, 64)
		if err != nil || into.OverflowInt(n) {
			return fmt.Errorf("%q is not a whole number", written)
		}
		into.SetInt(n)
	case into.CanFloat():
		f, err := strconv.ParseFloat(written, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", written)
		}
		into.SetFloat(f)
	default:
		return fmt.Errorf("settings of type %s are not supported", into.Type())
	}
	return nil
}

// decodeTexts takes a list of texts, or one text with commas.
func decodeTexts(data any, into reflect.Value) error {
	var texts []string
	switch data := data.(type) {
	case string:
		for text := range strings.SplitSeq(data, ",") {
			if text = strings.TrimSpace(text); text != "" {
				texts = append(texts, text)
			}
		}
	case []any:
		for _, one := range data {
			text, ok := one.(string)
			if !ok {
				return fmt.Errorf("%v %w", one, errNotText)
			}
			texts = append(texts, text)
		}
	default:
		return fmt.Errorf("%v is not a list; write it as [a, b]", data)
	}
	made := reflect.MakeSlice(into.Type(), len(texts), len(texts))
	for i, text := range texts {
		made.Index(i).SetString(text)
	}
	into.Set(made)
	return nil
}

// decodeSection takes the keys of a struct.
func decodeSection(path string, data any, into reflect.Value) error {
	given, ok := Section(data)
	if !ok {
		return fmt.Errorf("%s: must be a section of keys", path)
	}
	fields := make(map[string]reflect.Value)
	for _, f := range keys.Fields(into) {
		fields[f.Key] = f.Value
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(given)) {
		field, ok := fields[key]
		if !ok {
			allowed := strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
			problems = append(problems, fmt.Errorf("%s.%s: unknown key; allowed keys: %s", path, key, allowed))
			continue
		}
		problems = append(problems, decodeValue(path+"."+key, given[key], field))
	}
	return errors.Join(problems...)
}

// decodeMap takes a section whose keys are the user's own.
func decodeMap(path string, data any, into reflect.Value) error {
	given, ok := Section(data)
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

// decodeList decodes a list of anything except texts. Unusable elements stay empty.
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
