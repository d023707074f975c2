package admin_test

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// textFields calls found for each field that can contain a text in results of operations and items of
// streams.
func textFields(found func(owner reflect.Type, f reflect.StructField)) {
	seen := make(map[reflect.Type]bool)
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(t.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[t] || t.PkgPath() == "time" {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			if f := t.Field(i); holdsText(f.Type) {
				found(t, f)
			} else {
				walk(f.Type)
			}
		}
	}
	for _, o := range operation.WithQuestions(admin.Operations()) {
		for _, r := range o.Results() {
			walk(r)
		}
		if o.Item() != nil {
			walk(o.Item())
		}
	}
}

func holdsText(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return holdsText(t.Elem()) || t.Elem().Kind() == reflect.Uint8
	case reflect.String, reflect.Map, reflect.Interface:
		return true
	default:
		return false
	}
}

// Each text of a result has a mask or is listed as public. A new text has neither.
func TestMask_EveryTextIsMarkedOrListed(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/plain.txt")
	require.NoError(t, err)
	plain := make(map[string]bool)
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			require.False(t, plain[line], "%s is there once", line)
			plain[line] = true
		}
	}
	textFields(func(owner reflect.Type, f reflect.StructField) {
		name := owner.String() + "." + f.Name
		mark, marked := f.Tag.Lookup("mask")
		if marked {
			require.Contains(t, []string{"text", "keys", "reason"}, mark, name)
			require.True(t, f.IsExported(), "%s: reflection cannot mask it", name)
			require.False(t, plain[name], "%s is masked, and plain.txt has it", name)
			require.NotEqual(t, reflect.Pointer, f.Type.Kind(), name)
			return
		}
		require.True(t, plain[name], "%s can hold a text: give it a mark (mask.go) if it has words, a recipient's name or address, or an error that may quote them; otherwise add it to testdata/plain.txt", name)
		delete(plain, name)
	})
	require.Empty(t, plain, "there are no such fields, or two types have one name")
}

// Masked fields are also masked in the detail of events, except titles of jobs.
func TestMask_KeysAreThoseOfTheFields(t *testing.T) {
	t.Parallel()
	textFields(func(owner reflect.Type, f reflect.StructField) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Tag.Get("mask") == "text" && name != "title" && name != "" {
			require.Contains(t, admintest.MaskedKeys(), name, "%s.%s", owner, f.Name)
		}
	})
	require.Contains(t, admintest.MaskedKeys(), "external_ids", "of an audience, whose JSON is its own")
}

// fill sets every field that can contain a text to a secret.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth < 12 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`{"error": "secret", "deep": [{"body": "secret", "external_ids": ["secret"]}]}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.Interface {
			v.Set(reflect.ValueOf(map[string]any{"external_ids": []any{"secret"}}))
		}
	case reflect.String:
		v.SetString("secret")
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if _, marked := f.Tag.Lookup("mask"); f.IsExported() && (marked || !holdsText(f.Type)) {
				fill(v.Field(i), depth+1)
			}
			if f.Name == "Kind" && f.Type.Kind() == reflect.String {
				v.Field(i).SetString("failed")
			}
		}
	default:
	}
}

// No masked text of any result type remains, and the original is unchanged, because other requests may share
// it.
func TestMask_NothingMarkedIsLeft(t *testing.T) {
	t.Parallel()
	for _, o := range admin.Operations() {
		types := slices.Clone(o.Results())
		if o.Item() != nil {
			types = append(types, o.Item())
		}
		for _, typ := range types {
			v := reflect.New(typ).Elem()
			fill(v, 0)
			before := fmt.Sprintf("%+v", v.Interface())
			require.Equal(t, v.Interface(), admintest.ShownTo(operation.Operator, v.Interface()))
			shown := admintest.ShownTo(operation.Author, v.Interface())
			require.Equal(t, typ, reflect.TypeOf(shown), o.Name)
			requireNoSecret(t, o.Name, reflect.ValueOf(shown))
			require.Equal(t, before, fmt.Sprintf("%+v", v.Interface()), o.Name)
		}
	}
}

func requireNoSecret(t *testing.T, name string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			requireNoSecret(t, name, v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			require.NotContains(t, string(v.Bytes()), "secret", name)
			return
		}
		for i := range v.Len() {
			requireNoSecret(t, name, v.Index(i))
		}
	case reflect.Map:
		require.NotContains(t, fmt.Sprint(v.Interface()), "secret", name)
	case reflect.String:
		require.NotContains(t, v.String(), "secret", name)
	case reflect.Struct:
		for i := range v.NumField() {
			requireNoSecret(t, name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	default:
	}
}

// Items of streams are masked like results, and the originals are unchanged.
func TestMask_ItemsOfStreamsToo(t *testing.T) {
	t.Parallel()
	type item struct {
		Words string `json:"words" mask:"text"`
	}
	given := []item{{"secret"}}
	o := operation.DefineStream(operation.Operation{Name: "jobs tail", Role: operation.Viewer}, func(_ context.Context, _ *operation.Env, _ operation.None, each func([]item) error) (operation.None, error) {
		return operation.None{}, each(given)
	}, func(operation.None) func(*text.Doc, []item) { return nil }, nil)
	for role, want := range map[operation.Role]string{operation.Viewer: operation.Masked, operation.Author: operation.Masked, operation.Operator: "secret", operation.Admin: "secret"} {
		var got any
		_, err := o.Stream(t.Context(), &operation.Env{Role: role}, o.NewInput(), func(i any) error { got = i; return nil })
		require.NoError(t, err)
		require.Equal(t, []item{{want}}, got, role)
	}
	require.Equal(t, "secret", given[0].Words)
}

// The approval of a job to a radius does not reveal the number of people inside.
func TestMask_ApprovalOfAJobToARadiusIsNotCounted(t *testing.T) {
	t.Parallel()
	few, many := 1, 20
	approved := func(count *int, a channels.Audience) *job.Job {
		return &job.Job{Audience: a, ApprovedCount: count, ApprovedRecipients: count}
	}
	for _, c := range []struct {
		of    *job.Job
		shown *int
	}{{approved(&few, channels.Within(50, 10, 500)), nil}, {approved(&many, channels.Within(50, 10, 500)), &many}, {approved(&few, channels.Everyone()), &few}} {
		shown := admintest.ShownTo(operation.Viewer, c.of).(*job.Job)
		require.Equal(t, c.shown, shown.ApprovedCount)
		require.Equal(t, c.shown, shown.ApprovedRecipients)
	}
}
