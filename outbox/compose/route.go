package compose

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/outbox"
)

// person is a recipient with its opt-outs and invalid addresses.
type person struct {
	channels.Recipient
	optOuts []channels.OptOut
	invalid []channels.InvalidAddress
}

// optedOut reports whether the channel opted out of the category or the medium.
func (p *person) optedOut(category, medium string) bool {
	for _, o := range p.optOuts {
		if o.Covers(category, medium) {
			return true
		}
	}
	return false
}

// address returns the channel's address for a medium, or the reason for having none.
func (p *person) address(medium string) (string, outbox.Reason) {
	address := addressText(member(p.Addresses, medium))
	if address == "" {
		return "", outbox.ReasonNoAddress
	}
	var hash []byte
	for _, i := range p.invalid {
		if i.Medium != medium {
			continue
		}
		if hash == nil {
			hash = outbox.AddressHash(address)
		}
		if bytes.Equal(hash, i.SHA256) {
			return "", outbox.ReasonInvalidAddress
		}
	}
	return address, ""
}

// member returns the raw value of one member of a JSON object, or nil if it is missing. A message needs
// one member, and decoding all would take longer than the rest of composing. Keys are names of media,
// which contain no special characters of a path.
func member(object json.RawMessage, key string) json.RawMessage {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	return json.RawMessage(gjson.GetBytes(object, key).Raw)
}

// addressText returns an address as text: a string's content, a number's digits or an object's JSON. It
// returns "" for any other value.
func addressText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	switch c := raw[0]; {
	case c == '"':
		if bytes.IndexByte(raw, '\\') < 0 {
			return strings.TrimSpace(strings.Trim(string(raw), `"`))
		}
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return strings.TrimSpace(s)
	case c == '{' && len(raw) > 2, c >= '0' && c <= '9':
		return string(raw)
	}
	return ""
}

// choice is the chosen step of a route and the bypassed steps.
type choice struct {
	step    int // len(route) if no medium is left
	address string
	passed  []outbox.Attempt
}

// choose returns the first usable medium of the route from a step on. Media in targeted need no address
// of the channel.
func choose(p *person, category string, route, targeted []string, from int) choice {
	c := choice{step: from}
	for ; c.step < len(route); c.step++ {
		medium, reason := route[c.step], outbox.ReasonOptedOut
		if !p.optedOut(category, medium) {
			c.address, reason = p.address(medium)
			if reason == "" || slices.Contains(targeted, medium) {
				return c
			}
		}
		c.passed = append(c.passed, outbox.Attempt{Step: c.step, Medium: medium, Outcome: outbox.OutcomeRefused, Reason: reason})
	}
	return c
}

// verdict returns the outcome of a message without a remaining medium that no provider accepted.
// failure is the outcome of its last call, or "" if no call was made or recorded.
func verdict(m outbox.Claimed, passed []outbox.Attempt, failure outbox.Outcome) (outbox.Status, outbox.Reason) {
	has := func(reason outbox.Reason) bool {
		for _, a := range passed {
			if a.Reason == reason {
				return true
			}
		}
		return false
	}
	switch {
	case has(outbox.ReasonOptedOut):
		return outbox.Cancelled, outbox.ReasonOptedOut
	case called(m) && failure == outbox.OutcomePermanent:
		return outbox.Dead, outbox.ReasonPermanent
	case called(m) && failure == outbox.OutcomeInvalidAddress:
		return outbox.Dead, outbox.ReasonInvalidAddress
	case called(m) && m.Attempts == 0: // the previous step used all its attempts
		return outbox.Dead, outbox.ReasonExhausted
	case has(outbox.ReasonInvalidAddress):
		return outbox.Dead, outbox.ReasonInvalidAddress
	}
	return outbox.Dead, outbox.ReasonNoAddress
}

// called reports whether a provider has been called for the message.
func called(m outbox.Claimed) bool { return m.Step > 0 || m.Attempts > 0 || m.Crashes > 0 }

// telling drops the records of bypassed media if they add nothing to the message's own reason.
func telling(passed []outbox.Attempt, reason outbox.Reason) []outbox.Attempt {
	for _, a := range passed {
		if a.Reason != reason {
			return passed
		}
	}
	return nil
}
