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
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/job"
)

// Masked stands where a result has a text that the role may not read. An object has it as
// {"masked": true}.
const Masked = "[masked]"

// masksKey is the tag of a field that not everybody reads. Its value is how it is masked:
//
//	text    all of it; a list: each of its texts
//	keys    JSON: what has one of maskedKeys in it, however deep
//	reason  a text beside a field Kind: where it is the error of something that failed
const masksKey = "mask"

// MaskedKeys are the names under which JSON within JSON has what is masked: as events have it
// of what was changed. A test holds them to the fields.
var MaskedKeys = []string{"body", "data", "variants", "external_ids", "external_id", "place", "query", "last_error", "error", "address", "receipt", "sha256", "unknown_sample", "cursor", "rows_written"}

// failureKinds are the kinds of events whose reason is an error, and may quote a row.
var failureKinds = []string{job.EventFailed, job.EventInterrupted, "skipped"}

// ReadsContents reports whether a role reads what is said to whom: bodies and data of messages,
// external ids and addresses, and errors that may quote them.
func (r Role) ReadsContents() bool { return r >= Operator }

// masking is a result whose fields reflection cannot set.
type masking interface {
	// masked returns the result with its parts masked by mask, which changes nothing in place.
	Masked(mask func(any) any) any
}

// Shown is a result, or an item of a stream, as the role may read it. What it is given stays as
// it is: others may have it too.
func (e *Env) Shown(out any) any {
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

// maskValue masks a value that may be set. What it refers to is copied first.
func maskValue(v reflect.Value) {
	if !hasMarks(v.Type()) {
		return
	}
	if v.CanInterface() { // not of a struct that is embedded under an unexported name
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
		panic("a result has marks in a " + v.Type().String())
	}
}

// maskField masks a field of a struct by its mark.
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
		panic("no such mark: " + mark)
	}
}

// blank masks all that there is; what is empty has nothing to mask.
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

// maskedIn is JSON, or a map of it, with what maskedKeys name masked. What is no JSON is masked
// as a whole.
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

// maskLeaves is a value of the same type in JSON.
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

// marked remembers of which types a value may have something that is masked.
var marked sync.Map //nolint:gochecknoglobals // of reflect.Type: bool; a cache of what the program is made of

func hasMarks(t reflect.Type) bool {
	if known, has := marked.Load(t); has {
		is, _ := known.(bool)
		return is
	}
	is := looksForMarks(t, nil)
	marked.Store(t, is)
	return is
}

func looksForMarks(t reflect.Type, within []reflect.Type) bool {
	if slices.Contains(within, t) {
		return false
	}
	within = append(within, t)
	switch {
	case t.Implements(reflect.TypeFor[masking]()), t.Kind() == reflect.Interface:
		return true
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice:
		return looksForMarks(t.Elem(), within)
	case t.Kind() != reflect.Struct:
		return false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if _, has := f.Tag.Lookup(masksKey); has || (f.IsExported() || f.Anonymous) && looksForMarks(f.Type, within) {
			return true
		}
	}
	return false
}

// Told is an error as the role may read it. What the database says of a value may quote any row;
// what it says of the input does not.
func (e *Env) Told(err error) error {
	server := new(pgconn.PgError)
	if err == nil || e.Role.ReadsContents() || !errors.As(err, &server) ||
		errors.As(err, new(*InvalidError)) || errors.As(err, new(*job.InvalidError)) {
		return err
	}
	if !slices.Contains([]db.Class{db.Invalid, db.Violation, db.Raised}, db.ClassOf(err)) {
		return err
	}
	return &ToldError{errkind.Of(err), "the database refused a value (SQLSTATE " + server.Code + "); its words are shown to operators"}
}
