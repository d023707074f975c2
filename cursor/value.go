package cursor

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

// ErrValue marks a value that is no key of the keyset: NULL, of another type,
// or out of the type's range.
var ErrValue = errors.New("cursor: value is no key of the keyset")

// errNull is the problem with a NULL.
var errNull = errors.New("is NULL; key columns have to be NOT NULL")

// kind is the representation of a value.
type kind uint8

const (
	noKind      kind = iota
	integerKind      // number
	uuidKind         // bytes, 16 of them
	textKind         // bytes
	instantKind      // number: microseconds since 2000-01-01 UTC, the extremes are the infinities
)

// String is the kind's name in errors.
func (k kind) String() string {
	switch k {
	case integerKind:
		return "an integer"
	case uuidKind:
		return "a uuid"
	case textKind:
		return "a text"
	case instantKind:
		return "a timestamptz"
	case noKind:
	}
	return "nothing"
}

// value is one column of a key. Only the field its kind names is set, so that
// comparing number and then bytes orders the values of a kind.
type value struct {
	kind   kind
	number int64
	bytes  string
}

// newValue checks a Go value against a column's type.
func newValue(t Type, v any) (value, error) {
	if v == nil {
		return value{}, errNull
	}
	switch t.kind() {
	case integerKind:
		return newInteger(t, v)
	case uuidKind:
		return newUUID(v)
	case textKind:
		return newText(v)
	case instantKind:
		return newInstant(v)
	case noKind:
	}
	return value{}, fmt.Errorf("unknown type %q", string(t))
}

// check reports whether a value made earlier fits a column of type t.
func (v value) check(t Type) error {
	if v.kind != t.kind() {
		return fmt.Errorf("want %s, the position holds %s", t, v.kind)
	}
	if t == Int && (v.number < math.MinInt32 || v.number > math.MaxInt32) {
		return fmt.Errorf("%d is out of the range of int", v.number)
	}
	return nil
}

// native returns the value in the form Position.Values documents.
func (v value) native() any {
	switch v.kind {
	case integerKind:
		return v.number
	case uuidKind:
		return [16]byte([]byte(v.bytes))
	case textKind:
		return v.bytes
	case instantKind:
		switch v.number {
		case infinity:
			return pgtype.Infinity
		case negativeInfinity:
			return pgtype.NegativeInfinity
		}
		return instantTime(v.number)
	case noKind:
	}
	return nil
}

// argument returns the value as a query argument for a column of type t, typed
// so that pgx encodes it under every query execution mode.
func (v value) argument(t Type) any {
	switch t {
	case Bigint:
		return v.number
	case Int:
		return int32(v.number) //nolint:gosec // check has compared the range
	case UUID:
		return pgtype.UUID{Bytes: [16]byte([]byte(v.bytes)), Valid: true}
	case Text:
		return v.bytes
	case Timestamptz:
		switch v.number {
		case infinity:
			return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
		case negativeInfinity:
			return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
		}
		return pgtype.Timestamptz{Time: instantTime(v.number), Valid: true}
	}
	return nil
}

func newInteger(t Type, v any) (value, error) {
	var n int64
	switch v := v.(type) {
	case int64:
		n = v
	case int32:
		n = int64(v)
	case int16:
		n = int64(v)
	case int:
		n = int64(v)
	case pgtype.Int8:
		if !v.Valid {
			return value{}, errNull
		}
		n = v.Int64
	default:
		return value{}, typeProblem(t, v)
	}
	made := value{kind: integerKind, number: n}
	return made, made.check(t)
}

func newUUID(v any) (value, error) {
	switch v := v.(type) {
	case [16]byte:
		return value{kind: uuidKind, bytes: string(v[:])}, nil
	case pgtype.UUID:
		if !v.Valid {
			return value{}, errNull
		}
		return value{kind: uuidKind, bytes: string(v.Bytes[:])}, nil
	case string:
		b, ok := parseUUID(v)
		if !ok {
			return value{}, errors.New("want a uuid as 8-4-4-4-12 hexadecimal digits")
		}
		return value{kind: uuidKind, bytes: string(b[:])}, nil
	}
	// uuid.UUID of every Go library is an array of 16 bytes.
	if array := reflect.TypeFor[[16]byte](); reflect.TypeOf(v).ConvertibleTo(array) && reflect.TypeOf(v).Kind() == reflect.Array {
		b, _ := reflect.ValueOf(v).Convert(array).Interface().([16]byte)
		return value{kind: uuidKind, bytes: string(b[:])}, nil
	}
	return value{}, typeProblem(UUID, v)
}

func newText(v any) (value, error) {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case pgtype.Text:
		if !v.Valid {
			return value{}, errNull
		}
		s = v.String
	default:
		return value{}, typeProblem(Text, v)
	}
	switch {
	case !utf8.ValidString(s):
		return value{}, errors.New("want text in UTF-8, got invalid bytes")
	case strings.ContainsRune(s, 0):
		return value{}, errors.New("want text without NUL, PostgreSQL cannot store it")
	}
	return value{kind: textKind, bytes: s}, nil
}

func newInstant(v any) (value, error) {
	switch v := v.(type) {
	case time.Time:
		return finiteInstant(v)
	case pgtype.InfinityModifier:
		switch v {
		case pgtype.Infinity:
			return value{kind: instantKind, number: infinity}, nil
		case pgtype.NegativeInfinity:
			return value{kind: instantKind, number: negativeInfinity}, nil
		case pgtype.Finite:
		}
		return value{}, errors.New("want an instant, got the modifier of a finite one")
	case pgtype.Timestamptz:
		switch {
		case !v.Valid:
			return value{}, errNull
		case v.InfinityModifier != pgtype.Finite:
			return newInstant(v.InfinityModifier)
		}
		return finiteInstant(v.Time)
	}
	return value{}, typeProblem(Timestamptz, v)
}

// typeProblem names the Go type that a column does not take. The value stays
// out of the error: it may be an address.
func typeProblem(t Type, v any) error {
	return fmt.Errorf("want a value for %s, got the Go type %T", t, v)
}

// parseUUID reads the form 8-4-4-4-12 in either case.
func parseUUID(s string) (b [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return b, false
	}
	digits := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	_, err := hex.Decode(b[:], []byte(digits))
	return b, err == nil
}

// formatUUID writes the canonical form: lower case, 8-4-4-4-12.
func formatUUID(b string) string {
	h := hex.EncodeToString([]byte(b))
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
