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

	"github.com/go-viper/mapstructure/v2"

	"github.com/belfryhq/belfry/internal/keys"
)

// Decode decodes data, as YAML or JSON represent it, into the value that into points to, over its present
// content. The keys of structs are the mapstructure tags of their fields, in exactly that spelling. It
// returns every problem, each with its path.
func Decode(path string, data, into any) error {
	config := strict(into, decodeHook)
	decoder, err := mapstructure.NewDecoder(&config)
	if err != nil {
		return err
	}
	problems := unknownKeys(path, data, reflect.TypeOf(into).Elem())
	return sorted(append(problems, located(path, decoder.Decode(data))...))
}

// strict returns the configuration of a decoder that converts no types and guesses no spelling.
func strict(into any, hook mapstructure.DecodeHookFuncValue) mapstructure.DecoderConfig {
	return mapstructure.DecoderConfig{Result: into, DecodeHook: hook,
		MatchName: func(key, field string) bool { return key == strings.ToLower(field) }}
}

// ParseJSON parses one JSON document and preserves the digits of its numbers.
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

// Section returns the keys of a section. Numeric keys of YAML, as in {404: permanent}, become text.
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

// problem describes a value that cannot be decoded.
type problem struct {
	text   string
	hidden string // replaces text for a value that may be a secret; "" means text
}

func (p *problem) Error() string { return p.text }

func problemf(format string, args ...any) error { return &problem{text: fmt.Sprintf(format, args...)} }

// notText is the problem of a value that is not text.
func notText(data any) error {
	const text = "is not text; put it in quotes"
	return &problem{fmt.Sprintf("%v %s", data, text), text}
}

// located returns the problems of a decoder's error, each with its path. A value in a list of sections may be
// a secret and is not repeated.
func located(path string, err error) []error {
	var where *mapstructure.DecodeError
	switch e := err.(type) { //nolint:errorlint // each layer is unwrapped in its turn
	case nil:
		return nil
	case *mapstructure.DecodeError:
		where = e
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, located(path, one)...)
		}
		return all
	default: // the decoder's wrapper
		return located(path, errors.Unwrap(err))
	}
	at, cause := path+where.Name(), where.Unwrap()
	if name := where.Name(); path != "" && name != "" && name[0] != '[' {
		at = path + "." + name
	}
	var p *problem
	if errors.As(cause, &p) && p.hidden != "" && strings.Contains(at, "[") {
		cause = errors.New(p.hidden)
	}
	return []error{fmt.Errorf("%s: %w", at, cause)}
}

// sorted joins problems in the order of their paths.
func sorted(problems []error) error {
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// unknownKeys reports the keys of sections that no field of t has.
func unknownKeys(path string, data any, t reflect.Type) (problems []error) {
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
	case t.Kind() == reflect.Slice:
		list, _ := data.([]any)
		for i, item := range list {
			problems = append(problems, unknownKeys(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())...)
		}
	case t.Kind() == reflect.Struct:
		known := make(map[string]reflect.Type)
		for _, f := range keys.Fields(reflect.Zero(t)) {
			known[f.Key] = f.Value.Type()
		}
		section, _ := Section(data)
		for key, value := range section {
			if field, ok := known[key]; ok {
				problems = append(problems, unknownKeys(path+"."+key, value, field)...)
				continue
			}
			problems = append(problems,
				fmt.Errorf("%s.%s: unknown key; allowed keys: %s", path, key, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
		}
	}
	return problems
}

// decodeHook decodes leaf values, and checks the shape of sections and lists, which mapstructure then
// traverses. A list or map replaces the default instead of extending it.
func decodeHook(from, to reflect.Value) (any, error) {
	data := from.Interface()
	if reader, ok := to.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text, isText := data.(string)
		if !isText {
			return nil, notText(data)
		}
		return nil, reader.UnmarshalText([]byte(text))
	}
	switch kind := to.Kind(); {
	case kind == reflect.Struct, kind == reflect.Map:
		section, ok := Section(data)
		if !ok {
			return nil, problemf("must be a section of keys")
		}
		if kind == reflect.Map {
			to.SetZero()
		}
		return section, nil
	case kind == reflect.Slice && to.Type().Elem().Kind() == reflect.String:
		return nil, decodeTexts(data, to)
	case kind == reflect.Slice:
		if _, ok := data.([]any); !ok {
			return nil, problemf("%v is not a list; write it as [a, b]", data)
		}
		to.SetZero()
		return data, nil
	}
	return nil, decodeScalar(data, to)
}

// decodeScalar decodes one value. Numbers and booleans may be quoted, as variables have them.
func decodeScalar(data any, into reflect.Value) error {
	text, isText := data.(string)
	written := fmt.Sprint(data)
	switch kind := into.Kind(); {
	case kind == reflect.Interface:
		into.Set(reflect.ValueOf(data))
	case into.Type() == reflect.TypeFor[time.Duration]():
		const unit = "is not a duration; write it with its unit, as 30s, 5m or 1h30m"
		if !isText {
			return problemf("%v %s", data, unit)
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return problemf("%q %s", text, unit)
		}
		into.SetInt(int64(d))
	case kind == reflect.String && isText:
		into.SetString(text)
	case kind == reflect.String:
		return notText(data)
	case kind == reflect.Bool:
		on := strings.EqualFold(written, "true")
		if !on && !strings.EqualFold(written, "false") {
			return problemf("%q is not allowed; allowed values: true, false", written)
		}
		into.SetBool(on)
	case into.CanInt():
		n, err := strconv.ParseInt(written, 10, 64)
		if err != nil || into.OverflowInt(n) {
			return problemf("%q is not a whole number", written)
		}
		into.SetInt(n)
	case into.CanFloat():
		f, err := strconv.ParseFloat(written, 64)
		if err != nil {
			return problemf("%q is not a number", written)
		}
		into.SetFloat(f)
	default:
		return problemf("settings of type %s are not supported", into.Type())
	}
	return nil
}

// decodeTexts decodes a list of texts, or one text with commas.
func decodeTexts(data any, into reflect.Value) error {
	const texts = "is not a list of texts; write it as [a, b], numbers in quotes"
	made := reflect.MakeSlice(into.Type(), 0, 0)
	add := func(text string) { made = reflect.Append(made, reflect.ValueOf(text).Convert(into.Type().Elem())) }
	switch data := data.(type) {
	case string:
		for text := range strings.SplitSeq(data, ",") {
			if text = strings.TrimSpace(text); text != "" {
				add(text)
			}
		}
	case []any:
		for _, one := range data {
			text, ok := one.(string)
			if !ok {
				return &problem{notText(one).Error(), texts}
			}
			add(text)
		}
	default:
		return &problem{fmt.Sprintf("%v is not a list; write it as [a, b]", data), texts}
	}
	into.Set(made)
	return nil
}
