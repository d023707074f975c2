package printer

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Clean keeps a text from changing a terminal: what a terminal obeys becomes blanks, such as escape
// sequences, carriage returns, and characters that turn the direction of what follows. Line breaks
// and tabs stay.
func Clean(text string) string { return clean(text, false) }

// OneLine keeps a text from breaking a table or a terminal: it is Clean without line breaks and
// tabs, and is cut at width.
func OneLine(s string, width int) string { return cut(oneLine(s), width) }

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || obeyed(r) {
			return ' '
		}
		return r
	}, s)
}

// obeyed reports whether a terminal obeys a character rather than shows it.
func obeyed(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < ' ', r >= 0x7f && r < 0xa0:
		return true
	}
	return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' || r == '\u2028' || r == '\u2029'
}

// EscapeJSON writes what a terminal obeys as \uXXXX in a JSON document, which has it in texts alone
// and stays the same value.
func EscapeJSON(document []byte) []byte {
	if bytes.IndexFunc(document, obeyed) < 0 {
		return document
	}
	var b bytes.Buffer
	for _, r := range string(document) {
		if obeyed(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// clean is Clean of a text in which the colours of statuses stay if it may have some.
func clean(text string, colored bool) string {
	if strings.IndexFunc(text, obeyed) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		if end := colorAt(text); colored && end > 0 {
			b.WriteString(text[:end])
			text = text[end:]
			continue
		}
		next := strings.IndexFunc(text, obeyed)
		switch {
		case next < 0:
			b.WriteString(text)
			return b.String()
		case next > 0:
			b.WriteString(text[:next])
			text = text[next:]
		default:
			b.WriteByte(' ')
			_, size := utf8.DecodeRuneInString(text)
			text = text[size:]
		}
	}
	return b.String()
}

// colorAt is how long the colour of a status is that a text begins with; 0: it begins with none.
func colorAt(text string) int {
	for _, color := range colors {
		if begin := escape + color + "m"; strings.HasPrefix(text, begin) {
			return len(begin)
		}
	}
	if strings.HasPrefix(text, plain) {
		return len(plain)
	}
	return 0
}
