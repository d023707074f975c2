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

// Sender sends through a gateway. It implements sender.Sender.
type Sender struct {
	client    *httpcall.Client
	cfg       Config
	secret    string
	url, body template
	headers   map[string]template
	number    *regexp.Regexp
	reader    reader
	usesData  bool
	now       func() time.Time
}

// Option gives a Sender a collaborator.
type Option func(*Sender)

// WithClock sets the clock by which dates in Retry-After are read; the default is
// time.Now.
func WithClock(now func() time.Time) Option { return func(s *Sender) { s.now = now } }

// New returns a Sender. It reads SecretFile; its errors name the key of the problem and
// hold no secret.
func New(cfg Config, options ...Option) (*Sender, error) {
	if err := cfg.Validate("sms"); err != nil {
		return nil, err
	}
	s := &Sender{cfg: cfg, headers: map[string]template{}, now: time.Now}
	for _, option := range options {
		option(s)
	}
	var err error
	if s.secret, err = httpcall.Secret("secret", cfg.Secret, cfg.SecretFile); err != nil {
		return nil, err
	}
	if controls.MatchString(s.secret) {
		return nil, errors.New("secret_file: has control characters; none are allowed")
	}
	if s.url, err = cfg.urlTemplate(); err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if s.body, err = cfg.bodyTemplate(); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	for name, text := range cfg.Headers {
		if s.headers[name], err = headerTemplate(text); err != nil {
			return nil, fmt.Errorf("headers.%s: %w", name, err)
		}
	}
	if s.number, err = regexp.Compile(cfg.AddressPattern); err != nil {
		return nil, fmt.Errorf("address_pattern: %w", err)
	}
	if s.reader, err = cfg.reader(); err != nil {
		return nil, err
	}
	isData := func(name string) bool { return strings.HasPrefix(name, "data.") }
	s.usesData = s.url.uses(isData) || s.body.uses(isData)
	s.client, err = httpcall.New(httpcall.Config{CAFile: cfg.CAFile}, httpcall.Options{Fresh: cfg.Method == http.MethodGet, Now: s.now})
	return s, err
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

// Close closes idle connections.
func (s *Sender) Close() error { return s.client.Close() }

// MaxBatch is 1: a call has one message.
func (s *Sender) MaxBatch() int { return 1 }

// Send makes one call for each delivery.
func (s *Sender) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, 0, len(batch))
	for _, d := range batch {
		results = append(results, s.send(ctx, d))
	}
	return results
}

func (s *Sender) send(ctx context.Context, d sender.Delivery) sender.Result {
	d.Address = strings.TrimSpace(d.Address)
	if !s.number.MatchString(d.Address) {
		return sender.Result{Class: sender.InvalidAddress, Code: "address", Detail: "does not match address_pattern"}
	}
	value, err := s.values(d)
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "content", Detail: "data is no JSON object"}
	}
	req, err := s.request(ctx, d.Key, value)
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "request", Detail: "the request is not valid HTTP"}
	}
	answer, err := s.client.Do(req)
	if err != nil {
		return httpcall.Failure(err)
	}
	return s.reader.read(answer)
}

// request puts the values into the templates.
func (s *Sender) request(ctx context.Context, key string, value func(string) string) (*http.Request, error) {
	var body io.Reader = http.NoBody
	if s.cfg.Body != "" {
		body = strings.NewReader(s.body.render(value))
	}
	req, err := http.NewRequestWithContext(ctx, s.cfg.Method, s.url.render(value), body)
	if err != nil {
		return nil, err
	}
	if s.cfg.Body != "" {
		req.Header.Set("Content-Type", s.cfg.ContentType)
	}
	if s.cfg.IdempotencyHeader != "" {
		req.Header.Set(s.cfg.IdempotencyHeader, key)
	}
	switch s.cfg.Auth {
	case "basic":
		req.SetBasicAuth(s.cfg.Username, s.secret)
	case "bearer":
		req.Header.Set("Authorization", "Bearer "+s.secret)
	}
	for name, t := range s.headers {
		req.Header.Set(name, t.render(value))
	}
	return req, nil
}

// values finds a delivery's value by name.
func (s *Sender) values(d sender.Delivery) (func(string) string, error) {
	var data map[string]json.RawMessage
	if s.usesData {
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
		"to": d.Address, "text": text, "title": d.Title, "body": d.Body, "key": d.Key, "from": s.cfg.From, "secret": s.secret,
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
