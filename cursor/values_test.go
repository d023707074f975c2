package cursor_test

import (
	"bytes"
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/cursor"
)

// everyType lists the types in one place for the tests that walk all of them.
var everyType = []cursor.Type{cursor.Bigint, cursor.Int, cursor.UUID, cursor.Text, cursor.Timestamptz}

// someValues are values of each type that are likely to be mistaken: extremes,
// neighbours, and text that sorts otherwise under a language's rules or needs
// escapes. They are few, so that keys tie in their leading columns.
var someValues = map[cursor.Type][]any{
	cursor.Bigint: {int64(0), int64(1), int64(-1), int64(9), int64(10), int64(math.MaxInt32) + 1, int64(math.MinInt64), int64(math.MaxInt64)},
	cursor.Int:    {int64(0), int64(1), int64(-1), int64(9), int64(10), int64(math.MinInt32), int64(math.MaxInt32)},
	cursor.UUID: {
		[16]byte{}, [16]byte{15: 1}, [16]byte{0: 1}, [16]byte{0: 0x80}, [16]byte{7: 0xff},
		[16]byte(bytes.Repeat([]byte{0xff}, 16)),
	},
	cursor.Text: {
		"", " ", "a", "A", "B", "b", "aa", "a b", "é", "e", "z", "_", "10", "9", "한국어", "\U0001F600", "\uffff", "\ufffd",
		`"`, `\`, "'", "\n", "\x01", "\x1f", "\x7f", "\u2028", "/", "<&>", "a,b", "]", "null",
	},
	cursor.Timestamptz: {
		time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), time.Date(2026, 1, 2, 3, 4, 5, 7000, time.UTC),
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(1999, 12, 31, 23, 59, 59, 999_999_000, time.UTC), time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
		firstInstant, lastInstant, time.Date(0, 2, 29, 0, 0, 0, 1000, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		pgtype.NegativeInfinity, pgtype.Infinity,
	},
}

// The ends of PostgreSQL's timestamptz.
var (
	firstInstant = time.Date(-4713, 11, 24, 0, 0, 0, 0, time.UTC)
	lastInstant  = time.Date(294276, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
)

// anyValue generates a value of the type: often one of someValues, otherwise
// any.
func anyValue(t cursor.Type) *rapid.Generator[any] {
	few := rapid.SampledFrom(someValues[t])
	var wide *rapid.Generator[any]
	switch t {
	case cursor.Bigint:
		wide = rapid.Int64().AsAny()
	case cursor.Int:
		wide = rapid.Map(rapid.Int32(), func(n int32) any { return int64(n) })
	case cursor.UUID:
		wide = rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) any { return [16]byte(b) })
	case cursor.Text:
		wide = rapid.Map(rapid.StringN(0, 12, -1), func(s string) any {
			return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
		})
	case cursor.Timestamptz:
		wide = rapid.Map(rapid.Int64Range(firstInstant.Unix(), lastInstant.Unix()), func(s int64) any {
			return time.Unix(s, s&0xfffff%1_000_000*1000).UTC()
		})
	}
	return rapid.OneOf(few, few, few, wide)
}

// anyKeyset generates a keyset of one to three columns c1, c2, c3.
func anyKeyset() *rapid.Generator[cursor.Keyset] {
	return rapid.Custom(func(t *rapid.T) cursor.Keyset {
		types := rapid.SliceOfN(rapid.SampledFrom(everyType), 1, 3).Draw(t, "types")
		columns := make([]cursor.Column, len(types))
		for i, ty := range types {
			columns[i] = cursor.Column{Name: "c" + string(rune('1'+i)), Type: ty}
		}
		return cursor.MustKeyset(columns...)
	})
}

// anyValues generates the column values of one key.
func anyValues(k cursor.Keyset) *rapid.Generator[[]any] {
	return rapid.Custom(func(t *rapid.T) []any {
		var values []any
		for _, c := range k.Columns() {
			values = append(values, anyValue(c.Type).Draw(t, c.Name))
		}
		return values
	})
}

// compareValues is the oracle's order, written without the package: each column
// by its own Go comparison.
func compareValues(a, b []any) int {
	for i := range a {
		if c := compareValue(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

func compareValue(a, b any) int {
	switch a := a.(type) {
	case int64:
		return cmp.Compare(a, b.(int64))
	case [16]byte:
		b := b.([16]byte)
		return bytes.Compare(a[:], b[:])
	case string:
		return bytes.Compare([]byte(a), []byte(b.(string)))
	}
	if c := cmp.Compare(infinite(a), infinite(b)); c != 0 || infinite(a) != 0 {
		return c
	}
	return a.(time.Time).Compare(b.(time.Time))
}

// infinite is -1, 0 or 1 for -infinity, a finite instant and infinity.
func infinite(v any) int {
	if m, ok := v.(pgtype.InfinityModifier); ok {
		return int(m)
	}
	return 0
}
