package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// answers checks answers by what the OpenAPI document says of them.
type answers struct {
	compiler   *jsonschema.Compiler
	operations map[string]described
}

func newAnswers(t *testing.T) answers {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(wholeDocument())))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("belfry:openapi", document))
	return answers{c, read(t)}
}

// check holds an answer to the document.
func (s answers) check(t *testing.T, id string, a answer) {
	t.Helper()
	o := s.operations[id]
	pointer := strings.NewReplacer("~", "~0", "/", "~1")
	at := fmt.Sprintf("/paths/%s/%s/responses/%d", pointer.Replace(o.path), strings.ToLower(o.method), a.status)
	var response struct {
		Ref     string `json:"$ref"`
		Content map[string]json.RawMessage
	}
	require.Contains(t, o.Responses, fmt.Sprint(a.status), "%s: %s", id, a.text)
	require.NoError(t, json.Unmarshal(o.Responses[fmt.Sprint(a.status)], &response))
	kind := a.header.Get("Content-Type")
	if response.Ref != "" {
		at = strings.TrimPrefix(response.Ref, "#")
	}
	at += "/content/" + pointer.Replace(kind) + "/schema"
	schema, err := s.compiler.Compile("belfry:openapi#" + (&url.URL{Path: at}).EscapedPath())
	require.NoError(t, err, id)
	texts := []string{a.text}
	if kind == "application/x-ndjson" {
		return // a stream is a text to the document
	}
	for _, text := range texts {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err, text)
		require.NoError(t, schema.Validate(value), "%s: %s", id, text)
	}
}

// What is answered is what the document says, which programs are generated from: of every operation
// that looks, of acts, and of refusals.
func TestDocument_AnswersAreAsItSays(t *testing.T) {
	t.Parallel()
	b, s := secrets(t), newAnswers(t)
	list := asks(t)
	for _, id := range slices.Sorted(maps.Keys(list)) {
		for _, role := range []string{"viewer", "admin", "nobody"} {
			s.check(t, id, b.call(t, role, "GET", list[id], ""))
		}
	}
	one := `{"type": ["push"], "category": "operator_notice", "title": "Hello", "everyone": true`
	for _, ask := range [][4]string{
		{"enqueue", "/enqueue", one + `}`},
		{"enqueue", "/enqueue", one + `, "preview": true}`},
		{"enqueue", "/enqueue", strings.Replace(one, `["push"]`, `["push", "inbox"]`, 1) + `}`},
		{"enqueue", "/enqueue", `{"everyone": true, "preview": true}`},
		{"enqueue", "/enqueue", `{}`},
		{"jobs-enqueue", "/jobs/enqueue", `{"jobs": [` + one + `}]}`},
		{"jobs-enqueue", "/jobs/enqueue", `{"jobs": [` + one + `}], "dry_run": true}`},
		{"abort", "/abort", `{"id": [2], "dry_run": true}`},
		{"abort", "/abort", `{"id": [2]}`},
		{"abort", "/abort", `{"id": [2, 77]}`},
		{"resume", "/resume", `{"id": [2]}`},
		{"send", "/send", `{"channel": 1, "category": "operator_notice", "title": "Hello"}`},
		{"halt", "/halt", ""},
		{"unhalt", "/unhalt", ""},
		{"lanes-pause", "/lanes/night/pause", ""},
		{"lanes-resume", "/lanes/night/resume", ""},
		{"senders-pause", "/senders/fcm/pause", ""},
		{"senders-resume", "/senders/fcm/resume", ""},
		{"schedules-pause", "/schedules/digest/pause", ""},
		{"tokens-create", "/tokens/create", `{"name": "t", "role": "viewer"}`},
		{"dead-letters-redrive", "/dead-letters/redrive", `{"dry_run": true}`},
	} {
		s.check(t, ask[0], b.call(t, "admin", "POST", ask[1], ask[2]))
	}
}

// Each path finds one operation, whatever its parameters are.
func TestDocument_NoPathIsTwo(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, o := range read(t) {
		if !slices.Contains(paths, o.path) {
			paths = append(paths, o.path)
		}
	}
	for i, one := range paths {
		for _, other := range paths[:i] {
			require.False(t, alike(one, other), "%s and %s are two operations of one address", one, other)
		}
	}
}

// alike reports whether an address may be of both paths, and neither is the other's special case.
func alike(one, other string) bool {
	x, y := strings.Split(one, "/"), strings.Split(other, "/")
	if len(x) != len(y) {
		return false
	}
	var special, general bool
	for i := range x {
		px, py := strings.HasPrefix(x[i], "{"), strings.HasPrefix(y[i], "{")
		switch {
		case !px && !py && x[i] != y[i]:
			return false
		case px && !py:
			general = true
		case py && !px:
			special = true
		}
	}
	return special && general || !special && !general
}
