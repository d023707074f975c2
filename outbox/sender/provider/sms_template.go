package provider

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// smsTemplate is text with places for values.
type smsTemplate []smsPart

// smsPart is literal text or a place: a value's name, whether only its digits count, and
// the escape, "" for none.
type smsPart struct {
	literal      string
	name, escape string
	digits       bool
}

// smsRule says what may stand at a place.
type smsRule struct {
	names   []string
	data    bool     // data.NAME as well
	escapes []string // one of them; none: no escape
}

// What may stand in a path, in a header, and elsewhere.
var smsPlainNames = []string{"to", "key", "from", "secret", "job_id", "channel_id"}

var smsFixedNames = []string{"key", "from", "secret", "job_id", "channel_id"}

var smsAllNames = []string{"to", "text", "title", "body", "key", "from", "secret", "job_id", "channel_id", "external_id", "category", "locale"}

var smsDataName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^data\.[A-Za-z0-9_-]{1,64}$`) })

// parseSMSTemplate reads a template; rules are by the literal text before the place.
func parseSMSTemplate(text string, rules func(before string) smsRule) (smsTemplate, error) {
	var t smsTemplate
	var before strings.Builder
	for text != "" {
		literal, rest, found := strings.Cut(text, "{{")
		if literal != "" {
			t = append(t, smsPart{literal: literal})
			before.WriteString(literal)
		}
		if !found {
			break
		}
		inner, after, found := strings.Cut(rest, "}}")
		if !found {
			return nil, fmt.Errorf("{{%s: the closing }} is missing", excerpt(inner))
		}
		p, err := parseSMSPlace(inner, rules(before.String()))
		if err != nil {
			return nil, fmt.Errorf("{{%s}}: %w", excerpt(inner), err)
		}
		t = append(t, p)
		text = after
	}
	return t, nil
}

func excerpt(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}

// parseSMSPlace reads name | filter | escape.
func parseSMSPlace(inner string, r smsRule) (smsPart, error) {
	words := strings.Split(inner, "|")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	p := smsPart{name: words[0]}
	if !slices.Contains(r.names, p.name) && !(r.data && smsDataName().MatchString(p.name)) {
		allowed := strings.Join(r.names, ", ")
		if r.data {
			allowed += ", data.NAME"
		}
		return smsPart{}, fmt.Errorf("no such value here; allowed are %s", allowed)
	}
	words = words[1:]
	if len(words) > 0 && words[0] == "digits" {
		p.digits = true
		words = words[1:]
	}
	switch {
	case len(words) == 0 && len(r.escapes) == 0:
		return p, nil
	case len(r.escapes) == 0:
		return smsPart{}, fmt.Errorf("%q is not allowed; allowed is the filter digits, and no escape", words[0])
	case len(words) == 1 && slices.Contains(r.escapes, words[0]):
		p.escape = words[0]
		return p, nil
	}
	return smsPart{}, fmt.Errorf("an escape is missing or not allowed; allowed here is %s at the end, and the filter digits before it", strings.Join(r.escapes, ", "))
}

// uses reports whether a value has a place.
func (t smsTemplate) uses(match func(name string) bool) bool {
	return slices.ContainsFunc(t, func(p smsPart) bool { return p.name != "" && match(p.name) })
}

// render puts the values in.
func (t smsTemplate) render(value func(name string) string) string {
	var out strings.Builder
	for _, p := range t {
		if p.name == "" {
			out.WriteString(p.literal)
			continue
		}
		text := value(p.name)
		if number, _, ok := readNumber(text); ok && p.digits && isPhoneValue(p.name) {
			text = number
		} else if p.digits {
			text = strings.Map(func(r rune) rune {
				if r >= '0' && r <= '9' {
					return r
				}
				return -1
			}, text)
		}
		out.WriteString(smsEscape(p.escape, text))
	}
	return out.String()
}

// isPhoneValue reports whether digits reads a value as a telephone number. Of others, such as
// the key, it drops all but digits.
func isPhoneValue(name string) bool {
	return name == "to" || name == "from" || strings.HasPrefix(name, "data.")
}

func smsEscape(escape, text string) string {
	switch escape {
	case "json":
		quoted, err := json.Marshal(text)
		if err != nil {
			return `""` // a string always marshals
		}
		return string(quoted)
	case "form", "query":
		return url.QueryEscape(text)
	case "path":
		return url.PathEscape(text)
	case "xml":
		var out strings.Builder
		if err := xml.EscapeText(&out, []byte(text)); err != nil {
			return "" // a Builder does not fail
		}
		return out.String()
	}
	return text
}
