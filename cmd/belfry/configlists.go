package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfryhq/belfry/job/schedule"
)

// A setting that is a list of sections, such as senders, adds up over the files: a
// section with the name of one in an earlier file takes its place.

// listItem is one section of such a list.
type listItem struct {
	value any
	from  source
	file  string
}

// sectionsOf takes the list of a file, or the JSON of one from a variable, apart.
func sectionsOf(t reflect.Type, data any) ([]any, error) {
	if t == reflect.TypeFor[[]schedule.Definition]() {
		return listOfSections(data, `[{"name": …, "cron": …, "template": {…}}]`, "schedules, each with name, cron or every, and template")
	}
	return listOfSections(data, `[{"name": …, "kind": …, …}]`, "senders, each with name, kind and the settings of its kind")
}

// keepItems adds the sections of one file to those of the files before.
func (f *fileChecker) keepItems(key configKey, from source, node *yaml.Node, value any) {
	items, err := sectionsOf(key.Type, value)
	if err != nil {
		f.problem(from, "%s: %s", key.Name, err)
		return
	}
	if len(items) > 0 && len(f.lists[key.Name]) > 0 {
		from.name = f.sources[key.Name].name + ", " + from.name
	}
	if len(items) > 0 || f.sources[key.Name].kind == sourceDefault {
		f.sources[key.Name] = from
	}
	for i, item := range items {
		at := from
		if node.Kind == yaml.SequenceNode {
			at = f.at(node.Content[i])
		}
		f.addItem(key.Name, listItem{item, at, f.name})
	}
}

func (l *loader) addItem(list string, item listItem) {
	same := slices.IndexFunc(l.lists[list], func(before listItem) bool {
		return before.file != item.file && nameOf(before.value) != "" && nameOf(before.value) == nameOf(item.value)
	})
	if same >= 0 {
		l.lists[list][same] = item
		return
	}
	l.lists[list] = append(l.lists[list], item)
}

// nameOf is a section's name, or "".
func nameOf(item any) string {
	section, _ := asSection(item)
	name, _ := section["name"].(string)
	return name
}

// takeLists gives viper the lists of all files, as far as they can be used.
func (l *loader) takeLists() {
	for _, key := range configKeys() {
		items := l.lists[key.Name]
		if len(items) == 0 {
			continue
		}
		values := make([]any, len(items))
		for i, item := range items {
			values[i] = item.value
			l.sources[fmt.Sprintf("%s[%d]", key.Name, i)] = item.from
		}
		list, err := convert(values, key.Type)
		if err != nil {
			l.misfit(key.Name, err)
		}
		if err := l.viper.MergeConfigMap(map[string]any{key.Name: list}); err != nil {
			l.problem(l.sources[key.Name], "%s: %s", key.Name, err)
		}
	}
}

// replaced notes that a setting comes from elsewhere than the files: so do its sections.
func (l *loader) replaced(key string, from source) {
	maps.DeleteFunc(l.sources, func(name string, _ source) bool { return strings.HasPrefix(name, key+"[") })
	l.sources[key] = from
}
