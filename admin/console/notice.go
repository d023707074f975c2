package console

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/enqueue"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"

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
			page.Inputs[i].Offers = h.names(p.Listed())
		}
	}
}

// enqueue enqueues the notification of a confirmed form, and otherwise renders its preview.
func (h *handler) enqueue(o operation.Operation, page *operationPage, values url.Values) (status int, faults map[string]string) {
	if err := o.Allowed(h.role); err != nil {
		return h.refuse(o, page, err)
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
		return h.refuse(o, page, err)
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
	faults, page.Fault = h.splitProblems(o, err)
	if len(faults) == 0 && page.Result == nil {
		_, faults = h.preview(o, page, values, in)
	}
	return statusFor(err), faults
}

// preview renders the preview of a notification and binds the form to it.
func (h *handler) preview(o operation.Operation, page *operationPage, values url.Values, in any) (status int, faults map[string]string) {
	if page.Agree == nil {
		if _, err := h.agreed(o, page, in); err != nil {
			return h.refuse(o, page, err)
		}
	}
	asked := maps.Clone(values)
	asked.Set("preview", "on")
	in, _ = read(o, asked)
	out, err := h.do(h.req.Context(), o, in)
	if err != nil {
		page.Agree = nil
		return h.refuse(o, page, err)
	}
	of, is := resultOf(out).(interface{ Preview() *enqueue.Preview })
	if !is || of.Preview() == nil {
		return h.refuse(o, page, errors.New("enqueue returned no preview"))
	}
	found := *of.Preview()
	for _, s := range found.Samples {
		shown := slices.ContainsFunc(page.Cards, func(c card) bool { return c.Title == s.Title && c.Body == s.Body })
		if s.Title != operation.Masked && !shown {
			about := slices.DeleteFunc([]string{s.Platform, s.Locale, s.Medium}, func(text string) bool { return text == "" })
			page.Cards = append(page.Cards, card{strings.Join(about, ", "), s.Title, s.Body})
		}
	}
	found.Samples = nil // the cards have them
	page.View = h.viewOf(o, found.Text)
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
	page.Hidden = append(page.Hidden, input{Name: "confirm_count", Value: strconv.FormatInt(found.Channels, 10)},
		input{Name: digestField, Value: digest(values)})
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
	of, is := resultOf(out).(interface{ Jobs() []job.Job })
	if !is {
		return nil
	}
	var tabs []tab
	for _, j := range of.Jobs() {
		id := text.Int(j.ID)
		tabs = append(tabs, tab{Name: "Job " + id + ", " + j.Type, Link: h.pageFor("job", id)})
		if j.Type != outbox.TypeInbox {
			tabs = append(tabs, h.action("jobs test-send", "Send a test of job "+id+"…", url.Values{"id": {id}})...)
		}
	}
	return tabs
}
