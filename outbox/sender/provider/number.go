package provider

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// How many digits a telephone number has: fewer are short numbers and those of emergency
// services, and ITU-T E.164 has no more.
const (
	minDigits = 7
	maxDigits = 15
)

// notNumber is the reason of an address that readNumber refuses.
const notNumber = "the address is not a telephone number; allowed are 7 to 15 digits, with or without + and the country's code, with blanks, dots, hyphens and parentheses between them"

// cleanNumber removes what contact lists and word processors put into numbers and what is no
// part of them: characters without a width, such as U+202A to U+202C around a number. It
// writes every kind of blank and of dash as the usual one.
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
// dialled from abroad. It refuses (0) with Italy's code, where the zero is dialled, and after
// digits without +, such as 0049 (0)30. A last group of a single digit is refused as well:
// 01012345678.0 is a number of a spreadsheet.
func readNumber(text string) (digits string, international, ok bool) {
	text, international = strings.CutPrefix(cleanNumber(text), "+")
	if whole, fraction, is := strings.Cut(text, "."); is && whole != "" && strings.Trim(fraction, "0") == "" {
		return "", false, false // a cell of a spreadsheet that was taken for a decimal
	}
	var out strings.Builder
	group := 0        // digits since the last separator
	opened := -1      // digits before the parenthesis that is open
	separated := true // a second separator other than a blank is no number
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

// nationalZero matches the zero in parentheses that is dialled within a country alone.
var nationalZero = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\( *0 *\)`) })

// joinNumber is the number of a country's code and of what follows (0).
func joinNumber(code, rest string) (digits string, international, ok bool) {
	national, again, ok := readNumber(rest)
	return code + national, true, ok && !again && code != "39" && len(code) <= 3 && !strings.ContainsRune(rest, '(')
}

// isNumber reports whether digits are as many as a telephone number has.
func isNumber(digits string) bool { return len(digits) >= minDigits && len(digits) <= maxDigits }
