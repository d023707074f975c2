package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
)

// walker makes requests from the OpenAPI document at random, and compares each answer with what
// the document allows.
type walker struct {
	*bundle

	random     *rand.Rand
	operations map[string]described
	ids        []string
	schemas    map[string]schema
	seen       map[int]int // answers by status
}

// schema is what the document says of a value.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any    // a word, or a list of them
	Properties           map[string]schema
	AdditionalProperties any // false, or what more there may be
	Required             []string
	Items                *schema
	Enum                 []any
	AnyOf                []schema
}

func newWalker(t *testing.T, seed uint64) *walker {
	t.Helper()
	b := setup(t, nil)
	w := &walker{bundle: b, random: rand.New(rand.NewPCG(seed, 1)), operations: read(t), seen: make(map[int]int)}
	w.ids = slices.Sorted(maps.Keys(w.operations))
	var whole struct {
		Components struct{ Schemas map[string]schema }
	}
	require.NoError(t, json.Unmarshal(wholeDocument(), &whole))
	w.schemas = whole.Components.Schemas
	return w
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// one in so many.
func (w *walker) one(in int) bool { return w.random.IntN(in) == 0 }

// odd is a value that hardly anything takes.
func (w *walker) odd() any {
	return pick[any](w.random, nil, true, "", " ", "\x00", "\u202e", "'; DROP TABLE x; --", "../..", "🙂", strings.Repeat("x", 9000), json.Number("1e999"), json.Number("-0"),
		-1, 0.5, json.Number("9223372036854775808"), []any{}, []any{nil}, map[string]any{}, map[string]any{"a": map[string]any{}}, "NaN", "{{", "2026-13-41T25:61:00Z")
}

// value is one that a schema allows, more often than not.
func (w *walker) value(name string, s map[string]any) any {
	if w.one(8) {
		return w.odd()
	}
	if list, is := s["enum"].([]any); is {
		return pick(w.random, list...)
	}
	if list, is := s["anyOf"].([]any); is {
		one, _ := pick(w.random, list...).(map[string]any)
		return w.value(name, one)
	}
	kind, _ := s["type"].(string)
	if list, is := s["type"].([]any); is {
		kind, _ = list[0].(string)
	}
	switch kind {
	case "boolean":
		return w.one(2)
	case "integer":
		return pick(w.random, 1, 2, 3, 7, 50, 1000)
	case "number":
		return pick(w.random, 0.5, 1, 20)
	case "array":
		items, _ := s["items"].(map[string]any)
		return []any{w.value(name, items)}
	case "object":
		return pick[any](w.random, map[string]any{"kind": "everyone"}, map[string]any{"ids": []any{1, 2}}, map[string]any{"ko": map[string]any{"title": "제목"}})
	}
	return w.word(name)
}

// word is a text that fits the parameter's name.
func (w *walker) word(name string) string {
	for part, list := range map[string][]string{
		"type": {"push", "inbox"}, "category": {"operator_notice", "question", "mine"}, "lane": {"default", "night"}, "sender": {"fcm", "sms"}, "status": {"PENDING", "RUNNING", "ABORTED"},
		"at": {"2031-01-02T03:04:05Z", "+1h", "-1h"}, "since": {"1h", "2026-01-01T00:00:00Z"}, "until": {"2031-01-01T00:00:00Z"}, "role": {"viewer", "admin"}, "medium": {"push", "sms"}, "route": {"push", "sms"},
		"cron": {"0 9 * * *"}, "platform": {"ios", "android"}, "quiet": {"22:00-08:00", "none"}, "zone": {"Asia/Seoul", "UTC"}, "cap": {"3/24h", "none"},
	} {
		if strings.Contains(name, part) && !w.one(4) {
			return pick(w.random, list...)
		}
	}
	return pick(w.random, "a", "night", "digest", "1", "7", "Hello {{name}}", "1h", "u1")
}

func textOf(v any) string {
	if s, is := v.(string); is {
		return s
	}
	return fmt.Sprint(v)
}

// step sends one request and judges the answer.
func (w *walker) step(t *testing.T) {
	t.Helper()
	o := w.operations[pick(w.random, w.ids...)]
	path, query := strings.TrimPrefix(o.path, api.Prefix), url.Values{}
	for _, p := range o.Parameters {
		v := textOf(w.value(p.Name, p.Schema))
		switch {
		case p.In == "path" && (v == "" || v == "../.." || v == "."): // of another route
			path = strings.ReplaceAll(path, "{"+p.Name+"}", "x")
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(v))
		case !w.one(3):
			query.Add(p.Name, v)
		}
	}
	if w.one(20) {
		query.Add("odd", "1")
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body := ""
	if content, has := o.RequestBody.Content["application/json"]; has {
		fields := make(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(content.Schema.Properties)) {
			if w.one(3) {
				fields[name] = w.value(name, content.Schema.Properties[name])
			}
		}
		if w.one(20) {
			fields["odd"] = w.odd()
		}
		raw, err := json.Marshal(fields)
		require.NoError(t, err)
		body = string(raw)
		if w.one(20) {
			body = pick(w.random, "{", "null", "[]", `{"a":1,"a":2}`, `"x"`, body+"x", "\xff")
		}
	}
	role := pick(w.random, "viewer", "author", "operator", "admin", "admin", "admin", "admin")
	what := fmt.Sprintf("%s %s %s as %s", o.method, path, body, role)
	call := w.call
	if strings.Contains(string(o.Responses["200"]), "ndjson") {
		call = w.firstLine
	}
	a := call(t, role, o.method, path, body)
	w.seen[a.status]++
	require.Less(t, a.status, 500, "%s: %s\n%s", what, a.text, w.log)
	raw, documented := o.Responses[strconv.Itoa(a.status)]
	require.True(t, documented, "%s: %d: %s", what, a.status, a.text)
	if a.status >= http.StatusBadRequest {
		require.NotEmpty(t, a.problem(t).Detail, what)
		return
	}
	var response struct {
		Content map[string]struct {
			Schema struct {
				schema
				Item schema `json:"x-item"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(raw, &response))
	form := response.Content["application/json"].Schema.schema
	if lines, streamed := response.Content["application/x-ndjson"]; streamed {
		if form = lines.Schema.Item; a.text == "" {
			return
		}
	}
	d := json.NewDecoder(bytes.NewReader([]byte(a.text)))
	d.UseNumber()
	var got any
	require.NoError(t, d.Decode(&got), "%s: %s", what, a.text)
	require.Empty(t, w.differs(form, got, "answer"), "%s: %s", what, a.text)
}

// firstLine is call of a stream, which may have no end: its first line, if it comes soon, or its problem.
func (w *walker) firstLine(t *testing.T, role, method, path, _ string, _ ...string) answer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+role)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer time.AfterFunc(200*time.Millisecond, cancel).Stop()
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		require.NoError(t, err)
	}
	require.NoError(t, res.Body.Close())
	return answer{res.StatusCode, res.Header, strings.TrimSpace(line)}
}

// differs says where a value is not as its schema wants it; "": it is.
func (w *walker) differs(s schema, v any, at string) string {
	if s.Ref != "" {
		named, known := w.schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
		if !known {
			return at + ": no schema " + s.Ref
		}
		return w.differs(named, v, at)
	}
	if s.AnyOf != nil {
		var all []string
		for _, one := range s.AnyOf {
			bad := w.differs(one, v, at)
			if bad == "" {
				return ""
			}
			all = append(all, bad)
		}
		return strings.Join(all, ", and ")
	}
	kind := map[bool]string{true: "null"}[v == nil]
	switch v := v.(type) {
	case bool:
		kind = "boolean"
	case string:
		kind = "string"
	case json.Number:
		kind = "number"
		if _, err := v.Int64(); err == nil && w.takes(s, "integer") {
			kind = "integer"
		}
	case []any:
		kind = "array"
	case map[string]any:
		kind = "object"
	}
	if !w.takes(s, kind) {
		return fmt.Sprintf("%s: %s, not %v", at, kind, s.Type)
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		return fmt.Sprintf("%s: %v is none of %v", at, v, s.Enum)
	}
	if list, is := v.([]any); is && s.Items != nil {
		for i, item := range list {
			if bad := w.differs(*s.Items, item, fmt.Sprintf("%s[%d]", at, i)); bad != "" {
				return bad
			}
		}
	}
	if object, is := v.(map[string]any); is && s.Properties != nil {
		for _, name := range s.Required {
			if _, has := object[name]; !has {
				return at + "." + name + ": is required"
			}
		}
		for name, field := range object {
			known, has := s.Properties[name]
			if !has {
				return at + "." + name + ": is not in the document"
			}
			if bad := w.differs(known, field, at+"."+name); bad != "" {
				return bad
			}
		}
	}
	return ""
}

// takes reports whether a schema allows a type.
func (*walker) takes(s schema, kind string) bool {
	switch allowed := s.Type.(type) {
	case string:
		return allowed == kind
	case []any:
		return slices.Contains(allowed, any(kind))
	}
	return true // anything
}

// walk makes so many requests. BELFRY_TEST_SEED makes others.
func walk(t *testing.T, requests int) {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("BELFRY_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	w := newWalker(t, seed)
	for range requests {
		w.step(t)
	}
	t.Logf("answers by status: %v", w.seen)
	require.Greater(t, w.seen[http.StatusOK], requests/20)
	require.Positive(t, w.seen[http.StatusForbidden])
	require.Greater(t, w.seen[http.StatusUnprocessableEntity], requests/20)
}

// Whatever is asked, the answer is one that the document has.
func TestLong_DocumentAllowsTheAnswers(t *testing.T) {
	t.Parallel()
	walk(t, 200)
}

// The same, for longer.
func TestFault_TenThousandRequests(t *testing.T) {
	t.Parallel()
	walk(t, 10_000)
}
