package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/go-viper/mapstructure/v2"

	"github.com/belfryhq/belfry/job/schedule"
)

// convertSchedules takes the list of a file, or the JSON of one from a variable.
// Nothing of it passes through viper, which would lower the case of keys in
// template.data.
func convertSchedules(data any) (any, error) {
	items, err := listOfSections(data, `[{"name": …, "cron": …, "template": {…}}]`, "schedules, each with name, cron or every, and template")
	if err != nil {
		return nil, err
	}
	list := []schedule.Definition{}
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: &list, ErrorUnused: true, DecodeHook: noFractions,
		MatchName: func(key, field string) bool { return key == field },
	})
	if err != nil {
		return nil, err
	}
	if err := decoder.Decode(items); err != nil {
		return nil, fmt.Errorf("%s", scheduleProblem(err))
	}
	return list, nil
}

// listOfSections takes the list of a file, or the JSON of one from a variable: form is
// how to write it, what says of what it is.
func listOfSections(data any, form, what string) ([]any, error) {
	if text, ok := data.(string); ok {
		var parsed any
		if err := exactJSON([]byte(text), &parsed); err != nil {
			return nil, fmt.Errorf("is not JSON (%w); write it as %s", err, form)
		}
		data = parsed
	}
	list, ok := data.([]any)
	if !ok {
		return nil, fmt.Errorf("must be a list of %s", what)
	}
	return list, nil
}

// exactJSON parses one JSON document and keeps the digits of its numbers.
func exactJSON(text []byte, into any) error {
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

// noFractions refuses what would be cut off.
func noFractions(_, to reflect.Type, data any) (any, error) {
	if f, ok := data.(float64); ok && to.Kind() == reflect.Int && f != math.Trunc(f) {
		return nil, fmt.Errorf("%v is not a whole number", f)
	}
	return data, nil
}

// scheduleProblem is the decoder's errors on one line, each with its path.
func scheduleProblem(err error) string {
	var lines []string
	for _, one := range flatten(err) {
		for line := range strings.SplitSeq(one.Error(), "\n") {
			line = strings.TrimPrefix(strings.TrimSpace(line), "* ")
			if line == "" || strings.HasPrefix(line, "decoding failed") {
				continue
			}
			if path, problem, ok := strings.Cut(strings.TrimPrefix(line, "'"), "' "); ok {
				if keys, unknown := strings.CutPrefix(problem, "has invalid keys: "); unknown {
					problem = "unknown keys " + keys + "; allowed keys: " + strings.Join(scheduleKeys(path), ", ")
				}
				line = path + ": " + problem
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// scheduleKeys lists the keys of a definition, or of its template.
func scheduleKeys(path string) []string {
	of := reflect.TypeFor[schedule.Definition]()
	if strings.HasSuffix(path, ".template") {
		of = reflect.TypeFor[schedule.Template]()
	}
	keys := make([]string, 0, of.NumField())
	for i := range of.NumField() {
		keys = append(keys, of.Field(i).Tag.Get("mapstructure"))
	}
	return keys
}

// validateSchedules reports every problem of every schedule.
func validateSchedules(list []schedule.Definition) []error {
	var errs []error
	first := make(map[string]int)
	for i, d := range list {
		prefix := fmt.Sprintf("schedules[%d]", i)
		errs = append(errs, d.Validate(prefix))
		if at, twice := first[d.Name]; twice && d.Name != "" {
			errs = append(errs, fmt.Errorf("%s.name: %q is given twice, first in schedules[%d]; allowed values: different names", prefix, d.Name, at))
			continue
		}
		first[d.Name] = i
	}
	return errs
}

// scheduleNames lists the names of definitions.
func scheduleNames(list []schedule.Definition) []string {
	names := make([]string, 0, len(list))
	for _, d := range list {
		names = append(names, d.Name)
	}
	return names
}
