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

// client sends by FCM.
type client struct {
	http     *httpcall.Client
	tokens   *tokens
	url      string
	priority string
	ttl      time.Duration
	now      func() time.Time
}

// New reads ServiceAccountFile and makes no call; its errors name the key of the problem and hold no
// secret. now is the clock.
func New(cfg Config, now func() time.Time) (*sender.OneByOne, error) {
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
	c := &client{
		url:      strings.TrimSuffix(cfg.Endpoint, "/") + "/v1/projects/" + url.PathEscape(project) + "/messages:send",
		priority: cfg.Priority, ttl: cfg.TTL, now: now,
	}
	c.http, err = httpcall.New(httpcall.Config{CAFile: cfg.CAFile}, httpcall.Options{Now: now})
	if err != nil {
		return nil, err
	}
	c.tokens = &tokens{client: c.http, account: who, url: tokenURL, now: now, asking: make(chan struct{}, 1)}
	return &sender.OneByOne{Closer: c.http, Deliver: c.deliver}, nil
}

func (c *client) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	if d.Address == "" {
		return sender.Result{Class: sender.InvalidAddress, Code: "address", Detail: "no registration token"}
	}
	body, err := c.message(d)
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "content", Detail: "data is no JSON object"}
	}
	for again := false; ; again = true {
		token, failure := c.tokens.get(ctx)
		if failure != nil {
			return *failure
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
		if err != nil {
			return sender.Result{Class: sender.Permanent, Code: "request", Detail: "the request is not valid HTTP"}
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		answer, err := c.http.Do(req)
		if err != nil {
			return httpcall.Failure(err)
		}
		result, badToken := read(answer)
		if !badToken || again || !c.tokens.drop(token) { // invariant 1
			return result
		}
	}
}

// message is the body of a call.
func (c *client) message(d sender.Delivery) ([]byte, error) {
	data, err := texts(d.Data)
	if err != nil {
		return nil, err
	}
	data["belfry_key"] = d.Key
	android := map[string]any{"priority": c.priority, "notification": map[string]string{"tag": d.Key}}
	apns := map[string]string{"apns-collapse-id": d.Key}
	message := map[string]any{
		"token":        d.Address,
		"notification": map[string]string{"title": d.Title, "body": d.Body},
		"data":         data,
		"android":      android,
		"apns":         map[string]any{"headers": apns},
	}
	if c.priority == "normal" {
		apns["apns-priority"] = "5"
	}
	if c.ttl > 0 {
		seconds := strconv.FormatInt(int64(c.ttl/time.Second), 10)
		android["ttl"] = seconds + "s"
		apns["apns-expiration"] = strconv.FormatInt(c.now().Add(c.ttl).Unix(), 10)
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
