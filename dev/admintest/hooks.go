package admintest

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// Retoken returns a plan's token with another count and another time. Nil retains the token's own.
func Retoken(t testing.TB, token string, count *int64, asOf *time.Time) string {
	t.Helper()
	plan := new(operation.PlanToken)
	require.NoError(t, plan.UnmarshalText([]byte(token)))
	if count != nil {
		plan.Count = *count
	}
	if asOf != nil {
		plan.AsOf = *asOf
	}
	text, _ := plan.MarshalText()
	return string(text)
}
