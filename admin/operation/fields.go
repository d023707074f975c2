package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/text"
)

// FieldsOf splits a JSON object into its fields. Unlike encoding/json, it rejects duplicate fields, data
// after the object, and invalid UTF-8.
func FieldsOf(body []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if open, err := d.Token(); err != nil {
		return nil, malformed(err)
	} else if open != json.Delim('{') {
		return nil, errors.New("it does not begin with {")
	}
	fields := make(map[string]json.RawMessage)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, malformed(err)
		}
		name, _ := token.(string)
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("field %q is repeated", text.OneLine(name, 60))
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, malformed(err)
		}
		fields[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, malformed(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data follows the object")
	}
	return fields, nil
}

// errHalf reports half of a surrogate pair, which encoding/json would replace.
var errHalf = errors.New("has half of a character, an escape such as \\ud83d without its other half; allowed values: UTF-8")

// halved reports whether JSON contains the escape of half of a surrogate pair.
func halved(raw []byte) bool {
	unit := func(at int) rune {
		if at+6 > len(raw) || raw[at] != '\\' || raw[at+1] != 'u' {
			return 0
		}
		n, err := strconv.ParseUint(string(raw[at+2:at+6]), 16, 16)
		if err != nil {
			return 0
		}
		return rune(n)
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if first := unit(i); utf16.IsSurrogate(first) {
			if utf16.DecodeRune(first, unit(i+6)) == utf8.RuneError {
				return true
			}
			i += 6
		}
		i++
	}
	return false
}

func malformed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends early")
	}
	return err
}
