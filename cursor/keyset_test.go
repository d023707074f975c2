package cursor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/cursor"
)

func TestNewKeyset_NamesEachFault(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 32) // 64 bytes in 32 characters
	tests := map[string]struct {
		columns []cursor.Column
		want    string
	}{
		"no columns": {nil, `cursor: malformed keyset: it needs at least one column`},
		"empty name": {
			[]cursor.Column{{Name: "id", Type: cursor.Bigint}, {Name: "", Type: cursor.Bigint}},
			`cursor: malformed keyset: column 2 (""): the name is empty`,
		},
		"name PostgreSQL would cut": {
			[]cursor.Column{{Name: long, Type: cursor.Bigint}},
			`cursor: malformed keyset: column 1 ("` + long + `"): the name has 64 bytes, PostgreSQL stores at most 63`,
		},
		"NUL in name": {
			[]cursor.Column{{Name: "a\x00b", Type: cursor.Bigint}},
			`cursor: malformed keyset: column 1 ("a\x00b"): the name contains NUL`,
		},
		"invalid UTF-8 in name": {
			[]cursor.Column{{Name: "a\xff", Type: cursor.Bigint}},
			`cursor: malformed keyset: column 1 ("a\xff"): the name is not valid UTF-8`,
		},
		"repeated name": {
			[]cursor.Column{{Name: "id", Type: cursor.Bigint}, {Name: "id", Type: cursor.Text}},
			`cursor: malformed keyset: column 2 ("id"): the name is repeated`,
		},
		"no type": {
			[]cursor.Column{{Name: "id"}},
			`cursor: malformed keyset: column 1 ("id"): unknown type ""; want one of bigint, int, uuid, text, timestamptz`,
		},
		"unknown type": {
			[]cursor.Column{{Name: "id", Type: "float8"}},
			`cursor: malformed keyset: column 1 ("id"): unknown type "float8"; want one of bigint, int, uuid, text, timestamptz`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := cursor.NewKeyset(tt.columns...)
			require.ErrorIs(t, err, cursor.ErrKeyset)
			require.EqualError(t, err, tt.want)
			require.PanicsWithError(t, tt.want, func() { cursor.MustKeyset(tt.columns...) })
		})
	}
}

func TestKeyset_DoesNotShareItsColumns(t *testing.T) {
	t.Parallel()
	given := []cursor.Column{{Name: "id", Type: cursor.Bigint}}
	k, err := cursor.NewKeyset(given...)
	require.NoError(t, err)

	given[0].Name = "changed"
	k.Columns()[0].Name = "changed"

	require.Equal(t, []cursor.Column{{Name: "id", Type: cursor.Bigint}}, k.Columns())
	require.Equal(t, `"id"`, k.SelectList())
}

func TestKeyset_ZeroValueIsRefused(t *testing.T) {
	t.Parallel()
	var k cursor.Keyset
	const want = "cursor: malformed keyset: it has no columns; make it with NewKeyset"

	_, err := k.Position()
	require.EqualError(t, err, want)
	_, err = k.Decode("")
	require.EqualError(t, err, want)
	_, err = k.FromRow(nil)
	require.EqualError(t, err, want)
	require.EqualError(t, k.Check(cursor.Position{}), want)
	require.PanicsWithError(t, want, func() { k.Encode(cursor.Position{}) })
	require.PanicsWithError(t, want, func() { k.Window(cursor.Position{}, cursor.Position{}) })
}

func TestKeyset_RendersEveryClause(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		keyset                      cursor.Keyset
		columns, order, descending  string
		predicate, fromTheStartOnly string
	}{
		"one bigint": {
			keyset:           cursor.MustKeyset(cursor.Column{Name: "id", Type: cursor.Bigint}),
			columns:          `"id"`,
			order:            `"id"`,
			descending:       `"id" DESC`,
			predicate:        `"id" > @after_1::bigint AND "id" <= @bound_1::bigint`,
			fromTheStartOnly: `"id" <= @bound_1::bigint`,
		},
		"one text": {
			keyset:           cursor.MustKeyset(cursor.Column{Name: "code", Type: cursor.Text}),
			columns:          `"code"`,
			order:            `"code" COLLATE "C"`,
			descending:       `"code" COLLATE "C" DESC`,
			predicate:        `"code" COLLATE "C" > @after_1::text COLLATE "C" AND "code" COLLATE "C" <= @bound_1::text COLLATE "C"`,
			fromTheStartOnly: `"code" COLLATE "C" <= @bound_1::text COLLATE "C"`,
		},
		"every type": {
			keyset: cursor.MustKeyset(
				cursor.Column{Name: "n", Type: cursor.Bigint}, cursor.Column{Name: "i", Type: cursor.Int},
				cursor.Column{Name: "u", Type: cursor.UUID}, cursor.Column{Name: "t", Type: cursor.Text},
				cursor.Column{Name: "at", Type: cursor.Timestamptz},
			),
			columns:    `"n", "i", "u", "t", "at"`,
			order:      `"n", "i", "u", "t" COLLATE "C", "at"`,
			descending: `"n" DESC, "i" DESC, "u" DESC, "t" COLLATE "C" DESC, "at" DESC`,
			predicate: `("n", "i", "u", "t" COLLATE "C", "at")` +
				` > (@after_1::bigint, @after_2::int, @after_3::uuid, @after_4::text COLLATE "C", @after_5::timestamptz)` +
				` AND ("n", "i", "u", "t" COLLATE "C", "at")` +
				` <= (@bound_1::bigint, @bound_2::int, @bound_3::uuid, @bound_4::text COLLATE "C", @bound_5::timestamptz)`,
			fromTheStartOnly: `("n", "i", "u", "t" COLLATE "C", "at")` +
				` <= (@bound_1::bigint, @bound_2::int, @bound_3::uuid, @bound_4::text COLLATE "C", @bound_5::timestamptz)`,
		},
		"a name that needs its quotes": {
			keyset:           cursor.MustKeyset(cursor.Column{Name: `Odd "@name"; --`, Type: cursor.UUID}),
			columns:          `"Odd ""@name""; --"`,
			order:            `"Odd ""@name""; --"`,
			descending:       `"Odd ""@name""; --" DESC`,
			predicate:        `"Odd ""@name""; --" > @after_1::uuid AND "Odd ""@name""; --" <= @bound_1::uuid`,
			fromTheStartOnly: `"Odd ""@name""; --" <= @bound_1::uuid`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.columns, tt.keyset.SelectList())
			require.Equal(t, tt.order, tt.keyset.OrderBy())
			require.Equal(t, tt.descending, tt.keyset.OrderByDesc())

			key := anyKey(t, tt.keyset)
			n := len(tt.keyset.Columns())
			predicate, args := tt.keyset.Window(key, key)
			require.Equal(t, tt.predicate, predicate)
			require.Len(t, args, 2*n)

			predicate, args = tt.keyset.Window(cursor.Position{}, key)
			require.Equal(t, tt.fromTheStartOnly, predicate)
			require.Len(t, args, n)

			// An empty relation has no bound; its walk reads nothing.
			for _, after := range []cursor.Position{{}, key} {
				predicate, args = tt.keyset.Window(after, cursor.Position{})
				require.Equal(t, "FALSE", predicate)
				require.Empty(t, args)
			}
		})
	}
}

// anyKey returns some key of the keyset.
func anyKey(t *testing.T, k cursor.Keyset) cursor.Position {
	t.Helper()
	var values []any
	for _, c := range k.Columns() {
		values = append(values, someValues[c.Type][0])
	}
	p, err := k.Position(values...)
	require.NoError(t, err)
	return p
}
