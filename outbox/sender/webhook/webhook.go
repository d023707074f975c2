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

// client sends by webhook.
type client struct {
	http      *httpcall.Client
	fixed     *url.URL // nil: the channel's address
	allowHTTP bool
	keys      [][]byte
	now       func() time.Time
}

// New reads SecretFile; its errors name the key of the problem and hold no secret. now is
// the clock.
func New(cfg Config, now func() time.Time) (*sender.OneByOne, error) {
	if err := cfg.Validate("webhook"); err != nil {
		return nil, err
	}
	c := &client{allowHTTP: cfg.AllowHTTP, now: now}
	var err error
	if cfg.URL != "" {
		if c.fixed, err = httpcall.ParseURL(cfg.URL, cfg.AllowHTTP); err != nil {
			return nil, err
		}
	}
	if c.keys, err = cfg.keys(); err != nil {
		return nil, err
	}
	c.http, err = httpcall.New(cfg.HTTP, httpcall.Options{Guard: true, Redirects: redirects, Now: now})
	return &sender.OneByOne{Closer: c.http, Deliver: c.deliver}, err
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

func (c *client) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	target := c.fixed
	if target == nil {
		var err error
		if target, err = httpcall.ParseURL(d.Address, c.allowHTTP); err != nil {
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
	stamp := strconv.FormatInt(c.now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", d.Key)
	req.Header.Set(headerID, d.Key)
	req.Header.Set(headerTimestamp, stamp)
	req.Header.Set(headerSignature, sign(c.keys, d.Key, stamp, body))
	answer, err := c.http.Do(req)
	if err != nil {
		return httpcall.Failure(err)
	}
	if answer.Status == http.StatusGone && c.fixed == nil {
		return answer.As(sender.InvalidAddress, "410", "the receiver wants no more")
	}
	return answer.Result()
}
