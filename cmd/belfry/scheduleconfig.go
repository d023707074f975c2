package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/belfryhq/belfry/job/schedule"
)

// convertSchedules takes the list of a file, or the JSON of one from a variable.
// Nothing of it passes through viper, which would lower the case of keys in
// template.data. It returns every schedule as far as it can be used, with every
// problem.
func convertSchedules(data any) (any, error) {
	items, err := sectionsOf(reflect.TypeFor[[]schedule.Definition](), data)
	if err != nil {
		return nil, err
	}
	list := make([]schedule.Definition, len(items))
	problems := make([]error, len(items))
	for i, item := range items {
		problems[i] = decodeStrict(fmt.Sprintf("schedules[%d]", i), item, &list[i])
	}
	return list, errors.Join(problems...)
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
