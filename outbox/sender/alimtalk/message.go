package alimtalk

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// maxContent is how many characters a content has.
const maxContent = 1000

// part is one delivery on its way into a call.
type part struct {
	at       int // its place in the batch
	template string
	to       number
	message  []byte // as JSON
}

// extras are the members of data.alimtalk that go into the message.
var extras = []string{"title", "headerContent", "itemHighlight", "item", "buttons"}

// The answer to a call repeats the content of every message and adds about answerExtra
// bytes to each. It must fit into what is read of an answer, with room to spare.
const (
	answerExtra = 250
	answerMax   = httpcall.BodyLimit * 7 / 8
)

// take returns how many of parts go into one call: those of the first one's template, as
// many as the provider takes and as have a readable answer, and one in any case.
func take(parts []part, most int) int {
	n, size := 0, 0
	for n < len(parts) && n < most && parts[n].template == parts[0].template {
		size += len(parts[n].message) + answerExtra
		if n > 0 && size > answerMax {
			break
		}
		n++
	}
	return n
}

// prepare makes the part of a delivery, or says why there is none.
func (s *Sender) prepare(at int, d sender.Delivery) (part, sender.Result) {
	to, ok := parseNumber(d.Address, s.cfg.CountryCode)
	if !ok {
		return part{}, sender.Result{Class: sender.InvalidAddress, Code: "number", Detail: "the address is not a telephone number; allowed are 5 to 15 digits, with + and the country's code or without"}
	}
	template, message, err := s.content(d)
	if err != nil {
		return part{}, sender.Result{Class: sender.Permanent, Code: "content", Detail: err.Error()}
	}
	message["countryCode"], message["to"] = to.country, to.to
	message["content"] = d.Body
	message["useSmsFailover"] = false // left out, the channel's own setting would decide
	encoded, err := json.Marshal(message)
	if err != nil {
		return part{}, sender.Result{Class: sender.Permanent, Code: "content", Detail: "the message cannot be encoded"}
	}
	return part{at: at, template: template, to: to, message: encoded}, sender.Result{}
}

// content returns the template and what a message has beside its content. Its errors hold
// nothing of either.
func (s *Sender) content(d sender.Delivery) (string, map[string]any, error) {
	var data struct {
		Template *string                    `json:"template_code"`
		AlimTalk map[string]json.RawMessage `json:"alimtalk"`
	}
	if err := json.Unmarshal(d.Data, &data); err != nil {
		return "", nil, errors.New("data.template_code or data.alimtalk is not allowed; allowed are a text and an object")
	}
	template := s.cfg.TemplateCode
	if data.Template != nil {
		template = *data.Template
	}
	if !codeText().MatchString(template) {
		return "", nil, errors.New("there is no template code; allowed are 1 to 30 letters, digits, _ and - in data.template_code or in the sender's template_code")
	}
	if n := utf8.RuneCountInString(d.Body); n < 1 || n > maxContent {
		return "", nil, fmt.Errorf("the content has %d characters; allowed are 1 to %d", n, maxContent)
	}
	message := make(map[string]any, len(data.AlimTalk)+4)
	for name, value := range data.AlimTalk {
		if !slices.Contains(extras, name) {
			return "", nil, fmt.Errorf("data.alimtalk has another member; allowed are %s", strings.Join(extras, ", "))
		}
		message[name] = value
	}
	return template, message, nil
}
