package compose

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func sampleValues() templateValues {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	return templateValues{
		Locale: "ko-KR", Platform: "ios", ExternalID: "u-1", TimeZone: "Asia/Seoul",
		Attributes: map[string]json.RawMessage{
			"name": raw(`"  Mina Kim "`), "n": raw(`3`), "share": raw(`0.5`), "vip": raw(`true`), "null": raw(`null`), "list": raw(`["a"]`),
			"object": raw(`{"a": 1}`), "blank": raw(`"  "`), "control": raw(`"a\n\r\u0000\u001bb\u2028c\u202ed\u2066e"`),
			"long": raw(`"` + strings.Repeat("가", 300) + `"`), "broken": raw(`"x`), "braces": raw(`"{{locale}}"`),
		},
	}
}

func TestTemplate_SaysItsValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "",
		"plain":                         "plain",
		"{{locale}} {{platform}}":       "ko-KR ios",
		"{{external_id}}/{{time_zone}}": "u-1/Asia/Seoul",
		"[{{attributes.name}}]":         "[  Mina Kim ]",
		"[{{attributes.name | trim}}]":  "[Mina Kim]",
		"{{attributes.name | trim | upper | truncate 5}}": "MINA…",
		"{{attributes.name|trim|lower|truncate 8}}":       "mina kim",
		"{{attributes.n}} {{attributes.share}}":           "3 0.5",
		"{{attributes.vip}}":                              "true",
		"[{{attributes.null}}{{attributes.list}}{{attributes.object}}{{attributes.none}}{{attributes.broken}}]": "[]",
		`{{attributes.none | default "friend"}}`:    "friend",
		`{{attributes.blank | default "friend"}}`:   "friend",
		`{{attributes.n | default "friend"}}`:       "3",
		`{{attributes.none | default "a" | upper}}`: "A",
		`{{attributes.none | upper | default "a"}}`: "a",
		`{{"{{"}}locale}}`:                          "{{locale}}",
		"{{{locale}}}":                              "{ko-KR}",
		"{{attributes.braces}}":                     "{{locale}}", // a value is no template
		"{{attributes.control}}":                    "a    b cde",
		"{{attributes.long | truncate 3}}":          "가가…",
		"{{attributes.none | default \"a\nb\"}}":    "a b",
	} {
		parsed, err := parseTemplate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, parsed.body(sampleValues()), text)
		require.Equal(t, want, parsed.title(sampleValues()), text)
		require.Equal(t, strings.Contains(text, "attributes."), parsed.attributes, text)
	}
}

// Outputs keep their limits, whatever the values are (invariant 3).
func TestTemplate_KeepsItsLimits(t *testing.T) {
	t.Parallel()
	parse := func(text string) *template {
		parsed, err := parseTemplate(text)
		require.NoError(t, err)
		return parsed
	}
	long := parse("{{attributes.long}}")
	require.Equal(t, strings.Repeat("가", 199)+"…", long.body(sampleValues()), "one value")
	many := parse(strings.Repeat("{{attributes.long}}", 100))
	require.Equal(t, 200, utf8.RuneCountInString(many.title(sampleValues())))
	require.Equal(t, 10000, utf8.RuneCountInString(many.body(sampleValues())))
	require.True(t, strings.HasSuffix(many.body(sampleValues()), "…"))
	require.Equal(t, "one two three four", parse("one\ntwo\r\nthree\u2028four").title(sampleValues()), "a title stands on one line")
	require.Equal(t, "one\ntwo", parse("one\ntwo").body(sampleValues()), "a body's own line ends stay")
}

// A cut falls between what a reader takes for two characters.
func TestTemplate_CutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, want string }{
		{"abcdef", "abc…"},
		{"abcd", "abcd"},
		{"abe\u0301cd", "ab…"},                                 // e with an accent
		{"ab👍🏽cd", "ab…"},                                      // a skin tone
		{"a👨\u200d👩\u200d👧bc", "a…"},                           // a family
		{"ab🇰🇷🇯🇵", "ab…"},                                      // a flag
		{"🇰🇷🇯🇵🇫🇷", "🇰🇷…"},                                      // flags
		{"e\u0301\u0302\u0303\u0304\u0305f", "e\u0301\u0302…"}, // one character, longer than the limit
	} {
		parsed, err := parseTemplate("{{external_id | truncate 4}}")
		require.NoError(t, err)
		require.Equal(t, c.want, parsed.body(templateValues{ExternalID: c.value}), "%q", c.value)
	}
}

func FuzzTemplate(f *testing.F) {
	for text := range templates {
		f.Add(text, "값\n")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		parsed, err := parseTemplate(text)
		if err != nil {
			require.Contains(t, err.Error(), "allowed values")
			return
		}
		quoted, err := json.Marshal(value)
		require.NoError(t, err)
		v := templateValues{Locale: value, Platform: value, ExternalID: value, TimeZone: value, Attributes: map[string]json.RawMessage{"a": quoted}}
		title, body := parsed.title(v), parsed.body(v)
		require.LessOrEqual(t, utf8.RuneCountInString(title), maxTitle)
		require.LessOrEqual(t, utf8.RuneCountInString(body), maxBody)
		require.NotContains(t, title, "\n")
		if utf8.ValidString(text) && utf8.ValidString(value) {
			require.True(t, utf8.ValidString(title) && utf8.ValidString(body))
		}
		if !strings.Contains(text, "{{") {
			require.Equal(t, maxBody >= utf8.RuneCountInString(text), text == body, "a text without {{ says itself")
		}
	})
}
