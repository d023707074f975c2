package operation

import (
	"reflect"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
)

// Records returns the columns of the operation's list, or nil if its result is no list.
func (o Operation) Records() *text.Records { return o.records }

// Listed returns the rows for Records in a result of Run or an item of Stream.
func (o Operation) Listed(result any) any {
	if list, is := result.(interface{ items() any }); is {
		return list.items()
	}
	if o.listed == nil {
		return result
	}
	return o.listed(reflect.Indirect(reflect.ValueOf(result)))
}

// recordsOf returns the columns of a result or an item of type t, and the function that returns the rows of
// one that is more than its rows. It panics if o.Rows is no list.
func recordsOf(o Operation, t reflect.Type) (*text.Records, func(reflect.Value) any) {
	t = pointed(t)
	switch {
	case o.Rows == "" && t.Kind() == reflect.Slice:
		return recordsOfItems(t), nil
	case o.Rows == "":
		return nil, nil
	case o.Rows == ".":
		return text.RecordsOf(t), nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == o.Rows && f.Type.Kind() == reflect.Slice {
			return recordsOfItems(f.Type), func(result reflect.Value) any { return result.FieldByIndex(f.Index).Interface() }
		}
	}
	must(false, "%s: no list %s in a %s", o.Name, o.Rows, t)
	return nil, nil
}

// recordsOfItems returns the columns of the items of a list or a stream, or nil if they have no fields.
func recordsOfItems(t reflect.Type) *text.Records {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if pointed(t).Kind() != reflect.Struct {
		return nil
	}
	return text.RecordsOf(t)
}
