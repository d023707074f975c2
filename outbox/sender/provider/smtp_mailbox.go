package provider

import (
	"encoding/base64"
	"errors"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// smtpMaxMailbox is the maximum length of an address in bytes: a path of RFC 5321 §4.5.3.1.3 without angle brackets.
const smtpMaxMailbox = 254

// smtpAllowed is appended to the errors of parseMailbox.
const smtpAllowed = "; allowed values: user@host of up to 254 bytes"

var (
	errNoMailbox = errors.New("is not a mail address")
	errLiteral   = errors.New("has an IP address instead of a domain")
)

// parseMailbox parses one address, with or without a name. It converts a non-ASCII domain to A-labels, which every
// server supports (RFC 5891). An error continues the words "the address" and does not quote the text.
func parseMailbox(text string) (*mail.Address, error) {
	parsed, err := mail.ParseAddress(text)
	switch {
	case strings.ContainsFunc(text, unicode.IsControl): // a comment may contain them
		return nil, errNoMailbox
	case err != nil && strings.Contains(text, "@[IPv6:"): // the library parses only IPv4 literals
		return nil, errLiteral
	case err != nil:
		return nil, errNoMailbox
	}
	if _, err := mail.ParseAddress("x:" + text + ";"); err != nil { // a group in a group
		return nil, errors.New("is a group")
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	local, domain := parsed.Address[:at], parsed.Address[at+1:]
	switch {
	case strings.HasPrefix(domain, "["):
		return nil, errLiteral
	case strings.ContainsFunc(local, unseen), strings.ContainsFunc(domain, func(r rune) bool { return unseen(r) && !joins(r) }):
		return nil, errors.New("has a blank or an invisible character")
	}
	if !isASCII(domain) {
		if domain, err = idna.Lookup.ToASCII(domain); err != nil {
			return nil, errors.New("has a domain that is not an international domain name")
		}
		parsed.Address = local + "@" + domain
	}
	if len(parsed.Address) > smtpMaxMailbox {
		return nil, errors.New("is too long")
	}
	return parsed, nil
}

// unseen reports whether a character of an address is invisible, so that the address differs from the displayed
// text. An ASCII space is allowed; it is within quotation marks.
func unseen(r rune) bool {
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// joins reports whether r is U+200C or U+200D, which words of some languages require; idna permits them in a domain
// only in such words.
func joins(r rune) bool { return unicode.Is(unicode.Join_Control, r) }

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// encodedTitle encodes a title that mail programs would decode as encoded words (RFC 2047 §5), and returns any other
// title unchanged. The mail library encodes only non-ASCII titles.
func encodedTitle(title string) string {
	if !isASCII(title) || !strings.Contains(title, "=?") {
		return title
	}
	var words []string
	const most = 42 // bytes per word, which has at most 75 characters after encoding
	for title != "" {
		part := title[:min(len(title), most)]
		words = append(words, "=?UTF-8?b?"+base64.StdEncoding.EncodeToString([]byte(part))+"?=")
		title = title[len(part):]
	}
	return strings.Join(words, " ")
}
