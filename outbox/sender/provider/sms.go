package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// smsClient sends through a gateway.
type smsClient struct {
	http      *httpClient
	cfg       SMSConfig
	secret    string
	url, body smsTemplate
	headers   map[string]smsTemplate
	number    *regexp.Regexp // nil: a telephone number
	phones    []string       // values of which only the digits count, and which are telephone numbers
	reader    smsReader
	usesData  bool
}

func (c *SMSConfig) kind() string { return "sms" }

// open implements Config.
func (c *SMSConfig) open(now func() time.Time) (Client, error) {
	client := &smsClient{cfg: *c, headers: map[string]smsTemplate{}}
	var err error
	if client.secret, err = readSecret("secret", c.Secret, c.SecretFile); err != nil {
		return nil, err
	}
	if controls.MatchString(client.secret) {
		return nil, errors.New("secret_file: has control characters; none are allowed")
	}
	if client.url, err = c.urlTemplate(); err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if client.body, err = c.bodyTemplate(); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	for name, text := range c.Headers {
		if client.headers[name], err = smsHeader(text); err != nil {
			return nil, fmt.Errorf("headers.%s: %w", name, err)
		}
	}
	if c.AddressPattern != "" {
		if client.number, err = regexp.Compile(c.AddressPattern); err != nil {
			return nil, fmt.Errorf("address_pattern: %w", err)
		}
	}
	if client.reader, err = c.reader(); err != nil {
		return nil, err
	}
	isData := func(name string) bool { return strings.HasPrefix(name, "data.") }
	for _, t := range append([]smsTemplate{client.url, client.body}, slices.Collect(maps.Values(client.headers))...) {
		for _, p := range t {
			if p.digits && isPhoneValue(p.name) {
				client.phones = append(client.phones, p.name)
			}
		}
	}
	client.usesData = client.url.uses(isData) || client.body.uses(isData)
	client.http, err = newHTTPClient(HTTPConfig{CAFile: c.CAFile}, httpOptions{fresh: c.Method == http.MethodGet, now: now})
	return &oneByOne{Closer: client.http, deliver: client.deliver}, err
}

func (c *SMSConfig) reader() (smsReader, error) {
	r := smsReader{classes: c.classes()}
	var err error
	if r.messageID, err = parseSMSPath(c.MessageIDPath); err != nil {
		return r, fmt.Errorf("message_id_path: %w", err)
	}
	if r.code, err = parseSMSPath(c.CodePath); err != nil {
		return r, fmt.Errorf("code_path: %w", err)
	}
	return r, nil
}

func (c *smsClient) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	d.Address = cleanNumber(d.Address)
	digits, _, isPhone := readNumber(d.Address)
	switch {
	case c.number == nil && !(isPhone && isNumber(digits)), c.number != nil && !isPhone && slices.Contains(c.phones, "to"):
		return refuseAddress("address", notNumber)
	case c.number != nil && !c.number.MatchString(d.Address):
		return refuseAddress("address", "does not match address_pattern")
	}
	value, err := c.values(d)
	if err != nil {
		return refuseContent("content", "data is no JSON object")
	}
	for _, name := range c.phones {
		if _, _, ok := readNumber(value(name)); !ok && value(name) != "" {
			return refuseContent("content", name+" is not a telephone number, and the filter digits drops nothing else than what is between digits")
		}
	}
	req, err := c.request(ctx, d.Key, value)
	if err != nil {
		return refuseContent("request", "the request is not valid HTTP")
	}
	answer, err := c.http.do(req)
	if err != nil {
		return failureOf(err)
	}
	return c.reader.read(answer)
}

// request puts the values into the templates.
func (c *smsClient) request(ctx context.Context, key string, value func(string) string) (*http.Request, error) {
	var body io.Reader = http.NoBody
	if c.cfg.Body != "" {
		body = strings.NewReader(c.body.render(value))
	}
	req, err := http.NewRequestWithContext(ctx, c.cfg.Method, c.url.render(value), body)
	if err != nil {
		return nil, err
	}
	if c.cfg.Body != "" {
		req.Header.Set("Content-Type", c.cfg.ContentType)
	}
	if c.cfg.IdempotencyHeader != "" {
		req.Header.Set(c.cfg.IdempotencyHeader, key)
	}
	switch c.cfg.Auth {
	case "basic":
		req.SetBasicAuth(c.cfg.Username, c.secret)
	case "bearer":
		req.Header.Set("Authorization", "Bearer "+c.secret)
	}
	for name, t := range c.headers {
		req.Header.Set(name, t.render(value))
	}
	return req, nil
}

// values finds a delivery's value by name.
func (c *smsClient) values(d sender.Delivery) (func(string) string, error) {
	var data map[string]json.RawMessage
	if c.usesData {
		if err := json.Unmarshal(d.Data, &data); err != nil {
			return nil, err
		}
	}
	text := d.Body
	switch {
	case d.Body == "":
		text = d.Title
	case d.Title != "":
		text = d.Title + "\n" + d.Body
	}
	fixed := map[string]string{
		"to": d.Address, "text": text, "title": d.Title, "body": d.Body, "key": d.Key, "from": c.cfg.From, "secret": c.secret,
		"job_id": strconv.FormatInt(d.JobID, 10), "channel_id": strconv.FormatInt(d.ChannelID, 10),
		"external_id": d.ExternalID, "category": d.Category, "locale": d.Locale,
	}
	return func(name string) string {
		if member, ok := strings.CutPrefix(name, "data."); ok {
			return smsMember(data[member])
		}
		return fixed[name]
	}, nil
}

// smsMember is a member of data as text: a text itself, else its JSON; "" for none.
func smsMember(value json.RawMessage) string {
	var text string
	if len(value) == 0 || json.Unmarshal(value, &text) == nil {
		return text // of null too
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err != nil {
		return ""
	}
	return compact.String()
}
