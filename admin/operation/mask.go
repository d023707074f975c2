package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// Masked replaces a text that the role may not read. An object is replaced by {"masked": true}.
const Masked = "[masked]"

// masksKey is the tag of a field that some roles may not read. Its values are:
//
//	text    the text, or each text of a list
//	keys    in JSON, the values of MaskedKeys at any depth
//	reason  a text if the field Kind is the kind of a failure
const masksKey = "mask"

// MaskedKeys are the JSON keys with masked values, such as in the before and after of events. A test compares
// them with the fields.
var MaskedKeys = []string{"body", "data", "variants", "external_ids", "external_id", "place", "query", "last_error", "error",
	"address", "receipt", "sha256", "unknown_sample", "cursor", "rows_written", "collapsed_title"}

// failureKinds are the kinds of events whose reason is an error, which may quote a row.
var failureKinds = []string{job.EventFailed, job.EventInterrupted, "skipped"}

// ReadsContents reports whether a role may read contents and recipients: bodies and data of messages,
// external ids, addresses, and errors that may quote them.
func (r Role) ReadsContents() bool { return r >= Operator }

// masking is a result with fields that reflection cannot set.
type masking interface {
	// Masked returns the result with its parts masked by mask, which changes nothing in place.
	Masked(mask func(any) any) any
}

// Redact returns a result or an item of a stream as the role may read it. The original is not changed, because
// other requests may share it.
func (e *Env) Redact(out any) any {
	if e.Role.ReadsContents() || out == nil {
		return out
	}
	return masked(out)
}

func masked(out any) any {
	v := reflect.ValueOf(out)
	if !v.IsValid() || !hasMarks(v.Type()) {
		return out
	}
	own := reflect.New(v.Type()).Elem()
	own.Set(v)
	maskValue(own)
	return own.Interface()
}

// maskValue masks a value that can be set. Values behind pointers are copied first.
func maskValue(v reflect.Value) {
	if !hasMarks(v.Type()) {
		return
	}
	if v.CanInterface() { // false in a struct that is embedded under an unexported name
		if own, is := v.Interface().(masking); is {
			v.Set(reflect.ValueOf(own.Masked(masked)))
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return
		}
		own := reflect.New(v.Elem().Type())
		own.Elem().Set(v.Elem())
		maskValue(own.Elem())
		if v.Kind() == reflect.Pointer {
			v.Set(own)
		} else {
			v.Set(own.Elem())
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		for i := range own.Len() {
			maskValue(own.Index(i))
		}
		v.Set(own)
	case reflect.Struct:
		for i := range v.NumField() {
			if mark, has := v.Type().Field(i).Tag.Lookup(masksKey); has {
				maskField(v, v.Field(i), mark)
			} else if v.Field(i).CanSet() || v.Type().Field(i).Anonymous {
				maskValue(v.Field(i))
			}
		}
		hideLocation(v)
	default:
		must(false, "a field of type %s cannot be masked", v.Type())
	}
}

// maskField masks a field of a struct by its tag.
func maskField(in, field reflect.Value, mark string) {
	switch mark {
	case "text":
		blank(field)
	case "keys":
		if field.Len() > 0 {
			field.Set(maskedIn(field))
		}
	case "reason":
		if slices.Contains(failureKinds, in.FieldByName("Kind").String()) {
			blank(field)
		}
	default:
		must(false, "no mask is called %q", mark)
	}
}

// blank masks a field unless it is empty.
func blank(field reflect.Value) {
	switch raw, isJSON := field.Interface().(json.RawMessage); {
	case isJSON:
		if !slices.Contains([]string{"", "{}", "null"}, string(bytes.TrimSpace(raw))) {
			field.SetBytes([]byte(`{"masked": true}`))
		}
	case field.Len() == 0:
	case field.Kind() == reflect.String:
		field.SetString(Masked)
	case field.Kind() == reflect.Map:
		field.Set(reflect.ValueOf(map[string]any{"masked": true}))
	case field.Type().Elem().Kind() == reflect.String:
		own := reflect.MakeSlice(field.Type(), field.Len(), field.Len())
		for i := range own.Len() {
			own.Index(i).SetString(Masked)
		}
		field.Set(own)
	default: // bytes
		field.Set(reflect.MakeSlice(field.Type(), 0, 0))
	}
}

// maskedIn returns JSON, or a map of it, with the values of MaskedKeys masked. Invalid JSON is masked as a
// whole.
func maskedIn(field reflect.Value) reflect.Value {
	raw, isRaw := field.Interface().(json.RawMessage)
	if !isRaw {
		var err error
		if raw, err = json.Marshal(field.Interface()); err != nil {
			raw = nil
		}
	}
	own := reflect.New(field.Type())
	if value, err := maskedJSON(raw); err != nil || json.Unmarshal(value, own.Interface()) != nil {
		blank(field)
		return field
	}
	return own.Elem()
}

func maskedJSON(raw json.RawMessage) (json.RawMessage, error) {
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	return plainJSON(maskKeys(value))
}

func maskKeys(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, held := range value {
			if slices.Contains(MaskedKeys, key) {
				value[key] = maskLeaves(held)
			} else {
				value[key] = maskKeys(held)
			}
		}
	case []any:
		for i := range value {
			value[i] = maskKeys(value[i])
		}
	}
	return value
}

// maskLeaves returns a masked value of the same JSON type.
func maskLeaves(value any) any {
	switch value := value.(type) {
	case nil:
		return nil
	case map[string]any:
		if len(value) == 0 {
			return value
		}
		return map[string]any{"masked": true}
	case []any:
		for i := range value {
			value[i] = maskLeaves(value[i])
		}
		return value
	case string:
		if value == "" {
			return value
		}
	}
	return Masked
}

// marked caches which types can contain masked fields.
var marked sync.Map //nolint:gochecknoglobals // of reflect.Type: bool; a cache of what the program is made of

func hasMarks(t reflect.Type) bool {
	if known, has := marked.Load(t); has {
		is, _ := known.(bool)
		return is
	}
	is := containsMarks(t, nil)
	marked.Store(t, is)
	return is
}

func containsMarks(t reflect.Type, within []reflect.Type) bool {
	if slices.Contains(within, t) {
		return false
	}
	within = append(within, t)
	switch {
	case t.Implements(reflect.TypeFor[masking]()), t.Kind() == reflect.Interface:
		return true
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice:
		return containsMarks(t.Elem(), within)
	case t.Kind() != reflect.Struct:
		return false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if _, has := f.Tag.Lookup(masksKey); has || (f.IsExported() || f.Anonymous) && containsMarks(f.Type, within) {
			return true
		}
	}
	return false
}

// RedactError returns an error as the role may read it. An error of the database about a value may quote any row,
// unless it is about the input.
func (e *Env) RedactError(err error) error {
	server := new(pgconn.PgError)
	if err == nil || e.Role.ReadsContents() || !errors.As(err, &server) ||
		errors.As(err, new(*InvalidError)) || errors.As(err, new(*job.InvalidError)) {
		return err
	}
	if !slices.Contains([]db.Class{db.Invalid, db.Violation, db.Raised}, db.ClassOf(err)) {
		return err
	}
	return &ToldError{db.KindOf(err), "the database rejected a value (SQLSTATE " + server.Code + "); only operators can read the message"}
}
