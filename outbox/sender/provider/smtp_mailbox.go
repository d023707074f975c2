package provider

import (
	"encoding/base64"
	"errors"
	"net/mail"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// smtpMaxMailbox is how many bytes an address has at most: a path of RFC 5321 §4.5.3.1.3
// without its angle brackets.
const smtpMaxMailbox = 254

// parseMailbox reads an address, alone or after a name. A domain beyond ASCII becomes its
// A-labels, by which every server knows it (RFC 5891).
func parseMailbox(text string) (*mail.Address, error) {
	parsed, err := mail.ParseAddress(text)
	if err != nil {
		return nil, err
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	local, domain := parsed.Address[:at], parsed.Address[at+1:]
	if !isASCII(domain) {
		if domain, err = idna.Lookup.ToASCII(domain); err != nil {
			return nil, errors.New("the domain is not an international domain name")
		}
		parsed.Address = local + "@" + domain
	}
	if len(parsed.Address) > smtpMaxMailbox {
		return nil, errors.New("the address is too long")
	}
	return parsed, nil
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// encodedTitle encodes a title that a mail program would otherwise take for encoded words
// (RFC 2047 §5), and returns every other one unchanged. The mail library encodes titles
// beyond ASCII, but not these.
func encodedTitle(title string) string {
	if !isASCII(title) || !strings.Contains(title, "=?") {
		return title
	}
	var words []string
	const most = 42 // bytes of each word, so that it has 75 characters at most when encoded
	for title != "" {
		part := title[:min(len(title), most)]
		words = append(words, "=?UTF-8?b?"+base64.StdEncoding.EncodeToString([]byte(part))+"?=")
		title = title[len(part):]
	}
	return strings.Join(words, " ")
}
