// Package config reads files, environment variables and flags into the structs of the packages that use
// them.
//
// # Keys
//
// A key is the path of a field: the mapstructure tags of the sections around it and its
// own, joined by dots. The struct that holds the defaults is therefore the whole schema;
// see package keys.
//
// # Overlays
//
// Files in their order, variables and flags are overlays of one tree, the later over the
// earlier. viper keeps the tree. Its leaves are values as they were written, each with
// its Source: file and line, variable or flag. A list of sections, such as senders, is one
// leaf: its sections add up over the files by their names, and a variable replaces all of
// them. Such a list passes viper by, which would lower the case of its keys.
//
// # Decoding
//
// viper decodes the tree into the struct, in the order of its fields. A hook decodes each leaf and
// makes decoding strict: keys match in their exact spelling, a number is not a duration, and nothing is
// rounded. A field keeps its default when its key is absent or its value cannot be used.
//
// # Problems
//
// No problem hides another. Each text starts with the path of its key, so that problems found by packages
// are traced to their source like problems of decoding. Problems that only follow from an unusable value are
// omitted. Error lists all problems.
//
// The package connects to nothing and knows no setting.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"github.com/belfryhq/belfry/internal/keys"
)

// Input is where configuration comes from. The environment is a list and not the
// process's own, so that tests can inject it.
type Input struct {
	Files   []string        // from --config; none: BELFRY_CONFIG, else config.yaml if there is one
	Environ []string        // as os.Environ returns it
	Flags   map[string]Flag // by key, those that were given
}

// Flag is a flag that stands for a key.
type Flag struct{ Name, Value string }

// List describes a key whose value is a list of sections.
type List struct {
	Form string // of such a list in JSON
	Of   string // the elements of the list and their keys
	// Decode takes the sections, as files or JSON have them, and returns every problem.
	// All keys before this one are decoded. Nil means the rule of the field's type.
	Decode func(sections []any) error
}

// Source is where a value came from.
type Source struct {
	Kind string // FromDefault, FromFile, FromEnvironment or FromFlag
	Name string // how to find it: config.yaml:12, BELFRY_LOG_LEVEL, --log-level
}

// The kinds of sources.
const (
	FromDefault     = "default"
	FromFile        = "file"
	FromEnvironment = "environment"
	FromFlag        = "flag"
)

// String is the name, or "default".
func (s Source) String() string {
	if s.Kind == FromDefault {
		return s.Kind
	}
	return s.Name
}

// DefaultFile is read when it exists and no other file is named.
const DefaultFile = "config.yaml"

// FileVariable names a file; it is no key.
const FileVariable = keys.VariablePrefix + "CONFIG"

// foreignPrefixes belong to belfry's tests and to the watchdog of the private
// server.
var foreignPrefixes = []string{"BELFRY_TEST_", "BELFRY_PGSERVER_"}

// Loaded is a configuration with the source of each value and its problems.
type Loaded struct {
	Files []string // that were read

	sources  map[string]Source // by key, and of files' sections by path
	broken   map[string]bool   // paths whose value cannot be used
	problems []Problem
}

// Read merges files, environment and flags over what into, a pointer to a struct, holds.
// lists has every key that is a list of sections. Problems found are those of Err.
func Read(in Input, into any, lists map[string]List) *Loaded {
	l := loader{
		Loaded: &Loaded{sources: make(map[string]Source), broken: make(map[string]bool)},
		tree:   viper.New(), keys: keys.Of(into), known: make(map[string]*keys.Key), lists: lists,
	}
	for i, k := range l.keys {
		l.known[k.Name] = &l.keys[i]
		l.names = append(l.names, k.Name)
		for i, r := range k.Name {
			if r == '.' {
				l.known[k.Name[:i]] = nil
				l.names = append(l.names, k.Name[:i])
			}
		}
	}
	environ := variables(in.Environ)
	l.readFiles(in.Files, environ[FileVariable])
	l.overlay(environ, in.Flags)
	for _, k := range l.keys {
		l.sources[k.Name] = Source{Kind: FromDefault}
		if given, ok := l.tree.Get(k.Name).(*leaf); ok {
			l.sources[k.Name] = given.from
			for i, one := range given.items {
				l.sources[fmt.Sprintf("%s[%d]", k.Name, i)] = one.from
			}
		}
	}
	l.misfit(sorted(located("", l.tree.Unmarshal(into, func(c *mapstructure.DecoderConfig) { *c = strict(into, l.decodeLeaf) }))))
	return l.Loaded
}

// loader gathers one configuration.
type loader struct {
	*Loaded

	tree  *viper.Viper // of *leaf
	keys  []keys.Key
	known map[string]*keys.Key // by name; nil: a section
	names []string             // keys and their sections, in which the misspelt part may be
	lists map[string]List
}

// leaf is the value of a key as it was written.
type leaf struct {
	key   string
	value any
	from  Source
	items []item // of a list of sections in files, instead of value
}

// item is one section of a list.
type item struct {
	value any
	from  Source
	file  string
}

// variables returns the BELFRY_ variables. Empty ones count as not set, as compose files
// and unit files write them.
func variables(environ []string) map[string]string {
	vars := make(map[string]string)
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		foreign := slices.ContainsFunc(foreignPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if strings.HasPrefix(name, keys.VariablePrefix) && !foreign && value != "" {
			vars[name] = value
		}
	}
	return vars
}

// overlay lays variables over the files, and flags over these. viper's own reading of the
// environment takes the process's only.
func (l *loader) overlay(environ map[string]string, flags map[string]Flag) {
	known := []string{FileVariable}
	for _, k := range l.keys {
		known = append(known, k.Variable)
		if value, ok := environ[k.Variable]; ok {
			l.tree.Set(k.Name, &leaf{key: k.Name, value: value, from: Source{FromEnvironment, k.Variable}})
		}
		if flag, ok := flags[k.Name]; ok {
			l.tree.Set(k.Name, &leaf{key: k.Name, value: flag.Value, from: Source{FromFlag, "--" + flag.Name}})
		}
	}
	for name := range environ {
		if !slices.Contains(known, name) {
			l.problem(Source{FromEnvironment, name}, "unknown variable%s", keys.Hint(name, known))
		}
	}
}

// decodeLeaf is decodeHook for the values of the tree. A key in lists decodes its sections itself.
func (l *loader) decodeLeaf(from, to reflect.Value) (any, error) {
	given, ok := from.Interface().(*leaf)
	if !ok {
		return decodeHook(from, to)
	}
	if !isSections(to.Type()) {
		return decodeHook(reflect.ValueOf(given.value), to)
	}
	var sections []any
	for _, one := range given.items {
		sections = append(sections, one.value)
	}
	if given.items == nil {
		var err error
		if sections, err = l.sections(given.key, given.value); err != nil {
			l.misfit(err)
			return nil, nil //nolint:nilnil // the error has its path
		}
	}
	if decode := l.lists[given.key].Decode; decode != nil {
		l.misfit(decode(sections))
	} else {
		l.misfit(Decode(given.key, sections, to.Addr().Interface()))
	}
	return nil, nil //nolint:nilnil // to is set
}

// sections takes a list of sections, or the JSON of one, apart.
func (l *loader) sections(key string, data any) ([]any, error) {
	if text, ok := data.(string); ok {
		var parsed any
		if err := ParseJSON([]byte(text), &parsed); err != nil {
			return nil, fmt.Errorf("%s: is not JSON (%w); write it as %s", key, err, l.lists[key].Form)
		}
		data = parsed
	}
	list, ok := data.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: must be a list of %s", key, l.lists[key].Of)
	}
	return list, nil
}

// isSections reports whether a setting is a list of sections, such as schedules.
func isSections(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// misfit adds problems of values that cannot be used.
func (l *Loaded) misfit(err error) {
	for _, one := range keys.Flatten(err) {
		path, _, _ := strings.Cut(one.Error(), ":")
		l.broken[strings.TrimSuffix(path, ".kind")] = true // a kind decides about every other key
		l.problem(l.Source(path), "%s", one)
	}
}

// Check adds the problems that err joins, each of which starts with its path. It omits problems of unusable
// values.
func (l *Loaded) Check(err error) {
	for _, one := range keys.Flatten(err) {
		if path, _, _ := strings.Cut(one.Error(), ":"); !l.isBroken(path) {
			l.problem(l.Source(path), "%s", one)
		}
	}
}

// Wrong reports whether anything below a path is.
func (l *Loaded) Wrong(path string) bool {
	return slices.ContainsFunc(l.problems, func(p Problem) bool { return strings.HasPrefix(p.Text, path) })
}

// isBroken reports whether a value, or a section around it, could not be used.
func (l *Loaded) isBroken(path string) bool {
	for i, r := range path {
		if (r == '.' || r == '[') && l.broken[path[:i]] {
			return true
		}
	}
	return l.broken[path]
}

// Source is where a key was given; of schedules[0].cron, where the list has its first
// section.
func (l *Loaded) Source(path string) Source {
	list, rest, ok := strings.Cut(path, "[")
	if !ok {
		return l.sources[path]
	}
	index, _, _ := strings.Cut(rest, "]")
	if from, ok := l.sources[list+"["+index+"]"]; ok {
		return from
	}
	return l.sources[list]
}

// FilesRead lists the files that were read.
func (l *Loaded) FilesRead() string {
	if len(l.Files) == 0 {
		return "no file"
	}
	return strings.Join(l.Files, ", ")
}

// Err has every problem found so far, as *Error; nil when there is none.
func (l *Loaded) Err() error {
	if len(l.problems) == 0 {
		return nil
	}
	return &Error{l.problems}
}

func (l *Loaded) problem(from Source, format string, args ...any) {
	l.problems = append(l.problems, Problem{from, fmt.Sprintf(format, args...)})
}

// Problem is one thing wrong with a configuration.
type Problem struct {
	From Source
	Text string
}

// Error holds every problem of a configuration.
type Error struct{ Problems []Problem }

// FlagsOnly reports whether nothing but flags is wrong.
func (e *Error) FlagsOnly() bool {
	return !slices.ContainsFunc(e.Problems, func(p Problem) bool { return p.From.Kind != FromFlag })
}

// Lines returns one line for each problem, in a stable order.
func (e *Error) Lines() []string {
	lines := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		if p.From.Name == "" {
			lines = append(lines, p.Text)
			continue
		}
		lines = append(lines, p.From.Name+": "+p.Text)
	}
	slices.SortStableFunc(lines, compareNatural)
	return slices.Compact(lines)
}

// Lines returns one line for each problem of an *Error, or the text of another error.
func Lines(err error) []string {
	var e *Error
	if errors.As(err, &e) {
		return e.Lines()
	}
	return []string{err.Error()}
}

// Error lists the problems, one to a line.
func (e *Error) Error() string {
	lines := e.Lines()
	if len(lines) == 1 {
		return "configuration: " + lines[0]
	}
	return fmt.Sprintf("configuration: %d problems\n  %s", len(lines), strings.Join(lines, "\n  "))
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
