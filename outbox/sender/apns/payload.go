package apns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/outbox/sender"
)

// maxPayload is what APNs takes.
const maxPayload = 4096

type alert struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
}

// payload is what the device gets.
func payload(d sender.Delivery, sound string) ([]byte, error) {
	var data map[string]json.RawMessage
	if err := json.Unmarshal(d.Data, &data); err != nil {
		return nil, errors.New("data is not a JSON object")
	}
	aps := map[string]any{}
	if sound != "" {
		aps["sound"] = sound
	}
	if more, ok := data["aps"]; ok {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(more, &fields); err != nil {
			return nil, errors.New("data.aps is not a JSON object")
		}
		for name, value := range fields {
			aps[name] = value
		}
		delete(data, "aps")
	}
	aps["alert"] = alert{Title: d.Title, Body: d.Body}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // bytes are few
	if err := enc.Encode(map[string]any{"aps": aps, "data": data, "key": d.Key}); err != nil {
		return nil, fmt.Errorf("encode the payload: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
