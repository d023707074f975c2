package console

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// enqueueOperation enqueues a notification. Its form is previewed first, and bound to the previewed values
// and the number of channels.
const enqueueOperation = "enqueue"

// digestField is the hidden field with the digest of the previewed values.
const digestField = "_seen"

// card is a notification as a phone shows it.
type card struct{ About, Title, Body string }

// firstInputs returns the fields of enqueue before "More".
func firstInputs() []string {
	return []string{"type", "category", "title", "body", "variants", "everyone", "platform", "near", "radius", "segment", "external_id", "at"}
}

// arrangeEnqueue orders the fields of enqueue and offers the values of fields that an operation lists.
func (h *handler) arrangeEnqueue(o operation.Operation, page *operationPage) {
	all := slices.Concat(page.Inputs, page.More)
	page.Inputs, page.More = nil, nil
	for _, name := range firstInputs() {
		if i := slices.IndexFunc(all, func(in input) bool { return in.Name == name }); i >= 0 {
			page.Inputs, all = append(page.Inputs, all[i]), slices.Delete(all, i, i+1)
		}
	}
	page.More = slices.DeleteFunc(all, func(in input) bool { return in.Name == "confirm_count" })
	for i, in := range page.Inputs {
		n := slices.IndexFunc(o.Params(), func(p operation.Param) bool { return p.Name == in.Name })
		p := o.Params()[n]
		switch {
		case in.Name == "body" || in.Name == "external_id":
			page.Inputs[i].Kind = "area"
		case in.Kind == "text" && len(in.Offers) == 0:
			page.Inputs[i].Offers = h.listedValues(p)
		}
	}
}

// listedValues returns the values of a parameter that an operation lists, if the caller may run it.
func (h *handler) listedValues(p operation.Param) []string {
	name, field := p.Listed()
	list, there := h.named(name)
	if !there || list.Allowed(h.who.Role) != nil {
		return nil
	}
	in, _ := read(list, url.Values{})
	out, err := h.do(h.req.Context(), list, in)
	if err != nil {
		return nil
	}
	offers, err := list.Suggestions(out, field)
	if err != nil {
		return nil
	}
	values := make([]string, len(offers))
	for i, offer := range offers {
		values[i] = offer.Value
	}
	return values
}

// enqueue enqueues the notification of a confirmed form, and otherwise renders its preview.
func (h *handler) enqueue(o operation.Operation, page *operationPage, values url.Values) (status int, faults map[string]string) {
	if err := o.Allowed(h.who.Role); err != nil {
		page.Fault = h.inline(err.Error())
		return statusFor(err), nil
	}
	values = maps.Clone(values)
	values.Del("confirm_count")
	in, faults := read(o, values)
	for _, name := range []string{"type", "category", "title"} {
		if len(values[name]) == 0 && faults[name] == "" {
			faults[name] = "is needed"
		}
	}
	if len(faults) > 0 {
		return http.StatusUnprocessableEntity, faults
	}
	form := h.req.PostForm
	n, counted := confirmedCount(form)
	if !counted || form.Get("_plan") != "" || form.Get(digestField) != digest(values) {
		form.Del("_agreed")
		return h.preview(o, page, values, in)
	}
	bound := maps.Clone(values)
	bound.Set("confirm_count", strconv.FormatInt(n, 10))
	in, _ = read(o, bound)
	if asks, err := h.agreed(o, page, in); err != nil {
		faults, rest := splitProblems(o, err)
		page.Fault = h.inline(rest)
		return statusFor(err), faults
	} else if asks {
		return h.preview(o, page, values, in)
	}
	out, err := h.doOnce(o, in)
	if out != nil {
		page.Result, page.Actions = h.render(o, in, out), h.jobLinks(out)
	}
	if err == nil {
		page.Hidden = nil
		return http.StatusOK, nil
	}
	faults, rest := splitProblems(o, err)
	page.Fault = h.inline(rest)
	if len(faults) == 0 && page.Result == nil {
		_, faults = h.preview(o, page, values, in)
	}
	return statusFor(err), faults
}

// preview renders the preview of a notification and binds the form to it.
func (h *handler) preview(o operation.Operation, page *operationPage, values url.Values, in any) (status int, faults map[string]string) {
	if page.Agree == nil {
		if _, err := h.agreed(o, page, in); err != nil {
			faults, rest := splitProblems(o, err)
			page.Fault = h.inline(rest)
			return statusFor(err), faults
		}
	}
	asked := maps.Clone(values)
	asked.Set("preview", "on")
	in, _ = read(o, asked)
	out, err := h.do(h.req.Context(), o, in)
	if err != nil {
		faults, rest := splitProblems(o, err)
		page.Agree, page.Fault = nil, h.inline(rest)
		return statusFor(err), faults
	}
	if acted, is := out.(operation.Acted); is { // a preview has no receipt
		out = acted.Result
	}
	var found struct {
		AtMost   int64 `json:"at_most"`
		Channels int64 `json:"channels"`
		Samples  []struct{ Platform, Locale, Medium, Title, Body string }
	}
	if text, err := json.Marshal(out); err != nil || json.Unmarshal(text, &found) != nil {
		panic("a preview has no count")
	}
	for _, s := range found.Samples {
		shown := slices.ContainsFunc(page.Cards, func(c card) bool { return c.Title == s.Title && c.Body == s.Body })
		if s.Title != operation.Masked && !shown {
			aboutOf := slices.DeleteFunc([]string{s.Platform, s.Locale, s.Medium}, func(text string) bool { return text == "" })
			page.Cards = append(page.Cards, card{strings.Join(aboutOf, ", "), s.Title, s.Body})
		}
	}
	page.View = h.render(o, in, out)
	for i, b := range page.View.Blocks { // the cards have the samples
		page.View.Blocks[i].Fields = slices.DeleteFunc(b.Fields, func(f field) bool { return f.Name == "sample" || f.Name == "" })
	}
	count := text.Counted(found.Channels, "channel")
	if found.AtMost > 0 && found.Channels <= found.AtMost {
		count = "fewer than " + text.Counted(found.AtMost+1, "channel")
	}
	if page.Agree == nil {
		page.Agree = &confirmation{Text: escaped("Enqueue for " + count + "?")}
	}
	page.Agree.Bound = "Nothing is enqueued if the number of channels has changed by then."
	if values.Get("max_recipients") == "" {
		page.Agree.Bound += " The job stops if its audience has grown by half when it runs."
	}
	if page.Agree.Count = ""; found.Channels > operation.TypedAbove {
		page.Agree.Count = strconv.FormatInt(found.Channels, 10)
	}
	page.Hidden = append(page.Hidden, input{Name: "confirm_count", Value: strconv.FormatInt(found.Channels, 10)}, input{Name: digestField, Value: digest(values)})
	page.Button, page.Plans = "Enqueue for "+count, true
	return http.StatusOK, nil
}

// digest returns a digest of the values of a form.
func digest(values url.Values) string {
	sum := sha256.Sum256([]byte(values.Encode()))
	return hex.EncodeToString(sum[:8])
}

// confirmedCount returns the confirmed number of channels: above operation.TypedAbove the typed number.
func confirmedCount(form url.Values) (n int64, agreed bool) {
	if form.Get("_agreed") == "" {
		return 0, false
	}
	if n, err := strconv.ParseInt(typedCount(form.Get("_count")), 10, 64); err == nil && n >= 0 {
		return n, true
	}
	n, err := strconv.ParseInt(form.Get("confirm_count"), 10, 64)
	return n, err == nil && n >= 0 && n <= operation.TypedAbove
}

// jobLinks returns links to the jobs of a result, and to a test message of each job with messages.
func (h *handler) jobLinks(out any) []tab {
	var made struct {
		Jobs []struct {
			ID   int64  `json:"id"`
			Type string `json:"type"`
		} `json:"jobs"`
	}
	words, err := json.Marshal(out)
	if err != nil || json.Unmarshal(words, &made) != nil {
		return nil
	}
	var tabs []tab
	for _, j := range made.Jobs {
		id := text.Int(j.ID)
		tabs = append(tabs, tab{Name: "Job " + id + ", " + j.Type, Link: h.link("/jobs/" + id)})
		if test, there := h.named("jobs test-send"); there && j.Type != "inbox" && test.Allowed(h.who.Role) == nil {
			tabs = append(tabs, tab{Name: "Send a test of job " + id + "…", Link: h.linkWith(test, map[string][]string{arguments(test)[0].Name: {id}})})
		}
	}
	return tabs
}
