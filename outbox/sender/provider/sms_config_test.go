package provider

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Bad configuration names the key and what is allowed.
func TestSMS_Validate(t *testing.T) {
	t.Parallel()
	const escapes = "an escape is missing or not allowed; allowed here is "
	for _, test := range []struct {
		name    string
		change  func(*SMSConfig)
		problem string // "" for none
	}{
		{"good", func(*SMSConfig) {}, ""},
		{"no URL", func(c *SMSConfig) { c.URL = "" }, "url: is missing"},
		{"method", func(c *SMSConfig) { c.Method = "post" }, `method: "post" is not allowed; allowed are POST, PUT and GET`},
		{"http", func(c *SMSConfig) { c.URL = "http://gw.example.com/" }, "url: a URL by http; allowed is https, http to this machine, and http elsewhere with allow_http"},
		{"http allowed", func(c *SMSConfig) { c.URL, c.AllowHTTP = "http://gw.example.com/", true }, ""},
		{"host of a value", func(c *SMSConfig) { c.URL = "https://{{key | path}}.example.com/" }, "url: its scheme and host must be fixed; allowed are values in path and query"},
		{"host that a value ends", func(c *SMSConfig) { c.URL = "https://example.com{{key | path}}" }, "url: its scheme and host must be fixed; allowed are values in path and query"},
		{"URL that is a value", func(c *SMSConfig) { c.URL = "{{to | path}}" }, "url: not an absolute https URL"},
		{"user name in URL", func(c *SMSConfig) { c.URL = "https://me:hunter2@example.com/" }, "url: a URL with a user name; none is allowed"},
		{"query in path", func(c *SMSConfig) { c.URL = "https://example.com/{{key | query}}" }, "url: {{key | query}}: " + escapes + "path at the end, and the filter digits before it"},
		{"text in path", func(c *SMSConfig) { c.URL = "https://example.com/{{text | path}}" }, "url: {{text | path}}: no such value here; allowed are to, key, from, secret, job_id, channel_id"},
		{"no escape in query", func(c *SMSConfig) { c.URL = "https://example.com/?t={{text}}" }, "url: {{text}}: " + escapes + "query at the end, and the filter digits before it"},
		{"no escape in body", func(c *SMSConfig) { c.Body = `{"to": "{{to}}"}` }, "body: {{to}}: " + escapes + "json at the end, and the filter digits before it"},
		{"quotes around", func(c *SMSConfig) { c.Body = `{"to": "{{to | json}}"}` }, "body: is no JSON once its values are put in; values bring their own quotes"},
		{"another escape", func(c *SMSConfig) { c.Body = `{"to": {{to | form}}}` }, "body: {{to | form}}: " + escapes + "json at the end, and the filter digits before it"},
		{"escape before filter", func(c *SMSConfig) { c.Body = `{"to": {{to | json | digits}}}` }, "body: {{to | json | digits}}: " + escapes + "json at the end, and the filter digits before it"},
		{"no such value", func(c *SMSConfig) { c.Body = `{"to": {{phone | json}}}` },
			"body: {{phone | json}}: no such value here; allowed are to, text, title, body, key, from, secret, job_id, channel_id, external_id, category, locale, data.NAME"},
		{"unclosed", func(c *SMSConfig) { c.Body = `{"to": {{to | json` }, "body: {{to | json: the closing }} is missing"},
		{"content type", func(c *SMSConfig) { c.ContentType = "application/yaml" },
			`content_type: "application/yaml" is not allowed; allowed are application/json, application/x-www-form-urlencoded, application/xml, text/xml and text/plain`},
		{"body by GET", func(c *SMSConfig) { c.Method = "GET" }, "body: is set; by GET allowed is none"},
		{"text in header", func(c *SMSConfig) { c.Headers = map[string]string{"X-T": "{{text}}"} }, "headers.X-T: {{text}}: no such value here; allowed are key, from, secret, job_id, channel_id"},
		{"escape in header", func(c *SMSConfig) { c.Headers = map[string]string{"X-T": "{{key | json}}"} }, `headers.X-T: {{key | json}}: "json" is not allowed; allowed is the filter digits, and no escape`},
		{"header split", func(c *SMSConfig) { c.Headers = map[string]string{"X-T": "a\r\nb"} }, "headers.X-T: has control characters; none are allowed"},
		{"header name", func(c *SMSConfig) { c.Headers = map[string]string{"X T": "a"} }, "headers.X T: is no name of a header"},
		{"own header", func(c *SMSConfig) { c.Headers = map[string]string{"content-type": "a"} }, "headers.content-type: is not allowed; it is set otherwise"},
		{"authorization twice", func(c *SMSConfig) {
			c.Headers, c.Auth, c.Secret = map[string]string{"authorization": "x"}, "bearer", "y"
		}, "headers.authorization: is not allowed with auth bearer"},
		{"authorization of one's own", func(c *SMSConfig) { c.Headers, c.Secret = map[string]string{"authorization": "Key {{secret}}"}, "y" }, ""},
		{"idempotency header", func(c *SMSConfig) { c.IdempotencyHeader = "host" }, `idempotency_header: "host" is not allowed; allowed is the name of a header, or nothing`},
		{"from", func(c *SMSConfig) { c.From = "a\nb" }, "from: has control characters; none are allowed"},
		{"pattern", func(c *SMSConfig) { c.AddressPattern = "(" }, `address_pattern: "(" is no regular expression`},
		{"auth", func(c *SMSConfig) { c.Auth, c.Secret = "digest", "x" }, `auth: "digest" is not allowed; allowed are none, basic and bearer`},
		{"no secret", func(c *SMSConfig) { c.Auth = "bearer" }, "secret: is missing; auth bearer requires secret or secret_file"},
		{"no secret for a place", func(c *SMSConfig) { c.Headers = map[string]string{"X-K": "{{secret}}"} }, "secret: is missing; a template uses it"},
		{"no user", func(c *SMSConfig) { c.Auth, c.Secret = "basic", "x" }, "username: is missing; auth basic requires it"},
		{"two secrets", func(c *SMSConfig) { c.Secret, c.SecretFile = "hunter2", "f" }, "secret: both secret and secret_file are set; allowed is one of them"},
		{"broken secret", func(c *SMSConfig) { c.Secret = "hunter2\n" }, "secret: has control characters; none are allowed"},
		{"paths", func(c *SMSConfig) { c.MessageIDPath = "a..b" }, "message_id_path: is no path; allowed are up to 16 names and numbers with a dot between, as in messages.0.id"},
		{"status", func(c *SMSConfig) { c.Permanent.Statuses = []int{99} }, "permanent.statuses: 99 is not allowed; allowed are 200 to 599"},
		{"status twice", func(c *SMSConfig) { c.Permanent.Statuses, c.Unknown.Statuses = []int{500}, []int{500} }, "unknown.statuses: 500 is in permanent.statuses as well"},
		{"retryable 4xx", func(c *SMSConfig) { c.Retryable.Statuses = []int{408, 429, 409} }, "retryable.statuses: 409 is not allowed; of 3xx and 4xx only 401, 408, 425 and 429 may be tried again"},
		{"success 4xx", func(c *SMSConfig) { c.Success.Statuses = []int{409} }, "success.statuses: 409 is not allowed; allowed are 200 to 299"},
		{"code twice", func(c *SMSConfig) {
			c.CodePath, c.Success.Codes, c.Permanent.Codes = "code", []string{"1"}, []string{"1"}
		}, `permanent.codes: "1" is in success.codes as well`},
		{"code without path", func(c *SMSConfig) { c.Success.Codes = []string{"1"} }, "success.codes: is set without code_path"},
	} {
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

// Whatever an operator writes, it is refused by name or makes a sender; and whatever the
// values are, a JSON body stays JSON (it was checked with a sample).
func FuzzSMS_Templates(f *testing.F) {
	f.Add("https://example.com/{{to | path}}?t={{text | query}}", `{"a": {{text | json}}}`, "{{key}}")
	f.Add("{{", "}}", "{{|}}")
	f.Add("https://x/{{to|digits|path}}", `[{{data.a | json}}, {{data. | json}}]`, "{{ from }} {{")
	f.Fuzz(func(t *testing.T, url, body, header string) {
		cfg := DefaultSMS()
		cfg.URL, cfg.Body, cfg.Headers = url, body, map[string]string{"X-Test": header}
		if err := Validate("sms", cfg); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if strings.HasPrefix(line, "sms.") {
					return
				}
			}
			t.Fatal(err)
		}
		if _, err := New(cfg, time.Now); err != nil {
			t.Fatal(err)
		}
	})
}
