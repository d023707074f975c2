package compose

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/outbox"
)

// content is the content of one job's, or one activity's, messages, with the limits of its category.
type content struct {
	created  time.Time // the job or activity
	category string
	route    []string
	revision int
	valuesOf int64 // the job with the values of its channels: itself, or the job that an activity tests
	quiet    *channels.QuietHours
	cap      *channels.Cap

	attributes, values bool   // the texts may refer to one
	size               int    // of the texts, in bytes
	texts              *texts // nil: not in memory
}

// texts are the texts of a content.
type texts struct {
	title    string
	body     string
	data     json.RawMessage
	variants json.RawMessage // nil once they are parsed

	parsed map[string]variant  // by lower-case locale; nil: not parsed yet
	words  map[string]*wording // by the channel's locale
}

// variant is a title or a body of one locale, or both.
type variant struct {
	Title, Body *string
	locale      string // as written in the job
}

// wording is the text for one locale.
type wording struct {
	locale      string // of the variant; "": the job's own words
	title, body *template
	shared      outbox.SharedText // with messages of the same locale
	err         error
}

// in returns the words for a channel's locale. They are parsed once per batch. A locale that is longer than those of
// belfry.channels, and of variants, is unknown: there are as many fallbacks as parts, and all of them are hashed.
func (t *texts) in(locale string) *wording {
	if utf8.RuneCountInString(locale) > channels.LongestLocale {
		locale = ""
	}
	locale = strings.ToLower(strings.ReplaceAll(locale, "_", "-"))
	if w, ok := t.words[locale]; ok {
		return w
	}
	if t.words == nil {
		t.words = make(map[string]*wording)
	}
	w := t.word(locale)
	t.words[locale] = w
	return w
}

// scripts maps regions to the Chinese scripts, for locales without a script.
var scripts = map[string]string{"tw": "hant", "hk": "hant", "mo": "hant", "cn": "hans", "sg": "hans"}

// renamed maps deprecated language codes, which Android and Java still use, to the current ones.
var renamed = map[string]string{"iw": "he", "he": "iw", "in": "id", "id": "in", "ji": "yi", "yi": "ji"}

// fallbacks returns the names under which a locale's words are searched, in lower case and in order. The caller
// bounds the locale's length.
func fallbacks(locale string) (names []string) {
	language, rest, _ := strings.Cut(locale, "-")
	chains := []string{locale}
	if other := renamed[language]; other != "" {
		chains = append(chains, other+strings.TrimPrefix(locale, language))
	}
	for _, l := range chains {
		for ; l != ""; l = l[:max(strings.LastIndexByte(l, '-'), 0)] {
			if region, _, _ := strings.Cut(rest, "-"); l == "zh" && scripts[region] != "" {
				names = append(names, "zh-"+scripts[region])
			}
			names = append(names, l)
		}
	}
	return names
}

func (t *texts) word(locale string) *wording {
	w := &wording{}
	var title, body *string
	if err := t.parse(); err != nil {
		return &wording{err: err}
	}
	for _, l := range fallbacks(locale) {
		if v, ok := t.parsed[l]; ok {
			if w.locale == "" {
				w.locale = v.locale
			}
			if title == nil {
				title = v.Title
			}
			if body == nil {
				body = v.Body
			}
		}
	}
	if title == nil {
		title = &t.title
	}
	if body == nil {
		body = &t.body
	}
	if w.title, w.err = parseTemplate(*title); w.err == nil {
		w.body, w.err = parseTemplate(*body)
	}
	w.shared.Bytes = len(*title) + len(*body) + len(t.data)
	return w
}

func (t *texts) parse() error {
	if t.parsed != nil {
		return nil
	}
	t.parsed = make(map[string]variant)
	if string(t.variants) == "{}" {
		return nil
	}
	var raw map[string]struct{ Title, Body *string }
	if err := json.Unmarshal(t.variants, &raw); err != nil {
		return err
	}
	t.variants = nil
	for name, v := range raw {
		t.parsed[strings.ToLower(strings.ReplaceAll(name, "_", "-"))] = variant{Title: v.Title, Body: v.Body, locale: name}
	}
	return nil
}

// hold stores the texts in the content.
func (c *content) hold(t *texts) {
	c.texts, c.size = t, len(t.title)+len(t.body)+len(t.data)+len(t.variants)
	refer := func(prefix string) bool {
		return strings.Contains(t.title, prefix) || strings.Contains(t.body, prefix) || bytes.Contains(t.variants, []byte(prefix))
	}
	c.attributes, c.values = refer("attributes."), refer("value.")
}

// seconds converts whole seconds to a duration.
func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
