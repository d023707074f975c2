package console

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console/draft"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/enqueue"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// enqueueOperation enqueues a notification. Its form is reviewed first, and bound to the reviewed values and
// the number of channels.
const enqueueOperation = "enqueue"

// Hidden fields and buttons of the form.
const (
	digestField = "_seen"     // the digest of the reviewed values
	testField   = "_test"     // the button that sends a test
	testKey     = "_test_key" // the idempotency key of the next test
)

// card is a notification as a phone shows it.
type card struct{ About, Title, Body string }

// composePage is the form of a new notification: what it says, who gets it, when, and how.
type composePage struct {
	draft.Form

	Hidden  []input
	Phone   card
	Samples []card // as composed for three recipients
	Reach   *draft.Reach
	Review  *draft.Review
	Sent    *sentNotification
	Tested  string // the person who gets the test
	Tester  input
	Fault   template.HTML
}

// sentNotification is the result: one job, or several of a group.
type sentNotification struct {
	Title, About string
	When         template.HTML
	Jobs         []tab
	Remarks      []string
}

// compose renders the form of a notification, its review or its result.
func (h *handler) compose() {
	o, _ := h.named(enqueueOperation)
	h.extendDeadline(o)
	if err := o.Allowed(h.role); err != nil {
		h.problem(http.StatusForbidden, err)
		return
	}
	values, err := h.formValues(o)
	if err != nil {
		h.problem(http.StatusBadRequest, err)
		return
	}
	values.Del("confirm_count") // a value of the review
	faults := draft.Apply(values, h.req.Form, h.zone)
	var page composePage
	status := http.StatusOK
	switch form := h.req.PostForm; {
	case h.req.Method != http.MethodPost:
		faults = nil
	case form.Get(testField) != "":
		page.Tester.Value = form.Get("_test_to")
		status, faults = h.sendTest(&page, values)
	case form.Get(draft.Live) != "":
		faults = nil
		_, page.Reach, _ = h.preview(o, values)
	default:
		status, faults = h.review(o, &page, values, faults)
	}
	if page.Sent == nil {
		page.Form = draft.New(h.source(o, values, faults))
		page.Phone.Title, page.Phone.Body = page.Form.Phone()
		page.Hidden = append(page.Hidden, input{Name: "_key", Value: keyOf(h.req)}, input{Name: testKey, Value: rand.Text()})
		if page.Reach == nil {
			page.Reach = &draft.Reach{}
		}
	}
	h.show(status, "compose", layout{Title: "New notification", Page: page})
}

// review enqueues the notification of a confirmed form, and otherwise renders its review.
func (h *handler) review(o operation.Operation, page *composePage, values url.Values, faults map[string]string) (int, map[string]string) {
	in, wrong := read(o, values)
	maps.Copy(faults, wrong)
	for _, name := range []string{"type", "category", "title"} {
		if len(values[name]) == 0 && faults[name] == "" {
			faults[name] = "is needed"
		}
	}
	if !draft.HasAudience(values) {
		faults["everyone"] = "Choose who gets it."
	}
	if len(faults) > 0 {
		return http.StatusUnprocessableEntity, faults
	}
	form := h.req.PostForm
	n, counted := confirmedCount(form)
	if !counted || form.Get("_plan") != "" || form.Get(digestField) != digest(values) {
		form.Del("_agreed")
		return h.showReview(o, page, values, in)
	}
	bound := maps.Clone(values)
	bound.Set("confirm_count", strconv.FormatInt(n, 10))
	in, _ = read(o, bound)
	var asked operationPage
	if asks, err := h.agreed(o, &asked, in); err != nil {
		return h.refuse(o, &page.Fault, err)
	} else if asks {
		return h.showReview(o, page, values, in)
	}
	out, err := h.doOnce(o, in)
	if out != nil {
		page.Sent = h.sent(out)
	}
	if err == nil {
		return http.StatusOK, nil
	}
	status, faults := h.refuse(o, &page.Fault, err)
	if fault := page.Fault; len(faults) == 0 && page.Sent == nil {
		_, faults = h.showReview(o, page, values, in)
		page.Fault = cmp.Or(fault, page.Fault)
	}
	return status, faults
}

// showReview renders the review of a notification and binds the form to it.
func (h *handler) showReview(o operation.Operation, page *composePage, values url.Values, in any) (status int, faults map[string]string) {
	var asked operationPage
	if _, err := h.agreed(o, &asked, in); err != nil {
		return h.refuse(o, &page.Fault, err)
	}
	found, reached, err := h.preview(o, values)
	if err != nil {
		return h.refuse(o, &page.Fault, err)
	}
	page.Reach = reached
	for _, s := range found.Samples {
		shown := s.Title == values.Get("title") && s.Body == values.Get("body") ||
			slices.ContainsFunc(page.Samples, func(c card) bool { return c.Title == s.Title && c.Body == s.Body })
		if s.Title != operation.Masked && !shown {
			page.Samples = append(page.Samples, card{words.AboutJob("", slices.DeleteFunc([]string{s.Platform, s.Locale, s.Medium},
				func(text string) bool { return text == "" })...), s.Title, s.Body})
		}
	}
	page.Review = draft.NewReview(h.source(o, values, nil), found, reached, h.role, asked.Agree != nil, h.clock())
	page.Hidden = append(page.Hidden, input{Name: "confirm_count", Value: strconv.FormatInt(found.Channels, 10)},
		input{Name: digestField, Value: digest(values)})
	return http.StatusOK, nil
}

// preview counts the recipients of a notification and composes it for some of them.
func (h *handler) preview(o operation.Operation, values url.Values) (*enqueue.Preview, *draft.Reach, error) {
	if values.Get("category") == "" || !draft.HasAudience(values) {
		return nil, nil, nil
	}
	asked := maps.Clone(values)
	asked.Set("preview", "on")
	in, faults := read(o, asked)
	if len(faults) > 0 {
		return nil, &draft.Reach{Fault: "Correct the marked fields to count the recipients."}, nil
	}
	out, err := h.do(h.req.Context(), o, in)
	if err != nil {
		return nil, &draft.Reach{Fault: h.failure(err)}, err
	}
	of, is := resultOf(out).(interface{ Preview() *enqueue.Preview })
	if !is || of.Preview() == nil {
		return nil, nil, errors.New("enqueue returned no preview")
	}
	found := of.Preview()
	return found, draft.NewReach(found), nil
}

// source returns the parts of the form.
func (h *handler) source(o operation.Operation, values url.Values, faults map[string]string) draft.Source {
	first, more := h.inputs(o, values, faults)
	s := draft.Source{Values: values, Fields: h.req.Form, Fresh: h.req.Method != http.MethodPost, Inputs: slices.Concat(first, more),
		Faults: faults, Site: h.site(), Free: time.Now()}
	if s.Fields.Get(draft.Live) == "" { // the script takes no lists from the page
		categories, _ := listOf[channels.Category](h, views.CategoriesOperation, nil)
		segments, _ := listOf[channels.Segment](h, "channels segment list", nil)
		s.Categories, s.Segments, s.Lanes = categories.Items, segments.Items, h.names("lanes list")
	}
	lane := cmp.Or(values.Get("lane"), "default")
	running, err := h.inProgress()
	if err == nil {
		entries, _ := listOf[upcoming.Entry](h, upcomingOperation,
			url.Values{"lane": {lane}, "skip_held": {"on"}, "occurrences": {"50"}, "limit": {"200"}})
		s.Free = draft.NextFree(lane, running, entries.Items, time.Now())
	}
	return s
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

// sent describes the enqueued jobs, with links to them and to a test message of each job with messages.
func (h *handler) sent(out any) *sentNotification {
	of, is := resultOf(out).(interface {
		Jobs() []job.Job
		Repeated(of job.Job) bool
		Remarks() []string
	})
	if !is || len(of.Jobs()) == 0 {
		return nil
	}
	first := of.Jobs()[0]
	s := &sentNotification{Title: "“" + first.Title + "” starts now", Remarks: of.Remarks()}
	switch {
	case of.Repeated(first):
		s.Title, s.When = "“"+first.Title+"” was requested before", h.site().When(first.CreatedAt)
		s.About = "A request with this key exists. Nothing new was enqueued."
	case first.AwaitsApproval():
		s.Title = "“" + first.Title + "” waits for approval"
		s.About = "A second person approves it on the page of the job. It does not start before."
	case first.ScheduleAt.Sub(first.CreatedAt) > time.Second:
		s.Title, s.When = "“"+first.Title+"” is scheduled", h.site().When(first.ScheduleAt)
	}
	for _, j := range of.Jobs() {
		id := text.Int(j.ID)
		s.Jobs = append(s.Jobs, tab{Name: "Open job " + id + ", " + j.Type, Link: h.pageFor("job", id)})
		if j.Type != outbox.TypeInbox {
			s.Jobs = append(s.Jobs, h.action("jobs test-send", "Send a test of job "+id+"…", url.Values{"id": {id}})...)
		}
	}
	s.Jobs = append(s.Jobs, tab{Name: "Write another", Link: h.link("/enqueue")})
	return s
}

// sendTest sends the content of the form to one person, as an activity.
func (h *handler) sendTest(page *composePage, values url.Values) (status int, faults map[string]string) {
	o, _ := h.named("send")
	if page.Tester.Value == "" {
		page.Tester.Fault = "is needed"
		return http.StatusUnprocessableEntity, nil
	}
	one := url.Values{"external_id": {page.Tester.Value}}
	for _, name := range []string{"category", "title", "body", "data", "variants", "route"} {
		if len(values[name]) > 0 {
			one[name] = values[name]
		}
	}
	in, faults := read(o, one)
	for _, name := range []string{"category", "title"} {
		if len(values[name]) == 0 {
			faults[name] = "is needed"
		}
	}
	if len(faults) > 0 {
		return http.StatusUnprocessableEntity, faults
	}
	_, err := h.api.Do(h.req.Context(), api.Call{Caller: h.caller, Operation: o, Input: in, Key: h.req.PostForm.Get(testKey)})
	if err == nil {
		page.Tested = page.Tester.Value
		return http.StatusOK, nil
	}
	faults, page.Tester.Fault = h.splitProblems(o, err)
	if faults["external_id"] != "" {
		page.Tester.Fault = words.Escaped(faults["external_id"])
		delete(faults, "external_id")
	}
	return statusFor(err), faults
}
