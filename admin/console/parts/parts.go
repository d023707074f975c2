// Package parts has the data of template parts that pages of the console share: links, inputs, and filters. A
// Site makes links for the reader of a page.
package parts

import (
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/operation"
)

// Link is a named link.
type Link struct {
	Name, Link string
	Here       bool   // it is the current page
	Key        string // the key after g that opens it; "" means none
}

// Site is what a page knows about its reader.
type Site struct {
	Zone *time.Location // nil means the server's
	// Action returns a link to the page of an operation with values, or nothing if the reader may not run it.
	Action func(operation, label string, values url.Values) []Link
	// Page returns the page of an object, or "".
	Page func(kind, id string) string
}

// When renders an instant relative to now.
func (s Site) When(at time.Time) template.HTML { return words.When(s.Zone, at) }

// In returns an instant in the reader's zone.
func (s Site) In(at time.Time) time.Time { return words.In(s.Zone, at) }

// Input is a parameter in a form.
type Input struct {
	Name, Label, Value, Kind, Placeholder string
	Help, Fault                           template.HTML
	Choices                               []string // the values of a Kind "select"
	Offers                                []string // suggested values
	Required                              bool
}

// Field is a name with its value.
type Field struct {
	Name string
	Text template.HTML
}

// Option is a value of a choice.
type Option struct {
	Value, Text string
	Selected    bool
}

// Choice is a filter with its values.
type Choice struct {
	Name, Label string
	Options     []Option
}

// With returns the choice with a selected value, also one that it did not have.
func (c Choice) With(value string) Choice {
	i := slices.IndexFunc(c.Options, func(o Option) bool { return o.Value == value })
	if i < 0 {
		i, c.Options = len(c.Options), append(c.Options, Option{Value: value, Text: value})
	}
	c.Options[i].Selected = true
	return c
}

// Names returns a filter with names.
func Names(name, label string, names []string) Choice {
	c := Choice{Name: name, Label: label, Options: []Option{{Text: "Any"}}}
	for _, one := range names {
		c.Options = append(c.Options, Option{Value: one, Text: one})
	}
	return c
}

// Since returns a filter with times ago.
func Since(label string) Choice {
	return Choice{Name: "since", Label: label, Options: []Option{{Text: "Any time"}, {Value: "1h", Text: "Last hour"},
		{Value: "24h", Text: "Last 24 hours"}, {Value: "7d", Text: "Last 7 days"}, {Value: "30d", Text: "Last 30 days"}}}
}

// FilterBar is the visible filter of a list, the template part "filters".
type FilterBar struct {
	Action  string
	Texts   []Input
	Filters []Choice
	Hidden  []Input // filters without a field
	Chips   []Link  // the filters in force; a link removes its filter
}

// NewFilterBar returns the filter of a list at a path. shown are the filters as the form has them, and link returns the
// address of the list with other filters.
func NewFilterBar(at string, shown url.Values, link func(url.Values) string, texts []Input, filters ...Choice) FilterBar {
	b := FilterBar{Action: at, Texts: texts, Filters: filters}
	fields := operation.Pagers()
	for i, in := range texts {
		b.Texts[i].Value = shown.Get(in.Name)
		fields = append(fields, in.Name)
	}
	for i, f := range filters {
		b.Filters[i] = f.With(strings.Join(shown[f.Name], ","))
		fields = append(fields, f.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		if !slices.Contains(fields, name) {
			b.Hidden = append(b.Hidden, Input{Name: name, Value: strings.Join(shown[name], ",")})
		}
		if name != "limit" && !slices.Contains(operation.Pagers(), name) {
			b.Chips = append(b.Chips, Link{Name: b.chip(name, shown[name]), Link: link(Without(shown, append(operation.Pagers(), name)...))})
		}
	}
	return b
}

// chip returns a filter in words, such as "Status: Stopped".
func (b FilterBar) chip(name string, values []string) string {
	value := strings.Join(values, ", ")
	for _, f := range b.Filters {
		for _, o := range f.Options {
			if f.Name == name && o.Selected {
				return f.Label + ": " + o.Text
			}
		}
	}
	for _, in := range b.Texts {
		if in.Name == name {
			return in.Label + ": " + value
		}
	}
	if name == "awaiting_approval" {
		return "Waits for approval"
	}
	return words.Sentence(strings.ReplaceAll(name, "_", " ")) + ": " + value
}

// Without returns values without some names.
func Without(values url.Values, names ...string) url.Values {
	rest := maps.Clone(values)
	for _, name := range names {
		rest.Del(name)
	}
	return rest
}
