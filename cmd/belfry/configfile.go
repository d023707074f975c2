package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readFiles reads the configuration files into viper, the later over the earlier, and
// returns their names. A file that was named must exist.
func (l *loader) readFiles(fromFlag []string, fromVariable string) []string {
	names, from := fromFlag, source{sourceFlag, "--config"}
	switch {
	case len(fromFlag) > 0:
	case fromVariable != "":
		names, from = []string{fromVariable}, source{sourceEnv, fileVariable}
	case fileExists(defaultFile):
		names, from = []string{defaultFile}, source{sourceFile, defaultFile}
	}
	var read []string
	for _, name := range names {
		if l.readFile(name, from) {
			read = append(read, name)
		}
	}
	l.takeLists()
	return read
}

// readFile reads one file, which from named. It reports whether there is one.
func (l *loader) readFile(name string, from source) bool {
	text, err := os.ReadFile(name)
	if err != nil {
		if from.kind == sourceFlag { // a wrong file is a wrong configuration, whoever named it
			from.kind = sourceEnv
		}
		l.problem(from, "%s", readProblem(name, err))
		return false
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		l.yamlProblems(name, err)
		return true
	}
	if len(document.Content) == 0 {
		return true // empty, or comments only
	}
	f := fileChecker{loader: l, name: name, keys: make(map[string]configKey), values: make(map[string]any)}
	for _, k := range configKeys() {
		f.keys[k.Name] = k
	}
	f.check("", document.Content[0])
	if err := l.viper.MergeConfigMap(f.values); err != nil {
		l.problem(source{sourceFile, name}, "%s", err)
	}
	return true
}

func readProblem(name string, err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Sprintf("%s: %s", name, p.Err)
	}
	return err.Error()
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// yamlProblems reports each line that is no YAML.
func (l *loader) yamlProblems(name string, err error) {
	texts := []string{err.Error()}
	var list *yaml.TypeError
	if errors.As(err, &list) {
		texts = list.Errors
	}
	for _, text := range texts {
		where := name
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			where, text = name+":"+m[1], text[len(m[0]):]
		}
		l.problem(source{sourceFile, where}, "not YAML: %s", strings.TrimPrefix(text, "yaml: "))
	}
}

// fileChecker compares a file with the known keys, line by line, and keeps what
// is well-formed. viper by itself would take Runner for runner, skip an
// empty section, and name no line.
type fileChecker struct {
	*loader

	name   string
	keys   map[string]configKey
	values map[string]any // nested, as viper takes it
}

// check walks a section. prefix is "" or ends in a dot.
func (f *fileChecker) check(prefix string, node *yaml.Node) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return // a section with everything commented out
	}
	if node.Kind != yaml.MappingNode {
		f.problem(f.at(node), "%s: must be a section of keys", strings.TrimSuffix(orFile(prefix), "."))
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		if line, ok := seen[name]; ok {
			f.problem(f.at(key), "%s: given twice, first in line %d", name, line)
			continue
		}
		seen[name] = key.Line
		f.checkKey(name, key, value)
	}
}

func (f *fileChecker) checkKey(name string, key, value *yaml.Node) {
	known, isKey := f.keys[name]
	switch {
	case isKey && value.Kind == yaml.MappingNode && known.Type.Kind() == reflect.Slice:
		f.problem(f.at(value), "%s: must be a list, not a section", name)
	case isKey && value.Kind == yaml.MappingNode:
		f.problem(f.at(value), "%s: must be a value, not a section", name)
	case isKey && value.Kind == yaml.SequenceNode && known.Type.Kind() != reflect.Slice:
		f.problem(f.at(value), "%s: must be one value, not a list", name)
	case isKey && value.Tag == "!!null":
		// A key without a value means the default.
	case isKey:
		f.keep(name, key, value)
	case f.isSection(name):
		f.check(name+".", value)
	default:
		f.problem(f.at(key), "%s: unknown key%s", name, didYouMean(name, f.names()))
	}
}

// keep notes the value of a known key and where it was given.
func (f *fileChecker) keep(name string, key, node *yaml.Node) {
	var value any
	if err := node.Decode(&value); err != nil {
		f.problem(f.at(node), "%s: %s", name, err)
		return
	}
	if known := f.keys[name]; isSections(known.Type) {
		f.keepItems(known, f.at(key), node, value)
		return
	}
	f.sources[name] = f.at(key)
	section, parts := f.values, strings.Split(name, ".")
	for _, part := range parts[:len(parts)-1] {
		inner, ok := section[part].(map[string]any)
		if !ok {
			inner = make(map[string]any)
			section[part] = inner
		}
		section = inner
	}
	section[parts[len(parts)-1]] = value
}

func (f *fileChecker) at(node *yaml.Node) source {
	return source{sourceFile, fmt.Sprintf("%s:%d", f.name, node.Line)}
}

func (f *fileChecker) isSection(name string) bool {
	for k := range f.keys {
		if strings.HasPrefix(k, name+".") {
			return true
		}
	}
	return false
}

// names lists keys and their sections, which may be what was misspelt.
func (f *fileChecker) names() []string {
	var names []string
	for _, k := range configKeys() {
		names = append(names, k.Name)
		for i, r := range k.Name {
			if r == '.' {
				names = append(names, k.Name[:i])
			}
		}
	}
	return names
}

func orFile(prefix string) string {
	if prefix == "" {
		return "the file"
	}
	return prefix
}
