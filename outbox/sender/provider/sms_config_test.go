package provider

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

// Bad configuration names the key and what is allowed.
func TestSMS_Validate(t *testing.T) {
	t.Parallel()
	checkSMS(t, []smsCase{
		{"good", func(*SMSConfig) {}, ""},
		{"no URL", func(c *SMSConfig) { c.URL = "" }, "url: is missing"},
		{"method", func(c *SMSConfig) { c.Method = "post" }, `method: "post" is not allowed; allowed values: POST, PUT and GET`},
		{"http", func(c *SMSConfig) { c.URL = "http://gw.example.com/" }, "url: an http URL; allowed values: https, http to this machine, and http elsewhere with allow_http"},
		{"http allowed", func(c *SMSConfig) { c.URL, c.AllowHTTP = "http://gw.example.com/", true }, ""},
		{"host of a value", func(c *SMSConfig) { c.URL = "https://{{.key | path}}.example.com/" }, "url: its scheme and host must be fixed; allowed values: values in path and query"},
		{"host that a value ends", func(c *SMSConfig) { c.URL = "https://example.com{{.key | path}}" }, "url: its scheme and host must be fixed; allowed values: values in path and query"},
		{"URL that is a value", func(c *SMSConfig) { c.URL = "{{.to | path}}" }, "url: its scheme and host must be fixed; allowed values: values in path and query"},
		{"user name in URL", func(c *SMSConfig) { c.URL = "https://me:hunter2@example.com/" }, "url: a URL with a user name; none is allowed"},
		{"content type", func(c *SMSConfig) { c.ContentType = "application/yaml" },
			`content_type: "application/yaml" is not allowed; allowed values: application/json, application/x-www-form-urlencoded, application/xml, text/xml and text/plain`},
		{"body by GET", func(c *SMSConfig) { c.Method = "GET" }, "body: is set; GET has no body"},
		{"header split", func(c *SMSConfig) { c.Headers = map[string]string{"X-T": "a\r\nb"} }, "headers.X-T: has control characters; none are allowed"},
		{"header name", func(c *SMSConfig) { c.Headers = map[string]string{"X T": "a"} }, "headers.X T: is not a header name"},
		{"own header", func(c *SMSConfig) { c.Headers = map[string]string{"content-type": "a"} }, "headers.content-type: is not allowed; belfry sets it"},
		{"authorization twice", func(c *SMSConfig) {
			c.Headers, c.Auth, c.Secret = map[string]string{"authorization": "x"}, "bearer", "y"
		}, "headers.authorization: is not allowed with auth bearer"},
		{"authorization of one's own", func(c *SMSConfig) { c.Headers, c.Secret = map[string]string{"authorization": "Key {{.secret}}"}, "y" }, ""},
		{"idempotency header", func(c *SMSConfig) { c.IdempotencyHeader = "host" }, `idempotency_header: "host" is not allowed; allowed values: the name of a header, or nothing`},
		{"from", func(c *SMSConfig) { c.From = "a\nb" }, "from: has control characters; none are allowed"},
		{"pattern", func(c *SMSConfig) { c.AddressPattern = "(" }, `address_pattern: "(" is not a regular expression`},
		{"auth", func(c *SMSConfig) { c.Auth, c.Secret = "digest", "x" }, `auth: "digest" is not allowed; allowed values: none, basic and bearer`},
		{"no secret", func(c *SMSConfig) { c.Auth = "bearer" }, "secret: is missing; auth bearer requires secret or secret_file"},
		{"no secret for a place", func(c *SMSConfig) { c.Headers = map[string]string{"X-K": "{{.secret}}"} }, "secret: is missing; a template uses it"},
		{"no user", func(c *SMSConfig) { c.Auth, c.Secret = "basic", "x" }, "username: is missing; auth basic requires it"},
		{"two secrets", func(c *SMSConfig) { c.Secret, c.SecretFile = "hunter2", "f" }, "secret: both secret and secret_file are set; set only one"},
		{"broken secret", func(c *SMSConfig) { c.Secret = "hunter2\n" }, "secret: has control characters; none are allowed"},
		{"paths", func(c *SMSConfig) { c.MessageIDPath = "a..b" }, "message_id_path: is not a path; allowed values: up to 16 names and numbers with a dot between, as in messages.0.id"},
		{"status", func(c *SMSConfig) { c.Permanent.Statuses = []int{99} }, "permanent.statuses: 99 is not allowed; allowed values: 200 to 599"},
		{"status twice", func(c *SMSConfig) { c.Permanent.Statuses, c.Unknown.Statuses = []int{500}, []int{500} }, "unknown.statuses: 500 is in permanent.statuses as well"},
		{"retryable 4xx", func(c *SMSConfig) { c.Retryable.Statuses = []int{408, 429, 409} }, "retryable.statuses: 409 is not allowed; retryable 3xx and 4xx are 401, 408, 425 and 429"},
		{"success 4xx", func(c *SMSConfig) { c.Success.Statuses = []int{409} }, "success.statuses: 409 is not allowed; allowed values: 200 to 299"},
		{"code twice", func(c *SMSConfig) {
			c.CodePath, c.Success.Codes, c.Permanent.Codes = "code", []string{"1"}, []string{"1"}
		}, `permanent.codes: "1" is in success.codes as well`},
		{"code without path", func(c *SMSConfig) { c.Success.Codes = []string{"1"} }, "success.codes: is set without code_path"},
	})
}

// An action other than a value with the function of its place is refused by name, with the
// allowed values.
func TestSMS_RefusesOtherActions(t *testing.T) {
	t.Parallel()
	functions := func(end string) string {
		return "the functions are not allowed; allowed here: {{.NAME" + end + "}} or, for telephone numbers, {{.NAME | digits" + end + "}}"
	}
	checkSMS(t, []smsCase{
		{"query in path", func(c *SMSConfig) { c.URL = "https://example.com/{{.key | query}}" }, "url: {{.key | query}}: " + functions(" | path")},
		{"text in path", func(c *SMSConfig) { c.URL = "https://example.com/{{.text | path}}" }, "url: {{.text | path}}: .text is not allowed here; allowed values: .to, .key, .from, .secret, .job_id, .channel_id"},
		{"no escape in query", func(c *SMSConfig) { c.URL = "https://example.com/?t={{.text}}" }, "url: {{.text}}: " + functions(" | query")},
		{"no escape in body", func(c *SMSConfig) { c.Body = `{"to": "{{.to}}"}` }, "body: {{.to}}: " + functions(" | json")},
		{"quotes around", func(c *SMSConfig) { c.Body = `{"to": "{{.to | json}}"}` }, "body: is not JSON after the values are inserted; values include their quotes"},
		{"another escape", func(c *SMSConfig) { c.Body = `{"to": {{.to | form}}}` }, "body: {{.to | form}}: " + functions(" | json")},
		{"escape before filter", func(c *SMSConfig) { c.Body = `{"to": {{.to | json | digits}}}` }, "body: {{.to | json | digits}}: " + functions(" | json")},
		{"no such value", func(c *SMSConfig) { c.Body = `{"to": {{.phone | json}}}` },
			"body: {{.phone | json}}: .phone is not allowed here; allowed values: .to, .text, .title, .body, .key, .from, .secret, .job_id, .channel_id, .external_id, .category, .locale, .data.NAME"},
		{"another function", func(c *SMSConfig) { c.Body = `{"to": {{.to | upper | json}}}` }, "body: {{.to | upper | json}}: " + functions(" | json")},
		{"built-in function", func(c *SMSConfig) { c.Body = `{"to": {{printf "%q" .to}}}` }, `body: {{printf "%q" .to}}: not allowed; an action must be a value, such as {{.key | json}}`},
		{"function first", func(c *SMSConfig) { c.Body = `{"to": {{json .to}}}` }, "body: {{json .to}}: not allowed; an action must be a value, such as {{.key | json}}"},
		{"text first", func(c *SMSConfig) { c.Body = `{"to": {{"x" | json}}}` }, `body: {{"x" | json}}: not allowed; an action must be a value, such as {{.key | json}}`},
		{"condition", func(c *SMSConfig) { c.Body = `{{if .to}}{}{{end}}` }, "body: {{if .to}}{}{{end}}: not allowed; an action must be a value, such as {{.key | json}}"},
		{"variable", func(c *SMSConfig) { c.Body = `{{$x := .to | json}}{}` }, "body: {{$x := .to | json}}: not allowed; an action must be a value, such as {{.key | json}}"},
		{"definition", func(c *SMSConfig) { c.Body = `{{define "x"}}{{.to}}{{end}}{}` }, "body: {{define}} is not allowed"},
		{"all of data", func(c *SMSConfig) { c.ContentType, c.Body = "text/plain", "{{.data}}" },
			"body: {{.data}}: .data is not allowed here; allowed values: .to, .text, .title, .body, .key, .from, .secret, .job_id, .channel_id, .external_id, .category, .locale, .data.NAME"},
		{"member of a member", func(c *SMSConfig) { c.ContentType, c.Body = "text/plain", "{{.data.a.b}}" },
			"body: {{.data.a.b}}: .data.a.b is not allowed here; allowed values: .to, .text, .title, .body, .key, .from, .secret, .job_id, .channel_id, .external_id, .category, .locale, .data.NAME"},
		{"digits of the key", func(c *SMSConfig) { c.Body = `{"to": {{.key | digits | json}}}` }, "body: {{.key | digits | json}}: digits is not allowed for .key; allowed values: .to, .from, .data.NAME"},
		{"digits of a name", func(c *SMSConfig) { c.From, c.Body = "ACME", `{"from": {{.from | digits | json}}}` }, "from: is not a telephone number, and a template uses its digits"},
		{"a name", func(c *SMSConfig) { c.From, c.Body = "ACME", `{"from": {{.from | json}}}` }, ""},
		{"unclosed", func(c *SMSConfig) { c.Body = `{"to": {{.to | json` }, "body: line 1: unclosed action"},
		{"text in header", func(c *SMSConfig) { c.Headers = map[string]string{"X-T": "{{.text}}"} }, "headers.X-T: {{.text}}: .text is not allowed here; allowed values: .key, .from, .secret, .job_id, .channel_id"},
		{"escape in header", func(c *SMSConfig) { c.Headers = map[string]string{"X-T": "{{.key | json}}"} }, "headers.X-T: {{.key | json}}: " + functions("")},
	})
}

// smsCase is a change of a good configuration and the problem of it; "" means none.
type smsCase struct {
	name    string
	change  func(*SMSConfig)
	problem string
}

func checkSMS(t *testing.T, tests []smsCase) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := DefaultSMS()
			cfg.URL = "https://sms.example.com/v1"
			test.change(cfg)
			err := Validate("senders[2].sms", cfg)
			if test.problem == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "senders[2].sms."+test.problem)
			require.NotContains(t, err.Error(), "hunter2")
			_, err = New(cfg, time.Now)
			require.EqualError(t, err, "sms."+test.problem)
		})
	}
}

// An accepted configuration makes a sender, and no value breaks out of its place: the JSON body
// remains JSON, and host and headers remain unchanged. Everything else is refused with its key.
func FuzzSMS_Templates(f *testing.F) {
	f.Add("https://example.com/{{.to | path}}?t={{.text | query}}", `{"a": {{.text | json}}}`, "{{.key}}", `",} <&`)
	f.Add("{{", "}}", "{{|}}", "")
	f.Add("https://x/{{.to|digits|path}}", `[{{.data.a | json}}, {{.data. | json}}]`, "{{ .from }} {{", "a\r\nb")
	f.Add("https://x/?{{.data.a|query}}", `["{{.text|json}}",{{- /* x */ .data.a|digits|json}}]`, "{{.secret}}", "&b=/../#\x00")
	f.Fuzz(func(t *testing.T, address, body, header, value string) {
		cfg := DefaultSMS()
		cfg.URL, cfg.Body, cfg.Headers = address, body, map[string]string{"X-Test": header}
		var problems sender.ValidationErrors
		cfg.validate(&problems)
		if err := problems.Err(); err != nil {
			return
		}
		client, err := New(cfg, time.Now)
		require.NoError(t, err)
		require.NoError(t, client.Close())
		c := smsClient{cfg: *cfg, templates: cfg.parse(&problems)}
		values := map[string]any{"data": map[string]string{"a": value}}
		for _, name := range smsAllValues {
			values[name] = value
		}
		for _, name := range smsHeaderValues {
			values[name] = "1"
		}
		values["to"] = "+82 10-1234-5678"
		req, err := c.request(t.Context(), smsKey, values)
		if err != nil {
			require.ErrorContains(t, err, notNumber) // digits of data.a
			return
		}
		want, err := http.NewRequest(http.MethodPost, before(cfg.URL, "{{"), http.NoBody)
		require.NoError(t, err)
		require.Equal(t, want.Host, req.Host)
		require.NotContains(t, req.Header.Get("X-Test"), "\n")
		if body != "" {
			sent, err := io.ReadAll(req.Body)
			require.NoError(t, err)
			require.True(t, json.Valid(sent), "%s", sent)
		}
	})
}

func before(text, sep string) string {
	text, _, _ = strings.Cut(text, sep)
	return text
}
