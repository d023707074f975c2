package delivery

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// errorKindLength is the number of characters that distinguish kinds of errors.
	errorKindLength = 300
	// errorToken is the length of a run of letters that counts as a token.
	errorToken = 32
)

var (
	errorQuoted = regexp.MustCompile(`([{,] *)?["“]([^"”]*)["”]( *:)?`)
	errorSingle = regexp.MustCompile("(^|[ (\\[{:=,])(['`‘])([^'`’]*)['`’]")
	errorRun    = regexp.MustCompile(`#(?:[ ,;-]*#)+`)
)

// errorKind returns the text of an error without variable parts, so that errors of one kind have one
// text. # stands for
//
//   - an address of a web page, and a word with an @;
//   - a single quoted word, except names in JSON;
//   - a word with a digit in it, whole with its hyphens and points: numbers, times, ids, tokens;
//   - a run of 32 letters or more;
//   - a sequence of these.
//
// Blanks and line breaks become one blank, and only the first 300 characters are used. It does not
// protect personal data: a name among other words stays.
func errorKind(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(strings.ToValidUTF8(text, ""), `\"`, `"`)), " ")
	text = around(text, "://", func(b byte) bool { return letterOrDigit(b) || strings.IndexByte("+.-", b) >= 0 },
		func(b byte) bool { return strings.IndexByte(` "'<>()[]{},`, b) < 0 })
	inAddress := func(b byte) bool { return strings.IndexByte(` "'<>()[]{},;:=`, b) < 0 }
	text = around(text, "@", inAddress, inAddress)
	if strings.ContainsAny(text, `"“`) {
		text = errorQuoted.ReplaceAllStringFunc(text, func(part string) string {
			m := errorQuoted.FindStringSubmatch(part)
			if m[1] != "" && m[3] != "" || m[2] == "" || strings.Contains(m[2], " ") {
				return part
			}
			return m[1] + `"#"` + m[3]
		})
	}
	if strings.ContainsAny(text, "'`‘") {
		text = errorSingle.ReplaceAllStringFunc(text, func(part string) string {
			m := errorSingle.FindStringSubmatch(part)
			if m[3] == "" || strings.Contains(m[3], " ") {
				return part
			}
			return m[1] + "'#'"
		})
	}
	text = wordsOfKind(text)
	if strings.Count(text, "#") > 1 {
		text = errorRun.ReplaceAllString(text, "#")
	}
	if utf8.RuneCountInString(text) > errorKindLength {
		return string([]rune(text)[:errorKindLength-1]) + "…"
	}
	return text
}

func letterOrDigit(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
}

// around replaces each mark that is followed by text, together with the adjacent text, by #.
func around(text, mark string, before, after func(byte) bool) string {
	var b strings.Builder
	for {
		at := strings.Index(text, mark)
		if at < 0 {
			break
		}
		first, last := at, at+len(mark)
		for first > 0 && before(text[first-1]) {
			first--
		}
		for last < len(text) && after(text[last]) {
			last++
		}
		for last > at+len(mark) && strings.IndexByte(".:;", text[last-1]) >= 0 { // of the sentence
			last--
		}
		if last == at+len(mark) {
			b.WriteString(text[:last])
		} else {
			b.WriteString(text[:first] + "#")
		}
		text = text[last:]
	}
	b.WriteString(text)
	return b.String()
}

// wordsOfKind replaces words with a digit and tokens by #. A word may contain hyphens, points and
// pluses.
func wordsOfKind(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		size, numbered, joined := word(text)
		if size == 0 {
			_, size = utf8.DecodeRuneInString(text)
			if _, next, _ := word(text[size:]); text[0] != '+' || !next { // the + of a number goes with it
				b.WriteString(text[:size])
			}
			text = text[size:]
			continue
		}
		if numbered || !joined && utf8.RuneCountInString(text[:size]) >= errorToken {
			b.WriteByte('#')
		} else {
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// word returns the length of the first word of a text, whether it contains a digit, and whether it has
// several parts.
func word(text string) (size int, numbered, joined bool) {
	for size < len(text) {
		r, n := utf8.DecodeRuneInString(text[size:])
		switch {
		case unicode.IsNumber(r):
			numbered = true
		case r == '_':
			joined = true
		case unicode.IsLetter(r), unicode.IsMark(r):
		case size > 0 && strings.ContainsRune("-.+", r) && goesOn(text[size+n:]):
			joined = true
		default:
			return size, numbered, joined
		}
		size += n
	}
	return size, numbered, joined
}

// goesOn reports whether a text continues a word.
func goesOn(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return r == '_' || unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r)
}
