package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// smsClient sends text messages through a gateway.
type smsClient struct {
	http      *httpClient
	cfg       SMSConfig
	secret    string
	templates smsTemplates
	number    *regexp.Regexp // of addresses; nil means a telephone number
	phones    []string       // values whose digits a template uses
	members   []string       // members of data that a template uses
	reader    smsReader
}

func (c *SMSConfig) kind() string { return "sms" }

// open implements Config.
func (c *SMSConfig) open(now func() time.Time) (Client, error) {
	client := &smsClient{cfg: *c, templates: c.parse(&sender.ValidationErrors{})} // New has validated c
	var err error
	if client.secret, err = readSecret("secret", c.Secret, c.SecretFile); err != nil {
		return nil, err
	}
	if controls.MatchString(client.secret) {
		return nil, errors.New("secret_file: has control characters; none are allowed")
	}
	if c.AddressPattern != "" {
		if client.number, err = regexp.Compile(c.AddressPattern); err != nil {
			return nil, fmt.Errorf("address_pattern: %w", err)
		}
	}
	if client.reader, err = c.reader(); err != nil {
		return nil, err
	}
	client.phones = client.templates.phones()
	for _, t := range client.templates.all() {
		for _, value := range t.values {
			if name, ok := strings.CutPrefix(value, "data."); ok {
				client.members = append(client.members, name)
			}
		}
	}
	client.http, err = newHTTPClient(HTTPConfig{CAFile: c.CAFile}, httpOptions{now: now})
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
	values, data, err := c.values(d)
	if err != nil {
		return refuseContent("content", "data is not a JSON object")
	}
	for _, name := range c.phones {
		if member, ok := strings.CutPrefix(name, "data."); ok && data[member] != "" {
			if _, _, ok := readNumber(data[member]); !ok {
				return refuseContent("content", name+" is not a telephone number, and a template uses its digits")
			}
		}
	}
	req, err := c.request(ctx, d.Key, values)
	if err != nil {
		return refuseContent("request", "the request is not valid HTTP")
	}
	answer, err := c.http.do(req)
	if err != nil {
		return failureOf(err)
	}
	return c.reader.read(answer)
}

// request renders the templates.
func (c *smsClient) request(ctx context.Context, key string, values map[string]any) (*http.Request, error) {
	var failed error
	render := func(t smsTemplate) string {
		text, err := t.render(values)
		failed = errors.Join(failed, err)
		return text
	}
	url := render(c.templates.path)
	if query := render(c.templates.query); query != "" {
		url += "?" + query
	}
	var body io.Reader = http.NoBody
	if c.cfg.Body != "" {
		body = strings.NewReader(render(c.templates.body))
	}
	req, err := http.NewRequestWithContext(ctx, c.cfg.Method, url, body)
	if err != nil {
		return nil, err
	}
	for name, t := range c.templates.headers {
		req.Header.Set(name, render(t))
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
	return req, failed
}

// values returns a delivery's values for the templates. data are its members that a template uses.
func (c *smsClient) values(d sender.Delivery) (values map[string]any, data map[string]string, err error) {
	data = map[string]string{}
	if len(c.members) > 0 {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(d.Data, &members); err != nil {
			return nil, nil, err
		}
		for _, name := range c.members {
			data[name] = smsMember(members[name])
		}
	}
	text := d.Body
	switch {
	case d.Body == "":
		text = d.Title
	case d.Title != "":
		text = d.Title + "\n" + d.Body
	}
	return map[string]any{
		"to": d.Address, "text": text, "title": d.Title, "body": d.Body, "key": d.Key, "from": c.cfg.From, "secret": c.secret,
		"job_id": strconv.FormatInt(d.JobID, 10), "channel_id": strconv.FormatInt(d.ChannelID, 10),
		"external_id": d.ExternalID, "category": d.Category, "locale": d.Locale, "data": data,
	}, data, nil
}

// smsMember returns a member of data as text: a string's own text, other JSON as it is written,
// and "" if there is none or it is null.
func smsMember(value json.RawMessage) string {
	var text string
	if len(value) == 0 || json.Unmarshal(value, &text) == nil {
		return text
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err != nil {
		return ""
	}
	return compact.String()
}
