package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/outbox/sender"
)

// parseSMSPath parses a path such as a.b.0.c. It returns nil for an empty path.
func parseSMSPath(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	steps := strings.Split(text, ".")
	if len(steps) > 16 || slices.Contains(steps, "") {
		return nil, errors.New("is not a path; allowed values: up to 16 names and numbers with a dot between, as in messages.0.id")
	}
	return steps, nil
}

// smsValueAt returns the text, number or boolean at a path as text, or an empty text.
func smsValueAt(doc any, path []string) string {
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

// smsReader classifies answers.
type smsReader struct {
	messageID, code []string
	classes         []smsClass
}

func (r smsReader) read(answer httpAnswer) sender.Result {
	var doc any
	body := bytes.TrimSpace(bytes.TrimPrefix(answer.body, []byte("\xef\xbb\xbf"))) // a byte order mark
	readable := answer.whole && (len(body) > 0 || answer.status == http.StatusNoContent)
	if answer.whole && len(body) > 0 && (r.messageID != nil || r.code != nil) {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		err := decoder.Decode(&doc)
		if _, after := decoder.Token(); err != nil || !errors.Is(after, io.EOF) { // or a second value follows
			doc, readable = nil, false
		}
	}
	code := smsValueAt(doc, r.code)
	byStatus := answer.result()
	class := r.classOf(answer.status, code)
	if class == sender.Accepted && code == "" && r.code != nil && !readable {
		class = sender.Unknown // the body may contain the code of an error
	}
	result := answer.as(class, byStatus.Code, byStatus.Detail)
	if kept := keptCode(code); kept != "" {
		result.Code += " " + kept // after the status, because the relay recognizes 401 and 429
	}
	if result.Class == sender.Accepted {
		result.Receipt = smsReceipt(smsValueAt(doc, r.messageID))
	}
	return result
}

// classOf classifies an answer by its code, then by the configured statuses, then by classOfStatus.
func (r smsReader) classOf(status int, code string) sender.Class {
	lists := SMSMatch{}
	for _, class := range r.classes {
		if code != "" && slices.Contains(class.match.Codes, code) {
			if class.is == sender.Accepted && classOfStatus(status) != sender.Accepted {
				continue // a success code with an error status is not a success
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
	byStatus := classOfStatus(status)
	if byStatus != sender.Accepted {
		return byStatus
	}
	if len(lists.Codes) > 0 || len(lists.Statuses) > 0 && !slices.Contains(lists.Statuses, status) {
		return sender.Unknown
	}
	return sender.Accepted
}

// smsReceipt returns a gateway's id of a message if it can be stored.
func smsReceipt(text string) string {
	if len(text) > 200 || controls.MatchString(text) {
		return ""
	}
	return text
}
