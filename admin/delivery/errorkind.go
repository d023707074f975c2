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
	// errorToken is how many letters in a row are taken for a token.
	errorToken = 32
)

var (
	errorQuoted = regexp.MustCompile(`([{,] *)?["“]([^"”]*)["”]( *:)?`)
	errorSingle = regexp.MustCompile("(^|[ (\\[{:=,])(['`‘])([^'`’]*)['`’]")
	errorRun    = regexp.MustCompile(`#(?:[ ,;-]*#)+`)
)

// errorKind is the text of an error without what differs from message to message, so that errors
// of one kind have one text. # stands for
//
//   - an address of a web page, and whatever has an @ in it;
//   - what is in quotation marks, if it is one word: the names in JSON stay;
//   - a word with a digit in it, whole with its hyphens and points: numbers, times, ids, tokens;
//   - a run of 32 letters or more;
//   - several of these one after the other.
//
// Blanks and lines become one blank, and the first 300 characters count. It is no way to hide
// anything: a name that stands among other words stays.
func errorKind(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(strings.ToValidUTF8(text, ""), `\"`, `"`)), " ")
	text = around(text, "://", func(b byte) bool { return letterOrDigit(b) || strings.IndexByte("+.-", b) >= 0 }, func(b byte) bool { return strings.IndexByte(` "'<>()[]{},`, b) < 0 })
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

// around puts # for each mark that something stands behind, with what belongs to it on both sides.
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

// wordsOfKind puts # for each word that has a digit in it, and for each that is so long that it is
// a token. A word goes on behind a hyphen, a point or a plus.
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

// word is the length of the word that a text begins with, whether it has a digit in it, and whether
// it is of several parts.
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

// goesOn reports whether a text begins within a word.
func goesOn(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return r == '_' || unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r)
}
