package api_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rewriteBaseline extends what clients may rely on. It is a flag of its own, and no -rewrite, since
// what is in the file is a promise: it is given after something was added, before a release, and the
// diff then has added lines alone. A line that goes or changes is a break of version 1: it needs a
// reason in the commit and a word in the CHANGELOG, or a path below /api/v2.
var rewriteBaseline = flag.Bool("rewrite-baseline", false, "write anew what clients of the API may rely on")

// field is what a client may rely on of a parameter or of a field. Its text is the types, with
// "required " before them if it has to be given, or is always there, and the allowed values behind:
// "required string of push, sms".
type field struct {
	required bool
	types    []string
	enum     []string
}

// MarshalText writes its text.
func (f field) MarshalText() ([]byte, error) {
	text := strings.Join(f.types, "|")
	if f.required {
		text = "required " + text
	}
	if f.enum != nil {
		text += " of " + strings.Join(f.enum, ", ")
	}
	return []byte(text), nil
}

// UnmarshalText reads its text.
func (f *field) UnmarshalText(text []byte) error {
	types, enum, limited := strings.Cut(string(text), " of ")
	if types, f.required = strings.CutPrefix(types, "required "); types != "" {
		f.types = strings.Split(types, "|")
	}
	if limited {
		f.enum = strings.Split(enum, ", ")
	}
	return nil
}

// contract is what clients may rely on: for each operation, as "GET /jobs", what it takes and what it
// answers, by place: "query.limit", "body.jobs[].title", "200[].id", "200 header Link".
type contract map[string]map[string]field

// problems is where the contract has what errors are, which all operations share.
const problems = "problem"

// contractOf reads the contract of a document.
func contractOf(doc object) contract {
	c := make(contract)
	operationsOf(doc, func(called string, o any) {
		s := surface{doc: doc, fields: make(map[string]field)}
		for _, p := range list(at(o, "parameters")) {
			s.add(textAt(p, "in")+"."+textAt(p, "name"), at(p, "schema"), isTrue(at(p, "required")), nil)
		}
		sorted(at(o, "requestBody", "content"), func(_ string, content any) {
			s.add("body", at(content, "schema"), isTrue(at(o, "requestBody", "required")), nil)
		})
		var statuses []string
		sorted(at(o, "responses"), func(status string, answer any) {
			statuses = append(statuses, status)
			s.answer(status, answer)
		})
		s.fields["statuses"] = field{types: []string{"status"}, enum: statuses}
		c[called] = s.fields
	})
	s := surface{doc: doc, fields: make(map[string]field)}
	sorted(at(doc, "components", "responses"), func(_ string, answer any) { s.answer(problems, answer) })
	c[problems] = s.fields
	return c
}

// surface collects the fields of an operation.
type surface struct {
	doc    object
	fields map[string]field
}

// answer adds what stands in an answer, of JSON without saying so; what many operations share is in
// the contract once.
func (s surface) answer(place string, answer any) {
	sorted(at(answer, "headers"), func(name string, header any) {
		s.add(place+" header "+name, at(header, "schema"), false, nil)
	})
	sorted(at(answer, "content"), func(kind string, content any) {
		schema, place := at(content, "schema"), strings.TrimSuffix(place+" "+kind, " application/json")
		s.add(place, schema, true, nil)
		if item := at(schema, "x-item"); item != nil {
			s.add(place+" item", item, true, nil)
		}
	})
}

// add adds what a schema allows at a place, and below it; seen are the references that led there.
func (s surface) add(place string, schema any, required bool, seen []string) {
	if ref := textAt(schema, "$ref"); ref != "" {
		if !slices.Contains(seen, ref) {
			s.add(place, at(s.doc, strings.Split(ref[2:], "/")...), required, append(slices.Clone(seen), ref))
		}
		return
	}
	if forms := list(at(schema, "anyOf")); forms != nil {
		for _, one := range forms {
			s.add(place, one, required, seen)
		}
		return
	}
	f := s.fields[place]
	f.required = required
	switch types := at(schema, "type").(type) {
	case string:
		f.types = append(f.types, types)
	case []any:
		for _, one := range types {
			f.types = append(f.types, one.(string))
		}
	}
	for _, value := range list(at(schema, "enum")) {
		f.enum = append(f.enum, fmt.Sprint(value))
	}
	slices.Sort(f.types)
	f.types = slices.Compact(f.types)
	s.fields[place] = f
	always := list(at(schema, "required"))
	sorted(at(schema, "properties"), func(name string, of any) {
		s.add(place+"."+name, of, slices.Contains(always, any(name)), seen)
	})
	for _, of := range []string{"items", "additionalProperties"} {
		if below, is := at(schema, of).(object); is {
			s.add(place+map[string]string{"items": "[]", "additionalProperties": "{}"}[of], below, false, seen)
		}
	}
}

// breaks are the ways in which a client of old is let down by now.
func breaks(old, now contract) []string {
	var all []string
	for _, called := range slices.Sorted(maps.Keys(old)) {
		if now[called] == nil {
			all = append(all, called+" is gone")
			continue
		}
		places := make(map[string]bool)
		for _, fields := range []map[string]field{old[called], now[called]} {
			for place := range fields {
				places[place] = true
			}
		}
		for _, place := range slices.Sorted(maps.Keys(places)) {
			before, was := old[called][place]
			after, is := now[called][place]
			if what := broken(given(place), before, was, after, is); what != "" {
				all = append(all, called+": "+place+" "+what)
			}
		}
	}
	return all
}

// given tells whether the client gives what is at a place; otherwise it is answered.
func given(place string) bool {
	in, _, _ := strings.Cut(place, ".")
	return slices.Contains([]string{"path", "query", "header", "cookie"}, in) || strings.HasPrefix(in, "body")
}

// broken says what became worse of a field.
func broken(given bool, old field, was bool, now field, is bool) string {
	narrow, wide := old, now // what may be said and what is understood: of an answer the new and the old
	if !given {
		narrow, wide = now, old
	}
	without := func(all, some []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return len(some) == 0 || slices.Contains(some, one) })
	}
	switch {
	case was && !is:
		return "is gone"
	case given && is && now.required && (!was || !old.required):
		return "is required now"
	case !was:
		return ""
	case !given && old.required && !now.required:
		return "may be missing now"
	case len(without(narrow.types, wide.types)) > 0, len(narrow.types) == 0 && len(wide.types) > 0:
		return fmt.Sprintf("was %s and is %s", strings.Join(old.types, "|"), strings.Join(now.types, "|"))
	case len(without(old.enum, now.enum)) > 0, given && old.enum == nil && now.enum != nil, !given && old.enum != nil && now.enum == nil:
		return fmt.Sprintf("was of %q and is of %q", old.enum, now.enum)
	}
	return ""
}

// Nothing that a client may rely on went, became something else, or is required that was not. What
// was added passes; -rewrite-baseline takes it into what may be relied on.
func TestDocument_BreaksNoClient(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join("testdata", "v1.json"), contractOf(openAPI(t))
	if *rewriteBaseline {
		text, err := json.MarshalIndent(now, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var old contract
	require.NoError(t, json.Unmarshal(text, &old))
	require.Empty(t, breaks(old, now), "this breaks clients of version 1")
}

// relied is a small document with one of each thing that a client may rely on.
const relied = `{
	"paths": {
		"/jobs": {
			"get": {
				"parameters": [
					{"name": "limit", "in": "query", "schema": {"type": "integer"}},
					{"name": "status", "in": "query", "schema": {"type": "array", "items": {"type": "string", "enum": ["PENDING", "RUNNING"]}}}
				],
				"responses": {
					"200": {"headers": {"Link": {"schema": {"type": "string"}}}, "content": {"application/json": {"schema": {"type": ["array", "null"], "items": {"$ref": "#/components/schemas/Job"}}}}},
					"404": {"$ref": "#/components/responses/NotFound"}
				}
			},
			"post": {
				"requestBody": {"required": true, "content": {"application/json": {"schema": {
					"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}, "at": {"type": ["string", "null"]}}
				}}}},
				"responses": {"200": {"content": {"text/event-stream": {"schema": {"type": "string", "x-item": {"$ref": "#/components/schemas/Job"}}}}}}
			}
		}
	},
	"components": {
		"schemas": {"Job": {"type": "object", "required": ["id"], "properties": {
			"id": {"type": "integer"},
			"lane": {"type": "string"},
			"medium": {"type": "string", "enum": ["push", "sms"]},
			"first": {"anyOf": [{"$ref": "#/components/schemas/Job"}, {"type": "null"}]},
			"data": {"type": "object", "additionalProperties": {"type": "string"}}
		}}},
		"responses": {"NotFound": {"content": {"application/problem+json": {"schema": {"type": "object", "properties": {"detail": {"type": "string"}}}}}}}
	}
}`

// changedTo is the contract of the small document with something replaced.
func changedTo(t *testing.T, old, replaced string) contract {
	t.Helper()
	changed := strings.Replace(relied, old, replaced, 1)
	require.NotEqual(t, relied, changed, old)
	return contractOf(parsed(t, changed))
}

// Each way to let a client down is found.
func TestDocument_BreaksAreFound(t *testing.T) {
	t.Parallel()
	before := contractOf(parsed(t, relied))
	for _, c := range []struct{ old, now, broken string }{
		{`"/jobs"`, `"/tasks"`, "GET /jobs is gone"},
		{`"post": {`, `"put": {`, "POST /jobs is gone"},
		{`"name": "limit"`, `"name": "most"`, "GET /jobs: query.limit is gone"},
		{`"in": "query", "schema": {"type": "integer"}`, `"in": "query", "schema": {"type": "string"}`, "GET /jobs: query.limit was integer and is string"},
		{`"in": "query", "schema": {"type": "integer"}`, `"in": "query", "required": true, "schema": {"type": "integer"}`, "GET /jobs: query.limit is required now"},
		{`"parameters": [`, `"parameters": [{"name": "reason", "in": "query", "required": true, "schema": {}}, `, "GET /jobs: query.reason is required now"},
		{`["PENDING", "RUNNING"]`, `["PENDING"]`, `GET /jobs: query.status[] was of ["PENDING" "RUNNING"] and is of ["PENDING"]`},
		{`{"type": "integer"}},`, `{"type": "integer", "enum": [10, 20]}},`, `GET /jobs: query.limit was of [] and is of ["10" "20"]`},
		{`["string", "null"]`, `"string"`, "POST /jobs: body.at was null|string and is string"},
		{`"at": {`, `"due": {`, "POST /jobs: body.at is gone"},
		{`"required": ["type"]`, `"required": ["type", "at"]`, "POST /jobs: body.at is required now"},
		{`"lane": {`, `"queue": {`, "GET /jobs: 200[].lane is gone"},
		{`"id": {"type": "integer"}`, `"id": {"type": "string"}`, "GET /jobs: 200[].id was integer and is string"},
		{`"lane": {"type": "string"}`, `"lane": {"type": ["string", "null"]}`, "POST /jobs: 200 text/event-stream item.lane was string and is null|string"},
		{`"lane": {"type": "string"}`, `"lane": {}`, "GET /jobs: 200[].lane was string and is "},
		{`"required": ["id"]`, `"required": []`, "GET /jobs: 200[].id may be missing now"},
		{`["push", "sms"]`, `["push"]`, `GET /jobs: 200[].medium was of ["push" "sms"] and is of ["push"]`},
		{`, "additionalProperties": {"type": "string"}`, ``, "GET /jobs: 200[].data{} is gone"},
		{`"additionalProperties": {"type": "string"}`, `"additionalProperties": {"type": "integer"}`, "GET /jobs: 200[].data{} was string and is integer"},
		{`"Link"`, `"Next"`, "GET /jobs: 200 header Link is gone"},
		{`"404": {`, `"410": {`, `GET /jobs: statuses was of ["200" "404"] and is of ["200" "410"]`},
		{`{"application/json": {"schema": {"type": ["array"`, `{"text/csv": {"schema": {"type": ["array"`, "GET /jobs: 200 is gone"},
		{`"detail"`, `"text"`, "problem: problem application/problem+json.detail is gone"},
	} {
		require.Contains(t, breaks(before, changedTo(t, c.old, c.now)), c.broken)
	}
}

// What lets nobody down passes: what is new, what need not be given any more, what is allowed beside.
func TestDocument_AdditionsBreakNothing(t *testing.T) {
	t.Parallel()
	before := contractOf(parsed(t, relied))
	require.Empty(t, breaks(before, before))
	for _, c := range [][2]string{
		{`"get": {`, `"delete": {"responses": {"200": {}}}, "get": {`},
		{`"parameters": [`, `"parameters": [{"name": "lane", "in": "query", "schema": {"type": "string"}}, `},
		{`"in": "query", "schema": {"type": "integer"}`, `"in": "query", "schema": {"type": ["integer", "string"]}`},
		{`["PENDING", "RUNNING"]`, `["PENDING", "RUNNING", "FAILED"]`},
		{`, "enum": ["PENDING", "RUNNING"]`, ``},
		{`"required": ["type"], `, ``},
		{`"required": ["id"]`, `"required": ["id", "lane"]`},
		{`["push", "sms"]`, `["push", "sms", "email"]`},
		{`["array", "null"]`, `"array"`},
		{`"lane": {`, `"queue": {"type": "string"}, "lane": {`},
		{`"404": {`, `"409": {"$ref": "#/components/responses/NotFound"}, "404": {`},
	} {
		require.Empty(t, breaks(before, changedTo(t, c[0], c[1])), c[1])
	}
}

// The file says what the document says.
func TestDocument_BaselineIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, f := range []field{{}, {required: true}, {types: []string{"integer", "null"}}, {required: true, types: []string{"string"}, enum: []string{"push", "sms"}}} {
		text, err := f.MarshalText()
		require.NoError(t, err)
		var read field
		require.NoError(t, read.UnmarshalText(text))
		require.Equal(t, f, read, string(text))
	}
}
