package sms

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// client sends through a gateway.
type client struct {
	http      *httpcall.Client
	cfg       Config
	secret    string
	url, body template
	headers   map[string]template
	number    *regexp.Regexp
	reader    reader
	usesData  bool
}

// New reads SecretFile; its errors name the key of the problem and hold no secret. now is
// the clock.
func New(cfg Config, now func() time.Time) (*sender.OneByOne, error) {
	if err := cfg.Validate("sms"); err != nil {
		return nil, err
	}
	c := &client{cfg: cfg, headers: map[string]template{}}
	var err error
	if c.secret, err = httpcall.Secret("secret", cfg.Secret, cfg.SecretFile); err != nil {
		return nil, err
	}
	if controls.MatchString(c.secret) {
		return nil, errors.New("secret_file: has control characters; none are allowed")
	}
	if c.url, err = cfg.urlTemplate(); err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if c.body, err = cfg.bodyTemplate(); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	for name, text := range cfg.Headers {
		if c.headers[name], err = headerTemplate(text); err != nil {
			return nil, fmt.Errorf("headers.%s: %w", name, err)
		}
	}
	if c.number, err = regexp.Compile(cfg.AddressPattern); err != nil {
		return nil, fmt.Errorf("address_pattern: %w", err)
	}
	if c.reader, err = cfg.reader(); err != nil {
		return nil, err
	}
	isData := func(name string) bool { return strings.HasPrefix(name, "data.") }
	c.usesData = c.url.uses(isData) || c.body.uses(isData)
	c.http, err = httpcall.New(httpcall.Config{CAFile: cfg.CAFile}, httpcall.Options{Fresh: cfg.Method == http.MethodGet, Now: now})
	return &sender.OneByOne{Closer: c.http, Deliver: c.deliver}, err
}

func (c Config) reader() (reader, error) {
	r := reader{classes: c.classes()}
	var err error
	if r.messageID, err = parsePath(c.MessageIDPath); err != nil {
		return r, fmt.Errorf("message_id_path: %w", err)
	}
	if r.code, err = parsePath(c.CodePath); err != nil {
		return r, fmt.Errorf("code_path: %w", err)
	}
	return r, nil
}

func (c *client) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	d.Address = strings.TrimSpace(d.Address)
	if !c.number.MatchString(d.Address) {
		return sender.Result{Class: sender.InvalidAddress, Code: "address", Detail: "does not match address_pattern"}
	}
	value, err := c.values(d)
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "content", Detail: "data is no JSON object"}
	}
	req, err := c.request(ctx, d.Key, value)
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "request", Detail: "the request is not valid HTTP"}
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return httpcall.Failure(err)
	}
	return c.reader.read(answer)
}

// request puts the values into the templates.
func (c *client) request(ctx context.Context, key string, value func(string) string) (*http.Request, error) {
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
func (c *client) values(d sender.Delivery) (func(string) string, error) {
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
			return memberText(data[member])
		}
		return fixed[name]
	}, nil
}

// memberText is a member of data as text: a text itself, else its JSON; "" for none.
func memberText(value json.RawMessage) string {
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
