package cursor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Type is the PostgreSQL type of a key column. Its text is the name used in
// casts.
type Type string

// The supported types of key columns.
const (
	// Bigint is a column of type bigint. An integer or smallint column may be
	// walked as Bigint too.
	Bigint Type = "bigint"
	// Int is a column of type integer.
	Int Type = "int"
	// UUID is a column of type uuid, ordered by its 16 bytes.
	UUID Type = "uuid"
	// Text is a column of type text or varchar, ordered by its bytes
	// (COLLATE "C"). char(n) and citext compare differently and are not
	// supported.
	Text Type = "text"
	// Timestamptz is a column of type timestamptz: microseconds, the whole
	// range of PostgreSQL including BC, years above 9999 and both infinities.
	// A timestamp without time zone is not supported, because its comparison
	// would depend on the session's time zone.
	Timestamptz Type = "timestamptz"
)

// kind is the representation of the type's values in a Position.
func (t Type) kind() kind {
	switch t {
	case Bigint, Int:
		return integerKind
	case UUID:
		return uuidKind
	case Text:
		return textKind
	case Timestamptz:
		return instantKind
	}
	return noKind
}

// Column is one key column.
type Column struct {
	// Name is the column's name as PostgreSQL stores it, 1 to 63 bytes. It is
	// quoted when rendered, so it is case-sensitive, must not be quoted by the
	// caller, and is never qualified.
	Name string
	// Type is the column's type.
	Type Type
}

// maxNameBytes is the longest identifier PostgreSQL stores; it cuts longer ones
// silently, and a cut name may be another column's.
const maxNameBytes = 63

// ErrKeyset marks a malformed definition of a keyset.
var ErrKeyset = errors.New("cursor: malformed keyset")

// Keyset is an ordered list of key columns. It is immutable and safe for
// concurrent use. The zero value has no columns and is not usable; make one
// with NewKeyset.
type Keyset struct {
	columns  []Column
	rendered []rendered
}

// rendered is a column's text in each clause, computed once.
type rendered struct {
	ident   string // "a"
	collate string // ` COLLATE "C"` for text, else empty
}

// NewKeyset returns the keyset of the given columns, the most significant
// first. Errors are ErrKeyset and name the column.
func NewKeyset(columns ...Column) (Keyset, error) {
	if len(columns) == 0 {
		return Keyset{}, fmt.Errorf("%w: it needs at least one column", ErrKeyset)
	}
	seen := make(map[string]bool, len(columns))
	for i, c := range columns {
		if problem := nameProblem(c.Name); problem != "" {
			return Keyset{}, fmt.Errorf("%w: column %d (%q): the name %s", ErrKeyset, i+1, c.Name, problem)
		}
		if seen[c.Name] {
			return Keyset{}, fmt.Errorf("%w: column %d (%q): the name is repeated", ErrKeyset, i+1, c.Name)
		}
		seen[c.Name] = true
		if c.Type.kind() == noKind {
			return Keyset{}, fmt.Errorf("%w: column %d (%q): unknown type %q; want one of %s, %s, %s, %s, %s",
				ErrKeyset, i+1, c.Name, string(c.Type), Bigint, Int, UUID, Text, Timestamptz)
		}
	}
	return newKeyset(slices.Clone(columns)), nil
}

// MustKeyset is NewKeyset for keysets written in the program; it panics on an
// error.
func MustKeyset(columns ...Column) Keyset {
	k, err := NewKeyset(columns...)
	must(err)
	return k
}

// must panics on an error that only a fault of the calling program causes.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// newKeyset renders validated columns.
func newKeyset(columns []Column) Keyset {
	k := Keyset{columns: columns, rendered: make([]rendered, len(columns))}
	for i, c := range columns {
		k.rendered[i].ident = quoteIdent(c.Name)
		if c.Type == Text {
			k.rendered[i].collate = ` COLLATE "C"`
		}
	}
	return k
}

// Columns returns a copy of the key columns, the most significant first.
func (k Keyset) Columns() []Column {
	return slices.Clone(k.columns)
}

// nameProblem says what is wrong with an identifier, or nothing.
func nameProblem(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxNameBytes:
		return fmt.Sprintf("has %d bytes, PostgreSQL stores at most %d", len(name), maxNameBytes)
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	case strings.ContainsRune(name, 0):
		return "contains NUL"
	}
	return ""
}

// quoteIdent quotes an identifier for SQL.
func quoteIdent(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
