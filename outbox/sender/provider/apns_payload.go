package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/outbox/sender"
)

// apnsMaxPayload is what APNs takes.
const apnsMaxPayload = 4096

type apnsAlert struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
}

// apnsPayload is what the device gets.
func apnsPayload(d sender.Delivery, sound string) ([]byte, error) {
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
	aps["alert"] = apnsAlert{Title: d.Title, Body: d.Body}
	return encodePayload(map[string]any{"aps": aps, "data": data, "key": d.Key})
}

// encodePayload writes JSON for a device, in as few bytes as it has.
func encodePayload(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the payload: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
