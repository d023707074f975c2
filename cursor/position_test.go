package cursor_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/cursor"
)

// one returns a keyset of one column "k".
func one(t cursor.Type) cursor.Keyset {
	return cursor.MustKeyset(cursor.Column{Name: "k", Type: t})
}

func TestKeyset_PositionTakesEachGoType(t *testing.T) {
	t.Parallel()
	const text = "0f8fad5b-d9cb-469f-a165-70867728950e"
	id := uuid.MustParse(text)
	seoul := time.FixedZone("KST", 9*60*60)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	tests := map[string]struct {
		typ   cursor.Type
		given any
		want  any
	}{
		"bigint from int64":                {cursor.Bigint, int64(math.MinInt64), int64(math.MinInt64)},
		"bigint from int32":                {cursor.Bigint, int32(-7), int64(-7)},
		"bigint from int16":                {cursor.Bigint, int16(-7), int64(-7)},
		"bigint from int":                  {cursor.Bigint, 7, int64(7)},
		"bigint from pgtype":               {cursor.Bigint, pgtype.Int8{Int64: 7, Valid: true}, int64(7)},
		"int from int64":                   {cursor.Int, int64(math.MaxInt32), int64(math.MaxInt32)},
		"int from int32":                   {cursor.Int, int32(math.MinInt32), int64(math.MinInt32)},
		"uuid from bytes":                  {cursor.UUID, [16]byte(id), [16]byte(id)},
		"uuid from uuid.UUID":              {cursor.UUID, id, [16]byte(id)},
		"uuid from pgtype":                 {cursor.UUID, pgtype.UUID{Bytes: id, Valid: true}, [16]byte(id)},
		"uuid from text":                   {cursor.UUID, text, [16]byte(id)},
		"uuid from capitals":               {cursor.UUID, "0F8FAD5B-D9CB-469F-A165-70867728950E", [16]byte(id)},
		"text from string":                 {cursor.Text, "가", "가"},
		"text, empty":                      {cursor.Text, "", ""},
		"text from pgtype":                 {cursor.Text, pgtype.Text{String: "x", Valid: true}, "x"},
		"timestamptz in another zone":      {cursor.Timestamptz, at.In(seoul), at},
		"timestamptz cut to microseconds":  {cursor.Timestamptz, at.Add(999), at},
		"timestamptz cut before the epoch": {cursor.Timestamptz, time.Date(1960, 1, 1, 0, 0, 0, 1999, time.UTC), time.Date(1960, 1, 1, 0, 0, 0, 1000, time.UTC)},
		"timestamptz from pgtype":          {cursor.Timestamptz, pgtype.Timestamptz{Time: at, Valid: true}, at},
		"timestamptz, infinite":            {cursor.Timestamptz, pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}, pgtype.Infinity},
		"timestamptz, first":               {cursor.Timestamptz, firstInstant, firstInstant},
		"timestamptz, last":                {cursor.Timestamptz, lastInstant, lastInstant},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := one(tt.typ).Position(tt.given)
			require.NoError(t, err)
			require.False(t, p.IsZero())
			require.Equal(t, []any{tt.want}, p.Values())
		})
	}
}

func TestKeyset_PositionNamesEachFault(t *testing.T) {
	t.Parallel()
	const prefix = `cursor: value is no key of the keyset: `
	const null = prefix + `column "k": is NULL; key columns have to be NOT NULL`
	tests := map[string]struct {
		typ    cursor.Type
		values []any
		want   string
	}{
		"too few values":        {cursor.Bigint, nil, prefix + `got 0 values for the 1 key columns "k"`},
		"too many values":       {cursor.Bigint, []any{1, 2}, prefix + `got 2 values for the 1 key columns "k"`},
		"NULL bigint":           {cursor.Bigint, []any{nil}, null},
		"NULL pgtype.Int8":      {cursor.Bigint, []any{pgtype.Int8{}}, null},
		"NULL pgtype.UUID":      {cursor.UUID, []any{pgtype.UUID{}}, null},
		"NULL pgtype.Text":      {cursor.Text, []any{pgtype.Text{}}, null},
		"NULL timestamptz":      {cursor.Timestamptz, []any{pgtype.Timestamptz{}}, null},
		"int above its range":   {cursor.Int, []any{int64(math.MaxInt32) + 1}, prefix + `column "k": 2147483648 is out of the range of int`},
		"int below its range":   {cursor.Int, []any{int64(math.MinInt32) - 1}, prefix + `column "k": -2147483649 is out of the range of int`},
		"text for a bigint":     {cursor.Bigint, []any{"17"}, prefix + `column "k": want a value for bigint, got the Go type string`},
		"float for an int":      {cursor.Int, []any{1.5}, prefix + `column "k": want a value for int, got the Go type float64`},
		"number for a text":     {cursor.Text, []any{17}, prefix + `column "k": want a value for text, got the Go type int`},
		"bytes for a text":      {cursor.Text, []any{[]byte("x")}, prefix + `column "k": want a value for text, got the Go type []uint8`},
		"short array for uuid":  {cursor.UUID, []any{[15]byte{}}, prefix + `column "k": want a value for uuid, got the Go type [15]uint8`},
		"slice for uuid":        {cursor.UUID, []any{make([]byte, 16)}, prefix + `column "k": want a value for uuid, got the Go type []uint8`},
		"uuid without hyphens":  {cursor.UUID, []any{"0f8fad5bd9cb469fa16570867728950e"}, prefix + `column "k": want a uuid as 8-4-4-4-12 hexadecimal digits`},
		"uuid with a bad digit": {cursor.UUID, []any{"0f8fad5b-d9cb-469f-a165-70867728950g"}, prefix + `column "k": want a uuid as 8-4-4-4-12 hexadecimal digits`},
		"uuid, first hyphen":    {cursor.UUID, []any{"0f8fad5b_d9cb-469f-a165-70867728950e"}, prefix + `column "k": want a uuid as 8-4-4-4-12 hexadecimal digits`},
		"uuid, second hyphen":   {cursor.UUID, []any{"0f8fad5b-d9cb_469f-a165-70867728950e"}, prefix + `column "k": want a uuid as 8-4-4-4-12 hexadecimal digits`},
		"uuid, third hyphen":    {cursor.UUID, []any{"0f8fad5b-d9cb-469f_a165-70867728950e"}, prefix + `column "k": want a uuid as 8-4-4-4-12 hexadecimal digits`},
		"uuid, last hyphen":     {cursor.UUID, []any{"0f8fad5b-d9cb-469f-a165_70867728950e"}, prefix + `column "k": want a uuid as 8-4-4-4-12 hexadecimal digits`},
		"NUL in text":           {cursor.Text, []any{"a\x00"}, prefix + `column "k": want text without NUL, PostgreSQL cannot store it`},
		"invalid UTF-8":         {cursor.Text, []any{"a\xff"}, prefix + `column "k": want text in UTF-8, got invalid bytes`},
		"text for timestamptz":  {cursor.Timestamptz, []any{"2026-01-01"}, prefix + `column "k": want a value for timestamptz, got the Go type string`},
		"before the first instant": {
			cursor.Timestamptz, []any{firstInstant.Add(-time.Microsecond)},
			prefix + `column "k": is out of the range of timestamptz, 4714-11-24 BC to 294276-12-31`,
		},
		"after the last instant": {
			cursor.Timestamptz, []any{lastInstant.Add(time.Microsecond)},
			prefix + `column "k": is out of the range of timestamptz, 4714-11-24 BC to 294276-12-31`,
		},
		"so far that microseconds overflow": {
			cursor.Timestamptz, []any{time.Unix(math.MaxInt64/1000, 0)},
			prefix + `column "k": is out of the range of timestamptz, 4714-11-24 BC to 294276-12-31`,
		},
		"modifier of a finite instant": {cursor.Timestamptz, []any{pgtype.Finite}, prefix + `column "k": want an instant, got the modifier of a finite one`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := one(tt.typ).Position(tt.values...)
			require.ErrorIs(t, err, cursor.ErrValue)
			require.EqualError(t, err, tt.want)
			require.True(t, p.IsZero(), "an error comes with the zero position")
		})
	}
}

func TestKeyset_PositionNamesTheColumnOfACompositeKey(t *testing.T) {
	t.Parallel()
	k := cursor.MustKeyset(cursor.Column{Name: "at", Type: cursor.Timestamptz}, cursor.Column{Name: "id", Type: cursor.Bigint})
	_, err := k.Position(time.Now(), nil)
	require.EqualError(t, err, `cursor: value is no key of the keyset: column "id": is NULL; key columns have to be NOT NULL`)
}

func TestPosition_ZeroIsTheStart(t *testing.T) {
	t.Parallel()
	var start cursor.Position
	require.True(t, start.IsZero())
	require.Nil(t, start.Values())
	require.Empty(t, start.String())
	_, ok := start.Int64()
	require.False(t, ok)

	for _, typ := range everyType {
		k := one(typ)
		require.NoError(t, k.Check(start))
		require.Zero(t, k.Compare(start, start))
		for _, v := range someValues[typ] {
			key, err := k.Position(v)
			require.NoError(t, err)
			require.False(t, key.IsZero(), "%s %v", typ, v)
			require.Equal(t, -1, k.Compare(start, key), "%s %v", typ, v)
			require.Equal(t, 1, k.Compare(key, start), "%s %v", typ, v)
			require.NotEmpty(t, k.Encode(key), "%s %v", typ, v)
		}
	}
}

func TestInt64_IsThePositionOfAnIntegerKeyset(t *testing.T) {
	t.Parallel()
	for _, typ := range []cursor.Type{cursor.Bigint, cursor.Int} {
		p, err := one(typ).Position(42)
		require.NoError(t, err)
		require.Equal(t, cursor.Int64(42), p)
		v, ok := p.Int64()
		require.True(t, ok)
		require.Equal(t, int64(42), v)
	}

	zero := cursor.Int64(0)
	require.False(t, zero.IsZero(), "the key 0 is not the start")

	text, err := one(cursor.Text).Position("42")
	require.NoError(t, err)
	_, ok := text.Int64()
	require.False(t, ok)
}

// The test is not parallel: AllocsPerRun counts the whole process.
func TestInt64_DoesNotAllocate(t *testing.T) { //nolint:paralleltest // see above
	k := one(cursor.Bigint)
	var sum int64
	allocs := testing.AllocsPerRun(1000, func() {
		p := cursor.Int64(sum)
		v, _ := p.Int64()
		sum += v + int64(k.Compare(p, cursor.Int64(7)))
	})
	require.Zero(t, allocs)
}

func TestKeyset_RefusesAPositionOfAnother(t *testing.T) {
	t.Parallel()
	pair := cursor.MustKeyset(cursor.Column{Name: "a", Type: cursor.Bigint}, cursor.Column{Name: "b", Type: cursor.Text})
	of := func(k cursor.Keyset, values ...any) cursor.Position {
		p, err := k.Position(values...)
		require.NoError(t, err)
		return p
	}
	tests := map[string]struct {
		keyset cursor.Keyset
		p      cursor.Position
		want   string
	}{
		"fewer columns": {pair, cursor.Int64(1), `cursor: value is no key of the keyset: a position of 1 values for the 2 key columns "a", "b"`},
		"more columns":  {one(cursor.Bigint), of(pair, 1, "x"), `cursor: value is no key of the keyset: a position of 2 values for the 1 key columns "k"`},
		"another type":  {one(cursor.UUID), cursor.Int64(1), `cursor: value is no key of the keyset: column "k": want uuid, the position holds an integer`},
		"uuid for text": {one(cursor.Text), of(one(cursor.UUID), [16]byte{}), `cursor: value is no key of the keyset: column "k": want text, the position holds a uuid`},
		"instant for a bigint": {
			one(cursor.Bigint), of(one(cursor.Timestamptz), time.Unix(0, 0)),
			`cursor: value is no key of the keyset: column "k": want bigint, the position holds a timestamptz`,
		},
		"text for an int": {one(cursor.Int), of(one(cursor.Text), "1"), `cursor: value is no key of the keyset: column "k": want int, the position holds a text`},
		"bigint for an int": {
			one(cursor.Int), cursor.Int64(math.MaxInt32 + 1),
			`cursor: value is no key of the keyset: column "k": 2147483648 is out of the range of int`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var start cursor.Position
			require.ErrorIs(t, tt.keyset.Check(tt.p), cursor.ErrValue)
			require.EqualError(t, tt.keyset.Check(tt.p), tt.want)
			require.PanicsWithError(t, tt.want, func() { tt.keyset.Encode(tt.p) })
			require.PanicsWithError(t, tt.want, func() { tt.keyset.Compare(tt.p, start) })
			require.PanicsWithError(t, tt.want, func() { tt.keyset.Compare(start, tt.p) })
			require.PanicsWithError(t, tt.want, func() { tt.keyset.Window(tt.p, start) })
			require.PanicsWithError(t, tt.want, func() { tt.keyset.Window(start, tt.p) })
		})
	}
}

// Invariant 5 against the oracle's order; TestCompare_IsTheOrderOfPostgreSQL
// proves it against the server's.
func TestCompare_IsTheOrderOfTheColumnValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := anyKeyset().Draw(t, "keyset")
		a, b := anyValues(k).Draw(t, "a"), anyValues(k).Draw(t, "b")
		pa, err := k.Position(a...)
		require.NoError(t, err)
		pb, err := k.Position(b...)
		require.NoError(t, err)
		require.Equal(t, compareValues(a, b), k.Compare(pa, pb))
		require.Equal(t, -compareValues(a, b), k.Compare(pb, pa))
		require.Zero(t, k.Compare(pa, pa))
	})
}

func TestPosition_ValuesMakeTheSamePosition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := anyKeyset().Draw(t, "keyset")
		values := anyValues(k).Draw(t, "values")
		p, err := k.Position(values...)
		require.NoError(t, err)
		require.Equal(t, values, p.Values())
		again, err := k.Position(p.Values()...)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
