package draft

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/job"
)

// LocaleTexts are the texts of a locale. A nil text is the default's.
type LocaleTexts struct {
	Title *string `json:"title,omitempty"`
	Body  *string `json:"body,omitempty"`
}

// Variants returns the texts of a job by locale, or nil if they are masked.
func Variants(j job.Job) (variants map[string]LocaleTexts) {
	if json.Unmarshal(j.Variants, &variants) != nil {
		return nil
	}
	return variants
}

// textsOf calls each for each text of a job with the name of its field: title and body, and then those of the
// locales.
func textsOf(j job.Job, each func(field, label string, text *string)) map[string]LocaleTexts {
	each("title", "Title", &j.Title)
	each("body", "Text", &j.Body)
	variants := Variants(j)
	for _, locale := range slices.Sorted(maps.Keys(variants)) {
		v := variants[locale]
		for _, one := range []struct {
			field, label string
			text         *string
		}{{"title", "Title", v.Title}, {"body", "Text", v.Body}} {
			if one.text != nil {
				each(one.field+"."+locale, one.label+", "+locale, one.text)
			}
		}
	}
	return variants
}

// Corrections returns the fields of a correction with the texts of a job, or with the submitted ones, and the fields of
// one more language.
func Corrections(j job.Job, form url.Values) (inputs, language []parts.Input) {
	textsOf(j, func(field, label string, of *string) {
		in := parts.Input{Name: field, Label: label, Value: *of, Kind: "area"}
		if strings.HasPrefix(field, "title") {
			in.Kind = "text"
		}
		if sent, is := form[field]; is {
			in.Value = sent[0]
		}
		inputs = append(inputs, in)
	})
	return inputs, []parts.Input{{Name: "_locale", Label: "Language, such as ko or pt-BR", Kind: "text", Value: form.Get("_locale")},
		{Name: "_title", Label: "Title", Kind: "text", Value: form.Get("_title")},
		{Name: "_body", Label: "Text", Kind: "area", Value: form.Get("_body")}}
}

// addLanguage adds the submitted texts of one more locale to variants. It reports false without any.
func addLanguage(variants map[string]LocaleTexts, form url.Values) (bool, error) {
	field := func(name string) string { return normalized(form.Get(name)) }
	locale := field("_locale")
	v := variants[locale]
	added := false
	for name, of := range map[string]**string{"_title": &v.Title, "_body": &v.Body} {
		if field(name) == "" {
			continue
		}
		if *of != nil {
			return false, operation.Invalid("", "the language %s has this text already; change it above", locale)
		}
		*of, added = new(field(name)), true
	}
	if (locale == "") == added {
		return false, operation.Invalid("", "a language needs its name and a title or a text")
	}
	variants[locale] = v
	return added, nil
}

// Correct adds the texts that differ from the job's to the parameters of its change.
func Correct(j job.Job, form, values url.Values) error {
	changed := false
	variants := textsOf(j, func(field, _ string, of *string) {
		if _, sent := form[field]; !sent || normalized(form.Get(field)) == normalized(*of) {
			return
		}
		*of = normalized(form.Get(field))
		if field == "title" || field == "body" {
			values.Set(field, *of)
		} else {
			changed = true
		}
	})
	if strings.TrimSpace(form.Get("_locale")+form.Get("_title")+form.Get("_body")) != "" {
		if variants == nil {
			return operation.Invalid("", "you may not read its languages, so that you cannot add one")
		}
		added, err := addLanguage(variants, form)
		if err != nil {
			return err
		}
		changed = changed || added
	}
	if changed {
		encoded, err := json.Marshal(variants)
		if err != nil {
			return err
		}
		values.Set("variants", string(encoded))
	}
	if !changed && !values.Has("title") && !values.Has("body") {
		return operation.Invalid("", "no text was changed")
	}
	return nil
}

// normalized returns a submitted text as the operations take it.
func normalized(text string) string {
	return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
}
