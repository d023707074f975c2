package template

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// What an output has at most, in characters.
const (
	maxTitle = 200
	maxBody  = 10000
	maxValue = 200
)

// allowed ends the errors here and in belfry.template_problem.
const allowed = `{{locale}}, {{platform}}, {{external_id}}, {{time_zone}}, {{attributes.NAME}}, each with | upper, | lower, | trim, | default "text", | truncate 1 to 200, and {{"{{"}} for two braces`

var (
	// action is the expression of belfry.template_problem (0001_create_vocabulary), with
	// groups. An action has one end only, so that both engines find the same ones. It is
	// compiled when it is needed: it is long, and most commands render nothing.
	action = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\{\{[ \t]*(?:"\{\{"|(locale|platform|external_id|time_zone|attributes\.[A-Za-z_][A-Za-z0-9_]{0,62})((?:[ \t]*\|[ \t]*(?:upper|lower|trim|default[ \t]+"[^"{}]{0,200}"|truncate[ \t]+(?:200|1[0-9][0-9]|[1-9][0-9]?)))*))[ \t]*\}\}`)
	})
	// call is one function of an action's chain.
	call = regexp.MustCompile(`\|[ \t]*(upper|lower|trim|default|truncate)(?:[ \t]+(?:"([^"{}]*)"|([0-9]+)))?`)
)

// Values are what a template may refer to.
type Values struct {
	Locale, Platform, ExternalID, TimeZone string
	Attributes                             map[string]json.RawMessage
}

// Template is a parsed text. It is not changed by its use and safe for concurrent use.
type Template struct {
	parts      []part
	attributes bool
}

// part is a literal, or a value with its functions.
type part struct {
	literal   string
	value     string // "": a literal
	functions []function
}

type function struct {
	name  string
	text  string // of default
	limit int    // of truncate
}

// Parse reads a template. An error names the first thing that is not allowed.
func Parse(text string) (*Template, error) {
	t := &Template{}
	end := 0
	for _, m := range action().FindAllStringSubmatchIndex(text, -1) {
		if err := t.literal(text[end:m[0]]); err != nil {
			return nil, err
		}
		end = m[1]
		if m[2] < 0 {
			t.parts = append(t.parts, part{literal: "{{"})
			continue
		}
		p := part{value: text[m[2]:m[3]]}
		for _, f := range call.FindAllStringSubmatch(text[m[4]:m[5]], -1) {
			limit, _ := strconv.Atoi(f[3]) // of other functions: none
			p.functions = append(p.functions, function{name: f[1], text: f[2], limit: limit})
		}
		t.attributes = t.attributes || strings.HasPrefix(p.value, "attributes.")
		t.parts = append(t.parts, p)
	}
	if err := t.literal(text[end:]); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Template) literal(text string) error {
	if i := strings.Index(text, "{{"); i >= 0 {
		return fmt.Errorf("template: %q is not allowed; allowed values: %s", first(text[i:], 60), allowed)
	}
	if text != "" {
		t.parts = append(t.parts, part{literal: text})
	}
	return nil
}

// NeedsAttributes reports whether the template refers to an attribute.
func (t *Template) NeedsAttributes() bool { return t.attributes }

// Missing returns the attributes that the template refers to without a default and that
// the values have nothing for, each once.
func (t *Template) Missing(v Values) (names []string) {
	for _, p := range t.parts {
		name, attribute := strings.CutPrefix(p.value, "attributes.")
		defaults := slices.ContainsFunc(p.functions, func(f function) bool { return f.name == "default" })
		if attribute && !defaults && strings.TrimSpace(v.get(p.value)) == "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Title is the output on one line, at most maxTitle characters.
func (t *Template) Title(v Values) string { return cut(oneLine(t.execute(v)), maxTitle) }

// Body is the output of at most maxBody characters.
func (t *Template) Body(v Values) string { return cut(t.execute(v), maxBody) }

func (t *Template) execute(v Values) string {
	if len(t.parts) == 1 && t.parts[0].value == "" {
		return t.parts[0].literal
	}
	var out strings.Builder
	for _, p := range t.parts {
		if p.value == "" {
			out.WriteString(p.literal)
			continue
		}
		s := cut(clean(v.get(p.value)), maxValue)
		for _, f := range p.functions {
			s = f.apply(s)
		}
		out.WriteString(s) // no function makes a value longer than maxValue
	}
	return out.String()
}

func (f function) apply(s string) string {
	switch f.name {
	case "upper":
		return strings.ToUpper(s)
	case "lower":
		return strings.ToLower(s)
	case "trim":
		return strings.TrimSpace(s)
	case "default":
		if strings.TrimSpace(s) == "" {
			return clean(f.text)
		}
	case "truncate":
		return cut(s, f.limit)
	}
	return s
}

// get returns a value as a text.
func (v Values) get(name string) string {
	switch name {
	case "locale":
		return v.Locale
	case "platform":
		return v.Platform
	case "external_id":
		return v.ExternalID
	case "time_zone":
		return v.TimeZone
	}
	return text(v.Attributes[strings.TrimPrefix(name, "attributes.")])
}

// text is what an attribute says: a string, a number or a boolean; else nothing.
func text(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '{', '[', 'n':
		return ""
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return s
	}
	return string(raw)
}
