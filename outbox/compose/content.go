package compose

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/belfryhq/belfry/channels"
)

// content is the text of one job's, or one activity's, messages, with the limits of its category.
type content struct {
	created  time.Time // the job or activity
	category string
	title    string
	body     string
	data     json.RawMessage
	variants json.RawMessage
	route    []string
	revision int
	quiet    *channels.QuietHours
	cap      *channels.Cap

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
	err         error
}

// in returns the words for a channel's locale. They are parsed once per batch.
func (c *content) in(locale string) *wording {
	locale = strings.ToLower(strings.ReplaceAll(locale, "_", "-"))
	if w, ok := c.words[locale]; ok {
		return w
	}
	if c.words == nil {
		c.words = make(map[string]*wording)
	}
	w := c.word(locale)
	c.words[locale] = w
	return w
}

// scripts maps regions to the Chinese scripts, for locales without a script.
var scripts = map[string]string{"tw": "hant", "hk": "hant", "mo": "hant", "cn": "hans", "sg": "hans"}

// renamed maps deprecated language codes, which Android and Java still use, to the current ones.
var renamed = map[string]string{"iw": "he", "he": "iw", "in": "id", "id": "in", "ji": "yi", "yi": "ji"}

// fallbacks returns the names under which a locale's words are searched, in lower case and in order.
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

func (c *content) word(locale string) *wording {
	w := &wording{}
	var title, body *string
	if err := c.parse(); err != nil {
		return &wording{err: err}
	}
	for _, l := range fallbacks(locale) {
		if v, ok := c.parsed[l]; ok {
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
		title = &c.title
	}
	if body == nil {
		body = &c.body
	}
	if w.title, w.err = parseTemplate(*title); w.err == nil {
		w.body, w.err = parseTemplate(*body)
	}
	return w
}

func (c *content) parse() error {
	if c.parsed != nil {
		return nil
	}
	c.parsed = make(map[string]variant)
	if string(c.variants) == "{}" {
		return nil
	}
	var raw map[string]struct{ Title, Body *string }
	if err := json.Unmarshal(c.variants, &raw); err != nil {
		return err
	}
	for name, v := range raw {
		c.parsed[strings.ToLower(strings.ReplaceAll(name, "_", "-"))] = variant{Title: v.Title, Body: v.Body, locale: name}
	}
	return nil
}

// needsAttributes reports whether any words of any locale may refer to an attribute.
func (c *content) needsAttributes() bool {
	for _, words := range []string{c.title, c.body, string(c.variants)} {
		if strings.Contains(words, "attributes.") {
			return true
		}
	}
	return false
}

// seconds converts whole seconds to a duration.
func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
