package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/channels"
)

// document builds the OpenAPI document.
type document struct {
	open    *huma.OpenAPI
	schemas huma.Registry
	problem *huma.Schema
	visited map[string]bool // references of schemas that encoded has processed
}

// security is the name of the bearer token in the document.
const security = "token"

// Tags of operations without a noun.
const (
	tagWhole = "belfry"
	tagLogin = "login"
)

// tags returns the tags of the document: one for each noun, and two others.
func tags() []*huma.Tag {
	list := []*huma.Tag{
		{Name: tagWhole, Description: "Write and stop jobs and whole groups of them, and see to belfry as a whole"},
		{Name: tagLogin, Description: "Sign in with a browser, and out"},
	}
	for _, n := range operation.Nouns() {
		list = append(list, &huma.Tag{Name: n.Name, Description: n.Short})
	}
	return list
}

// nounOf returns the tag of an operation, which is its noun if it has one.
func nounOf(o operation.Operation) string {
	for _, n := range slices.Backward(operation.Nouns()) { // "channels segment" is after "channels"
		if strings.HasPrefix(o.Name, n.Name+" ") {
			return n.Name
		}
	}
	return tagWhole
}

func newDocument() *document {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(reflect.TypeFor[channels.Audience](), reflect.TypeFor[map[string]any]()) // its fields depend on its kind
	d := &document{schemas: schemas, visited: make(map[string]bool)}
	d.problem = schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	d.open = &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "belfry", Version: "1",
			Description: "What an operator can do with belfry. Lists have their next page in a Link header.",
			License:     &huma.License{Name: "MIT", Identifier: "MIT"}},
		Servers: []*huma.Server{{URL: Prefix}},
		Tags:    tags(),
		Components: &huma.Components{
			Schemas:   schemas,
			Responses: make(map[string]*huma.Response),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				security: {Type: "http", Scheme: "bearer", Description: "made by `belfry tokens create`"},
				"session": {Type: "apiKey", In: "cookie", Name: "__Host-belfry",
					Description: "of POST /login; __Secure-belfry below a path, belfry without TLS"},
			},
		},
		Security: []map[string][]string{{security: {}}, {"session": {}}},
	}
	return d
}

// schemaName returns the name of a type's schema. It contains the package, because types of two packages may
// have the same name. Types of package delivery are named after outbox, so that generated clients do not
// change.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.Name()
	if name == "" || strings.ContainsAny(name, "[.") {
		name = hint
	} else if at := strings.LastIndexByte(t.PkgPath(), '/'); at >= 0 && !strings.HasSuffix(t.PkgPath(), "/api") {
		of := t.PkgPath()[at+1:]
		if of == "delivery" {
			of = "outbox"
		}
		name = strings.ToUpper(of[:1]) + of[1:] + name
	}
	return name
}

// describe returns the document of an operation.
func (d *document) describe(o operation.Operation, r route) *huma.Operation {
	described := &huma.Operation{
		OperationID: strings.ReplaceAll(o.Name, " ", "-"),
		Method:      r.method, Path: r.path,
		Summary: o.Short, Description: strings.TrimSpace(strings.ReplaceAll(o.WithNames(o.Long), "{keys}", "")),
		Tags:       []string{nounOf(o)},
		Responses:  make(map[string]*huma.Response),
		Extensions: map[string]any{"x-role": o.Role.String()},
	}
	if o.Item() == nil {
		described.Responses["200"] = d.result(o, r)
	} else {
		described.Responses["200"] = d.stream(o)
		described.Responses[strconv.Itoa(http.StatusNotAcceptable)] = d.refusal(http.StatusNotAcceptable)
	}
	if o.Conditional() {
		described.Responses[strconv.Itoa(http.StatusPreconditionFailed)] = d.refusal(http.StatusPreconditionFailed)
	}
	for _, status := range answered(r) {
		described.Responses[strconv.Itoa(status)] = d.refusal(status)
	}
	body := addParams(described, o, r)
	if pager := r.pager(); pager != "" {
		described.Parameters = append(described.Parameters, &huma.Param{
			Name: pageToken, In: string(inQuery), Schema: &huma.Schema{Type: huma.TypeString},
			Description: "the next page, as the Link of the page before has it; not beside " + pager,
		})
	}
	if o.Changes {
		described.Parameters = append(described.Parameters, &huma.Param{
			Name: keyHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "names the request for 24 hours: repeated with the key, it is answered as at first, and not done again",
		})
		if o.Conditional() {
			described.Parameters = append(described.Parameters, &huma.Param{
				Name: matchHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
				Description: "ETags of answers: the act is done only if the one thing has one of them still; * asks that it exists. " +
					"Not beside if_version",
			})
		}
		described.RequestBody = &huma.RequestBody{
			Required: len(body.Required) > 0,
			Content:  map[string]*huma.MediaType{"application/json": {Schema: body}},
		}
	}
	return described
}

// addParams adds the path and query parameters, and returns the body with the others.
func addParams(described *huma.Operation, o operation.Operation, r route) (body *huma.Schema) {
	body = &huma.Schema{Type: huma.TypeObject, Properties: make(map[string]*huma.Schema), AdditionalProperties: false}
	in := o.NewInput()
	for _, p := range o.Params() {
		schema := schemaOf(p, p.Shape(in))
		if each, is := p.Each(in); is {
			schema.Items = fieldsOf(each)
		}
		switch r.in[p.Name] {
		case inBody:
			schema.Description = o.WithNames(p.Help)
			body.Properties[p.Name] = schema
			if p.Required {
				body.Required = append(body.Required, p.Name)
			}
		case inQuery, inPath:
			described.Parameters = append(described.Parameters, &huma.Param{
				Name: p.Name, In: string(r.in[p.Name]), Description: o.WithNames(p.Help), Schema: schema, Required: p.Required,
			})
		}
	}
	return body
}

// describeSignIn adds the paths of signing in and out.
func (d *document) describeSignIn() {
	text := func(help string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: help} }
	in := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: false, Properties: map[string]*huma.Schema{
		"name": text("who signs in"), "password": text("beside the name"), "link": text("instead of both: the secret of `belfry users link`"),
	}}
	refusals := []int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity, http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusServiceUnavailable,
	}
	redirect := func(o *huma.Operation, status int, where string) {
		o.Responses[strconv.Itoa(status)] = &huma.Response{Description: where,
			Headers: map[string]*huma.Param{"Location": {Schema: &huma.Schema{Type: huma.TypeString}}}}
	}
	for _, o := range []*huma.Operation{
		{OperationID: "login-ways", Method: http.MethodGet, Path: "/login", Summary: "Tell how people sign in here",
			Description: "What a page that people sign in by has to offer."},
		{OperationID: "login-oidc", Method: http.MethodGet, Path: "/login/oidc", Summary: "Send a browser to the provider",
			Description: "For browsers: sets a cookie of ten minutes, and leads to the provider of api.oidc.",
			Parameters: []*huma.Param{{Name: returnTo, In: "query",
				Description: "where the browser is sent once it is signed in: a path of belfry's own", Schema: &huma.Schema{Type: huma.TypeString}}}},
		{OperationID: "login-oidc-callback", Method: http.MethodGet, Path: "/login/oidc/callback",
			Summary: "Take a browser back from the provider",
			Description: "For browsers, sent by the provider: state, and code or error, of one sign-in. The answer has the " +
				"cookie of a new session."},
		{OperationID: "login", Path: "/login", Summary: "Sign in", Description: "The answer has the cookie of a new session.",
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: in}}}},
		{OperationID: "logout", Path: "/logout", Summary: "Sign out", Description: "Ends the session of the request's cookie."},
	} {
		if o.Security = []map[string][]string{{}}; o.Method == "" {
			o.Method = http.MethodPost
		}
		o.Tags = []string{tagLogin}
		answer := d.schemas.Schema(reflect.TypeFor[SignedIn](), true, "SignedIn")
		switch o.OperationID {
		case "logout":
			answer = &huma.Schema{Type: huma.TypeObject, AdditionalProperties: false, Properties: map[string]*huma.Schema{}}
		case "login-ways":
			answer = d.schemas.Schema(reflect.TypeFor[LoginOptions](), true, "LoginOptions")
			d.encoded(answer, reflect.TypeFor[LoginOptions]())
		}
		o.Responses = map[string]*huma.Response{"200": {Description: "what came of it",
			Content: map[string]*huma.MediaType{"application/json": {Schema: answer}}}}
		for _, status := range refusals {
			o.Responses[strconv.Itoa(status)] = d.refusal(status)
		}
		switch o.OperationID {
		case "login-oidc":
			delete(o.Responses, "200")
			redirect(o, http.StatusFound, "the provider")
			o.Responses["404"] = d.refusal(http.StatusNotFound)
		case "login-oidc-callback":
			redirect(o, http.StatusSeeOther, "the way back")
			o.Responses["404"] = d.refusal(http.StatusNotFound)
		}
		d.open.AddOperation(o)
	}
}

// refusal returns the response with a problem. The document contains it once per status.
func (d *document) refusal(status int) *huma.Response {
	name := strings.ReplaceAll(http.StatusText(status), " ", "")
	d.open.Components.Responses[name] = &huma.Response{
		Description: http.StatusText(status),
		Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: d.problem}},
	}
	return &huma.Response{Ref: "#/components/responses/" + name}
}

// result returns the response of a successful operation.
func (d *document) result(o operation.Operation, r route) *huma.Response {
	var forms []*huma.Schema
	for _, t := range o.Results() {
		form := d.schemas.Schema(t, true, schemaHint(o))
		d.encoded(form, t)
		if o.Changes {
			form = d.withReceipt(form)
		}
		forms = append(forms, form)
	}
	schema := forms[0]
	if len(forms) > 1 {
		schema = &huma.Schema{AnyOf: forms}
	}
	answer := &huma.Response{
		Description: "what came of it",
		Content:     map[string]*huma.MediaType{"application/json": {Schema: schema}},
	}
	answer.Headers = make(map[string]*huma.Param)
	if r.pager() != "" {
		answer.Headers["Link"] = &huma.Param{Description: `the next page, rel="next", if there is one`,
			Schema: &huma.Schema{Type: huma.TypeString}}
	}
	if o.Versioned() {
		answer.Headers[tagHeader] = &huma.Param{Description: "the version of the one thing that is shown, for If-Match; it " +
			"changes with each act, and not as a job goes on", Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return answer
}

// withReceipt returns the schema of an act's result with its receipt. Plans have no receipt.
func (d *document) withReceipt(result *huma.Schema) *huma.Schema {
	own := *result
	if result.Ref != "" {
		own = *d.schemas.SchemaFromRef(result.Ref)
	}
	own.Properties = maps.Clone(own.Properties)
	if own.Properties == nil {
		own.Properties = make(map[string]*huma.Schema)
	}
	receipt := reflect.TypeFor[operation.Receipt]()
	own.Properties["receipt"] = d.schemas.Schema(receipt, true, "Receipt")
	d.encoded(own.Properties["receipt"], receipt)
	return &own
}

// stream returns the response of a streamed operation.
func (d *document) stream(o operation.Operation) *huma.Response {
	item := d.schemas.Schema(o.Item(), true, schemaHint(o))
	d.encoded(item, o.Item())
	line := item
	if o.Item().Kind() == reflect.Slice {
		line = item.Items
	}
	return &huma.Response{
		Description: "events as they come, each with an item; `event: end` is the last, `event: problem` comes before an early " +
			"end. Or a JSON document a line, empty ones aside; an early end breaks the answer off.",
		Content: map[string]*huma.MediaType{
			eventStream: {Schema: &huma.Schema{Type: huma.TypeString, Extensions: map[string]any{"x-item": item}}},
			jsonLines:   {Schema: &huma.Schema{Type: huma.TypeString, Extensions: map[string]any{"x-item": line}}},
		},
	}
}

// encoded corrects a schema of huma to the JSON of belfry. Pointers to structs and to types with their own
// text form are nullable. Lists are never null. Numbers that JavaScript cannot represent are strings.
func (d *document) encoded(s *huma.Schema, t reflect.Type) {
	if s != nil && s.Ref != "" {
		if d.visited[s.Ref] {
			return
		}
		d.visited[s.Ref] = true
		s = d.schemas.SchemaFromRef(s.Ref)
	}
	switch {
	case s == nil:
	case t.Kind() == reflect.Pointer:
		d.encoded(s, t.Elem())
	case t.Kind() == reflect.Slice:
		if s.Type == huma.TypeArray {
			s.Nullable = false
		}
		d.encoded(s.Items, t.Elem())
	case t.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			field := s.Properties[name]
			d.encoded(field, f.Type)
			if field != nil && options == "string" {
				field.Type, field.Format = huma.TypeString, ""
			}
			_, nullable := f.Tag.Lookup("nullable")
			switch {
			case field == nil:
			case field.Ref != "" && f.Type.Kind() == reflect.Pointer:
				s.Properties[name] = &huma.Schema{AnyOf: []*huma.Schema{field, {Type: "null"}}}
			case f.Type.Kind() == reflect.Pointer &&
				!strings.Contains(options, "omitempty"): // huma does not do so for types with their own text form
				field.Nullable = true
			case f.Type.Kind() == reflect.Slice && field.Type == huma.TypeArray: // responses contain empty lists
				field.Nullable = nullable
			}
		}
	}
}

func schemaHint(o operation.Operation) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(o.Name, func(c rune) bool { return c == ' ' || c == '-' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String() + "Result"
}

// answered returns the statuses of an operation's errors.
func answered(r route) []int {
	list := []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
		http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
	}
	if r.method != http.MethodGet {
		list = append(list, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	return list
}

// fieldsOf returns the schema of an object with the parameters of an operation.
func fieldsOf(o operation.Operation) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Properties: make(map[string]*huma.Schema), AdditionalProperties: false}
	in := o.NewInput()
	for _, p := range o.Params() {
		field := schemaOf(p, p.Shape(in))
		field.Description = p.Help
		s.Properties[p.Name] = field
	}
	return s
}

// schemaOf returns the schema of a parameter.
func schemaOf(p operation.Param, shape operation.Shape) *huma.Schema {
	one := &huma.Schema{Type: shape.Types[0], Minimum: shape.Low, Maximum: shape.High}
	for _, choice := range shape.Choices {
		one.Enum = append(one.Enum, choice)
	}
	if len(shape.Types) > 1 {
		one = &huma.Schema{}
		for _, kind := range shape.Types {
			one.AnyOf = append(one.AnyOf, &huma.Schema{Type: kind})
		}
	}
	if shape.List {
		one = &huma.Schema{Type: huma.TypeArray, Items: one}
	}
	switch {
	case shape.Nullable && one.AnyOf != nil:
		one.AnyOf = append(one.AnyOf, &huma.Schema{Type: "null"})
	case shape.Nullable:
		one.Nullable = true
	}
	if p.Default != "" {
		one.Default = defaultOf(p, shape)
	}
	if p.Allowed != "" {
		one.Extensions = map[string]any{"x-allowed": p.Allowed}
	}
	return one
}

// defaultOf returns the default of a parameter as JSON.
func defaultOf(p operation.Param, shape operation.Shape) any {
	var value any
	if shape.Types[0] != "string" && json.Unmarshal([]byte(p.Default), &value) == nil {
		return value
	}
	return p.Default
}

// json encodes the document without unused schemas, such as the results of acts, which withReceipt has
// copied.
func (d *document) json() []byte {
	for {
		text := text.Must(json.MarshalIndent(d.open, "", "  "))
		all := d.schemas.Map()
		used := len(all)
		maps.DeleteFunc(all, func(name string, _ *huma.Schema) bool {
			return !bytes.Contains(text, []byte(`"#/components/schemas/`+name+`"`))
		})
		if len(all) == used {
			return append(text, '\n')
		}
	}
}
