package operation

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job/schedule"
)

// Offer is a value that a parameter may be given, and a word about it.
type Offer struct{ Value, About string }

// Vocabularies are the words that the tag values may name beside a list: the schema begins
// with them, and who adds others can give them all the same.
func Vocabularies() map[string][]string {
	return map[string][]string{
		"types":     {"inbox", "push"},
		"media":     {"push", "sms", "alimtalk", "email", "webhook"},
		"platforms": {"ios", "android", "web"},
		"missed":    {string(schedule.Skip), string(schedule.Once), string(schedule.All)},
	}
}

// choosing is a type with a closed list of values.
type choosing interface{ Choices() []string }

// Choices are the values that are known without a look at a database, and what takes the
// parameter back; none: any, or those of Listed. There may be others, unless it is Closed.
func (p Param) Choices() []string {
	return slices.Concat(p.closed(), Vocabularies()[p.values], p.reset)
}

// Closed reports whether there is no value but the Choices: a form lets them be chosen. A number that
// `default` takes back is typed.
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

// Listed names the operation that lists the values there are, and the field of its rows that
// has them; "": there is none. An empty field is the list's own.
func (p Param) Listed() (operation, field string) {
	if _, words := Vocabularies()[p.values]; words {
		return "", ""
	}
	operation, field, _ = strings.Cut(p.values, ":")
	return operation, field
}

// SeveralIn reports whether one text may have several values, separated by commas.
func (p Param) SeveralIn() bool { return p.Place != Argument && p.several && !p.whole }

// Offered are the values of a field in a result of a list, in its order and each once; an empty
// field is the first of o.Offers. What a shell would have to quote, or a command line would take
// for a flag, is left out: the names of belfry need neither.
func (o Operation) Offered(result any, field string) ([]Offer, error) {
	names := o.records.Names()
	at := func(name string) int {
		i := slices.Index(names, name)
		if i < 0 {
			panic(fmt.Sprintf("%s has no field %s to offer", o.Name, name))
		}
		return i
	}
	of := strings.Fields(o.Offers)
	value := at(of[0])
	if field != "" {
		value = at(field)
	}
	var offers []Offer
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
		offers = append(offers, Offer{line, text.OneLine(strings.TrimSpace(strings.Join(about, " ")), 60)})
		return nil
	})
	return offers, err
}

// valueType is the type of one value: what is changed, pointed to, or listed.
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

// plain reports whether a shell takes a text as it is.
func plain(line string) bool {
	bare := strings.ReplaceAll(line, "@", "")
	return text.ShellWord(bare) == bare
}
