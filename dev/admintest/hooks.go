package admintest

import (
	"reflect"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
)

// MaskedKeys are the keys whose JSON text is masked.
func MaskedKeys() []string { return operation.MaskedKeys }

// ShownTo returns a result with the masks of a role.
func ShownTo(role operation.Role, out any) any { return (&operation.Env{Role: role}).Redact(out) }

// CountsThings reports whether receipts of an operation contain a count.
func CountsThings(o operation.Operation) bool {
	for _, t := range o.Results() {
		result := reflect.Zero(t)
		if t.Kind() == reflect.Pointer {
			result = reflect.New(t.Elem())
		}
		if operation.AffectedBy(o.Verb(), result.Interface()).Noun != "" {
			return true
		}
	}
	return false
}

// Retoken returns a token with another number and another moment; nil leaves them.
func Retoken(token string, count *int64, asOf *time.Time) string {
	t := new(operation.PlanToken)
	if err := t.UnmarshalText([]byte(token)); err != nil {
		panic(err)
	}
	if count != nil {
		t.Count = *count
	}
	if asOf != nil {
		t.AsOf = *asOf
	}
	text, _ := t.MarshalText()
	return string(text)
}
