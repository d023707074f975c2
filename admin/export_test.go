package admin

import (
	"reflect"
	"time"
)

// SendRefused is what `send` makes of the database's errors.
func SendRefused(err error, repeatable bool) error { return sendRefused(err, repeatable) }

// ProfilesDo is what each kind of roles is for.
func ProfilesDo() map[string]string {
	does := make(map[string]string)
	for _, p := range profiles() {
		does[p.name] = p.does
	}
	return does
}

// HashAt is the hash of a password at another cost.
func HashAt(password string, memory, time uint32) string {
	h := passwordHash{memory: memory, time: time, threads: 1, salt: []byte("0123456789abcdef")}
	h.key = h.of(password, passwordKey)
	return h.String()
}

// Occupy has as many passwords checked as may be at once, until free is called.
func Occupy(s *Sessions) (free func()) {
	for range cap(s.slots) {
		s.slots <- struct{}{}
	}
	return func() {
		for range cap(s.slots) {
			<-s.slots
		}
	}
}

// MaskedKeys are the names under which JSON within JSON is masked.
func MaskedKeys() []string { return maskedKeys }

// ShownTo is a result as a role reads it.
func ShownTo(role Role, out any) any { return (&Env{Role: role}).shown(out) }

// AuditLines are what an audit says of how it goes.
var AuditLines = auditLines

// StreamedRows is how many rows an item of a stream has at most.
const StreamedRows = streamedRows

// InBatches hands rows on in slices.
func InBatches[T any](each func([]T) error) (add func(T) error, end func() error) {
	return inBatches(each)
}

// CountsThings reports whether a receipt of an operation says of how many things it was.
func CountsThings(o Operation) bool {
	for _, t := range o.outputs {
		result := reflect.Zero(t)
		if t.Kind() == reflect.Pointer {
			result = reflect.New(t.Elem())
		}
		if affectedBy(o.Verb(), result.Interface()).noun != "" {
			return true
		}
	}
	return false
}

// Retoken returns a token with another number and another moment; nil leaves them.
func Retoken(token string, count *int64, asOf *time.Time) string {
	t := new(PlanToken)
	if err := t.UnmarshalText([]byte(token)); err != nil {
		panic(err)
	}
	if count != nil {
		t.count = *count
	}
	if asOf != nil {
		t.asOf = *asOf
	}
	text, _ := t.MarshalText()
	return string(text)
}
