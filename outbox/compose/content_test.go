package compose

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// The most specific variant says it, and what it does not say, the next one does.
func TestContent_FallsBackFromLocaleToLocale(t *testing.T) {
	t.Parallel()
	variants := `{
		"zh": {"title": "zh", "body": "zh body"},
		"zh_Hant": {"title": "zh-Hant"},
		"ZH-hant-tw": {"body": "zh-Hant-TW body"},
		"pt-BR": {"title": "pt-BR"},
		"ko": {"body": ""},
		"en-GB": {"title": "en-GB", "body": "en-GB body"},
		"he": {"title": "he"}, "in": {"title": "in"}, "yi": {"title": "yi"}
	}`
	for locale, want := range map[string][3]string{
		"":              {"", "own", "own body"},
		"fr":            {"", "own", "own body"},
		"zh":            {"zh", "zh", "zh body"},
		"zh-Hans-CN":    {"zh", "zh", "zh body"},
		"zh-TW":         {"zh_Hant", "zh-Hant", "zh body"},
		"zh_HK":         {"zh_Hant", "zh-Hant", "zh body"},
		"zh-MO-x":       {"zh_Hant", "zh-Hant", "zh body"},
		"zh-SG":         {"zh", "zh", "zh body"},
		"iw-IL":         {"he", "he", "own body"},
		"id_ID":         {"in", "in", "own body"},
		"ji":            {"yi", "yi", "own body"},
		"zh-Hant":       {"zh_Hant", "zh-Hant", "zh body"},
		"zh_hant_HK":    {"zh_Hant", "zh-Hant", "zh body"},
		"zh-Hant-TW":    {"ZH-hant-tw", "zh-Hant", "zh-Hant-TW body"},
		"zh_Hant_TW_x1": {"ZH-hant-tw", "zh-Hant", "zh-Hant-TW body"},
		"PT_br":         {"pt-BR", "pt-BR", "own body"},
		"pt":            {"", "own", "own body"},
		"pt-PT":         {"", "own", "own body"},
		"ko-KR":         {"ko", "own", ""},
		"en-gb":         {"en-GB", "en-GB", "en-GB body"},
		"en":            {"", "own", "own body"},
		"zhx":           {"", "own", "own body"},
		"-":             {"", "own", "own body"},
		"--zh--":        {"", "own", "own body"},
		"zh--":          {"zh", "zh", "zh body"},
	} {
		c := &texts{title: "own", body: "own body", variants: []byte(variants)}
		w := c.in(locale)
		require.NoError(t, w.err)
		require.Equal(t, want, [3]string{w.locale, w.title.title(templateValues{}), w.body.body(templateValues{})}, "%q", locale)
		require.Same(t, w, c.in(locale), "once a batch")
	}
}

// A locale without bound would occupy a relay for as many fallbacks as it has parts.
func TestContent_ALongLocaleIsUnknown(t *testing.T) {
	t.Parallel()
	c := &texts{title: "own", body: "own body", variants: []byte(`{"ko": {"title": "ko"}}`)}
	for locale, want := range map[string]string{
		"ko-" + strings.Repeat("x", 32): "ko", "ko-" + strings.Repeat("é", 32): "ko",
		"ko-" + strings.Repeat("x", 33): "own", "ko" + strings.Repeat("-", 20_000): "own",
	} {
		require.Equal(t, want, c.in(locale).title.title(templateValues{}))
	}
	require.Len(t, c.words, 3)
	for locale := range c.words {
		require.LessOrEqual(t, len(locale), 4*channels.LongestLocale)
	}
}

// The database finds the words of notifications for a locale in the same order.
func TestFallbacks_AgreeWithTheDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	part := rapid.SampledFrom([]string{"zh", "TW", "HK", "cn", "sg", "Hant", "hans", "he", "iw", "in", "id", "ji", "yi", "ko", "KR", "x", ""})
	rapid.Check(t, func(t *rapid.T) {
		locale := strings.Join(rapid.SliceOfN(part, 0, 4).Draw(t, "parts"), rapid.SampledFrom([]string{"-", "_"}).Draw(t, "between"))
		var names []string
		require.NoError(t, db.Pool.QueryRow(context.Background(), `SELECT belfry.locale_fallbacks($1)`, locale).Scan(&names))
		require.Equal(t, append([]string{}, fallbacks(strings.ToLower(strings.ReplaceAll(locale, "_", "-")))...), append([]string{}, names...), locale)
	})
}
