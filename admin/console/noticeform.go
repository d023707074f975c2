package console

import (
	"crypto/rand"
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin"
)

// showNotice shows the page with its fields. Each parameter of the operation has one: what no
// group names stands with how and when.
func (v *visit) showNotice(o admin.Operation, d draft, page noticePage, status int) {
	d.place()
	page.Kinds = nil
	first, more := v.inputs(o, d.typed, d.faults)
	all := slices.Concat(first, more)
	for i, in := range all {
		all[i] = v.offered(o, in)
	}
	take := func(name string) *input {
		i := slices.IndexFunc(all, func(in input) bool { return in.Name == name })
		if i < 0 {
			return nil
		}
		one := all[i]
		all = slices.Delete(all, i, i+1)
		return &one
	}
	list := func(names ...string) (inputs []input) {
		for _, name := range names {
			if one := take(name); one != nil {
				inputs = append(inputs, *one)
			}
		}
		return inputs
	}
	variants := take(variantsParam)
	page.Says = list("category", "title", "body")
	if page.Locales = d.locales; d.locales == nil {
		page.Variants = variants
	}
	if len(d.locales) == 0 {
		page.Locales = []wording{{}}
	}
	for i := range page.Locales {
		page.Locales[i].N = i
	}
	if fault := d.faults[variantsParam]; fault != "" && variants != nil && !slices.ContainsFunc(page.Locales, func(w wording) bool { return w.Fault != "" }) {
		page.Locales[0].Fault = fault
	}
	page.Data = take("data")
	page.Platforms = take("platform")
	take("everyone") // it is a kind
	for _, k := range kinds() {
		page.Kinds = append(page.Kinds, kindInputs{kind: k, Chosen: k.Value == d.who, Inputs: list(k.params...)})
	}
	page.Nobody = d.faults[whoField]
	take("confirm_count") // it is of the review
	page.How = list("type", "route", "at", "deliver_at", "expires_at", "expires_in")
	page.More = all
	page.LocalesAt = page.Action + "#locales"
	if page.Reach == nil {
		page.Reach = &reach{Why: notCounted, Cards: d.cards(counted{})}
	}
	if page.Test == nil {
		page.Test = &trial{To: v.req.PostForm.Get(personField)}
	}
	page.Test.Key = rand.Text()
	if send, there := v.named("send"); !there || send.Allowed(v.who.Role) != nil {
		page.Test = nil
	}
	v.show(status, "notice", frame{Title: page.Title, Page: page})
}

// offered is a field with the values that there are for it.
func (v *visit) offered(o admin.Operation, in input) input {
	i := slices.IndexFunc(o.Params(), func(p admin.Param) bool { return p.Name == in.Name })
	p := o.Params()[i]
	if label := labels()[in.Name]; label != "" {
		in.Label = label
	}
	switch choices := p.Choices(); {
	case in.Name == "type" || in.Name == "platform": // each is one of few
		given := several([]string{in.Value})
		in.Kind, in.Value = "several", ""
		for _, choice := range choices {
			in.Checks = append(in.Checks, check{choice, slices.Contains(given, choice)})
		}
		in.Value = strings.Join(slices.DeleteFunc(given, func(text string) bool { return slices.Contains(choices, text) }), ",")
		return in
	case len(choices) > 0:
		in.Offers = choices
	case in.Name == "body" || in.Name == "external_id" || in.Name == "channel_id" || in.Name == "audience" || in.Name == "data":
		in.Kind = "area"
	default:
		in.Offers = append(p.Suggestions(), v.valuesFor(p)...)
	}
	if in.Name == "category" || in.Name == "segment" {
		if len(in.Offers) > 0 {
			in.Kind, in.Choices, in.Offers = "select", in.Offers, nil
			in.Placeholder = "choose one"
			if in.Value != "" && !slices.Contains(in.Choices, in.Value) {
				in.Choices = append([]string{in.Value}, in.Choices...)
			}
		}
	}
	if in.Name == "at" || in.Name == "deliver_at" || in.Name == "expires_at" {
		in.Placeholder = "2026-11-20 08:50 or +10m"
	}
	return in
}

// labels are what fields are called where the name of the parameter says too little.
func labels() map[string]string {
	return map[string]string{
		"type": "where it goes", "platform": "on these platforms", "at": "start at", "near": "or near a point", "external_id": "external ids, one a line",
		"channel_id": "or ids of channels", "audience": "audience", "expires_in": "or expires in",
	}
}

// valuesFor are the values of a parameter that an operation lists. What cannot be listed is typed.
func (v *visit) valuesFor(p admin.Param) []string {
	name, field := p.Listed()
	list, there := v.named(name)
	if !there || list.Allowed(v.who.Role) != nil {
		return nil
	}
	in, _ := read(list, url.Values{})
	out, err := v.ask.Run(v.req.Context(), list, in)
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
