package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/outbox/sender"
)

// apnsMaxPayload is the maximum payload of APNs in bytes.
const apnsMaxPayload = 4096

type apnsAlert struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
}

// apnsPayload returns the payload for the device.
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

// encodePayload encodes JSON for a device without HTML escapes, which would waste bytes.
func encodePayload(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the payload: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
