package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfryhq/belfry/internal/keys"
)

// readFiles lays the files over each other and notes their names. A file that was named
// must exist.
func (l *loader) readFiles(fromFlag []string, fromVariable string) {
	names, from := fromFlag, "--config" // a wrong file is a wrong configuration
	if info, err := os.Stat(DefaultFile); len(names) == 0 && fromVariable != "" {
		names, from = []string{fromVariable}, FileVariable
	} else if len(names) == 0 && err == nil && !info.IsDir() {
		names, from = []string{DefaultFile}, DefaultFile
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			l.problem(Source{FromFile, from}, "%s", ReadProblem(name, err))
			continue
		}
		l.Files = append(l.Files, name)
		f := file{loader: l, name: name}
		var document yaml.Node
		if err := yaml.Unmarshal(text, &document); err != nil {
			f.yamlProblems("not YAML", err)
		} else if len(document.Content) > 0 { // else it is empty, or comments only
			if err := l.tree.MergeConfigMap(f.section("", document.Content[0])); err != nil {
				l.problem(Source{FromFile, name}, "%s", err)
			}
		}
	}
}

// ReadProblem returns the reason why a file cannot be read.
func ReadProblem(name string, err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Sprintf("%s: %s", name, p.Err)
	}
	return err.Error()
}

// file compares a file with the known keys, line by line, and retains the well-formed lines.
// viper by itself would take Runner for runner, skip an empty section, and name no line.
type file struct {
	*loader

	name string
}

func (f file) at(node *yaml.Node) Source {
	return Source{FromFile, fmt.Sprintf("%s:%d", f.name, node.Line)}
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// yamlProblems reports each line that is no YAML.
func (f file) yamlProblems(what string, err error) {
	texts := []string{err.Error()}
	var list *yaml.TypeError
	if errors.As(err, &list) {
		texts = list.Errors
	}
	for _, text := range texts {
		where := f.name
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			where, text = where+":"+m[1], text[len(m[0]):]
		}
		f.problem(Source{FromFile, where}, "%s: %s", what, strings.TrimPrefix(text, "yaml: "))
	}
}

// section returns the known keys of a section, in viper's form. prefix is "" or ends in a dot.
func (f file) section(prefix string, node *yaml.Node) map[string]any {
	values, seen := make(map[string]any), make(map[string]int)
	if isNull(node) {
		return values // a section with everything commented out
	}
	if node.Kind != yaml.MappingNode {
		name := strings.TrimSuffix(prefix, ".")
		if name == "" {
			name = "the file"
		}
		f.problem(f.at(node), "%s: must be a section of keys", name)
		return values
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		if line, ok := seen[name]; ok {
			f.problem(f.at(key), "%s: given twice, first in line %d", name, line)
			continue
		}
		seen[name] = key.Line
		for value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		known, ok := f.known[name]
		switch {
		case !ok:
			f.problem(f.at(key), "%s: unknown key%s", name, keys.Hint(name, f.names))
		case known == nil:
			values[key.Value] = f.section(name+".", value)
		default:
			if given := f.value(*known, f.at(key), value); given != nil {
				values[key.Value] = given
			}
		}
	}
	return values
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

// value returns the value of a key that stands at from; nil: none that can be used.
func (f file) value(key keys.Key, from Source, node *yaml.Node) *leaf {
	isList := key.Field.Kind() == reflect.Slice
	switch {
	case node.Kind == yaml.MappingNode && isList:
		f.problem(f.at(node), "%s: must be a list, not a section", key.Name)
		return nil
	case node.Kind == yaml.MappingNode:
		f.problem(f.at(node), "%s: must be a value, not a section", key.Name)
		return nil
	case node.Kind == yaml.SequenceNode && !isList:
		f.problem(f.at(node), "%s: must be one value, not a list", key.Name)
		return nil
	case isNull(node):
		return nil // it means the default
	case isSections(key.Field.Type()):
		return f.items(key.Name, from, node)
	}
	given := &leaf{key: key.Name, from: from}
	if err := node.Decode(&given.value); err != nil {
		f.yamlProblems(key.Name, err)
		return nil
	}
	given.value = f.located(key.Name, given.value)
	return given
}

// located returns the value of a key with the names of files in it, whose keys end in _file, relative to
// the directory of this file: a daemon is started elsewhere than a shell.
func (f file) located(key string, value any) any {
	switch v := value.(type) {
	case string:
		if strings.HasSuffix(key, "_file") && v != "" && !filepath.IsAbs(v) {
			return filepath.Join(filepath.Dir(f.name), v)
		}
	case map[string]any:
		for k, inner := range v {
			v[k] = f.located(k, inner)
		}
	}
	return value
}

// items adds the sections of a list to the sections of earlier files. One with the name of an
// earlier file's takes its place.
func (f file) items(list string, from Source, node *yaml.Node) *leaf {
	given, added := &leaf{key: list, from: from, items: []item{}}, f.added(list, from, node)
	if before, ok := f.tree.Get(list).(*leaf); ok {
		given.items = before.items
		switch {
		case len(added) == 0:
			given.from = before.from
		case len(before.items) > 0:
			given.from.Name = before.from.Name + ", " + from.Name
		}
	}
	for _, one := range added {
		same := slices.IndexFunc(given.items, func(before item) bool {
			return before.file != one.file && nameOf(before.value) != "" && nameOf(before.value) == nameOf(one.value)
		})
		if same >= 0 {
			given.items[same] = one
			continue
		}
		given.items = append(given.items, one)
	}
	return given
}

// added lists the sections of one file's list, which may be written as JSON.
func (f file) added(list string, from Source, node *yaml.Node) (added []item) {
	if node.Kind != yaml.SequenceNode {
		var value any
		if err := node.Decode(&value); err != nil {
			f.yamlProblems(list, err)
			return nil
		}
		sections, err := f.sections(list, value)
		if err != nil {
			f.problem(from, "%s", err)
		}
		for _, section := range sections {
			added = append(added, item{f.located("", section), from, f.name})
		}
		return added
	}
	for _, section := range node.Content {
		one := item{from: f.at(section), file: f.name}
		if err := section.Decode(&one.value); err != nil {
			f.yamlProblems(list, err)
			continue
		}
		one.value = f.located("", one.value)
		added = append(added, one)
	}
	return added
}

// nameOf is a section's name, or "".
func nameOf(section any) string {
	keys, _ := Section(section)
	name, _ := keys["name"].(string)
	return name
}
