package cursor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/cursor"
)

// shapes are the keysets the fuzz targets decode for.
var shapes = []cursor.Keyset{
	keysetOf(cursor.Bigint), keysetOf(cursor.Int), keysetOf(cursor.UUID), keysetOf(cursor.Text), keysetOf(cursor.Timestamptz),
	keysetOf(cursor.Timestamptz, cursor.Bigint), keysetOf(cursor.Text, cursor.Text),
	keysetOf(cursor.Text, cursor.UUID, cursor.Int), keysetOf(cursor.Bigint, cursor.Timestamptz, cursor.Text, cursor.UUID, cursor.Int),
}

// seed adds good texts of every shape and every malformed one.
func seed(f *testing.F, add func(shape uint8, text string)) {
	f.Helper()
	for i, k := range shapes {
		add(uint8(i), "")
		for n := range 4 {
			var values []any
			for j, c := range k.Columns() {
				values = append(values, someValues[c.Type][(n+j)%len(someValues[c.Type])])
			}
			p, err := k.Position(values...)
			require.NoError(f, err)
			add(uint8(i), k.Encode(p))
		}
		for _, group := range malformed {
			for _, text := range group.texts {
				add(uint8(i), text)
			}
		}
	}
}

// FuzzDecode: Decode never panics, fails with ErrMalformed only, and accepts
// only the canonical form.
func FuzzDecode(f *testing.F) {
	seed(f, func(shape uint8, text string) { f.Add(shape, text) })
	f.Fuzz(func(t *testing.T, shape uint8, text string) {
		k := shapes[int(shape)%len(shapes)]
		p, err := k.Decode(text)
		if err != nil {
			require.ErrorIs(t, err, cursor.ErrMalformed)
			require.True(t, p.IsZero())
			return
		}
		require.NoError(t, k.Check(p))
		require.Equal(t, text, k.Encode(p))
		if p.IsZero() {
			return
		}
		again, err := k.Position(p.Values()...)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

// FuzzCompare: on decoded positions Compare is the oracle's order, and equal
// positions have equal texts.
func FuzzCompare(f *testing.F) {
	var last string
	seed(f, func(shape uint8, text string) {
		f.Add(shape, text, text)
		f.Add(shape, text, last)
		last = text
	})
	f.Fuzz(func(t *testing.T, shape uint8, textA, textB string) {
		k := shapes[int(shape)%len(shapes)]
		a, errA := k.Decode(textA)
		b, errB := k.Decode(textB)
		if errA != nil || errB != nil {
			return
		}
		got := k.Compare(a, b)
		require.Equal(t, -got, k.Compare(b, a))
		require.Equal(t, textA == textB, got == 0)
		if a.IsZero() || b.IsZero() {
			return
		}
		require.Equal(t, compareValues(a.Values(), b.Values()), got)
	})
}
