package config

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/keys"
)

type strictInner struct {
	Limit time.Duration `mapstructure:"limit"`
	Codes []int         `mapstructure:"codes"`
}

type strictCommon struct {
	Name string `mapstructure:"name"`
}

type strictSample struct {
	strictCommon `mapstructure:",squash"`

	Secret  string            `mapstructure:"secret"`
	On      bool              `mapstructure:"on"`
	Ratio   float64           `mapstructure:"ratio"`
	Words   []string          `mapstructure:"words"`
	Headers map[string]string `mapstructure:"headers"`
	Allow   []netip.Prefix    `mapstructure:"allow"`
	Inner   strictInner       `mapstructure:"inner"`
	Hidden  int               `mapstructure:"-"`
}

func TestDecode_TakesEveryKindOfValueOverTheDefaults(t *testing.T) {
	t.Parallel()
	got := strictSample{Ratio: 0.5, On: true, Inner: strictInner{Limit: time.Second}}
	err := Decode("x", map[string]any{
		"name": "fcm", "secret": "s", "on": nil, "words": []any{"a", "b"},
		"headers": map[any]any{404: "permanent"}, "allow": []any{"10.0.0.0/8"},
		"inner": map[string]any{"limit": "5s", "codes": []any{1, 2}},
	}, &got)
	require.NoError(t, err)
	require.Equal(t, strictSample{
		strictCommon: strictCommon{"fcm"}, Secret: "s", On: true, Ratio: 0.5, Words: []string{"a", "b"},
		Headers: map[string]string{"404": "permanent"}, Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Inner: strictInner{5 * time.Second, []int{1, 2}},
	}, got)
}

func TestDecode_NamesEveryProblemAndRepeatsNoSecret(t *testing.T) {
	t.Parallel()
	var got strictSample
	err := Decode("senders[0]", map[string]any{
		"Name": "x", "secret": 123456, "on": "yes", "ratio": "much", "hidden": 1, "headers": []any{"a"},
		"allow": []any{"10.0.0.0/99", 7}, "words": "a, b",
		"inner": map[string]any{"limit": 5, "codes": "1", "colour": "red"},
	}, &got)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "123456")
	var lines []string
	for _, one := range keys.Flatten(err) {
		lines = append(lines, one.Error())
	}
	require.Equal(t, []string{
		`senders[0].Name: unknown key; allowed keys: allow, headers, inner, name, on, ratio, secret, words`,
		`senders[0].allow[0]: netip.ParsePrefix("10.0.0.0/99"): prefix length out of range`,
		`senders[0].allow[1]: is not text; put it in quotes`,
		`senders[0].headers: must be a section of keys`,
		`senders[0].hidden: unknown key; allowed keys: allow, headers, inner, name, on, ratio, secret, words`,
		`senders[0].inner.codes: 1 is not a list; write it as [a, b]`,
		`senders[0].inner.colour: unknown key; allowed keys: codes, limit`,
		`senders[0].inner.limit: 5 is not a duration; write it with its unit, as 30s, 5m or 1h30m`,
		`senders[0].on: "yes" is not allowed; allowed values: true, false`,
		`senders[0].ratio: "much" is not a number`,
		`senders[0].secret: is not text; put it in quotes`,
	}, lines)
	require.Equal(t, []string{"a", "b"}, got.Words)
	require.EqualError(t, Decode("senders[1]", []any{}, &got), "senders[1]: must be a section of keys")
	require.NoError(t, Decode("senders[1]", nil, &got))
	for _, words := range []any{map[string]any{"a": "whsec_x"}, []any{[]any{"whsec_x"}}, []any{"a", 123456}} {
		err := Decode("senders[1]", map[string]any{"words": words}, &got)
		require.EqualError(t, err, "senders[1].words: is not a list of texts; write it as [a, b], numbers in quotes")
	}
}
