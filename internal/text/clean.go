package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Clean keeps a text from changing a terminal: what a terminal obeys becomes blanks, such as escape
// sequences, carriage returns, and characters that turn the direction of what follows. Line breaks
// and tabs stay.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if obeyed(r) {
			return ' '
		}
		return r
	}, text)
}

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
	return turns(r) || r == '\u2028' || r == '\u2029'
}

// turns reports whether a character changes the direction of the text after it.
func turns(r rune) bool { return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' }

// CleanHTML replaces characters that change the direction of text by blanks in an HTML document. Tags and textareas
// stay unchanged, because forms send their values back.
func CleanHTML(document []byte) []byte {
	if bytes.IndexFunc(document, turns) < 0 {
		return document
	}
	var b bytes.Buffer
	tag, field := false, false
	for i, r := range string(document) {
		switch {
		case r == '<':
			tag = true
			field = bytes.HasPrefix(document[i:], []byte("<textarea")) || field && !bytes.HasPrefix(document[i:], []byte("</textarea"))
		case r == '>':
			tag = false
		case turns(r) && !tag && !field:
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.Bytes()
}

// maxIndented is the depth up to which IndentJSON indents. Indentation multiplies the size of a document by its
// depth: data of 16 KiB that is nested 8,000 times would become 130 MB.
const maxIndented = 32

// IndentJSON indents a JSON document, unless indent is empty or the document is nested more than 32 times.
func IndentJSON(document []byte, indent string) []byte {
	var b bytes.Buffer
	if indent == "" || depthOf(document) > maxIndented || json.Indent(&b, document, "", indent) != nil {
		return document
	}
	return b.Bytes()
}

// depthOf returns the depth of the objects and arrays of a JSON document.
func depthOf(document []byte) (most int) {
	depth, quoted := 0, false
	for i := 0; i < len(document); i++ {
		switch c := document[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return most
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
