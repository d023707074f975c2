package console

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// correctable returns the parameters of a correction that its form fills with the job's values.
func correctable() []string {
	return []string{"title", "body", "variants", "data", "route", "audience", "schedule_at", "deliver_at", "expires_at", "lane", "priority"}
}

// corrects reports whether an operation corrects a job.
func corrects(o operation.Operation) bool { return o.Name == "jobs set" }

// present returns the values of an act's form, and the hidden fields that bind a correction to the job's
// values.
func (h *handler) present(o operation.Operation, values url.Values) (shown url.Values, fields []input) {
	if !corrects(o) {
		return values, nil
	}
	a, err := h.query(views.JobOperation, url.Values{"id": values["id"]})
	report, is := a.out.(interface{ State() jobs.JobState })
	if err != nil || !is {
		return values, nil // the act reports the problem
	}
	state := report.State()
	has := membersOf(state)
	shown = make(url.Values)
	for _, name := range correctable() {
		if text := normalized(textOf(has[name])); text != "" {
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

// showCurrent sets the placeholders of a "set" form to the object's current values.
func (h *handler) showCurrent(o operation.Operation, values url.Values, fields []input) {
	if o.Verb() != "set" || corrects(o) {
		return
	}
	for _, verb := range []string{"show", "list"} {
		source, allowed := h.allowed(o.Noun() + " " + verb)
		if !allowed || lacksRequired(source, nil) {
			continue
		}
		a, err := h.query(source.Name, nil)
		if err != nil {
			continue // the form works without placeholders
		}
		has := membersOf(a.out)
		if args := arguments(o); len(args) > 0 {
			has = objectNamed(has, cmp.Or(source.Rows, "items"), values.Get(args[0].Name))
		}
		for i := range fields {
			if now := textOf(has[fields[i].Name]); now != "" {
				fields[i].Placeholder = "now " + now
			}
		}
		return
	}
}

// membersOf returns the members of a result's JSON, or nil.
func membersOf(result any) (members map[string]json.RawMessage) {
	if text, err := json.Marshal(result); err != nil || json.Unmarshal(text, &members) != nil {
		return nil
	}
	return members
}

// objectNamed returns the object with a name in a list of a result, or nil.
func objectNamed(result map[string]json.RawMessage, list, name string) map[string]json.RawMessage {
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

// textOf returns a JSON value as a parameter's text, or "".
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

// corrections returns the values that the caller changed. An emptied value is "".
func (h *handler) corrections(o operation.Operation, values url.Values) url.Values {
	was := h.previousValues()
	if !corrects(o) && len(was) == 0 {
		return values
	}
	asked := make(url.Values)
	for name, texts := range values {
		if !slices.Equal(was[name], texts) {
			asked[name] = texts
		}
	}
	for name := range was {
		if _, sent := h.req.PostForm[name]; sent && len(values[name]) == 0 {
			asked.Set(name, "")
		}
	}
	return asked
}

// was returns the hidden fields with the previous values.
func was(texts url.Values) []input {
	var fields []input
	for _, name := range correctable() {
		if texts.Get(name) != "" {
			fields = append(fields, input{Name: views.PreviousPrefix + name, Value: texts.Get(name)})
		}
	}
	return fields
}

// previousValues returns the previous values of a submitted form.
func (h *handler) previousValues() url.Values {
	texts := make(url.Values)
	for field := range h.req.PostForm {
		name, is := strings.CutPrefix(field, views.PreviousPrefix)
		if text := normalized(h.req.PostForm.Get(field)); is && text != "" {
			texts.Set(name, text)
		}
	}
	return texts
}
