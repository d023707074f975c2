package webpush

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// client sends to browsers.
type client struct {
	cfg   Config
	http  *httpcall.Client
	vapid *vapid
}

// New reads the files that cfg names and opens no connection. now is the clock.
func New(cfg Config, now func() time.Time) (*sender.OneByOne, error) {
	if err := cfg.Validate("webpush"); err != nil {
		return nil, err
	}
	text, err := httpcall.Secret("webpush.private_key", cfg.PrivateKey, cfg.PrivateKeyFile)
	if err != nil {
		return nil, err
	}
	key, err := parsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("webpush.private_key_file: %w", err)
	}
	c := &client{cfg: cfg}
	if c.vapid, err = newVAPID(key, cfg.Subject, now); err != nil {
		return nil, err
	}
	if c.http, err = httpcall.New(cfg.HTTP, httpcall.Options{Guard: true, Now: now}); err != nil {
		return nil, fmt.Errorf("webpush.%w", err)
	}
	return &sender.OneByOne{Closer: c.http, Deliver: c.deliver}, nil
}

func (c *client) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	to, err := parseSubscription(d.Address, c.cfg.AllowHTTP)
	if err != nil {
		return sender.Result{Class: sender.InvalidAddress, Code: "subscription", Detail: err.Error()}
	}
	body, err := seal(d, to)
	switch {
	case errors.Is(err, errTooLarge):
		return sender.Result{Class: sender.Permanent, Code: "payload_too_large", Detail: err.Error()}
	case err != nil:
		return sender.Result{Class: sender.Permanent, Code: "payload", Detail: "the payload cannot be made"}
	}
	request, err := c.request(ctx, d, to, body)
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "request", Detail: "the request cannot be made"}
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return httpcall.Failure(err)
	}
	if answer.Status == http.StatusNotFound || answer.Status == http.StatusGone {
		return answer.As(sender.InvalidAddress, strconv.Itoa(answer.Status), "the push service does not know the subscription")
	}
	return answer.Result()
}

// seal makes the body of a push message, with a key pair and a salt of its own.
func seal(d sender.Delivery, to subscription) ([]byte, error) {
	plain, err := payload(d)
	if err != nil {
		return nil, err
	}
	local, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key pair: %w", err)
	}
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	return encrypt(plain, to, local, salt)
}

// payload is what the service worker gets.
func payload(d sender.Delivery) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // bytes are few
	err := enc.Encode(struct {
		Title string          `json:"title"`
		Body  string          `json:"body"`
		Data  json.RawMessage `json:"data"`
		Key   string          `json:"key"`
	}{d.Title, d.Body, d.Data, d.Key})
	if err != nil {
		return nil, fmt.Errorf("encode the payload: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

func (c *client) request(ctx context.Context, d sender.Delivery, to subscription, body []byte) (*http.Request, error) {
	authorization, err := c.vapid.authorization(to.audience())
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	h := request.Header
	h.Set("Authorization", authorization)
	h.Set("Content-Encoding", "aes128gcm")
	h.Set("Content-Type", "application/octet-stream")
	h.Set("TTL", strconv.FormatInt(int64(c.cfg.TTL/time.Second), 10))
	h.Set("Urgency", c.cfg.Urgency)
	h.Set("Topic", strings.ReplaceAll(d.Key, "-", ""))
	return request, nil
}
