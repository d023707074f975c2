package provider

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// The number of digits of a telephone number. Short numbers and emergency numbers have fewer; E.164 permits no
// more.
const (
	minDigits = 7
	maxDigits = 15
)

// notNumber is the error of an address that readNumber rejects.
const notNumber = "the address is not a telephone number; allowed values: 7 to 15 digits, with or without + and the " +
	"country's code, with blanks, dots, hyphens and parentheses between them"

// cleanNumber removes invisible characters that contact lists and word processors insert, such as U+202A to
// U+202C around a number. It replaces every kind of space and dash by the ASCII one.
func cleanNumber(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Cf, r):
			return -1
		case unicode.Is(unicode.Zs, r):
			return ' '
		case unicode.Is(unicode.Pd, r), r == '\u2212':
			return '-'
		}
		return r
	}, text))
}

// readNumber returns the digits of a telephone number, and whether it begins with + and the
// country's code. It never drops a digit, except for the (0) of +44 (0)20, which is not
// dialled from abroad. It rejects (0) with Italy's code, because that zero is dialled, and after digits
// without +, such as 0049 (0)30. It also rejects a last group of a single digit, because 01012345678.0 is a
// spreadsheet's number.
func readNumber(text string) (digits string, international, ok bool) {
	text, international = strings.CutPrefix(cleanNumber(text), "+")
	if whole, fraction, is := strings.Cut(text, "."); is && whole != "" && strings.Trim(fraction, "0") == "" {
		return "", false, false // a decimal from a spreadsheet
	}
	var out strings.Builder
	group := 0        // digits since the last separator
	opened := -1      // number of digits before the open parenthesis
	separated := true // two separators in a row are invalid, except for blanks
	for i, r := range text {
		switch {
		case r >= '0' && r <= '9':
			out.WriteRune(r)
			group++
			separated = false
			continue
		case r == '(' && opened < 0:
			opened = out.Len()
			if zero := nationalZero().FindString(text[i:]); zero != "" && opened > 0 {
				if !international {
					return "", false, false
				}
				return joinNumber(out.String(), text[i+len(zero):])
			}
		case r == ')' && opened >= 0 && out.Len() > opened:
			opened = -1
		case r == ' ' && out.Len() > 0:
		case (r == '-' || r == '.') && !separated:
			separated = true
		default:
			return "", false, false
		}
		group = 0
	}
	return out.String(), international, opened < 0 && group >= 2
}

// nationalZero matches a zero in parentheses that is dialled only within the country.
var nationalZero = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\( *0 *\)`) })

// joinNumber returns the number of a country code and the digits after (0).
func joinNumber(code, rest string) (digits string, international, ok bool) {
	national, again, ok := readNumber(rest)
	return code + national, true, ok && !again && code != "39" && len(code) <= 3 && !strings.ContainsRune(rest, '(')
}

// isNumber reports whether digits have the length of a telephone number.
func isNumber(digits string) bool { return len(digits) >= minDigits && len(digits) <= maxDigits }
