package channels

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// shape is which keys one kind of audience has as JSON, in the order in which
// they are written and listed. belfry.check_audience has the same table.
type shape struct{ needed, optional []string }

var shapes = map[Kind]shape{
	KindEveryone:  {},
	KindPlatforms: {needed: []string{"platforms"}},
	KindRadius:    {needed: []string{"latitude", "longitude", "radius_m"}, optional: []string{"platforms"}},
	KindChannels:  {optional: []string{"ids", "external_ids"}},
	KindSegment:   {needed: []string{"segment"}, optional: []string{"platforms"}},
}

// allKeys are the keys of every kind.
var allKeys = []string{"platforms", "latitude", "longitude", "radius_m", "ids", "external_ids", "segment"}

func (s shape) allows(key string) bool {
	return slices.Contains(s.needed, key) || slices.Contains(s.optional, key)
}

func (s shape) list() string {
	return strings.Join(slices.Concat([]string{"kind"}, s.needed, s.optional), ", ")
}

// ParseAudience parses the JSON of jobs.audience. Unknown, repeated and missing
// keys, other types and bad values are ErrAudience. The text names the key and the
// allowed values.
func ParseAudience(b []byte) (Audience, error) {
	var a Audience
	if err := a.UnmarshalJSON(b); err != nil {
		return Audience{}, err
	}
	return a, nil
}

// MarshalJSON writes the shape that belfry.check_audience accepts. An invalid
// audience is an error.
func (a Audience) MarshalJSON() ([]byte, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"kind": %q`, a.Kind)
	values := map[string]any{
		"platforms": a.Platforms, "latitude": a.Latitude, "longitude": a.Longitude, "radius_m": a.RadiusM,
		"ids": a.IDs, "external_ids": a.ExternalIDs, "segment": a.Segment,
	}
	absent := map[string]bool{
		"platforms": len(a.Platforms) == 0, "ids": len(a.IDs) == 0, "external_ids": len(a.ExternalIDs) == 0,
	}
	s := shapes[a.Kind]
	for _, key := range slices.Concat(s.needed, s.optional) {
		if absent[key] {
			continue
		}
		text, err := json.Marshal(values[key])
		if err != nil {
			return nil, audienceError(key, "%v", err)
		}
		fmt.Fprintf(&b, `, %q: %s`, key, text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON is ParseAudience into a; on an error a is unchanged.
func (a *Audience) UnmarshalJSON(b []byte) error {
	fields, err := objectFields(b)
	if err != nil {
		return err
	}
	kind, ok := fields["kind"]
	if !ok {
		return kindError("")
	}
	var parsed Audience
	if err := json.Unmarshal(kind, &parsed.Kind); err != nil || parsed.Kind == "" {
		return kindError(string(kind))
	}
	s, ok := shapes[parsed.Kind]
	if !ok {
		return kindError(string(parsed.Kind))
	}
	for _, key := range sortedKeys(fields) {
		if key != "kind" && !s.allows(key) {
			return audienceError(key, "is not allowed with kind %s; allowed keys: %s", parsed.Kind, s.list())
		}
	}
	for _, key := range s.needed {
		if _, ok := fields[key]; !ok {
			return audienceError(key, "is required with kind %s", parsed.Kind)
		}
	}
	if err := parsed.decodeFields(fields); err != nil {
		return err
	}
	if err := parsed.Validate(); err != nil {
		return err
	}
	*a = parsed
	return nil
}

// decodeFields fills the fields of every kind; which ones may be there was
// checked before.
func (a *Audience) decodeFields(fields map[string]json.RawMessage) error {
	for _, f := range []struct {
		key    string
		target any
		wants  string
	}{
		{"platforms", &a.Platforms, "a list of at least one platform"},
		{"latitude", &a.Latitude, "a number of degrees, -90 to 90"},
		{"longitude", &a.Longitude, "a number of degrees, -180 to 180"},
		{"radius_m", &a.RadiusM, "a number of metres, 1 to 20037509"},
		{"ids", (*idList)(&a.IDs), "a list of 1 to 10000 channel ids, whole numbers from -9223372036854775807 to 9223372036854775807"},
		{"external_ids", &a.ExternalIDs, "a list of 1 to 10000 texts"},
		{"segment", &a.Segment, "the name of a segment"},
	} {
		text, ok := fields[f.key]
		if !ok {
			continue
		}
		// null would leave the zero value, an empty list mean "any".
		if err := json.Unmarshal(text, f.target); err != nil || emptyValue(text) {
			return audienceError(f.key, "must be %s", f.wants)
		}
	}
	return nil
}

// idList decodes ids from numbers and from texts, which JavaScript needs above 2^53.
type idList []int64

func (l *idList) UnmarshalJSON(text []byte) error {
	var numbers []json.Number
	if err := json.Unmarshal(text, &numbers); err != nil {
		return err
	}
	for _, n := range numbers {
		id, err := n.Int64()
		if err != nil {
			return err
		}
		*l = append(*l, id)
	}
	return nil
}

// emptyValue reports a null, an empty list, or a list with a null in it, which
// encoding/json turns into a zero value.
func emptyValue(text json.RawMessage) bool {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return false
	}
	return len(list) == 0 || slices.ContainsFunc(list, func(e json.RawMessage) bool { return string(e) == "null" })
}

// objectFields splits one JSON object into its fields. A repeated key is an
// error: jsonb would keep the last silently.
func objectFields(b []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	malformed := audienceError("", `must be a JSON object with "kind"; allowed kinds: %s`, kinds)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, malformed
	}
	fields := make(map[string]json.RawMessage)
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return nil, malformed
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, malformed
		}
		if _, repeated := fields[key]; repeated {
			return nil, audienceError(key, "is given twice")
		}
		fields[key] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, malformed
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, malformed
	}
	return fields, nil
}

func sortedKeys(fields map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(fields))
	for k := range fields {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
