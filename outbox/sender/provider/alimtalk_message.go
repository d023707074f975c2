package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfryhq/belfry/outbox/sender"
)

// alimtalkMaxContent is the maximum length of the content in characters.
const alimtalkMaxContent = 1000

// alimtalkPart is one delivery of a call.
type alimtalkPart struct {
	at       int // index in the batch
	template string
	to       phoneNumber
	message  []byte // as JSON
}

// alimtalkExtras are the members of data.alimtalk that are copied to the message.
var alimtalkExtras = []string{"title", "headerContent", "itemHighlight", "item", "buttons"}

// The answer to a call repeats the content of every message and adds about answerExtra bytes each. It must fit
// into answerLimit with a margin.
const (
	alimtalkAnswerExtra = 250
	alimtalkAnswerMax   = answerLimit * 7 / 8
)

// takeParts returns the number of parts of the next call: parts with the template of the first one, limited by
// the provider's maximum and by the size of the answer, and at least one.
func takeParts(parts []alimtalkPart, most int) int {
	n, size := 0, 0
	for n < len(parts) && n < most && parts[n].template == parts[0].template {
		size += len(parts[n].message) + alimtalkAnswerExtra
		if n > 0 && size > alimtalkAnswerMax {
			break
		}
		n++
	}
	return n
}

// prepare returns the part of a delivery, or the result of a refused one.
func (s *alimtalkClient) prepare(at int, d sender.Delivery) (alimtalkPart, sender.Result) {
	to, ok := parsePhone(d.Address, s.cfg.CountryCode)
	if !ok {
		return alimtalkPart{}, refuseAddress("number", notNumber)
	}
	template, message, err := s.content(d)
	if err != nil {
		return alimtalkPart{}, refuseContent("content", err.Error())
	}
	message["countryCode"], message["to"] = to.country, to.to
	message["content"] = d.Body
	message["useSmsFailover"] = false // the default is the channel's setting
	encoded, err := json.Marshal(message)
	if err != nil {
		return alimtalkPart{}, refuseContent("content", "the message cannot be encoded")
	}
	return alimtalkPart{at: at, template: template, to: to, message: encoded}, sender.Result{}
}

// content returns the template and the extra members of a message. Its errors quote neither.
func (s *alimtalkClient) content(d sender.Delivery) (string, map[string]any, error) {
	var data struct {
		Template *string                    `json:"template_code"`
		AlimTalk map[string]json.RawMessage `json:"alimtalk"`
	}
	if err := json.Unmarshal(d.Data, &data); err != nil {
		return "", nil, errors.New("data.template_code or data.alimtalk is not allowed; allowed values: a text and an object")
	}
	template := s.cfg.TemplateCode
	if data.Template != nil {
		template = *data.Template
	}
	if !alimtalkCode().MatchString(template) {
		return "", nil, errors.New(
			"there is no template code; set 1 to 30 letters, digits, _ and - in data.template_code or in the sender's template_code")
	}
	if n := utf8.RuneCountInString(d.Body); n < 1 || n > alimtalkMaxContent {
		return "", nil, fmt.Errorf("the content has %d characters; allowed values: 1 to %d", n, alimtalkMaxContent)
	}
	message := make(map[string]any, len(data.AlimTalk)+4)
	for name, value := range data.AlimTalk {
		if !slices.Contains(alimtalkExtras, name) {
			return "", nil, fmt.Errorf("data.alimtalk has another member; allowed values: %s", strings.Join(alimtalkExtras, ", "))
		}
		message[name] = value
	}
	return template, message, nil
}

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
