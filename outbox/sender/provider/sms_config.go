package provider

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/belfryhq/belfry/outbox/sender"
)

// SMSConfig describes a gateway that takes text messages by HTTP: method, URL, headers and
// body are templates, and what an answer means is said here too.
//
//	sms:
//	  url: https://sms.example.com/v1/messages
//	  auth: bearer
//	  secret_file: /run/secrets/sms
//	  from: "+821012345678"
//	  body: '{"to": {{to | digits | json}}, "from": {{from | json}}, "text": {{text | json}}}'
//	  message_id_path: messages.0.id
//	  code_path: error.code
//	  success: {statuses: [201]}
//	  invalid_address: {codes: [invalid_number, "21211"]}
//
// # Templates
//
// {{name | escape}} stands for a value, escaped for where it stands; the escape is not
// optional, so no number and no text of a message can break out of its place:
//
//	path   in the URL's path    to key from secret job_id channel_id
//	query  in the URL's query   every value
//	(none) in headers           key from secret job_id channel_id
//	json   application/json     every value, as a JSON string with its quotes
//	form   application/x-www-form-urlencoded, every value
//	xml    application/xml, text/xml, every value
//	raw    text/plain           every value, as it is
//
// Values: to (the address), text (title and body, a line break between), title, body,
// key, from, secret, job_id, channel_id, external_id, category, locale, and data.NAME, a
// member of the message's data. The filter digits before the escape leaves
// the digits alone, as in {{to | digits | json}}. What is no telephone number is refused.
//
// # The idempotency key
//
// It is sent as the header that idempotency_header names, Idempotency-Key unless changed,
// and is the value key for gateways that have their own place for it, such as a client
// reference. A gateway that knows neither sends a repeated request twice.
//
// # Answers
//
//	a code at code_path that a class lists ► that class
//	a status that a class lists ───────────► that class
//	2xx ───────────────────────────────────► accepted; where success lists statuses or
//	                                          codes and it is none of them: unknown
//	everything else ───────────────────────► as classOfStatus has it
//
// A code overrides the status beside it: many gateways answer 200 and say the rest in the
// body. A body that is no JSON, or was cut, has no code. A result's code is the status,
// and the gateway's code after it, as in "429 too_many_requests".
//
// By GET every call has a connection of its own: net/http repeats a GET by itself when a
// connection that was kept open breaks, and the message would be sent twice.
type SMSConfig struct {
	Method string `mapstructure:"method"` // POST, PUT or GET
	URL    string `mapstructure:"url"`    // a template; its host is fixed
	// AllowHTTP lets URL be http beyond this machine.
	AllowHTTP bool              `mapstructure:"allow_http"`
	Headers   map[string]string `mapstructure:"headers"` // templates
	// ContentType decides the body's escape.
	ContentType string `mapstructure:"content_type"`
	Body        string `mapstructure:"body"` // a template; by GET empty
	// IdempotencyHeader is the header of the key; empty: none.
	IdempotencyHeader string `mapstructure:"idempotency_header"`
	From              string `mapstructure:"from"` // the value from
	// AddressPattern is a regular expression of addresses; others are refused without a call.
	// Empty: addresses are telephone numbers of 7 to 15 digits (number.go).
	AddressPattern string `mapstructure:"address_pattern"`

	Auth     string `mapstructure:"auth"`     // none, basic (Username, secret) or bearer (secret)
	Username string `mapstructure:"username"` // of auth basic
	// Secret, or the content of SecretFile, is the password or token, and the value
	// secret for gateways that want it elsewhere.
	Secret     string `mapstructure:"secret"`
	SecretFile string `mapstructure:"secret_file"`

	// MessageIDPath is where an answer has the gateway's name of the message, as in
	// messages.0.id; empty: nowhere.
	MessageIDPath string `mapstructure:"message_id_path"`
	// CodePath is where an answer has the gateway's code; empty: nowhere.
	CodePath       string   `mapstructure:"code_path"`
	Success        SMSMatch `mapstructure:"success"`
	InvalidAddress SMSMatch `mapstructure:"invalid_address"`
	Permanent      SMSMatch `mapstructure:"permanent"`
	Retryable      SMSMatch `mapstructure:"retryable"`
	Unknown        SMSMatch `mapstructure:"unknown"`

	// CAFile names a PEM file of authorities that are trusted beside the system's.
	CAFile string `mapstructure:"ca_file"`
}

// SMSMatch lists answers that mean a class.
type SMSMatch struct {
	Statuses []int    `mapstructure:"statuses"`
	Codes    []string `mapstructure:"codes"` // at CodePath; numbers as they are written
}

// DefaultSMS posts a small JSON object; URL is the operator's to say.
func DefaultSMS() *SMSConfig {
	return &SMSConfig{
		Method:            http.MethodPost,
		ContentType:       "application/json",
		Body:              `{"to": {{to | json}}, "from": {{from | json}}, "text": {{text | json}}, "key": {{key | json}}}`,
		IdempotencyHeader: "Idempotency-Key",
		Auth:              "none",
	}
}

var (
	headerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$") })
	controls   = regexp.MustCompile(`[\x00-\x1f\x7f]`)
	fixedHost  = regexp.MustCompile(`^https?://[^/?#]+[/?]`)
)

// reservedHeaders are headers that are set otherwise.
var reservedHeaders = []string{"Connection", "Content-Length", "Content-Type", "Host", "Trailer", "Transfer-Encoding", "Upgrade"}

// smsClass is a class and what means it.
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
func (c *SMSConfig) validate(p *sender.Problems) {
	p.Check(slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodGet}, c.Method), "method", "%q is not allowed; allowed are POST, PUT and GET", c.Method)
	c.checkURL(p)
	c.checkHeaders(p)
	c.checkBody(p)
	p.Check(!controls.MatchString(c.From), "from", "has control characters; none are allowed")
	_, err := regexp.Compile(c.AddressPattern)
	p.Check(err == nil, "address_pattern", "%q is no regular expression", c.AddressPattern)
	c.checkAuth(p)
	for _, at := range []struct{ key, path string }{{"message_id_path", c.MessageIDPath}, {"code_path", c.CodePath}} {
		_, err := parseSMSPath(at.path)
		p.Check(err == nil, at.key, "%v", err)
	}
	c.checkAnswers(p)
}

func (c *SMSConfig) checkURL(p *sender.Problems) {
	t, err := c.urlTemplate()
	if err != nil {
		p.Check(false, "url", "%v", err)
		return
	}
	if len(t) > 1 {
		p.Check(fixedHost.MatchString(t[0].literal), "url", "its scheme and host must be fixed; allowed are values in path and query")
	}
	_, err = parseEndpoint(t.render(smsSample), c.AllowHTTP)
	p.Check(err == nil, "url", "%v", err)
}

func (c *SMSConfig) urlTemplate() (smsTemplate, error) {
	if c.URL == "" {
		return nil, errors.New("is missing")
	}
	return parseSMSTemplate(c.URL, func(before string) smsRule {
		if strings.Contains(before, "?") {
			return smsRule{names: smsAllNames, data: true, escapes: []string{"query"}}
		}
		return smsRule{names: smsPlainNames, escapes: []string{"path"}}
	})
}

func (c *SMSConfig) checkHeaders(p *sender.Problems) {
	for name, text := range c.Headers {
		key := "headers." + name
		p.Check(headerName().MatchString(name), key, "is no name of a header")
		p.Check(!slices.Contains(reservedHeaders, http.CanonicalHeaderKey(name)), key, "is not allowed; it is set otherwise")
		p.Check(c.Auth == "none" || http.CanonicalHeaderKey(name) != "Authorization", key, "is not allowed with auth %s", c.Auth)
		p.Check(!controls.MatchString(text), key, "has control characters; none are allowed")
		_, err := smsHeader(text)
		p.Check(err == nil, key, "%v", err)
	}
	p.Check(c.IdempotencyHeader == "" || headerName().MatchString(c.IdempotencyHeader) && !slices.Contains(reservedHeaders, http.CanonicalHeaderKey(c.IdempotencyHeader)),
		"idempotency_header", "%q is not allowed; allowed is the name of a header, or nothing", c.IdempotencyHeader)
}

func smsHeader(text string) (smsTemplate, error) {
	return parseSMSTemplate(text, func(string) smsRule { return smsRule{names: smsFixedNames} })
}

func (c *SMSConfig) checkBody(p *sender.Problems) {
	if c.Method == http.MethodGet {
		p.Check(c.Body == "", "body", "is set; by GET allowed is none")
		return
	}
	escapes := c.escapes()
	p.Check(escapes != nil, "content_type", "%q is not allowed; allowed are application/json, application/x-www-form-urlencoded, application/xml, text/xml and text/plain", c.ContentType)
	if escapes == nil {
		return
	}
	t, err := c.bodyTemplate()
	if err != nil {
		p.Check(false, "body", "%v", err)
		return
	}
	if escapes[0] == "json" && c.Body != "" {
		p.Check(json.Valid([]byte(t.render(smsSample))), "body", "is no JSON once its values are put in; values bring their own quotes")
	}
}

// escapes are those of the body, nil for a content type that is not known.
func (c *SMSConfig) escapes() []string {
	kind, _, err := mime.ParseMediaType(c.ContentType)
	if err != nil {
		return nil
	}
	return map[string][]string{
		"application/json":                  {"json"},
		"application/x-www-form-urlencoded": {"form"},
		"application/xml":                   {"xml"},
		"text/xml":                          {"xml"},
		"text/plain":                        {"raw"},
	}[kind]
}

func (c *SMSConfig) bodyTemplate() (smsTemplate, error) {
	return parseSMSTemplate(c.Body, func(string) smsRule { return smsRule{names: smsAllNames, data: true, escapes: c.escapes()} })
}

func (c *SMSConfig) checkAuth(p *sender.Problems) {
	p.Check(slices.Contains([]string{"none", "basic", "bearer"}, c.Auth), "auth", "%q is not allowed; allowed are none, basic and bearer", c.Auth)
	p.Check(c.Secret == "" || c.SecretFile == "", "secret", "both secret and secret_file are set; allowed is one of them")
	p.Check(!controls.MatchString(c.Secret), "secret", "has control characters; none are allowed")
	p.Check(!controls.MatchString(c.Username) && !strings.Contains(c.Username, ":"), "username", "has control characters or a colon; none are allowed")
	p.Check(c.Auth != "basic" || c.Username != "", "username", "is missing; auth basic requires it")
	hasSecret := c.Secret != "" || c.SecretFile != ""
	p.Check(hasSecret || c.Auth == "none", "secret", "is missing; auth %s requires secret or secret_file", c.Auth)
	p.Check(hasSecret || !c.usesSecret(), "secret", "is missing; a template uses it")
}

// usesSecret reports whether a template has a place for the secret. Templates that do not
// parse are reported elsewhere.
func (c *SMSConfig) usesSecret() bool {
	all := make([]smsTemplate, 0, len(c.Headers)+2)
	if t, err := c.urlTemplate(); err == nil {
		all = append(all, t)
	}
	if t, err := c.bodyTemplate(); err == nil {
		all = append(all, t)
	}
	for _, text := range c.Headers {
		if t, err := smsHeader(text); err == nil {
			all = append(all, t)
		}
	}
	return slices.ContainsFunc(all, func(t smsTemplate) bool {
		return t.uses(func(name string) bool { return name == "secret" })
	})
}

func (c *SMSConfig) checkAnswers(p *sender.Problems) {
	statuses, codes := map[int]string{}, map[string]string{}
	for _, class := range c.classes() {
		for _, status := range class.match.Statuses {
			key := class.key + ".statuses"
			p.Check(status >= 200 && status <= 599, key, "%d is not allowed; allowed are 200 to 599", status)
			p.Check(statuses[status] == "", key, "%d is in %s.statuses as well", status, statuses[status])
			statuses[status] = class.key
			if class.is == sender.Retryable {
				p.Check(status < 300 || status >= 500 || classOfStatus(status) == sender.Retryable,
					key, "%d is not allowed; of 3xx and 4xx only 401, 408, 425 and 429 may be tried again", status)
			}
			if class.is == sender.Accepted {
				p.Check(status < 300, key, "%d is not allowed; allowed are 200 to 299", status)
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

// smsSample is a value that would show a missing escape.
func smsSample(name string) string {
	if slices.Contains(smsPlainNames, name) {
		return "1"
	}
	return url.QueryEscape(`a"b`) + "\"\n<&"
}
