package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// redirects is how many are followed at most.
const redirects = 3

// Sender sends by webhook. It implements sender.Sender.
type Sender struct {
	client    *httpcall.Client
	fixed     *url.URL // nil: the channel's address
	allowHTTP bool
	keys      [][]byte
	now       func() time.Time
}

// Option gives a Sender a collaborator.
type Option func(*Sender)

// WithClock sets the clock of timestamps; the default is time.Now.
func WithClock(now func() time.Time) Option { return func(s *Sender) { s.now = now } }

// New returns a Sender. It reads SecretFile; its errors name the key of the problem and
// hold no secret.
func New(cfg Config, options ...Option) (*Sender, error) {
	if err := cfg.Validate("webhook"); err != nil {
		return nil, err
	}
	s := &Sender{allowHTTP: cfg.AllowHTTP, now: time.Now}
	for _, option := range options {
		option(s)
	}
	var err error
	if cfg.URL != "" {
		if s.fixed, err = httpcall.ParseURL(cfg.URL, cfg.AllowHTTP); err != nil {
			return nil, err
		}
	}
	if s.keys, err = cfg.keys(); err != nil {
		return nil, err
	}
	s.client, err = httpcall.New(cfg.HTTP, httpcall.Options{Guard: true, Redirects: redirects, Now: s.now})
	return s, err
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

// payload is the body of a call.
type payload struct {
	Key        string          `json:"key"`
	JobID      int64           `json:"job_id"`
	ChannelID  int64           `json:"channel_id"`
	ExternalID string          `json:"external_id"`
	Category   string          `json:"category"`
	Medium     string          `json:"medium"`
	Locale     string          `json:"locale"`
	Title      string          `json:"title"`
	Body       string          `json:"body"`
	Data       json.RawMessage `json:"data"`
	Attempt    int             `json:"attempt"`
}

func (s *Sender) send(ctx context.Context, d sender.Delivery) sender.Result {
	target := s.fixed
	if target == nil {
		var err error
		if target, err = httpcall.ParseURL(d.Address, s.allowHTTP); err != nil {
			return sender.Result{Class: sender.InvalidAddress, Code: "address", Detail: err.Error()}
		}
	}
	body, err := json.Marshal(payload{
		Key: d.Key, JobID: d.JobID, ChannelID: d.ChannelID, ExternalID: d.ExternalID, Category: d.Category, Medium: d.Medium,
		Locale: d.Locale, Title: d.Title, Body: d.Body, Data: d.Data, Attempt: d.Attempt,
	})
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "content", Detail: "data is no JSON"}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "request", Detail: "the request is not valid HTTP"}
	}
	stamp := strconv.FormatInt(s.now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", d.Key)
	req.Header.Set(headerID, d.Key)
	req.Header.Set(headerTimestamp, stamp)
	req.Header.Set(headerSignature, sign(s.keys, d.Key, stamp, body))
	answer, err := s.client.Do(req)
	if err != nil {
		return httpcall.Failure(err)
	}
	if answer.Status == http.StatusGone && s.fixed == nil {
		return answer.As(sender.InvalidAddress, "410", "the receiver wants no more")
	}
	return answer.Result()
}
