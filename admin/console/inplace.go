package console

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

// placeParam is the place of a form on a designed page. After the act, or after a fault, the browser is on the page
// of views.BackParam again, which shows the outcome at this place. A form without a place is the generated page of
// its act.
const placeParam = "_place"

// faulty is a part of a page that may fail.
type faulty struct{ Fault template.HTML }

// set sets the fault of an error, if any, and returns the status of the page.
func (f *faulty) set(h *handler, err error) int {
	if err == nil {
		return http.StatusOK
	}
	f.Fault = h.failure(err)
	return statusFor(err)
}

// Render implements views.Site.
func (s site) Render(l text.Line) template.HTML { return s.html(l) }

// Form implements views.Site.
func (s site) Form(name, place string, values url.Values) *views.Form {
	o, allowed := s.allowed(name)
	if !allowed {
		return nil
	}
	f := &views.Form{Place: place, Outcome: s.outcome.At(place), Hidden: []views.Field{{Name: "_key", Value: rand.Text()},
		{Name: views.BackParam, Value: s.link(s.req.URL.RequestURI())}, {Name: placeParam, Value: place}}}
	f.Action, _, _ = strings.Cut(s.linkWith(o, values), "?")
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !strings.Contains(pathOf(o), "{"+name+"}") {
			f.Hidden = append(f.Hidden, views.Field{Name: name, Value: strings.Join(values[name], "\n")})
		}
	}
	if f.Outcome != nil {
		f.Values = f.Outcome.Values
	}
	return f
}

const (
	outcomeCookie  = "belfry_outcome"
	outcomeSeconds = 60 // until the browser has followed the redirect
)

// setOutcome stores the outcome of an act for the page that the browser is led to.
func (h *handler) setOutcome(place, sentence string) {
	content := text.Must(json.Marshal(views.Outcome{Place: place, Text: text.OneLine(sentence, 600)}))
	h.setOutcomeCookie(base64.RawURLEncoding.EncodeToString(content), outcomeSeconds)
}

func (h *handler) setOutcomeCookie(value string, seconds int) {
	http.SetCookie(h.w, &http.Cookie{ //nolint:gosec // Secure behind TLS; it holds a sentence for one page
		Name: outcomeCookie, Value: value, Path: h.link("/"), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: h.req.TLS != nil,
		MaxAge: seconds,
	})
}

// takeOutcome returns the outcome of the act that led to the page, and removes it from the browser.
func (h *handler) takeOutcome() *views.Outcome {
	cookie, err := h.req.Cookie(outcomeCookie)
	if h.outcome != nil || err != nil {
		return h.outcome
	}
	h.setOutcomeCookie("", -1)
	var done views.Outcome
	content, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || json.Unmarshal(content, &done) != nil {
		return nil
	}
	h.outcome = &views.Outcome{Place: done.Place, Text: done.Text} // a fault is not in a cookie
	return h.outcome
}

// designedAt returns the designed page with an address, and the request for it. It is nil if there is none.
func (h *handler) designedAt(address string) (serve func(*handler), req *http.Request) {
	address, below := strings.CutPrefix(address, h.at)
	at, err := url.Parse(address)
	if err != nil || !below || at.Scheme != "" || at.Host != "" || at.User != nil {
		return nil, nil
	}
	i := slices.IndexFunc(routes(), func(r route) bool { return r.pattern == "GET "+at.Path })
	if i < 0 {
		return nil, nil
	}
	req = h.req.Clone(h.req.Context())
	req.Method, req.URL, req.Form, req.PostForm = http.MethodGet, &url.URL{Path: at.Path, RawQuery: at.RawQuery}, nil, nil
	return routes()[i].serve, req
}

// returned leads back to the page with the form of an act: with a sentence of what happened, or with the fault at
// the form. It returns false if the page of the act itself is shown.
func (h *handler) returned(o operation.Operation, page *operationPage, status int, faults map[string]string, values url.Values) bool {
	serve, req := h.designedAt(h.req.PostForm.Get(views.BackParam))
	place := h.req.PostForm.Get(placeParam)
	switch {
	case serve == nil:
		return false
	case page.out != nil && status == http.StatusOK:
		h.setOutcome(place, views.Done(o.Verb(), page.out))
		http.Redirect(h.w, h.req, h.link(req.URL.RequestURI()), http.StatusSeeOther)
	case place != "" && page.Agree == nil && status != http.StatusOK:
		fault := page.Fault
		for _, name := range slices.Sorted(maps.Keys(faults)) {
			fault += words.Escaped(words.Sentence(strings.ReplaceAll(name, "_", " "))+": ") + h.html(text.Parse(faults[name])) + " "
		}
		h.outcome, h.status = &views.Outcome{Place: place, Fault: fault, Values: values}, status
		h.req, h.reserved = req, false
		serve(h)
	default:
		return false
	}
	return true
}
