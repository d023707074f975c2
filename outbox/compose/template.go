package compose

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Maximum lengths of outputs in characters.
const (
	maxTitle = 200
	maxBody  = 10000
	maxValue = 200
	maxRead  = 1000 // of a value, before characters are removed
	// maxParts is the maximum number of actions and functions of a template together.
	maxParts = 100
	// maxFunctions is the maximum number of functions of an action.
	maxFunctions = 8
)

// templateAllowed ends the errors here and in belfry.template_problem.
const templateAllowed = `{{locale}}, {{platform}}, {{external_id}}, {{time_zone}}, {{count}}, {{attributes.NAME}}, {{value.NAME}}, ` +
	`each with | upper, | lower, | trim, | default "text", | truncate 1 to 200, and {{"{{"}} for two braces`

var (
	// templateAction is the expression of belfry.template_action (0001_create_vocabulary), with
	// groups. An action has one end only, so that both engines find the same ones. It is
	// compiled when it is needed: it is long, and most commands render nothing.
	templateAction = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(
			`\{\{[ \t]*(?:"\{\{"|(locale|platform|external_id|time_zone|count|(?:attributes|value)\.[A-Za-z_][A-Za-z0-9_]{0,62})((?:[ \t]*\|[ \t]*(?:upper|lower|trim|default[ \t]+"[^"{}]{0,200}"|truncate[ \t]+(?:200|1[0-9][0-9]|[1-9][0-9]?)))*))[ \t]*\}\}`)
	})
	// templateCall is one function of an action's chain.
	templateCall = regexp.MustCompile(`\|[ \t]*(upper|lower|trim|default|truncate)(?:[ \t]+(?:"([^"{}]*)"|([0-9]+)))?`)
)

// templateValues are the values to which a template can refer.
type templateValues struct {
	Locale, Platform, ExternalID, TimeZone string
	Attributes                             map[string]json.RawMessage // of the channel
	Value                                  map[string]json.RawMessage // of the job for the channel (belfry.job_values)
	Sample                                 bool                       // a preview: a value is its name in brackets
}

// template renders a title or a body: a text with values of the recipient.
//
//	Hello {{attributes.name | trim | default "friend"}}, {{attributes.count}} new answers
//	      └── value ──────┘ └─ functions, applied from left to right ─┘
//
//	value      locale, platform, external_id, time_zone, count, attributes.NAME, value.NAME
//	function   upper, lower, trim, default "text", truncate 1 to 200
//	{{"{{"}}   two braces
//
// NAME is 1 to 63 letters, digits and _, and does not begin with a digit. The text of default has up to
// 200 characters and none of " { }. A value has up to 8 functions, and a text up to 100 values and functions
// together. Blanks and tabs are allowed around each part.
// {{ in any other form is an error. A text without {{ renders as itself. value.NAME is of belfry.job_values, and count is 1: the
// notification centre, which belfry.rendered renders for, counts collapsed notifications.
//
// # Invariants
//
//  1. The grammar equals the grammar of belfry.template_problem, which rejects a bad template when a job
//     is enqueued.
//  2. A template only inserts values: it has no condition, loop or access to other data, and its cost is
//     bounded by its own length.
//  3. A title has at most 200 characters on one line, a body at most 10,000, and one value at most 200.
//     Longer text is cut and ends in ….
//  4. Control characters of a value, and characters that change the text direction, never reach the output.
//
// # Values
//
// A string attribute renders as its text, a number or a boolean as in JSON. Any other value, and a
// missing attribute, is empty. default replaces a value that is empty or blank at that point of the
// chain.
//
// # Failures
//
// Errors of parseTemplate name the invalid part and the allowed forms. Execution cannot fail.
//
// # Not guaranteed
//
// upper and lower do not depend on the language: a Turkish i becomes I. Nothing is escaped: a sender
// escapes the text if its format requires it.
//
// A template is immutable and safe for concurrent use.
type template struct {
	parts             []templatePart
	attributes, value bool // refers to one
}

// templatePart is a literal, or a value with its functions.
type templatePart struct {
	literal   string
	value     string // "": a literal
	functions []templateFunction
}

type templateFunction struct {
	name  string
	text  string // of default
	limit int    // of truncate
}

// parseTemplate reads a template. An error names the first thing that is not allowed.
func parseTemplate(text string) (*template, error) {
	t := &template{}
	end, long := 0, false
	actions := templateAction().FindAllStringSubmatchIndex(text, -1)
	parts := len(actions)
	for _, m := range actions {
		if err := t.literal(text[end:m[0]]); err != nil {
			return nil, err
		}
		end = m[1]
		if m[2] < 0 {
			t.parts = append(t.parts, templatePart{literal: "{{"})
			continue
		}
		p := templatePart{value: text[m[2]:m[3]]}
		for _, f := range templateCall.FindAllStringSubmatch(text[m[4]:m[5]], -1) {
			limit, _ := strconv.Atoi(f[3]) // of other functions: none
			p.functions = append(p.functions, templateFunction{name: f[1], text: f[2], limit: limit})
		}
		long = long || len(p.functions) > maxFunctions
		parts += len(p.functions)
		t.attributes = t.attributes || strings.HasPrefix(p.value, "attributes.")
		t.value = t.value || strings.HasPrefix(p.value, "value.")
		t.parts = append(t.parts, p)
	}
	if err := t.literal(text[end:]); err != nil {
		return nil, err
	}
	if parts > maxParts {
		return nil, fmt.Errorf("template: has %d values and functions in braces; allowed values: up to %d", parts, maxParts)
	}
	if long {
		return nil, fmt.Errorf("template: has a value with more than %d functions; allowed values: up to %[1]d", maxFunctions)
	}
	return t, nil
}

func (t *template) literal(text string) error {
	if i := strings.Index(text, "{{"); i >= 0 {
		return fmt.Errorf("template: %q is not allowed; allowed values: %s", first(text[i:], 60), templateAllowed)
	}
	if text != "" {
		t.parts = append(t.parts, templatePart{literal: text})
	}
	return nil
}

// missing returns the attributes without a value to which the template refers without a default, each
// once.
func (t *template) missing(v templateValues) (names []string) {
	for _, p := range t.parts {
		name, attribute := strings.CutPrefix(p.value, "attributes.")
		defaults := slices.ContainsFunc(p.functions, func(f templateFunction) bool { return f.name == "default" })
		if attribute && !defaults && strings.TrimSpace(v.get(p.value)) == "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// title is the output on one line, at most maxTitle characters.
func (t *template) title(v templateValues) string { return cut(oneLine(t.execute(v)), maxTitle) }

// body is the output of at most maxBody characters.
func (t *template) body(v templateValues) string { return cut(t.execute(v), maxBody) }

// fixed reports whether the output is a part of the template's text, whatever the values are.
func (t *template) fixed() bool {
	return len(t.parts) == 0 || len(t.parts) == 1 && t.parts[0].value == ""
}

func (t *template) execute(v templateValues) string {
	if t.fixed() && len(t.parts) == 1 {
		return t.parts[0].literal
	}
	var out strings.Builder
	for _, p := range t.parts {
		if p.value == "" {
			out.WriteString(p.literal)
			continue
		}
		s := cut(clean(first(v.get(p.value), maxRead)), maxValue)
		for _, f := range p.functions {
			s = f.apply(s)
		}
		out.WriteString(s) // no function makes a value longer than maxValue
	}
	return out.String()
}

func (f templateFunction) apply(s string) string {
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
func (v templateValues) get(name string) string {
	switch name {
	case "locale":
		return v.Locale
	case "platform":
		return v.Platform
	case "external_id":
		return v.ExternalID
	case "time_zone":
		return v.TimeZone
	case "count":
		return "1"
	}
	of, key, _ := strings.Cut(name, ".")
	switch {
	case of == "value" && v.Sample:
		return "[" + key + "]"
	case of == "value":
		return scalarText(v.Value[key])
	}
	return scalarText(v.Attributes[key])
}

// scalarText returns a string, a number or a boolean as text, and "" for any other value.
func scalarText(raw json.RawMessage) string {
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
