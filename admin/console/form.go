package console

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

// input is a parameter in a form.
type input = parts.Input

// hiddenInForm reports whether a form has no input for a parameter: the plan's parameters and the position of a page
// of a list.
func hiddenInForm(p operation.Param) bool {
	return slices.Contains([]string{"dry_run", "preview", "plan", "if_version"}, p.Name) || slices.Contains(operation.Pagers(), p.Name)
}

// inputs returns the inputs of an operation's form: the important ones, and the rest.
func (c *Console) inputs(o operation.Operation, formValues url.Values, faults map[string]string) (first, more []input) {
	in := o.NewInput()
	for _, p := range o.Params() {
		if p.Local || hiddenInForm(p) {
			continue
		}
		one := input{
			Name: p.Name, Label: words.Label(strings.ReplaceAll(p.Name, "_", " ")), Value: strings.Join(formValues[p.Name], "\n"), Kind: "text",
			Help: c.html(worded(text.Parse(cmp.Or(p.Help, p.Is)), words.Label)), Fault: c.html(text.Parse(faults[p.Name])), Required: p.Required,
			Placeholder: p.Default,
		}
		choices := p.Choices()
		switch {
		case p.Secret:
			one.Kind, one.Value = "password", ""
		case p.Switch(in):
			one.Kind = "checkbox"
		case p.File || strings.Contains(one.Value, "\n"):
			one.Kind = "area"
		case p.Closed() && !p.SeveralIn() && !p.Repeated:
			one.Kind, one.Choices = "select", choices
			if one.Value != "" && !slices.Contains(choices, one.Value) {
				one.Choices = append([]string{one.Value}, choices...)
			}
		default:
			one.Offers = choices
		}
		if p.Required || one.Value != "" || one.Fault != "" || p.Place == operation.Argument || p.Name == "reason" ||
			p.Place == operation.Key && !corrects(o) {
			first = append(first, one)
		} else {
			more = append(more, one)
		}
	}
	slices.SortStableFunc(first, func(a, b input) int { // the reason is last
		switch {
		case a.Name == "reason" && b.Name != "reason":
			return 1
		case b.Name == "reason" && a.Name != "reason":
			return -1
		}
		return 0
	})
	return first, more
}

// formValues returns the values of a request's path, query and form. Times without a zone are in the
// reader's zone.
func (h *handler) formValues(o operation.Operation) (url.Values, error) {
	req := h.req
	if err := req.ParseForm(); err != nil {
		return nil, errors.New("invalid form: " + err.Error())
	}
	values := make(url.Values)
	for _, p := range o.Params() {
		if p.Local {
			continue
		}
		texts := req.Form[p.Name]
		if at := req.PathValue(p.Name); at != "" {
			texts = []string{at}
		}
		for _, text := range texts {
			if text = normalized(text); text == "" {
				continue
			}
			if p.Moment() {
				zoned, err := h.zoned(text)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", p.Name, err)
				}
				text = zoned
			}
			values.Add(p.Name, text)
		}
	}
	return values, nil
}

// normalized returns the value of a field without surrounding blanks and carriage returns.
func normalized(text string) string {
	return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
}

// typedCount returns a typed count without digit separators.
func typedCount(text string) string {
	return strings.NewReplacer(",", "", " ", "", "_", "").Replace(text)
}

// read parses values into an input. It returns the errors by parameter.
func read(o operation.Operation, values url.Values) (in any, faults map[string]string) {
	in, faults = o.NewInput(), make(map[string]string)
	for _, p := range o.Params() {
		for _, text := range values[p.Name] {
			parts := []string{text}
			switch {
			case p.Repeated && p.Place == operation.Argument:
				parts = strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })
			case p.Repeated:
				parts = strings.Split(text, "\n")
			}
			for _, part := range parts {
				if !utf8.ValidString(part) || strings.ContainsRune(part, 0) {
					faults[p.Name] = "is no text"
				} else if err := p.Set(in, part); err != nil {
					faults[p.Name] = err.Error()
				}
			}
		}
	}
	return in, faults
}

// lacksRequired reports whether a required parameter has no value, or none of several alternatives has one.
func lacksRequired(o operation.Operation, values url.Values) bool {
	if strings.HasPrefix(o.Usage, "{") && len(values) == 0 {
		return true
	}
	return slices.ContainsFunc(o.Params(), func(p operation.Param) bool { return p.Required && !p.Local && len(values[p.Name]) == 0 })
}

// splitProblems returns the problems of an error by parameter, and the rest.
func (c *Console) splitProblems(o operation.Operation, err error) (faults map[string]string, rest template.HTML) {
	faults = make(map[string]string)
	var bad *operation.InvalidError
	if !errors.As(err, &bad) {
		return faults, c.failure(err)
	}
	var others []string
	for _, p := range bad.Problems {
		if slices.ContainsFunc(o.Params(), func(known operation.Param) bool { return known.Name == p.Param && !hiddenInForm(known) }) {
			faults[p.Param] = p.Text
		} else {
			others = append(others, strings.TrimPrefix(p.Param+": "+p.Text, ": "))
		}
	}
	return faults, c.html(text.Parse(strings.Join(others, "; ")))
}
