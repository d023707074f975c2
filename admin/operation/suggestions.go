package operation

import (
	"reflect"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job/schedule"
)

// Suggestion is a suggested value of a parameter, with a description.
type Suggestion struct{ Value, About string }

// Enums are the lists of words that the tag values may name instead of an operation. The schema has
// these words first; the application may add others.
func Enums() map[string][]string {
	return map[string][]string{
		"types":     {"inbox", "push"},
		"media":     {"push", "sms", "alimtalk", "email", "webhook"},
		"platforms": {"ios", "android", "web"},
		"missed":    {string(schedule.Skip), string(schedule.Once), string(schedule.All)},
	}
}

// choosing is a type with a closed list of values.
type choosing interface{ Choices() []string }

// Choices returns the values that are known without a database, and those that reset the parameter. Other
// values are possible unless the parameter is Closed.
func (p Param) Choices() []string {
	return slices.Concat(p.closed(), Enums()[p.values], p.reset)
}

// Closed reports whether only the Choices are allowed, so that a form can show a list. A number that
// `default` resets is not closed.
func (p Param) Closed() bool { return len(p.closed()) > 0 }

func (p Param) closed() []string {
	if p.of == nil {
		return p.choices
	}
	all := slices.Clone(p.choices)
	if known, is := reflect.Zero(p.of).Interface().(choosing); is {
		all = append(all, known.Choices()...)
	}
	if p.of.Kind() == reflect.Bool && p.Place == Key {
		all = append(all, "on", "off")
	}
	return all
}

// Listed returns the operation that lists the existing values, and the field of its rows that contains them.
// An empty operation means that no list exists; an empty field means the first of Suggests.
func (p Param) Listed() (operation, field string) {
	if _, words := Enums()[p.values]; words {
		return "", ""
	}
	operation, field, _ = strings.Cut(p.values, ":")
	return operation, field
}

// SeveralIn reports whether one text may have several values, separated by commas.
func (p Param) SeveralIn() bool { return p.Place != Argument && p.several && !p.whole }

// Suggestions returns the distinct values of a field of a list's result, in their order. An empty field means the
// first of o.Suggests. It omits values that a shell would require to be quoted or that look like flags; names
// in belfry are never such values.
func (o Operation) Suggestions(result any, field string) ([]Suggestion, error) {
	names := o.records.Names()
	at := func(name string) int {
		i := slices.Index(names, name)
		must(i >= 0, "%s has no field %s to offer", o.Name, name)
		return i
	}
	of := strings.Fields(o.Suggests)
	value := at(of[0])
	if field != "" {
		value = at(field)
	}
	var offers []Suggestion
	seen := make(map[string]bool)
	err := o.records.Each(o.Listed(result), func(cells ...string) error {
		line := cells[value]
		if line == "" || line == "0" || seen[line] || line[0] == '-' || !plain(line) {
			return nil
		}
		seen[line] = true
		var about []string
		for _, name := range of[1:] {
			about = append(about, cells[at(name)])
		}
		offers = append(offers, Suggestion{line, text.OneLine(strings.TrimSpace(strings.Join(about, " ")), 60)})
		return nil
	})
	return offers, err
}

// valueType returns the type of one value of a Change, a pointer or a list.
func valueType(t reflect.Type) (one reflect.Type, several bool) {
	if changes, is := reflect.New(t).Interface().(changing); is {
		t = changes.value().Type()
	}
	t = pointed(t)
	if t.Kind() == reflect.Slice && !readsText(t) {
		return pointed(t.Elem()), true
	}
	return t, false
}

// plain reports whether a shell accepts a text without quotes.
func plain(line string) bool {
	bare := strings.ReplaceAll(line, "@", "")
	return text.ShellWord(bare) == bare
}
