package console

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
)

// enqueueOf requests a notification. It has a page of its own: what is said to many is written on
// it, and looked at before.
const enqueueOf = "enqueue"

// noticePage is the page on which a notification is written.
type noticePage struct {
	operationPage

	Says, How []input // what it says, how and when it goes out
	Locales   []wording
	Data      *input
	Variants  *input // instead of Locales: what they cannot show
	LocalesAt string // where more of them are asked for
	Kinds     []kindInputs
	Platforms *input
	Nobody    string // what is wrong about the audience as a whole
	Reach     *reach
	Review    bool // nothing is typed any more: it is looked at, and done
	Summary   []field
	Test      *trial
	Opens     []tab // the jobs that were made, and what to do with them
}

// kindInputs is a way to choose an audience, with its fields.
type kindInputs struct {
	kind

	Chosen bool
	Inputs []input
}

// reach is whom a notification reaches now, and what they would read.
type reach struct {
	Count  int64
	Text   string // "1,200 channels"; "": it was not counted
	Why    template.HTML
	Told   *told
	Cards  []card
	Typed  bool // the count is to be typed
	Agreed bool // it is bound to the count
	Grows  bool // how far it may grow until it runs is not asked for
}

// card is a notification as a telephone shows it.
type card struct{ About, To, Title, Body string }

// trial is a test to one person.
type trial struct {
	To, Key string
	Fault   template.HTML
	Told    *told
}

// noticeForm shows the page as its address says.
func (v *visit) noticeForm(o admin.Operation) {
	d, page, may := v.noticed(o)
	if may {
		page.Fresh = true
		v.showNotice(o, d, page, http.StatusOK)
	}
}

// noticeSent does what the page was sent for: it counts, tries it on one person, shows what would
// come of it, or does it.
func (v *visit) noticeSent(o admin.Operation) {
	d, page, may := v.noticed(o)
	if !may {
		return
	}
	form := v.req.PostForm
	switch {
	case form.Get("_reach") != "":
		page.Reach = v.reach(o, &d)
		v.part("notice", "reach", page)
	case form.Get("_more") != "":
		d.locales = append(d.locales, wording{})
		v.showNotice(o, d, page, http.StatusOK)
	case form.Get("_edit") != "":
		v.showNotice(o, d, page, http.StatusOK)
	case form.Get("_test") != "":
		status := v.try(&d, &page)
		v.showNotice(o, d, page, status)
	default:
		d.need("category", "title", "type")
		d.refuse(d.lacks())
		_, faults := read(o, d.values)
		d.refuse(faults)
		if len(d.faults) > 0 {
			v.showNotice(o, d, page, http.StatusUnprocessableEntity)
			return
		}
		v.enqueue(o, d, page)
	}
}

// noticed reads the draft of who may write one.
func (v *visit) noticed(o admin.Operation) (draft, noticePage, bool) {
	v.allow(o)
	if err := o.Allowed(v.who.Role); err != nil {
		v.problem(http.StatusForbidden, err)
		return draft{}, noticePage{}, false
	}
	d, err := v.drafted(o)
	if err != nil {
		v.problem(http.StatusBadRequest, err)
		return draft{}, noticePage{}, false
	}
	page := noticePage{operationPage: v.actPage(o, d.typed)}
	page.Title = "New notification"
	return d, page, true
}

// enqueue does it if what it reaches was seen, and shows that before.
func (v *visit) enqueue(o admin.Operation, d draft, page noticePage) {
	status, err := http.StatusOK, error(nil)
	if n, agreed := agreedCount(v.req.PostForm); agreed {
		d.values.Set("confirm_count", strconv.FormatInt(n, 10))
		in, _ := read(o, d.values)
		var asks bool
		if asks, err = v.agreed(o, &page.operationPage, in); err == nil && !asks {
			var out any
			if out, err = v.ask.Keyed(keyOf(v.req)).Run(v.req.Context(), o, in); out != nil {
				page.Result, page.Opens = v.tell(o, in, out), v.opensJobs(out)
			}
		}
		if err == nil && !asks {
			v.show(status, "notice", frame{Title: page.Title, Page: page})
			return
		}
		d.values.Del("confirm_count")
	}
	if err != nil {
		faults, rest := faultsOf(o, err)
		d.refuse(faults)
		status, page.Fault = statusFor(err), v.inline(rest)
		if len(faults) > 0 || page.Result != nil {
			v.showNotice(o, d, page, status)
			return
		}
	}
	v.review(o, d, page, status)
}

// review shows a draft with whom it reaches, and binds the form to that.
func (v *visit) review(o admin.Operation, d draft, page noticePage, status int) {
	page.Reach = v.reach(o, &d)
	if page.Agree == nil && len(d.faults) == 0 {
		in, _ := read(o, d.values)
		if _, err := v.agreed(o, &page.operationPage, in); err != nil {
			faults, rest := faultsOf(o, err)
			d.refuse(faults)
			page.Fault, page.Reach.Text = v.inline(rest), ""
		}
	}
	if page.Reach.Text == "" || len(d.faults) > 0 {
		if page.Fault == "" && len(d.faults) == 0 {
			page.Fault = page.Reach.Why
		}
		v.showNotice(o, d, page, http.StatusUnprocessableEntity)
		return
	}
	page.Review, page.Reach.Agreed, page.Reach.Typed = true, true, page.Reach.Count > admin.TypedAbove
	page.Reach.Grows = d.values.Get("max_recipients") == ""
	page.Hidden = append(page.Hidden, input{Name: whoField, Value: d.who})
	for _, p := range o.Params() {
		for _, text := range d.values[p.Name] {
			page.Hidden = append(page.Hidden, input{Name: p.Name, Value: text})
		}
		if texts := d.values[p.Name]; len(texts) > 0 && p.Name != variantsParam {
			page.Summary = append(page.Summary, field{Name: strings.ReplaceAll(p.Name, "_", " "), Text: v.inline(strings.Join(texts, ", "))})
		}
	}
	v.show(status, "notice", frame{Title: page.Title, Page: page})
}

// notCounted is said where a count would stand.
const notCounted = "Whom it reaches is counted once it is said who gets it."

// counted is what a preview says of an audience, in its JSON.
type counted struct {
	AtMost      int64  `json:"at_most"` // what the count may be less than
	Channels    *int64 `json:"channels"`
	HasMessages bool   `json:"has_messages"`
	Samples     []struct {
		ExternalID string `json:"external_id"`
		Platform   string `json:"platform"`
		Locale     string `json:"locale"`
		Medium     string `json:"medium"`
		Title      string `json:"title"`
		Body       string `json:"body"`
	} `json:"samples"`
}

// reach counts whom a draft reaches now, by the preview of the operation.
func (v *visit) reach(o admin.Operation, d *draft) *reach {
	r := &reach{Cards: d.cards(counted{})}
	if d.who == "" {
		r.Why = notCounted
		return r
	}
	lacks := d.lacks()
	for _, name := range slices.Sorted(maps.Keys(lacks)) {
		r.Why = v.inline(strings.ReplaceAll(name, "_", " ") + " " + lacks[name])
	}
	asked := make(url.Values)
	maps.Copy(asked, d.values)
	asked.Set("preview", "on")
	in, faults := read(o, asked)
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		r.Why = v.inline(strings.ReplaceAll(name, "_", " ") + ": " + faults[name])
	}
	if r.Why != "" {
		return r
	}
	out, err := v.ask.Run(v.req.Context(), o, in)
	if err != nil {
		faults, rest := faultsOf(o, err)
		d.refuse(faults)
		for _, name := range slices.Sorted(maps.Keys(faults)) {
			rest = strings.ReplaceAll(name, "_", " ") + ": " + faults[name]
		}
		r.Why = v.inline(rest)
		return r
	}
	if acted, is := out.(admin.Acted); is { // nothing was done that a receipt could be for
		out = acted.Result
	}
	var found counted
	if text, err := json.Marshal(out); err != nil || json.Unmarshal(text, &found) != nil || found.Channels == nil {
		panic("a preview has no count")
	}
	r.Count, r.Text, r.Cards = *found.Channels, printer.Counted(*found.Channels, "channel"), d.cards(found)
	if found.AtMost > 0 && r.Count <= found.AtMost {
		r.Text = "fewer than " + printer.Counted(found.AtMost+1, "channel")
	}
	r.Told = v.tell(o, in, out)
	r.Told.Blocks = slices.DeleteFunc(r.Told.Blocks, func(b block) bool { return b.Lines != nil })
	for i, b := range r.Told.Blocks { // what the cards show, and the count itself
		r.Told.Blocks[i].Fields = slices.DeleteFunc(b.Fields, func(f field) bool { return f.Name == "sample" || f.Name == "" })
	}
	return r
}

// cards are what people would read: as it was composed for some of them and, where that is not
// for who asks or nobody was looked at, as it was written.
func (d *draft) cards(found counted) []card {
	var cards []card
	seen := make(map[string]bool) // locales, and the languages that they are of
	for _, s := range found.Samples {
		read := slices.ContainsFunc(cards, func(c card) bool { return c.Title == s.Title && c.Body == s.Body })
		if s.Title == admin.Masked || read {
			continue
		}
		about := []string{s.Locale, s.Platform}
		if s.Medium != "" {
			about = append(about, "by "+s.Medium)
		}
		cards = append(cards, card{strings.Join(slices.DeleteFunc(about, func(s string) bool { return s == "" }), ", "), s.ExternalID, s.Title, s.Body})
		for locale := plainLocale(s.Locale); locale != ""; locale = locale[:max(strings.LastIndexByte(locale, '-'), 0)] {
			seen[locale] = true
		}
	}
	title, body := d.values.Get("title"), d.values.Get("body")
	if len(cards) == 0 && title+body != "" {
		cards = append(cards, card{About: "as it is written", Title: title, Body: body})
	}
	if len(d.values["type"]) > 0 && d.onlyInbox() { // nothing is composed for an inbox
		return cards
	}
	for _, w := range d.locales {
		if w.Locale == "" || seen[plainLocale(w.Locale)] {
			continue
		}
		one := card{About: w.Locale + ", as it is written", Title: w.Title, Body: w.Body}
		if one.Title == "" {
			one.Title = title
		}
		if one.Body == "" {
			one.Body = body
		}
		cards = append(cards, one)
	}
	return cards
}

// plainLocale is a locale as others are compared with it: ko_KR is ko-kr.
func plainLocale(locale string) string { return strings.ToLower(strings.ReplaceAll(locale, "_", "-")) }

// try sends a draft to one person, as the operation that sends one message does.
func (v *visit) try(d *draft, page *noticePage) int {
	send, there := v.named("send")
	t := &trial{To: strings.TrimSpace(v.req.PostForm.Get(personField))}
	page.Test = t
	d.need("category", "title")
	switch {
	case !there || send.Allowed(v.who.Role) != nil:
		t.Fault = "nothing can be sent to one person here"
	case t.To == "":
		t.Fault = "to whom? An external id is needed"
	case d.onlyInbox():
		t.Fault = "a test is a message, and this has none: it is of type inbox alone"
	}
	if t.Fault != "" || len(d.faults) > 0 {
		return http.StatusUnprocessableEntity
	}
	values := url.Values{"external_id": {t.To}}
	for _, name := range []string{"title", "body", "data", variantsParam, "route", "category"} {
		if texts := d.values[name]; len(texts) > 0 {
			values[name] = texts
		}
	}
	in, faults := read(send, values)
	if len(faults) > 0 {
		d.refuse(faults)
		return http.StatusUnprocessableEntity
	}
	key := v.req.PostForm.Get(personKey)
	if key == "" || len(key) > 40 {
		key = rand.Text()
	}
	out, err := v.ask.Keyed(key).Run(v.req.Context(), send, in)
	if out != nil {
		t.Told = v.tell(send, in, out)
	}
	if err == nil {
		return http.StatusOK
	}
	faults, rest := faultsOf(send, err)
	if text := faults["external_id"]; text != "" {
		rest = text
	}
	d.refuse(faults)
	t.Fault = v.inline(rest)
	return statusFor(err)
}

// opensJobs are the jobs of a result, and a test of those that have messages.
func (v *visit) opensJobs(out any) []tab {
	var made struct {
		Jobs []struct {
			ID   int64  `json:"id"`
			Type string `json:"type"`
		} `json:"jobs"`
	}
	text, err := json.Marshal(out)
	if err != nil || json.Unmarshal(text, &made) != nil {
		return nil
	}
	var tabs []tab
	for _, j := range made.Jobs {
		id := printer.Int(j.ID)
		tabs = append(tabs, tab{Name: "Job " + id + ", " + j.Type, Link: v.link("/jobs/" + id)})
		if test, there := v.named("jobs test-send"); there && j.Type != "inbox" && test.Allowed(v.who.Role) == nil {
			tabs = append(tabs, tab{Name: "Send a test of job " + id + "…", Link: v.linkWith(test, map[string][]string{arguments(test)[0].Name: {id}})})
		}
	}
	return tabs
}

// part answers with a part of a page.
func (v *visit) part(page, name string, data any) {
	var b bytes.Buffer
	if err := v.pages[page].ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // the API's handler logs it
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = v.w.Write(b.Bytes())
}
