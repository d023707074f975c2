package cursor

import (
	"cmp"
	"fmt"
	"strings"
)

// Position is a key of a keyset. The zero value is the start, before every key.
// A Position is immutable and safe for concurrent use; it does not remember its
// keyset.
type Position struct {
	size  int     // number of columns; 0 is the start
	first value   // the most significant column, in place so that the common one-column key allocates nothing
	rest  []value // the others; nil for a one-column key
}

// Int64 returns the position v in a keyset of one bigint or int column. It does
// not allocate. Whether v fits an int column is for Keyset.Check to say.
func Int64(v int64) Position {
	return Position{size: 1, first: value{kind: integerKind, number: v}}
}

// Int64 returns the value of a position of one bigint or int column. ok is
// false for the start and for any other position.
func (p Position) Int64() (v int64, ok bool) {
	if p.size != 1 || p.first.kind != integerKind {
		return 0, false
	}
	return p.first.number, true
}

// IsZero reports whether p is the start, before every key.
func (p Position) IsZero() bool {
	return p.size == 0
}

// Values returns the values of the key columns, the most significant first, in
// a form that Keyset.Position takes back and pgx encodes: int64 for bigint and
// int, [16]byte for uuid, string for text, and for timestamptz a time.Time in
// UTC or a pgtype.InfinityModifier. It returns nil for the start.
func (p Position) Values() []any {
	if p.IsZero() {
		return nil
	}
	vs := make([]any, p.size)
	for i := range vs {
		vs[i] = p.at(i).native()
	}
	return vs
}

// String returns the text that Keyset.Encode stores, and "" for the start. It
// contains key values; see the package comment before logging it.
func (p Position) String() string {
	if p.IsZero() {
		return ""
	}
	return encode(p)
}

// at returns the value of column i.
func (p Position) at(i int) value {
	if i == 0 {
		return p.first
	}
	return p.rest[i-1]
}

// Position returns the position with the given column values, the most
// significant first. Each column takes:
//
//	bigint, int   int64, int32, int16, int, within the type's range
//	uuid          [16]byte or any type of that shape, pgtype.UUID, or the text 8-4-4-4-12
//	text          string: valid UTF-8 without NUL
//	timestamptz   time.Time, cut to microseconds; pgtype.Timestamptz; pgtype.InfinityModifier
//
// A nil or a pgtype value that is not Valid is NULL, which no key has. Errors
// are ErrValue and name the column.
func (k Keyset) Position(values ...any) (Position, error) {
	if err := k.usable(); err != nil {
		return Position{}, err
	}
	if len(values) != len(k.columns) {
		return Position{}, fmt.Errorf("%w: got %d values for the %d key columns %s",
			ErrValue, len(values), len(k.columns), k.SelectList())
	}
	p := k.blank()
	for i, c := range k.columns {
		v, err := newValue(c.Type, values[i])
		if err != nil {
			return Position{}, fmt.Errorf("%w: column %q: %w", ErrValue, c.Name, err)
		}
		p.set(i, v)
	}
	return p, nil
}

// Check reports whether p is a position of the keyset: the start, or a key with
// the keyset's number and types of columns. Errors are ErrValue.
func (k Keyset) Check(p Position) error {
	if err := k.usable(); err != nil {
		return err
	}
	if p.IsZero() {
		return nil
	}
	if p.size != len(k.columns) {
		return fmt.Errorf("%w: a position of %d values for the %d key columns %s",
			ErrValue, p.size, len(k.columns), k.SelectList())
	}
	for i, c := range k.columns {
		if err := p.at(i).check(c.Type); err != nil {
			return fmt.Errorf("%w: column %q: %w", ErrValue, c.Name, err)
		}
	}
	return nil
}

// Compare returns -1, 0 or +1 as a comes before, is, or comes after b in the
// keyset's order. The start comes before every key. It panics when Check
// refuses a or b.
func (k Keyset) Compare(a, b Position) int {
	k.mustCheck(a)
	k.mustCheck(b)
	if a.IsZero() || b.IsZero() {
		return cmp.Compare(a.size, b.size)
	}
	for i := range k.columns {
		if c := compareValues(a.at(i), b.at(i)); c != 0 {
			return c
		}
	}
	return 0
}

// compareValues orders two values of one kind.
func compareValues(a, b value) int {
	if c := cmp.Compare(a.number, b.number); c != 0 {
		return c
	}
	return strings.Compare(a.bytes, b.bytes)
}

// usable refuses the zero Keyset.
func (k Keyset) usable() error {
	if len(k.columns) == 0 {
		return fmt.Errorf("%w: it has no columns; make it with NewKeyset", ErrKeyset)
	}
	return nil
}

// mustCheck panics if p is not a position of k. A walk from such a position could silently skip rows.
func (k Keyset) mustCheck(p Position) { must(k.Check(p)) }

// blank returns a position of the keyset's size to be filled with set.
func (k Keyset) blank() Position {
	p := Position{size: len(k.columns)}
	if p.size > 1 {
		p.rest = make([]value, p.size-1)
	}
	return p
}

// set fills column i of a position that has not been handed out yet.
func (p *Position) set(i int, v value) {
	if i == 0 {
		p.first = v
		return
	}
	p.rest[i-1] = v
}
