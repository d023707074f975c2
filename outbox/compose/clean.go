package compose

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean replaces control characters and line ends by blanks and removes characters that change the text
// direction.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), r == '\u2028', r == '\u2029':
			return ' '
		case r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
			return -1
		}
		return r
	}, s)
}

// oneLine replaces line ends and tabs by blanks.
func oneLine(s string) string {
	if !strings.ContainsAny(s, "\n\r\t\v\f\u0085\u2028\u2029") {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", " ")
	return strings.Map(func(r rune) rune {
		switch r {
		case '\n', '\r', '\t', '\v', '\f', '\u0085', '\u2028', '\u2029':
			return ' '
		}
		return r
	}, s)
}

// cut shortens s to at most limit characters, the last of them … if it removes text. It never splits a
// grapheme: a letter with its marks, or an emoji with its modifiers.
func cut(s string, limit int) string {
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s
	}
	runes := []rune(first(s, limit+1))
	end := limit - 1
	for end > 0 && (joins(runes[end]) || runes[end-1] == zeroWidthJoiner || splitsFlag(runes, end)) {
		end--
	}
	if end == 0 { // a character longer than the limit
		end = limit - 1
	}
	return string(runes[:end]) + "…"
}

const zeroWidthJoiner = '\u200d'

// joins reports whether r belongs to the character before it.
func joins(r rune) bool {
	return unicode.Is(unicode.M, r) || r == zeroWidthJoiner ||
		r >= 0x1f3fb && r <= 0x1f3ff || // skin tones
		r >= 0xe0020 && r <= 0xe007f // tags of flags
}

// splitsFlag reports whether a cut at end would part the two letters of a flag.
func splitsFlag(runes []rune, end int) bool {
	n := 0
	for i := end - 1; i >= 0 && regional(runes[i]); i-- {
		n++
	}
	return n%2 == 1 && regional(runes[end])
}

func regional(r rune) bool { return r >= 0x1f1e6 && r <= 0x1f1ff }

// first returns the first n characters of s.
func first(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
