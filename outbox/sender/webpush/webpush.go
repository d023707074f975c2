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

// Sender sends to browsers. It is safe for concurrent use.
type Sender struct {
	cfg    Config
	client *httpcall.Client
	vapid  *vapid
	now    func() time.Time
}

// Option gives a Sender a collaborator.
type Option func(*Sender)

// WithClock sets the clock of tokens and of dates in Retry-After; the default is
// time.Now.
func WithClock(now func() time.Time) Option { return func(s *Sender) { s.now = now } }

// New reads the files that cfg names and returns a Sender. It opens no connection.
func New(cfg Config, options ...Option) (*Sender, error) {
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
	s := &Sender{cfg: cfg, now: time.Now}
	for _, option := range options {
		option(s)
	}
	if s.vapid, err = newVAPID(key, cfg.Subject, s.now); err != nil {
		return nil, err
	}
	if s.client, err = httpcall.New(cfg.HTTP, httpcall.Options{Guard: true, Now: s.now}); err != nil {
		return nil, fmt.Errorf("webpush.%w", err)
	}
	return s, nil
}

// PublicKey is what browsers need as applicationServerKey to subscribe, in base64url.
func (s *Sender) PublicKey() string { return s.vapid.public }

// Close ends idle connections.
func (s *Sender) Close() error { return s.client.Close() }

// MaxBatch implements sender.Sender: a push service takes one message per call.
func (s *Sender) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (s *Sender) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	for i, d := range batch {
		results[i] = s.deliver(ctx, d)
	}
	return results
}

func (s *Sender) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	to, err := parseSubscription(d.Address, s.cfg.AllowHTTP)
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
	request, err := s.request(ctx, d, to, body)
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "request", Detail: "the request cannot be made"}
	}
	answer, err := s.client.Do(request)
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

func (s *Sender) request(ctx context.Context, d sender.Delivery, to subscription, body []byte) (*http.Request, error) {
	authorization, err := s.vapid.authorization(to.audience())
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
	h.Set("TTL", strconv.FormatInt(int64(s.cfg.TTL/time.Second), 10))
	h.Set("Urgency", s.cfg.Urgency)
	h.Set("Topic", strings.ReplaceAll(d.Key, "-", ""))
	return request, nil
}
