package cursor_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/cursor"
)

// The stored form must outlive releases: a change of any of these texts strands
// the jobs that are under way.
func TestEncode_TheStoredFormIsFrozen(t *testing.T) {
	t.Parallel()
	id := [16]byte{0x0f, 0x8f, 0xad, 0x5b, 0xd9, 0xcb, 0x46, 0x9f, 0xa1, 0x65, 0x70, 0x86, 0x77, 0x28, 0x95, 0x0e}
	tests := []struct {
		types  []cursor.Type
		values []any
		want   string
	}{
		{[]cursor.Type{cursor.Bigint}, []any{0}, `0`},
		{[]cursor.Type{cursor.Bigint}, []any{math.MaxInt64}, `9223372036854775807`},
		{[]cursor.Type{cursor.Bigint}, []any{math.MinInt64}, `-9223372036854775808`},
		{[]cursor.Type{cursor.Int}, []any{-17}, `-17`},
		{[]cursor.Type{cursor.UUID}, []any{id}, `0f8fad5b-d9cb-469f-a165-70867728950e`},
		{[]cursor.Type{cursor.Text}, []any{""}, `[""]`},
		{[]cursor.Type{cursor.Text}, []any{"k-17"}, `["k-17"]`},
		{[]cursor.Type{cursor.Text}, []any{"\"\\/\x01\n\x1f\x7f <&> é 한 \u2028 \U0001F600"}, `["\"\\/\u0001\u000a\u001f` + "\x7f <&> é 한 \u2028 \U0001F600" + `"]`},
		{[]cursor.Type{cursor.Timestamptz}, []any{time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)}, `2026-01-02T03:04:05.000006Z`},
		{[]cursor.Type{cursor.Timestamptz}, []any{time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)}, `0001-01-01T00:00:00.000000Z`},
		{[]cursor.Type{cursor.Timestamptz}, []any{time.Date(0, 2, 29, 0, 0, 0, 0, time.UTC)}, `0001-02-29T00:00:00.000000Z BC`},
		{[]cursor.Type{cursor.Timestamptz}, []any{firstInstant}, `4714-11-24T00:00:00.000000Z BC`},
		{[]cursor.Type{cursor.Timestamptz}, []any{lastInstant}, `294276-12-31T23:59:59.999999Z`},
		{[]cursor.Type{cursor.Timestamptz}, []any{pgtype.Infinity}, `infinity`},
		{[]cursor.Type{cursor.Timestamptz}, []any{pgtype.NegativeInfinity}, `-infinity`},
		{[]cursor.Type{cursor.Bigint, cursor.Int}, []any{1, -2}, `[1,-2]`},
		{
			[]cursor.Type{cursor.Timestamptz, cursor.Text, cursor.UUID, cursor.Int, cursor.Bigint},
			[]any{pgtype.Infinity, "a,b", id, 3, 4},
			`["infinity","a,b","0f8fad5b-d9cb-469f-a165-70867728950e",3,4]`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			k := keysetOf(tt.types...)
			p, err := k.Position(tt.values...)
			require.NoError(t, err)
			require.Equal(t, tt.want, k.Encode(p))
			require.Equal(t, tt.want, p.String())
			back, err := k.Decode(tt.want)
			require.NoError(t, err)
			require.Equal(t, p, back)
		})
	}
}

// keysetOf returns a keyset with columns c1, c2, … of the types.
func keysetOf(types ...cursor.Type) cursor.Keyset {
	columns := make([]cursor.Column, len(types))
	for i, typ := range types {
		columns[i] = cursor.Column{Name: "c" + string(rune('1'+i)), Type: typ}
	}
	return cursor.MustKeyset(columns...)
}

func TestDecode_EmptyIsTheStart(t *testing.T) {
	t.Parallel()
	for _, typ := range everyType {
		k := keysetOf(typ, cursor.Bigint)
		p, err := k.Decode("")
		require.NoError(t, err)
		require.True(t, p.IsZero())
		require.Empty(t, k.Encode(p))
	}
}

// malformed are texts that Encode does not write, by keyset.
var malformed = []struct {
	types []cursor.Type
	texts []string
	want  string // the error, with %s for the text where it is quoted
}{
	{
		[]cursor.Type{cursor.Bigint},
		[]string{
			" ", "1 ", " 1", "+1", "01", "-0", "00", "0x1", "1_0", "1.0", "1e3", "９", "start", "null", "[1]", `"1"`, "\x00", "1\n",
			"9223372036854775808", "-9223372036854775809", "2026-01-02T03:04:05.000006Z",
		},
		`cursor: malformed position %s: column "c1": want a bigint in plain decimal digits, as 17 or -17`,
	},
	{
		[]cursor.Type{cursor.Int},
		[]string{"2147483648", "-2147483649", "1.5"},
		`cursor: malformed position %s: column "c1": want an int in plain decimal digits, as 17 or -17`,
	},
	{
		[]cursor.Type{cursor.UUID},
		[]string{
			"0F8FAD5B-D9CB-469F-A165-70867728950E", "0f8fad5bd9cb469fa16570867728950e", "{0f8fad5b-d9cb-469f-a165-70867728950e}",
			"0f8fad5b-d9cb-469f-a165-70867728950", "0f8fad5b-d9cb-469f-a165-70867728950g", "0f8fad5b0d9cb-469f-a165-70867728950e", "17",
		},
		`cursor: malformed position %s: column "c1": want a uuid in lower case, as 8-4-4-4-12 hexadecimal digits`,
	},
	{
		[]cursor.Type{cursor.Timestamptz},
		[]string{
			"2026-01-02", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.00000Z", "2026-01-02T03:04:05.0000060Z",
			"2026-01-02 03:04:05.000006Z", "2026-01-02T03:04:05.000006+00:00", "2026-01-02T03:04:05.000006", "2026-02-30T00:00:00.000000Z",
			"2026-13-01T00:00:00.000000Z", "2026-01-02T24:00:00.000000Z", "2026-01-02T03:04:60.000000Z", "0000-01-01T00:00:00.000000Z",
			"0000-01-01T00:00:00.000000Z BC", "02026-01-02T03:04:05.000006Z", "4714-11-23T23:59:59.999999Z BC",
			"294277-01-01T00:00:00.000000Z", "999999-12-31T00:00:00.000000Z", "Infinity", "+infinity", "infinity ", "now", "epoch",
		},
		`cursor: malformed position %s: column "c1": want a timestamptz in UTC with six fractional digits, as 2026-01-02T03:04:05.000006Z, infinity or -infinity`,
	},
	{
		[]cursor.Type{cursor.Text},
		[]string{"x", `"x"`, "null", "{}", "1", "\x00", "]"},
		`cursor: malformed position: column "c1": want a JSON array of the key columns "c1"`,
	},
	{
		[]cursor.Type{cursor.Text},
		[]string{`[1]`, `[null]`, `[true]`, `[["x"]]`, `[{}]`, `[]`, `["\u0000"]`},
		`cursor: malformed position: column "c1": want a text in a JSON string`,
	},
	{
		[]cursor.Type{cursor.Text},
		[]string{`[`, `["`, `["x`, `["\x"]`, "[\"\n\"]"},
		`cursor: malformed position: column "c1": want a text in a JSON string, the array is broken here`,
	},
	{
		[]cursor.Type{cursor.Text},
		[]string{`["x","y"]`, `["x"`, `["x",`, `["x",]`, `["x"}`},
		`cursor: malformed position: column "c1": want the end of the array after it`,
	},
	{
		[]cursor.Type{cursor.Text},
		[]string{
			` ["x"]`, `["x"] `, `[ "x"]`, `["x" ]`, `["x"]]`, `["x"]["x"]`, `["\u0078"]`, `["\n"]`, `["\/"]`, `["\u000A"]`,
			"[\"\xff\"]", `["\ud800"]`, `["\ud83d\ude00"]`,
		},
		`cursor: malformed position: the columns "c1": want the array without spaces, with no escapes but the needed ones and nothing after it`,
	},
	{
		[]cursor.Type{cursor.UUID, cursor.Bigint},
		[]string{
			`["00000000-0000-0000-0000-000000000000","1"]`, `["00000000-0000-0000-0000-000000000000",01e1]`,
			`["00000000-0000-0000-0000-000000000000",1.0]`, `["00000000-0000-0000-0000-000000000000",-0]`,
			`["00000000-0000-0000-0000-000000000000",9223372036854775808]`, `["00000000-0000-0000-0000-000000000000"]`,
		},
		"", // any of the shapes above; the column is checked below
	},
}

func TestDecode_RefusesWhatEncodeDoesNotWrite(t *testing.T) {
	t.Parallel()
	for _, group := range malformed {
		k := keysetOf(group.types...)
		for _, text := range group.texts {
			t.Run(string(group.types[0])+"/"+text, func(t *testing.T) {
				t.Parallel()
				p, err := k.Decode(text)
				require.ErrorIs(t, err, cursor.ErrMalformed)
				require.True(t, p.IsZero())
				if group.want == "" {
					require.ErrorContains(t, err, `column "c2"`)
					return
				}
				require.EqualError(t, err, strings.Replace(group.want, "%s", strconv.Quote(text), 1))
			})
		}
	}
}

func TestDecode_ErrorsShowTheBeginningOfALongText(t *testing.T) {
	t.Parallel()
	_, err := one(cursor.Bigint).Decode(strings.Repeat("9", 1000))
	require.EqualError(t, err, `cursor: malformed position "`+strings.Repeat("9", 60)+`"…: column "k": want a bigint in plain decimal digits, as 17 or -17`)
}

// A text key may be an address, which must not reach a log by way of an error.
func TestDecode_ErrorsDoNotShowTextKeys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`["jo@example.org" ]`, `["jo@example.org"`, `jo@example.org`, `["jo@example.org",1]`, "[\"jo@example.org\xff\"]"} {
		_, err := one(cursor.Text).Decode(text)
		require.ErrorIs(t, err, cursor.ErrMalformed)
		require.NotContains(t, err.Error(), "jo@")
	}
}

// Invariant 4.
func TestEncode_DecodeAreInverse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := anyKeyset().Draw(t, "keyset")
		a, b := anyValues(k).Draw(t, "a"), anyValues(k).Draw(t, "b")
		pa, err := k.Position(a...)
		require.NoError(t, err)
		pb, err := k.Position(b...)
		require.NoError(t, err)
		back, err := k.Decode(k.Encode(pa))
		require.NoError(t, err)
		require.Equal(t, pa, back)
		require.Equal(t, k.Compare(pa, pb) == 0, k.Encode(pa) == k.Encode(pb))
	})
}

func TestEncode_ArraysAreJSON(t *testing.T) {
	t.Parallel()
	k := keysetOf(cursor.Text, cursor.Bigint)
	rapid.Check(t, func(t *rapid.T) {
		values := anyValues(k).Draw(t, "values")
		p, err := k.Position(values...)
		require.NoError(t, err)
		var got []json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(k.Encode(p)), &got))
		require.Len(t, got, 2)
		var text string
		var number int64
		require.NoError(t, json.Unmarshal(got[0], &text))
		require.NoError(t, json.Unmarshal(got[1], &number))
		require.Equal(t, values[0], text)
		require.Equal(t, values[1], number)
	})
}
