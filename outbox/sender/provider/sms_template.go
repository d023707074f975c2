package provider

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"text/template/parse"

	template "github.com/DataDog/datadog-agent/pkg/template/text"
)

// smsTemplate is one template of a request, checked by parseSMSTemplate.
type smsTemplate struct {
	tree   *template.Template
	values []string // names of the values that it uses, without the dot
	phones []string // values whose digits it uses
}

// smsPlace specifies the values that a template may use, and the function that each of them ends
// with. An empty function means that values are inserted unchanged.
type smsPlace struct {
	values []string
	quote  string
}

// smsAnyMember in smsPlace.values allows every member of data.
const smsAnyMember = "data.NAME"

// Values that are allowed in headers and in the URL's path. They have no text of a message, since
// a header has no quoting and a path could contain "..".
var smsHeaderValues = []string{"key", "from", "secret", "job_id", "channel_id"}

var smsPathValues = []string{"to", "key", "from", "secret", "job_id", "channel_id"}

// smsAllValues are allowed elsewhere.
var smsAllValues = []string{"to", "text", "title", "body", "key", "from", "secret", "job_id", "channel_id", "external_id",
	"category", "locale", smsAnyMember}

// smsFunctions returns the only functions of templates. json writes the quotes of the string too.
func smsFunctions() template.FuncMap {
	return template.FuncMap{
		"digits": smsDigits,
		"form":   url.QueryEscape,
		"json":   smsJSON,
		"path":   url.PathEscape,
		"query":  url.QueryEscape,
		"xml":    smsXML,
	}
}

// parseSMSTemplate parses a template of package text/template. The only actions are a value with
// the place's function, such as {{.text | json}}, and with digits before it, such as
// {{.to | digits | json}}. An error names the action and the allowed values.
func parseSMSTemplate(text string, place smsPlace) (smsTemplate, error) {
	const name = "line"
	var t smsTemplate
	tree, trees := parse.New(name), map[string]*parse.Tree{}
	tree.Mode = parse.SkipFuncCheck // place.use names the allowed functions
	if _, err := tree.Parse(text, "", "", trees); err != nil {
		return t, errors.New(strings.Replace(err.Error(), "template: "+name+":", "line ", 1))
	}
	if len(trees) > 1 {
		return t, errors.New("{{define}} is not allowed")
	}
	for _, node := range tree.Root.Nodes {
		if node.Type() == parse.NodeText {
			continue
		}
		value, digits, err := place.use(node)
		if err != nil {
			return t, fmt.Errorf("%.60s: %w", node, err)
		}
		t.values = append(t.values, value)
		if digits {
			t.phones = append(t.phones, value)
		}
	}
	var err error
	t.tree, err = template.New(name).Funcs(smsFunctions()).Option("missingkey=zero").AddParseTree(name, tree)
	return t, err
}

// use returns the value of an action, and whether only its digits are inserted.
func (p smsPlace) use(node parse.Node) (value string, digits bool, err error) {
	words, ok := smsWords(node)
	if !ok {
		return "", false, fmt.Errorf("not allowed; an action must be a value, such as %s", p.pipe("{{.key", "}}"))
	}
	value = words[0]
	_, member := strings.CutPrefix(value, "data.")
	if member = member && strings.Count(value, ".") == 1; !slices.Contains(p.values, value) &&
		!(member && slices.Contains(p.values, smsAnyMember)) {
		return "", false, fmt.Errorf(".%s is not allowed here; allowed values: .%s", value, strings.Join(p.values, ", ."))
	}
	functions := words[1:]
	if len(functions) > 0 && functions[0] == "digits" {
		if digits = value == "to" || value == "from" || member; !digits {
			return "", false, fmt.Errorf("digits is not allowed for .%s; allowed values: .to, .from, .%s", value, smsAnyMember)
		}
		functions = functions[1:]
	}
	if p.quote == "" && len(functions) > 0 || p.quote != "" && !slices.Equal(functions, []string{p.quote}) {
		return "", false, fmt.Errorf(
			"the functions are not allowed; allowed here: {{.NAME%s or, for telephone numbers, {{.NAME | digits%s", p.pipe("", "}}"),
			p.pipe("", "}}"))
	}
	return value, digits, nil
}

// pipe returns the place's function between two texts.
func (p smsPlace) pipe(before, after string) string {
	if p.quote == "" {
		return before + after
	}
	return before + " | " + p.quote + after
}

// smsWords returns the names of {{.value | function | function}}, or false for any other node.
func smsWords(node parse.Node) (words []string, ok bool) {
	action, ok := node.(*parse.ActionNode)
	if !ok || len(action.Pipe.Decl) > 0 {
		return nil, false
	}
	for i, command := range action.Pipe.Cmds {
		if len(command.Args) != 1 {
			return nil, false
		}
		switch arg := command.Args[0].(type) {
		case *parse.FieldNode:
			ok = i == 0
			words = append(words, strings.Join(arg.Ident, "."))
		case *parse.IdentifierNode:
			ok = i > 0
			words = append(words, arg.Ident)
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	return words, len(words) > 0
}

// render inserts the values. Their keys are the names, and data is a map[string]string.
func (t smsTemplate) render(values map[string]any) (string, error) {
	var out strings.Builder
	err := t.tree.Execute(&out, values)
	return out.String(), err
}

// sample renders the template with the same text for every value. The result is not JSON if a value is inside a
// string literal.
func (t smsTemplate) sample() string {
	const text = "+1 202 555 0123"
	data := map[string]string{}
	values := map[string]any{"data": data}
	for _, name := range t.values {
		values[name] = text
		data[strings.TrimPrefix(name, "data.")] = text
	}
	out, err := t.render(values)
	if err != nil {
		return "" // no function fails with this text
	}
	return out
}

// smsDigits returns the digits of a telephone number, or an empty text for an empty one. It drops only separators
// (number.go).
func smsDigits(text string) (string, error) {
	digits, _, ok := readNumber(text)
	if !ok && text != "" {
		return "", errors.New(notNumber)
	}
	return digits, nil
}

func smsJSON(text string) (string, error) {
	quoted, err := json.Marshal(text)
	return string(quoted), err
}

func smsXML(text string) (string, error) {
	var out strings.Builder
	err := xml.EscapeText(&out, []byte(text))
	return out.String(), err
}
