package console

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// wasOf begins the name of the field with what a parameter of a correction was when its form was made:
// what is sent as it was is not asked for, so that a correction says nothing of the rest.
const wasOf = "_was_"

// corrected are the parameters that the form of a correction shows as they are.
func corrected() []string {
	return []string{"title", "body", "variants", "data", "route", "audience", "schedule_at", "deliver_at", "expires_at", "lane", "priority"}
}

// corrects reports whether an operation corrects a job, whose form shows it as it is.
func corrects(o operation.Operation) bool { return o.Name == "jobs set" }

// present is what the form of an act shows: what it was given, and of a correction what the job has.
// The fields bind it to that.
func (v *visit) present(o operation.Operation, values url.Values) (shown url.Values, fields []input) {
	show, there := v.named("jobs show")
	if !there || !corrects(o) {
		return values, nil
	}
	in, faults := read(show, url.Values{arguments(show)[0].Name: values[arguments(o)[0].Name]})
	if len(faults) > 0 {
		return values, nil // the act says what is wrong with it
	}
	out, err := v.do(v.req.Context(), show, in)
	report, is := out.(interface{ State() jobs.JobState })
	if err != nil || !is {
		return values, nil
	}
	state := report.State()
	var has map[string]json.RawMessage
	if text, err := json.Marshal(state); err != nil || json.Unmarshal(text, &has) != nil {
		return values, nil
	}
	shown = make(url.Values)
	for _, name := range corrected() {
		if text := asTyped(textOf(has[name])); text != "" {
			shown.Set(name, text)
		}
	}
	fields = was(shown)
	if values.Get("if_version") == "" {
		fields = append(fields, input{Name: "if_version", Value: text.Int(state.Version)})
	}
	maps.Copy(shown, values)
	return shown, fields
}

// asItIs has the fields of a change say what there is now, of a thing that a list or a page has.
func (v *visit) asItIs(o operation.Operation, values url.Values, fields []input) {
	if o.Verb() != "set" || corrects(o) {
		return
	}
	for _, verb := range []string{"show", "list"} {
		look, there := v.named(o.Noun() + " " + verb)
		if !there || look.Allowed(v.who.Role) != nil || slices.ContainsFunc(look.Params(), func(p operation.Param) bool { return p.Required }) {
			continue
		}
		out, err := v.do(v.req.Context(), look, look.NewInput())
		text, bad := json.Marshal(out)
		if err != nil || bad != nil {
			continue // the form is good without
		}
		var has map[string]json.RawMessage
		if json.Unmarshal(text, &has) != nil {
			continue
		}
		if args := arguments(o); len(args) > 0 {
			has = named(has, cmp.Or(look.Rows, "items"), values.Get(args[0].Name))
		}
		for i := range fields {
			if now := textOf(has[fields[i].Name]); now != "" {
				fields[i].Placeholder = "now " + now
			}
		}
		return
	}
}

// named is the one of that name in a list of a result; nil: there is none.
func named(result map[string]json.RawMessage, list, name string) map[string]json.RawMessage {
	var all []map[string]json.RawMessage
	if json.Unmarshal(result[list], &all) != nil {
		return nil
	}
	for _, one := range all {
		if textOf(one["name"]) == name {
			return one
		}
	}
	return nil
}

// textOf is a value as a parameter has it; "": there is none.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var list []string
	if json.Unmarshal(value, &list) == nil {
		return strings.Join(list, ",")
	}
	if string(value) == "{}" || string(value) == "null" {
		return ""
	}
	return string(value)
}

// corrections are the values of which something is asked: not those that are as they were. What was
// there and was emptied is asked for as nothing.
func (v *visit) corrections(o operation.Operation, values url.Values) url.Values {
	if !corrects(o) {
		return values
	}
	asked := make(url.Values)
	was := v.wasSent()
	for name, texts := range values {
		if !slices.Equal(was[name], texts) {
			asked[name] = texts
		}
	}
	for name := range was {
		if _, sent := v.req.PostForm[name]; sent && len(values[name]) == 0 {
			asked.Set(name, "")
		}
	}
	return asked
}

// was are the fields that say what was there.
func was(texts url.Values) []input {
	var fields []input
	for _, name := range corrected() {
		if texts.Get(name) != "" {
			fields = append(fields, input{Name: wasOf + name, Value: texts.Get(name)})
		}
	}
	return fields
}

// wasSent are those that a form was sent with.
func (v *visit) wasSent() url.Values {
	texts := make(url.Values)
	for _, name := range corrected() {
		if text := asTyped(v.req.PostForm.Get(wasOf + name)); text != "" {
			texts.Set(name, text)
		}
	}
	return texts
}
