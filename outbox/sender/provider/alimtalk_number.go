package provider

import (
	"slices"
	"strings"
)

// phoneNumber is a telephone number in the provider's format.
type phoneNumber struct{ country, to string }

// parsePhone parses a telephone number, which has a country code if it begins with +.
func parsePhone(address, country string) (phoneNumber, bool) {
	to, international, ok := readNumber(address)
	if !ok || !isNumber(to) {
		return phoneNumber{}, false
	}
	if international {
		country = countryCode(to)
		to = strings.TrimPrefix(to, country)
		if country == "82" && !strings.HasPrefix(to, "0") {
			to = "0" + to // the format of the provider's examples
		}
	}
	return phoneNumber{country: country, to: to}, true
}

// twoDigits are the country codes of two digits (ITU-T E.164). 1 and 7 have one digit, all other codes three.
var twoDigits = []string{
	"20", "27", "30", "31", "32", "33", "34", "36", "39", "40", "41", "43", "44", "45", "46", "47", "48", "49",
	"51", "52", "53", "54", "55", "56", "57", "58", "60", "61", "62", "63", "64", "65", "66",
	"81", "82", "84", "86", "90", "91", "92", "93", "94", "95", "98",
}

// countryCode returns the country code of an international number.
func countryCode(digits string) string {
	switch {
	case len(digits) < 3:
		return digits
	case digits[0] == '1' || digits[0] == '7':
		return digits[:1]
	case slices.Contains(twoDigits, digits[:2]):
		return digits[:2]
	}
	return digits[:3]
}
