package sms

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// parsePath reads a.b.0.c; nil for the empty path.
func parsePath(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	steps := strings.Split(text, ".")
	if len(steps) > 16 || slices.Contains(steps, "") {
		return nil, errors.New("is no path; allowed are up to 16 names and numbers with a dot between, as in messages.0.id")
	}
	return steps, nil
}

// at is the text, number or truth value at a path, as text; "" if there is none.
func at(doc any, path []string) string {
	if len(path) == 0 {
		return ""
	}
	for _, step := range path {
		switch v := doc.(type) {
		case map[string]any:
			doc = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return ""
			}
			doc = v[i]
		default:
			return ""
		}
	}
	switch v := doc.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// reader says what answers mean.
type reader struct {
	messageID, code []string
	classes         []class
}

func (r reader) read(answer httpcall.Answer) sender.Result {
	var doc any
	if answer.Whole && (r.messageID != nil || r.code != nil) {
		decoder := json.NewDecoder(bytes.NewReader(answer.Body))
		decoder.UseNumber()
		if err := decoder.Decode(&doc); err != nil {
			doc = nil
		}
	}
	code := at(doc, r.code)
	byStatus := answer.Result()
	result := answer.As(r.classOf(answer.Status, code), byStatus.Code, byStatus.Detail)
	if kept := httpcall.Code(code); kept != "" {
		result.Code += " " + kept // after the status, which tells a 401 and a 429
	}
	if result.Class == sender.Accepted {
		result.Receipt = receipt(at(doc, r.messageID))
	}
	return result
}

// classOf decides by the code, then by the status, then by what every gateway means.
func (r reader) classOf(status int, code string) sender.Class {
	lists := Match{}
	for _, class := range r.classes {
		if code != "" && slices.Contains(class.match.Codes, code) {
			if class.is == sender.Accepted && httpcall.ClassOf(status) != sender.Accepted {
				continue // a good code beside a bad status is no success
			}
			return class.is
		}
		if class.is == sender.Accepted {
			lists = class.match
		}
	}
	for _, class := range r.classes {
		if class.is != sender.Accepted && slices.Contains(class.match.Statuses, status) {
			return class.is
		}
	}
	byStatus := httpcall.ClassOf(status)
	if byStatus != sender.Accepted {
		return byStatus
	}
	if len(lists.Codes) > 0 || len(lists.Statuses) > 0 && !slices.Contains(lists.Statuses, status) {
		return sender.Unknown
	}
	return sender.Accepted
}

// receipt is a gateway's name of a message, if it is fit to be kept.
func receipt(text string) string {
	if len(text) > 200 || controls.MatchString(text) {
		return ""
	}
	return text
}
