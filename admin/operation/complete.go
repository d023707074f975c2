package operation

import (
	"encoding/json"
	"reflect"
	"slices"
	"sync"
)

// nullableKey is the tag of a list for which null has a meaning of its own.
const nullableKey = "nullable"

// complete returns a result with [] in JSON for each empty list. Clients then need no check for null. The
// original is not changed, because other requests may share it.
func complete(out any) any {
	v := reflect.ValueOf(out)
	if !v.IsValid() || !hasNilList(v) {
		return out
	}
	own := reflect.New(v.Type()).Elem()
	own.Set(v)
	fill(own)
	return own.Interface()
}

// hasNilList reports whether a value contains a nil list.
func hasNilList(v reflect.Value) bool {
	if !hasLists(v.Type()) {
		return false
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && hasNilList(v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return true
		}
		for i := range v.Len() {
			if hasNilList(v.Index(i)) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if _, nullable := v.Type().Field(i).Tag.Lookup(nullableKey); !nullable && hasNilList(v.Field(i)) {
				return true
			}
		}
	default:
	}
	return false
}

// fill replaces nil lists in a value that can be set. Values behind pointers are copied first.
func fill(v reflect.Value) {
	if !hasNilList(v) {
		return
	}
	if v.CanInterface() {
		if own, is := v.Interface().(masking); is {
			v.Set(reflect.ValueOf(own.Masked(complete)))
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		own := reflect.New(v.Elem().Type())
		own.Elem().Set(v.Elem())
		fill(own.Elem())
		if v.Kind() == reflect.Pointer {
			v.Set(own)
		} else {
			v.Set(own.Elem())
		}
	case reflect.Slice:
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		for i := range own.Len() {
			fill(own.Index(i))
		}
		v.Set(own)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if _, nullable := f.Tag.Lookup(nullableKey); !nullable && (v.Field(i).CanSet() || f.Anonymous) {
				fill(v.Field(i))
			}
		}
	default:
	}
}

// listing caches which types can contain lists.
var listing sync.Map //nolint:gochecknoglobals // of reflect.Type: bool; a cache of what the program is made of

func hasLists(t reflect.Type) bool {
	if known, has := listing.Load(t); has {
		is, _ := known.(bool)
		return is
	}
	is := containsLists(t, nil)
	listing.Store(t, is)
	return is
}

func containsLists(t reflect.Type, within []reflect.Type) bool {
	if slices.Contains(within, t) {
		return false
	}
	within = append(within, t)
	_, list := t.MethodByName("NextPage")
	switch {
	case t.Implements(reflect.TypeFor[masking]()), t.Kind() == reflect.Interface:
		return true
	case !list && t.Implements(reflect.TypeFor[json.Marshaler]()): // it has its own form in JSON
		return false
	case t.Kind() == reflect.Pointer:
		return containsLists(t.Elem(), within)
	case t.Kind() == reflect.Slice:
		return t.Elem().Kind() != reflect.Uint8
	case t.Kind() != reflect.Struct:
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); (f.IsExported() || f.Anonymous) && containsLists(f.Type, within) {
			return true
		}
	}
	return false
}
