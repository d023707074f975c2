package fcm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// Sender sends by FCM. It implements sender.Sender.
type Sender struct {
	client   *httpcall.Client
	tokens   *tokens
	url      string
	priority string
	ttl      time.Duration
	now      func() time.Time
}

// Option gives a Sender a collaborator.
type Option func(*Sender)

// WithClock sets the clock by which tokens expire; the default is time.Now.
func WithClock(now func() time.Time) Option { return func(s *Sender) { s.now = now } }

// New returns a Sender. It reads ServiceAccountFile and makes no call; its errors name
// the key of the problem and hold no secret.
func New(cfg Config, options ...Option) (*Sender, error) {
	if err := cfg.Validate("fcm"); err != nil {
		return nil, err
	}
	text, err := httpcall.Secret("service_account", cfg.ServiceAccount, cfg.ServiceAccountFile)
	if err != nil {
		return nil, err
	}
	who, err := parseAccount(text)
	if err != nil {
		return nil, fmt.Errorf("service_account: %w", err)
	}
	project := cfg.Project
	if project == "" {
		project = who.project
	}
	if !projectShape().MatchString(project) {
		return nil, errors.New("project: is missing, and the service account has none that is allowed")
	}
	tokenURL := cfg.TokenURL
	if tokenURL == "" {
		tokenURL = who.tokenURL
	}
	if _, err := httpcall.ParseEndpoint(tokenURL, cfg.AllowHTTP); err != nil {
		return nil, fmt.Errorf("token_url: the service account's token_uri: %w", err)
	}
	s := &Sender{
		url:      strings.TrimSuffix(cfg.Endpoint, "/") + "/v1/projects/" + url.PathEscape(project) + "/messages:send",
		priority: cfg.Priority, ttl: cfg.TTL, now: time.Now,
	}
	for _, option := range options {
		option(s)
	}
	s.client, err = httpcall.New(httpcall.Config{CAFile: cfg.CAFile}, httpcall.Options{Now: s.now})
	if err != nil {
		return nil, err
	}
	s.tokens = &tokens{client: s.client, account: who, url: tokenURL, now: s.now, asking: make(chan struct{}, 1)}
	return s, nil
}

// Close closes idle connections.
func (s *Sender) Close() error { return s.client.Close() }

// MaxBatch is 1: FCM takes one message a call.
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
	if d.Address == "" {
		return sender.Result{Class: sender.InvalidAddress, Code: "address", Detail: "no registration token"}
	}
	body, err := s.message(d)
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "content", Detail: "data is no JSON object"}
	}
	for again := false; ; again = true {
		token, failure := s.tokens.get(ctx)
		if failure != nil {
			return *failure
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
		if err != nil {
			return sender.Result{Class: sender.Permanent, Code: "request", Detail: "the request is not valid HTTP"}
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		answer, err := s.client.Do(req)
		if err != nil {
			return httpcall.Failure(err)
		}
		result, badToken := read(answer)
		if !badToken || again || !s.tokens.drop(token) { // invariant 1
			return result
		}
	}
}

// message is the body of a call.
func (s *Sender) message(d sender.Delivery) ([]byte, error) {
	data, err := texts(d.Data)
	if err != nil {
		return nil, err
	}
	data["belfry_key"] = d.Key
	android := map[string]any{"priority": s.priority, "notification": map[string]string{"tag": d.Key}}
	apns := map[string]string{"apns-collapse-id": d.Key}
	message := map[string]any{
		"token":        d.Address,
		"notification": map[string]string{"title": d.Title, "body": d.Body},
		"data":         data,
		"android":      android,
		"apns":         map[string]any{"headers": apns},
	}
	if s.priority == "normal" {
		apns["apns-priority"] = "5"
	}
	if s.ttl > 0 {
		seconds := strconv.FormatInt(int64(s.ttl/time.Second), 10)
		android["ttl"] = seconds + "s"
		apns["apns-expiration"] = strconv.FormatInt(s.now().Add(s.ttl).Unix(), 10)
		message["webpush"] = map[string]any{"headers": map[string]string{"TTL": seconds}}
	}
	return json.Marshal(map[string]any{"message": message})
}

// texts are the members of data, each as the text that FCM demands.
func texts(data json.RawMessage) (map[string]string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	out := make(map[string]string, len(members)+1)
	for name, value := range members {
		var text string
		if json.Unmarshal(value, &text) == nil && value[0] == '"' {
			out[name] = text
			continue
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			return nil, err
		}
		out[name] = compact.String()
	}
	return out, nil
}
