package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// object is an object of a JSON document.
type object = map[string]any

// at is what stands in a document below names; nil: nothing.
func at(v any, names ...string) any {
	for _, name := range names {
		of, _ := v.(object)
		v = of[name]
	}
	return v
}

// list is an array of a document.
func list(v any) []any {
	found, _ := v.([]any)
	return found
}

// textAt is a text that stands below names; "": none does.
func textAt(v any, names ...string) string {
	found, _ := at(v, names...).(string)
	return found
}

// isTrue tells of a member that it is there and true.
func isTrue(v any) bool {
	is, _ := v.(bool)
	return is
}

// sorted are the members of an object by name.
func sorted(v any, each func(name string, value any)) {
	of, _ := v.(object)
	for _, name := range slices.Sorted(maps.Keys(of)) {
		each(name, of[name])
	}
}

// operationsOf has each call with each operation of a document: "GET /jobs".
func operationsOf(doc object, each func(called string, o any)) {
	sorted(doc["paths"], func(path string, methods any) {
		sorted(methods, func(method string, o any) { each(strings.ToUpper(method)+" "+path, o) })
	})
}

// openAPI is the document of what is served.
func openAPI(t *testing.T) object {
	t.Helper()
	return parsed(t, string(wholeDocument()))
}

func parsed(t *testing.T, document string) object {
	t.Helper()
	var doc object
	require.NoError(t, json.Unmarshal([]byte(document), &doc))
	return doc
}

// linter collects what is wrong with a document.
type linter struct {
	doc    object
	faults []string
	refs   map[string]bool
	once   map[string]bool
}

func (l *linter) faultf(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// unique is a fault if a name was there before.
func (l *linter) unique(kind, name, where string) {
	if l.once[kind+name] {
		l.faultf("%s: %s %q is there twice", where, kind, name)
	}
	l.once[kind+name] = true
}

// lint is what is wrong with an OpenAPI document: what the common rules of linters find.
func lint(doc object) []string {
	l := &linter{doc: doc, refs: make(map[string]bool), once: make(map[string]bool)}
	if doc["openapi"] != "3.1.0" {
		l.faultf("openapi is %v", doc["openapi"])
	}
	for _, tag := range list(doc["tags"]) {
		l.unique("tag", textAt(tag, "name"), "tags")
		if textAt(tag, "description") == "" {
			l.faultf("tag %v has no description", at(tag, "name"))
		}
	}
	used := make(map[string]bool)
	operationsOf(doc, func(called string, o any) { l.operation(called, o, used) })
	for _, tag := range list(doc["tags"]) {
		if name := textAt(tag, "name"); !used[name] {
			l.faultf("tag %q is of no operation", name)
		}
	}
	l.resolve(doc)
	l.unused()
	return l.faults
}

var inBraces = regexp.MustCompile(`{([^}]*)}`)

// operation lints one operation, and collects its tags.
func (l *linter) operation(called string, o any, used map[string]bool) {
	if textAt(o, "operationId") == "" {
		l.faultf("%s has no operationId", called)
	}
	l.unique("operationId", textAt(o, "operationId"), called)
	if strings.TrimSpace(textAt(o, "summary")+textAt(o, "description")) == "" {
		l.faultf("%s has neither summary nor description", called)
	}
	if len(list(at(o, "tags"))) == 0 {
		l.faultf("%s has no tag", called)
	}
	for _, tag := range list(at(o, "tags")) {
		if used[textAt(tag)] = true; !l.once["tag"+textAt(tag)] {
			l.faultf("%s: tag %q is not declared", called, tag)
		}
	}
	declared := make(map[string]bool)
	for _, p := range list(at(o, "parameters")) {
		name, in := textAt(p, "name"), textAt(p, "in")
		l.unique(called+" "+in+" parameter", name, called)
		if at(p, "schema") == nil {
			l.faultf("%s: %s.%s has no schema", called, in, name)
		}
		if in != "path" {
			continue
		}
		if declared[name] = true; !isTrue(at(p, "required")) {
			l.faultf("%s: path.%s is not required", called, name)
		}
	}
	for _, in := range inBraces.FindAllStringSubmatch(called, -1) {
		if !declared[in[1]] {
			l.faultf("%s: path.%s is not declared", called, in[1])
		}
		delete(declared, in[1])
	}
	for name := range declared {
		l.faultf("%s: path.%s is not in the path", called, name)
	}
	if at(o, "responses") == nil {
		l.faultf("%s has no responses", called)
	}
}

// resolve looks each $ref up.
func (l *linter) resolve(v any) {
	switch v := v.(type) {
	case object:
		if ref := textAt(v, "$ref"); ref != "" {
			l.refs[ref] = true
			if !strings.HasPrefix(ref, "#/") || at(l.doc, strings.Split(ref[2:], "/")...) == nil {
				l.faultf("%s leads nowhere", ref)
			}
		}
		sorted(v, func(_ string, value any) { l.resolve(value) })
	case []any:
		for _, value := range v {
			l.resolve(value)
		}
	}
}

// unused finds components that nothing refers to, and security schemes that are not there.
func (l *linter) unused() {
	required := func(v any) {
		for _, one := range list(at(v, "security")) {
			sorted(one, func(name string, _ any) {
				l.refs["#/components/securitySchemes/"+name] = true
				if at(l.doc, "components", "securitySchemes", name) == nil {
					l.faultf("security scheme %q is not declared", name)
				}
			})
		}
	}
	required(l.doc)
	operationsOf(l.doc, func(_ string, o any) { required(o) })
	sorted(l.doc["components"], func(kind string, all any) {
		sorted(all, func(name string, _ any) {
			if ref := "#/components/" + kind + "/" + name; !l.refs[ref] {
				l.faultf("%s is not used", ref)
			}
		})
	})
}

// The document is one that generators of clients take without complaint.
func TestDocument_IsClean(t *testing.T) {
	t.Parallel()
	require.Empty(t, lint(openAPI(t)))
}

// clean is a small document with nothing wrong about it.
const clean = `{
	"openapi": "3.1.0",
	"tags": [{"name": "jobs", "description": "Jobs"}],
	"security": [{"token": []}],
	"paths": {
		"/jobs/{id}": {
			"get": {
				"operationId": "jobs-show", "tags": ["jobs"], "summary": "Show a job",
				"parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}],
				"responses": {"200": {"description": "the job", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}}}}
			},
			"patch": {
				"operationId": "jobs-set", "tags": ["jobs"], "description": "Change a job",
				"parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}],
				"responses": {"200": {"description": "changed"}}
			}
		}
	},
	"components": {
		"schemas": {"Job": {"type": "object", "properties": {"id": {"type": "integer"}}}},
		"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
	}
}`

// Each rule finds what it is there for.
func TestDocument_LintFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	require.Empty(t, lint(parsed(t, clean)))
	for _, c := range []struct{ old, broken, fault string }{
		{`"3.1.0"`, `"3.0.3"`, "openapi is 3.0.3"},
		{`"jobs-set"`, `"jobs-show"`, `PATCH /jobs/{id}: operationId "jobs-show" is there twice`},
		{`"operationId": "jobs-set", `, ``, "PATCH /jobs/{id} has no operationId"},
		{`"summary": "Show a job"`, `"summary": " "`, "GET /jobs/{id} has neither summary nor description"},
		{`"tags": ["jobs"], "summary"`, `"summary"`, "GET /jobs/{id} has no tag"},
		{`"tags": ["jobs"], "summary"`, `"tags": ["job"], "summary"`, `GET /jobs/{id}: tag "job" is not declared`},
		{`[{"name": "jobs", "description": "Jobs"}]`, `[{"name": "jobs", "description": "Jobs"}, {"name": "lanes", "description": "Lanes"}]`, `tag "lanes" is of no operation`},
		{`[{"name": "jobs", "description": "Jobs"}]`, `[{"name": "jobs", "description": "Jobs"}, {"name": "jobs", "description": "Jobs"}]`, `tags: tag "jobs" is there twice`},
		{`, "description": "Jobs"}`, `}`, "tag jobs has no description"},
		{`"name": "id", "in": "path"`, `"name": "job", "in": "path"`, "GET /jobs/{id}: path.id is not declared"},
		{`"name": "id", "in": "path"`, `"name": "job", "in": "path"`, "GET /jobs/{id}: path.job is not in the path"},
		{`"required": true, `, ``, "GET /jobs/{id}: path.id is not required"},
		{`, "schema": {"type": "integer"}}`, `}`, "GET /jobs/{id}: path.id has no schema"},
		{`"parameters": [`, `"parameters": [{"name": "id", "in": "path", "required": true, "schema": {}}, `, `GET /jobs/{id}: GET /jobs/{id} path parameter "id" is there twice`},
		{`, "description": "Change a job"`, `, "description": ""`, "PATCH /jobs/{id} has neither summary nor description"},
		{`"responses": {"200": {"description": "changed"}}`, `"x-none": true`, "PATCH /jobs/{id} has no responses"},
		{`schemas/Job"`, `schemas/Task"`, "#/components/schemas/Task leads nowhere"},
		{`schemas/Job"`, `schemas/Task"`, "#/components/schemas/Job is not used"},
		{`[{"token": []}]`, `[{"session": []}]`, `security scheme "session" is not declared`},
		{`[{"token": []}]`, `[]`, "#/components/securitySchemes/token is not used"},
	} {
		broken := strings.Replace(clean, c.old, c.broken, 1)
		require.NotEqual(t, clean, broken, c.old)
		require.Contains(t, lint(parsed(t, broken)), c.fault)
	}
}
