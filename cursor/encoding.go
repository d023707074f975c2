package cursor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrMalformed marks a text that Keyset.Encode did not write for the keyset.
var ErrMalformed = errors.New("cursor: malformed position")

// Encode returns the text under which p is stored, such as in a job's cursor
// and bound. The start is the empty text. A keyset of one column that is not
// text is encoded so that PostgreSQL casts it back:
//
//	bigint, int   1234                                   cursor::bigint
//	uuid          0f8fad5b-d9cb-469f-a165-70867728950e   cursor::uuid
//	timestamptz   2026-01-02T03:04:05.000006Z            cursor::timestamptz
//
// Any other keyset is a JSON array of its values without spaces, numbers bare
// and all else in strings, for cursor::jsonb:
//
//	text              ["k-17"]
//	timestamptz, int  ["2026-01-02T03:04:05.000006Z",17]
//
// The form is stable: stored positions outlive releases of this package. It
// panics when Check refuses p.
func (k Keyset) Encode(p Position) string {
	k.mustCheck(p)
	return p.String()
}

// Decode is the inverse of Encode. It accepts only what Encode writes: leading
// zeros, capitals in a uuid, another time zone or spaces are errors, so that
// equal positions never have two texts. Errors are ErrMalformed, name the
// column and say what was expected.
func (k Keyset) Decode(s string) (Position, error) {
	if err := k.usable(); err != nil {
		return Position{}, err
	}
	if s == "" {
		return Position{}, nil
	}
	if bare(k.columns[0].Type.kind(), len(k.columns)) {
		c := k.columns[0]
		v, ok := parseBare(c.Type, s)
		if !ok {
			return Position{}, fmt.Errorf("%w %s: column %q: want %s", ErrMalformed, excerpt(s), c.Name, expected(c.Type))
		}
		return Position{size: 1, first: v}, nil
	}
	p, err := k.decodeArray(s)
	if err != nil {
		return Position{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return p, nil
}

// decodeArray reads the JSON form. Its errors do not quote s: a text key may be
// an address.
func (k Keyset) decodeArray(s string) (Position, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if token, err := d.Token(); err != nil || token != json.Delim('[') {
		return Position{}, fmt.Errorf("column %q: want a JSON array of the key columns %s", k.columns[0].Name, k.SelectList())
	}
	p := k.blank()
	for i, c := range k.columns {
		token, err := d.Token()
		if err != nil {
			return Position{}, fmt.Errorf("column %q: want %s, the array is broken here", c.Name, expectedJSON(c.Type))
		}
		v, ok := parseToken(c.Type, token)
		if !ok {
			return Position{}, fmt.Errorf("column %q: want %s", c.Name, expectedJSON(c.Type))
		}
		p.set(i, v)
	}
	last := k.columns[len(k.columns)-1].Name
	if token, err := d.Token(); err != nil || token != json.Delim(']') {
		return Position{}, fmt.Errorf("column %q: want the end of the array after it", last)
	}
	// What is left to refuse: spaces, other spellings of a character, invalid
	// UTF-8 (which the decoder replaces), and anything after the array.
	if encode(p) != s {
		return Position{}, fmt.Errorf("the columns %s: want the array without spaces, with no escapes but the needed ones and nothing after it",
			k.SelectList())
	}
	return p, nil
}

// bare reports whether a key is encoded as its only value, outside an array.
// Text is not: the empty text is a key, and the empty encoding is the start.
func bare(first kind, columns int) bool {
	return columns == 1 && first != textKind
}

// encode writes a position that is not the start.
func encode(p Position) string {
	if bare(p.first.kind, p.size) {
		return p.first.plain()
	}
	var b strings.Builder
	for i := range p.size {
		b.WriteByte("[,"[min(i, 1)])
		v := p.at(i)
		if v.kind == integerKind {
			b.WriteString(v.plain())
		} else {
			writeJSONString(&b, v.plain())
		}
	}
	b.WriteByte(']')
	return b.String()
}

// plain is the text of a value without quotes.
func (v value) plain() string {
	switch v.kind {
	case integerKind:
		return strconv.FormatInt(v.number, 10)
	case uuidKind:
		return formatUUID(v.bytes)
	case instantKind:
		return formatInstant(v.number)
	case textKind, noKind:
	}
	return v.bytes
}

// parseToken reads one element of the JSON form.
func parseToken(t Type, token json.Token) (value, bool) {
	switch token := token.(type) {
	case json.Number:
		if t.kind() != integerKind {
			return value{}, false
		}
		return parseBare(t, token.String())
	case string:
		switch t {
		case Text:
			v, err := newText(token)
			return v, err == nil
		case UUID, Timestamptz:
			return parseBare(t, token)
		case Bigint, Int:
		}
	}
	return value{}, false
}

// parseBare reads a value that is not text, in canonical form only.
func parseBare(t Type, s string) (value, bool) {
	var v value
	var ok bool
	switch t {
	case Bigint, Int:
		n, err := strconv.ParseInt(s, 10, 64)
		v = value{kind: integerKind, number: n}
		ok = err == nil && v.check(t) == nil
	case UUID:
		var b [16]byte
		b, ok = parseUUID(s)
		v = value{kind: uuidKind, bytes: string(b[:])}
	case Timestamptz:
		v, ok = parseInstant(s)
	case Text:
	}
	return v, ok && v.plain() == s
}

// expected describes the canonical form of a type that is not text.
func expected(t Type) string {
	switch t {
	case Bigint, Int:
		return article(t) + " in plain decimal digits, as 17 or -17"
	case UUID:
		return "a uuid in lower case, as 8-4-4-4-12 hexadecimal digits"
	case Timestamptz:
		return "a timestamptz in UTC with six fractional digits, as 2026-01-02T03:04:05.000006Z, infinity or -infinity"
	case Text:
	}
	return "a text"
}

// article names an integer type with its article.
func article(t Type) string {
	if t == Int {
		return "an int"
	}
	return "a bigint"
}

// expectedJSON is expected inside an array.
func expectedJSON(t Type) string {
	if t.kind() == integerKind {
		return expected(t) + " as a JSON number"
	}
	return expected(t) + " in a JSON string"
}

// excerpt quotes the beginning of a bad text for an error.
func excerpt(s string) string {
	const most = 60
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:most]) + "…"
}

// writeJSONString writes s with the escapes JSON requires and no others. The
// standard encoder is not used because its choice of escapes has changed
// between Go releases, and the stored form must not.
func writeJSONString(b *strings.Builder, s string) {
	const hexDigits = "0123456789abcdef"
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20:
			b.WriteString(`\u00`)
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&0xf])
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}
