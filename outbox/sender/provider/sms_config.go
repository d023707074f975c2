package provider

import (
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/belfryhq/belfry/outbox/sender"
)

// SMSConfig describes a gateway for text messages with an HTTP API. URL, headers and body are templates. Lists of
// statuses and codes classify its answers.
//
//	sms:
//	  url: https://sms.example.com/v1/messages
//	  auth: bearer
//	  secret_file: /run/secrets/sms
//	  from: "+821012345678"
//	  body: '{"to": {{.to | digits | json}}, "from": {{.from | json}}, "text": {{.text | json}}}'
//	  message_id_path: messages.0.id
//	  code_path: error.code
//	  success: {statuses: [201]}
//	  invalid_address: {codes: [invalid_number, "21211"]}
//
// # Templates
//
// Templates use package text/template with one kind of action: a value with the function for its position. The
// function is required, so that no address or text of a message can escape from its position:
//
//	path   in the URL's path    .to .key .from .secret .job_id .channel_id
//	query  in the URL's query   every value
//	(none) in headers           .key .from .secret .job_id .channel_id
//	json   application/json     every value, as a JSON string with its quotes
//	form   application/x-www-form-urlencoded, every value
//	xml    application/xml, text/xml, every value
//	(none) text/plain           every value
//
// Values: .to (the address), .text (title and body, a line break between), .title, .body,
// .key, .from, .secret, .job_id, .channel_id, .external_id, .category, .locale, and .data.NAME,
// a member of the message's data, empty if data has none. NAME is letters, digits and _, and
// does not begin with a digit. The function digits returns the digits of the telephone number in
// .to, .from or .data.NAME, as in {{.to | digits | json}}; other text is refused.
//
// # The idempotency key
//
// It is sent in the header that idempotency_header names, by default Idempotency-Key. The value .key is for
// gateways with their own field, such as a client reference. A gateway that supports neither sends a repeated
// request twice.
//
// # Answers
//
//	a code at code_path that a class lists ► that class
//	a status that a class lists ───────────► that class
//	2xx ───────────────────────────────────► accepted; unknown if success lists statuses
//	                                          or codes and the answer has none of them
//	other statuses ────────────────────────► see classOfStatus
//
// A code takes precedence over the status: many gateways answer 200 and report the result in the body. A body that
// is truncated or not JSON has no code. A result's code is the status followed by the gateway's code, such as
// "429 too_many_requests".
//
// Each GET uses its own connection, because net/http automatically repeats a GET if a kept-alive connection
// breaks, and the message would be sent twice.
type SMSConfig struct {
	Method string `mapstructure:"method"` // POST, PUT or GET
	URL    string `mapstructure:"url"`    // a template; its host is fixed
	// AllowHTTP permits http to other machines.
	AllowHTTP bool              `mapstructure:"allow_http"`
	Headers   map[string]string `mapstructure:"headers"` // templates
	// ContentType determines the function of the body's values.
	ContentType string `mapstructure:"content_type"`
	Body        string `mapstructure:"body"` // a template; empty with GET
	// IdempotencyHeader is the header of the key. Empty means no header.
	IdempotencyHeader string `mapstructure:"idempotency_header"`
	From              string `mapstructure:"from"` // the value from
	// AddressPattern is a regular expression of valid addresses; other addresses are refused without a call.
	// Empty means telephone numbers of 7 to 15 digits (number.go).
	AddressPattern string `mapstructure:"address_pattern"`

	Auth     string `mapstructure:"auth"`     // none, basic (Username, secret) or bearer (secret)
	Username string `mapstructure:"username"` // of auth basic
	// Secret, or the content of SecretFile, is the password or token, and the value
	// .secret for gateways that require it elsewhere.
	Secret     string `mapstructure:"secret"`
	SecretFile string `mapstructure:"secret_file"`

	// MessageIDPath is the path of the gateway's message id in an answer, such as messages.0.id. It may be
	// empty.
	MessageIDPath string `mapstructure:"message_id_path"`
	// CodePath is the path of the gateway's code in an answer. It may be empty.
	CodePath       string   `mapstructure:"code_path"`
	Success        SMSMatch `mapstructure:"success"`
	InvalidAddress SMSMatch `mapstructure:"invalid_address"`
	Permanent      SMSMatch `mapstructure:"permanent"`
	Retryable      SMSMatch `mapstructure:"retryable"`
	Unknown        SMSMatch `mapstructure:"unknown"`

	// CAFile names a PEM file of trusted certificate authorities, in addition to the system's.
	CAFile string `mapstructure:"ca_file"`
}

// SMSMatch lists the answers of a class.
type SMSMatch struct {
	Statuses []int    `mapstructure:"statuses"`
	Codes    []string `mapstructure:"codes"` // at CodePath; numbers as written in the answer
}

// DefaultSMS returns settings that post a small JSON object. They have no URL.
func DefaultSMS() *SMSConfig {
	return &SMSConfig{
		Method:            http.MethodPost,
		ContentType:       "application/json",
		Body:              `{"to": {{.to | json}}, "from": {{.from | json}}, "text": {{.text | json}}, "key": {{.key | json}}}`,
		IdempotencyHeader: "Idempotency-Key",
		Auth:              "none",
	}
}

var (
	headerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$") })
	controls   = regexp.MustCompile(`[\x00-\x1f\x7f]`)
	fixedHost  = regexp.MustCompile(`^https?://[^/?#]+[/?]`)
)

// reservedHeaders are headers that other settings or the client set.
var reservedHeaders = []string{"Connection", "Content-Length", "Content-Type", "Host", "Trailer", "Transfer-Encoding", "Upgrade"}

// smsClass is a class with its answers.
type smsClass struct {
	key   string
	is    sender.Class
	match SMSMatch
}

func (c *SMSConfig) classes() []smsClass {
	return []smsClass{
		{"success", sender.Accepted, c.Success},
		{"invalid_address", sender.InvalidAddress, c.InvalidAddress},
		{"permanent", sender.Permanent, c.Permanent},
		{"retryable", sender.Retryable, c.Retryable},
		{"unknown", sender.Unknown, c.Unknown},
	}
}

// validate implements Config.
func (c *SMSConfig) validate(p *sender.ValidationErrors) {
	p.Check(slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodGet}, c.Method), "method",
		"%q is not allowed; allowed values: POST, PUT and GET", c.Method)
	t := c.parse(p)
	p.Check(!controls.MatchString(c.From), "from", "has control characters; none are allowed")
	if _, _, ok := readNumber(c.From); !ok && c.From != "" {
		p.Check(!slices.Contains(t.phones(), "from"), "from", "is not a telephone number, and a template uses its digits")
	}
	_, err := regexp.Compile(c.AddressPattern)
	p.Check(err == nil, "address_pattern", "%q is not a regular expression", c.AddressPattern)
	c.checkAuth(p, t)
	for _, at := range []struct{ key, path string }{{"message_id_path", c.MessageIDPath}, {"code_path", c.CodePath}} {
		_, err := parseSMSPath(at.path)
		p.Check(err == nil, at.key, "%v", err)
	}
	c.checkAnswers(p)
}

// smsTemplates are the templates of a request. path is the URL before the question mark.
type smsTemplates struct {
	path, query, body smsTemplate
	headers           map[string]smsTemplate
}

// parse parses the templates and adds the problems of URL, headers and body.
func (c *SMSConfig) parse(p *sender.ValidationErrors) smsTemplates {
	parse := func(key, text string, place smsPlace) smsTemplate {
		t, err := parseSMSTemplate(text, place)
		p.Check(err == nil, key, "%v", err)
		return t
	}
	path, query, _ := strings.Cut(c.URL, "?")
	t := smsTemplates{
		path:    parse("url", path, smsPlace{values: smsPathValues, quote: "path"}),
		query:   parse("url", query, smsPlace{values: smsAllValues, quote: "query"}),
		headers: map[string]smsTemplate{},
	}
	for name, text := range c.Headers {
		t.headers[name] = parse("headers."+name, text, smsPlace{values: smsHeaderValues})
	}
	c.checkURL(p, t)
	c.checkHeaders(p)
	if c.Method == http.MethodGet {
		p.Check(c.Body == "", "body", "is set; GET has no body")
		return t
	}
	quote, ok := c.bodyQuote()
	if !ok {
		p.Check(false, "content_type",
			"%q is not allowed; allowed values: application/json, application/x-www-form-urlencoded, application/xml, "+
				"text/xml and text/plain", c.ContentType)
		return t
	}
	t.body = parse("body", c.Body, smsPlace{values: smsAllValues, quote: quote})
	if t.body.tree != nil && quote == "json" && c.Body != "" {
		p.Check(json.Valid([]byte(t.body.sample())), "body", "is not JSON after the values are inserted; values include their quotes")
	}
	return t
}

// all returns all parsed templates.
func (t smsTemplates) all() []smsTemplate {
	return slices.AppendSeq([]smsTemplate{t.path, t.query, t.body}, maps.Values(t.headers))
}

// phones returns the values whose digits a template uses.
func (t smsTemplates) phones() (names []string) {
	for _, one := range t.all() {
		names = append(names, one.phones...)
	}
	return names
}

// uses reports whether a template uses a value.
func (t smsTemplates) uses(value string) bool {
	return slices.ContainsFunc(t.all(), func(t smsTemplate) bool { return slices.Contains(t.values, value) })
}

func (c *SMSConfig) checkURL(p *sender.ValidationErrors, t smsTemplates) {
	if t.path.tree == nil || t.query.tree == nil {
		return
	}
	if c.URL == "" {
		p.Check(false, "url", "is missing")
		return
	}
	if before, _, found := strings.Cut(c.URL, "{{"); found && !fixedHost.MatchString(before) {
		p.Check(false, "url", "its scheme and host must be fixed; allowed values: values in path and query")
		return
	}
	_, err := parseEndpoint(t.path.sample()+"?"+t.query.sample(), c.AllowHTTP)
	p.Check(err == nil, "url", "%v", err)
}

func (c *SMSConfig) checkHeaders(p *sender.ValidationErrors) {
	for name, text := range c.Headers {
		key := "headers." + name
		p.Check(headerName().MatchString(name), key, "is not a header name")
		p.Check(!slices.Contains(reservedHeaders, http.CanonicalHeaderKey(name)), key, "is not allowed; belfry sets it")
		p.Check(c.Auth == "none" || http.CanonicalHeaderKey(name) != "Authorization", key, "is not allowed with auth %s", c.Auth)
		p.Check(!controls.MatchString(text), key, "has control characters; none are allowed")
	}
	p.Check(c.IdempotencyHeader == "" ||
		headerName().MatchString(c.IdempotencyHeader) && !slices.Contains(reservedHeaders, http.CanonicalHeaderKey(c.IdempotencyHeader)),
		"idempotency_header", "%q is not allowed; allowed values: the name of a header, or nothing", c.IdempotencyHeader)
}

// bodyQuote returns the function of the body's values, or false for an unknown content type.
func (c *SMSConfig) bodyQuote() (string, bool) {
	kind, _, err := mime.ParseMediaType(c.ContentType)
	if err != nil {
		return "", false
	}
	quote, ok := map[string]string{
		"application/json":                  "json",
		"application/x-www-form-urlencoded": "form",
		"application/xml":                   "xml",
		"text/xml":                          "xml",
		"text/plain":                        "",
	}[kind]
	return quote, ok
}

func (c *SMSConfig) checkAuth(p *sender.ValidationErrors, t smsTemplates) {
	p.Check(slices.Contains([]string{"none", "basic", "bearer"}, c.Auth), "auth",
		"%q is not allowed; allowed values: none, basic and bearer", c.Auth)
	p.Check(c.Secret == "" || c.SecretFile == "", "secret", "both secret and secret_file are set; set only one")
	p.Check(!controls.MatchString(c.Secret), "secret", "has control characters; none are allowed")
	p.Check(!controls.MatchString(c.Username) && !strings.Contains(c.Username, ":"), "username",
		"has control characters or a colon; none are allowed")
	p.Check(c.Auth != "basic" || c.Username != "", "username", "is missing; auth basic requires it")
	hasSecret := c.Secret != "" || c.SecretFile != ""
	p.Check(hasSecret || c.Auth == "none", "secret", "is missing; auth %s requires secret or secret_file", c.Auth)
	p.Check(hasSecret || !t.uses("secret"), "secret", "is missing; a template uses it")
}

func (c *SMSConfig) checkAnswers(p *sender.ValidationErrors) {
	statuses, codes := map[int]string{}, map[string]string{}
	for _, class := range c.classes() {
		for _, status := range class.match.Statuses {
			key := class.key + ".statuses"
			p.Check(status >= 200 && status <= 599, key, "%d is not allowed; allowed values: 200 to 599", status)
			p.Check(statuses[status] == "", key, "%d is in %s.statuses as well", status, statuses[status])
			statuses[status] = class.key
			if class.is == sender.Retryable {
				p.Check(status < 300 || status >= 500 || classOfStatus(status) == sender.Retryable,
					key, "%d is not allowed; retryable 3xx and 4xx are 401, 408, 425 and 429", status)
			}
			if class.is == sender.Accepted {
				p.Check(status < 300, key, "%d is not allowed; allowed values: 200 to 299", status)
			}
		}
		for _, code := range class.match.Codes {
			key := class.key + ".codes"
			p.Check(code != "", key, "an empty code is not allowed")
			p.Check(codes[code] == "", key, "%q is in %s.codes as well", code, codes[code])
			codes[code] = class.key
		}
		p.Check(len(class.match.Codes) == 0 || c.CodePath != "", class.key+".codes", "is set without code_path")
	}
}
