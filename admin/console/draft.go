package console

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/outbox"
)

// draft is a notification that somebody writes.
type draft struct {
	who     string            // the kind of audience that was chosen; "": none
	typed   url.Values        // of each parameter, what was typed
	values  url.Values        // what the operation is given: without audiences that were not chosen
	locales []wording         // the variants; nil: they are shown as they are
	faults  map[string]string // by parameter, or by field of the page
}

// wording is what one locale reads.
type wording struct {
	N                   int
	Locale, Title, Body string
	Fault               string
}

// kind is a way to choose an audience, and the parameters of it.
type kind struct {
	Value, Label string
	params       []string
	narrowed     bool // by platforms
}

// kinds are the ways to choose an audience.
func kinds() []kind {
	return []kind{
		{Value: "everyone", Label: "Everyone", params: []string{"everyone"}},
		{Value: "platform", Label: "Everyone on some platforms", params: []string{"platform"}},
		{Value: "place", Label: "Everyone near a place", params: []string{"city", "near", "radius"}, narrowed: true},
		{Value: "segment", Label: "A segment", params: []string{"segment"}, narrowed: true},
		{Value: "people", Label: "Certain people", params: []string{"external_id", "channel_id"}},
		{Value: "audience", Label: "An audience as JSON", params: []string{"audience"}},
	}
}

// The fields of the page that are no parameters.
const (
	whoField      = "_who" // the kind of audience
	localeField   = "_locale"
	titlesField   = "_locale_title"
	bodiesField   = "_locale_body"
	personField   = "_to" // to whom a test goes
	personKey     = "_test_key"
	variantsParam = "variants"
)

// drafted reads a draft from a request.
func (v *visit) drafted(o admin.Operation) (draft, error) {
	typed, err := v.given(o)
	if err != nil {
		return draft{}, err
	}
	d := draft{typed: typed, faults: make(map[string]string)}
	d.readLocales(v.req.Form)
	d.choose(v.req.Form.Get(whoField))
	d.values.Del("confirm_count") // enqueue sets it once it is agreed to
	return d, nil
}

// readLocales reads the variants from the fields for them, or from the parameter.
func (d *draft) readLocales(form url.Values) {
	if _, fields := form[localeField]; !fields {
		d.locales = wordingsIn(d.typed.Get(variantsParam))
		return
	}
	d.locales = []wording{}
	variants := make(map[string]map[string]string)
	at := func(name string, i int) string {
		if i >= len(form[name]) {
			return ""
		}
		return asTyped(form[name][i])
	}
	for i := range form[localeField] {
		w := wording{N: len(d.locales), Locale: at(localeField, i), Title: at(titlesField, i), Body: at(bodiesField, i)}
		if w.Locale+w.Title+w.Body == "" {
			continue
		}
		_, twice := variants[w.Locale]
		switch {
		case w.Locale == "":
			w.Fault = "the locale is needed, as ko or pt-BR"
		case w.Title+w.Body == "":
			w.Fault = "a title or a body is needed"
		case twice:
			w.Fault = "this locale is there already; allowed values: each locale once"
		}
		if w.Fault != "" {
			d.faults[variantsParam] = w.Fault
		}
		one := make(map[string]string)
		for name, text := range map[string]string{"title": w.Title, "body": w.Body} {
			if text != "" {
				one[name] = text
			}
		}
		variants[w.Locale] = one
		d.locales = append(d.locales, w)
	}
	d.typed.Del(variantsParam)
	if len(variants) > 0 {
		text, err := json.Marshal(variants)
		if err != nil {
			panic(err) // texts
		}
		d.typed.Set(variantsParam, string(text))
	}
}

// wordingsIn are the variants in JSON; nil: there is more in it than titles and bodies.
func wordingsIn(text string) []wording {
	list := []wording{}
	if text == "" {
		return list
	}
	var variants map[string]map[string]string
	if json.Unmarshal([]byte(text), &variants) != nil {
		return nil
	}
	for _, locale := range slices.Sorted(maps.Keys(variants)) {
		w := wording{N: len(list), Locale: locale}
		for name, text := range variants[locale] {
			switch {
			case name == "title" && text != "":
				w.Title = text
			case name == "body" && text != "":
				w.Body = text
			default:
				return nil
			}
		}
		list = append(list, w)
	}
	return list
}

// choose sets the kind of audience, and what the operation is given. Without a choice, as of a
// link, the parameters say it, and all of them are given.
func (d *draft) choose(who string) {
	d.values = make(url.Values)
	maps.Copy(d.values, d.typed)
	i := slices.IndexFunc(kinds(), func(k kind) bool { return k.Value == who })
	if i < 0 {
		for _, k := range kinds() {
			given := slices.ContainsFunc(k.params, func(name string) bool { return len(d.typed[name]) > 0 })
			if given && (d.who == "" || d.who == "platform") { // platforms narrow others
				d.who = k.Value
			}
		}
		return
	}
	chosen := kinds()[i]
	d.who = chosen.Value
	for _, k := range kinds() {
		for _, name := range k.params {
			if k.Value != chosen.Value && (name != "platform" || !chosen.narrowed) {
				d.values.Del(name)
			}
		}
	}
	if chosen.Value == "everyone" {
		d.values.Set("everyone", "on")
	}
}

// lacks says what of the audience is still to be said, by field.
func (d *draft) lacks() map[string]string {
	faults := make(map[string]string)
	none := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return len(d.values[name]) > 0 })
	}
	switch d.who {
	case "":
		faults[whoField] = "somebody is needed; allowed values: one of these"
	case "place":
		if none("city", "near") {
			faults["city"] = "is needed, or a point"
		}
		if none("radius") {
			faults["radius"] = "is needed, as 30km"
		}
	case "people":
		if none("external_id", "channel_id") {
			faults["external_id"] = "is needed, or an id of a channel"
		}
	default:
		if none(d.who) {
			faults[d.who] = "is needed"
		}
	}
	return faults
}

// refuse adds faults of fields.
func (d *draft) refuse(faults map[string]string) { maps.Copy(d.faults, faults) }

// need refuses a draft without what has to be there.
func (d *draft) need(names ...string) {
	for _, name := range names {
		if len(d.values[name]) == 0 {
			d.faults[name] = "is needed"
		}
	}
}

// place moves the fault of a variant to its locale: "ko.title: is too long".
func (d *draft) place() {
	fault := d.faults[variantsParam]
	for i, w := range d.locales {
		if rest, of := strings.CutPrefix(fault, w.Locale); w.Locale != "" && of && strings.HasPrefix(strings.ReplaceAll(rest, ":", "."), ".") {
			d.locales[i].Fault = strings.TrimLeft(rest, ".: ")
		}
	}
}

// agreedCount is the number of channels that was seen: above a thousand the one that was typed.
func agreedCount(form url.Values) (n int64, agreed bool) {
	if form.Get("_agreed") == "" {
		return 0, false
	}
	number := func(name string) (int64, error) {
		return strconv.ParseInt(typedCount(form.Get(name)), 10, 64)
	}
	if n, err := number("_count"); err == nil && n >= 0 {
		return n, true
	}
	n, err := number("confirm_count")
	return n, err == nil && n >= 0 && n <= admin.TypedAbove
}

// several are the values in texts of a list.
func several(texts []string) []string {
	return strings.FieldsFunc(strings.Join(texts, ","), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
}

// onlyInbox reports whether nothing of it is a message.
func (d *draft) onlyInbox() bool {
	types := several(d.values["type"])
	return len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return t != outbox.TypeInbox })
}
