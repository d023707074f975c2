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

// enqueueOf requests a notification. Its form is previewed first. It is bound to the values and to the
// number of channels of the preview.
const enqueueOf = "enqueue"

// seenField is the hidden field with the digest of the previewed values.
const seenField = "_seen"

// card is a notification as a telephone shows it.
type card struct{ About, Title, Body string }

// firstInputs are the fields of a notification that stand before "More".
func firstInputs() []string {
	return []string{"type", "category", "title", "body", "variants", "everyone", "platform", "near", "radius", "segment", "external_id", "at"}
}

// arrange orders the fields of a notification and offers the values of those that an operation lists.
func (v *visit) arrange(o operation.Operation, page *operationPage) {
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
			page.Inputs[i].Offers = v.valuesFor(p)
		}
	}
}

// valuesFor returns the values of a parameter that an operation lists, if the requester may list them.
func (v *visit) valuesFor(p operation.Param) []string {
	name, field := p.Listed()
	list, there := v.named(name)
	if !there || list.Allowed(v.who.Role) != nil {
		return nil
	}
	in, _ := read(list, url.Values{})
	out, err := v.do(v.req.Context(), list, in)
	if err != nil {
		return nil
	}
	offers, err := list.Offered(out, field)
	if err != nil {
		return nil
	}
	values := make([]string, len(offers))
	for i, offer := range offers {
		values[i] = offer.Value
	}
	return values
}

// enqueue requests the notification of a form that was previewed and agreed to, and otherwise previews it.
func (v *visit) enqueue(o operation.Operation, page *operationPage, values url.Values) (status int, faults map[string]string) {
	if err := o.Allowed(v.who.Role); err != nil {
		page.Fault = v.inline(err.Error())
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
	form := v.req.PostForm
	n, counted := agreedCount(form)
	if !counted || form.Get("_plan") != "" || form.Get(seenField) != digest(values) {
		form.Del("_agreed")
		return v.preview(o, page, values, in)
	}
	bound := maps.Clone(values)
	bound.Set("confirm_count", strconv.FormatInt(n, 10))
	in, _ = read(o, bound)
	if asks, err := v.agreed(o, page, in); err != nil {
		faults, rest := faultsOf(o, err)
		page.Fault = v.inline(rest)
		return statusFor(err), faults
	} else if asks {
		return v.preview(o, page, values, in)
	}
	out, err := v.doOnce(o, in)
	if out != nil {
		page.Result, page.Acts = v.tell(o, in, out), v.opensJobs(out)
	}
	if err == nil {
		page.Hidden = nil
		return http.StatusOK, nil
	}
	faults, rest := faultsOf(o, err)
	page.Fault = v.inline(rest)
	if len(faults) == 0 && page.Result == nil {
		_, faults = v.preview(o, page, values, in)
	}
	return statusFor(err), faults
}

// preview shows what would come of a notification, and binds the form to that.
func (v *visit) preview(o operation.Operation, page *operationPage, values url.Values, in any) (status int, faults map[string]string) {
	if page.Agree == nil {
		if _, err := v.agreed(o, page, in); err != nil {
			faults, rest := faultsOf(o, err)
			page.Fault = v.inline(rest)
			return statusFor(err), faults
		}
	}
	asked := maps.Clone(values)
	asked.Set("preview", "on")
	in, _ = read(o, asked)
	out, err := v.do(v.req.Context(), o, in)
	if err != nil {
		faults, rest := faultsOf(o, err)
		page.Agree, page.Fault = nil, v.inline(rest)
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
			about := slices.DeleteFunc([]string{s.Platform, s.Locale, s.Medium}, func(text string) bool { return text == "" })
			page.Cards = append(page.Cards, card{strings.Join(about, ", "), s.Title, s.Body})
		}
	}
	page.Told = v.tell(o, in, out)
	for i, b := range page.Told.Blocks { // the cards have the samples
		page.Told.Blocks[i].Fields = slices.DeleteFunc(b.Fields, func(f field) bool { return f.Name == "sample" || f.Name == "" })
	}
	count := text.Counted(found.Channels, "channel")
	if found.AtMost > 0 && found.Channels <= found.AtMost {
		count = "fewer than " + text.Counted(found.AtMost+1, "channel")
	}
	if page.Agree == nil {
		page.Agree = &agreement{Text: escaped("Enqueue for " + count + "?")}
	}
	page.Agree.Bound = "If the number of channels is another one when it is enqueued, nothing is done."
	if values.Get("max_recipients") == "" {
		page.Agree.Bound += " If the audience has grown by half when it runs, it stops before."
	}
	if page.Agree.Count = ""; found.Channels > operation.TypedAbove {
		page.Agree.Count = strconv.FormatInt(found.Channels, 10)
	}
	page.Hidden = append(page.Hidden, input{Name: "confirm_count", Value: strconv.FormatInt(found.Channels, 10)}, input{Name: seenField, Value: digest(values)})
	page.Button, page.Plans = "Enqueue for "+count, true
	return http.StatusOK, nil
}

// digest identifies the values of a form.
func digest(values url.Values) string {
	sum := sha256.Sum256([]byte(values.Encode()))
	return hex.EncodeToString(sum[:8])
}

// agreedCount is the number of channels that was agreed to: above operation.TypedAbove the typed number.
func agreedCount(form url.Values) (n int64, agreed bool) {
	if form.Get("_agreed") == "" {
		return 0, false
	}
	if n, err := strconv.ParseInt(typedCount(form.Get("_count")), 10, 64); err == nil && n >= 0 {
		return n, true
	}
	n, err := strconv.ParseInt(form.Get("confirm_count"), 10, 64)
	return n, err == nil && n >= 0 && n <= operation.TypedAbove
}

// opensJobs are the jobs of a result, and a test of those that have messages.
func (v *visit) opensJobs(out any) []tab {
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
		tabs = append(tabs, tab{Name: "Job " + id + ", " + j.Type, Link: v.link("/jobs/" + id)})
		if test, there := v.named("jobs test-send"); there && j.Type != "inbox" && test.Allowed(v.who.Role) == nil {
			tabs = append(tabs, tab{Name: "Send a test of job " + id + "…", Link: v.linkWith(test, map[string][]string{arguments(test)[0].Name: {id}})})
		}
	}
	return tabs
}
