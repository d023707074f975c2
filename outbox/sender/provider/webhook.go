package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// webhookRedirects is the maximum number of followed redirects.
const webhookRedirects = 3

// webhookClient sends webhooks.
type webhookClient struct {
	http      *httpClient
	fixed     *url.URL // nil if each channel's address is used
	allowHTTP bool
	keys      [][]byte
	now       func() time.Time
}

func (c *WebhookConfig) kind() string { return "webhook" }

// open implements Config.
func (c *WebhookConfig) open(now func() time.Time) (Client, error) {
	client := &webhookClient{allowHTTP: c.AllowHTTP, now: now}
	var err error
	if c.URL != "" {
		if client.fixed, err = parseURL(c.URL, c.AllowHTTP); err != nil {
			return nil, err
		}
	}
	if client.keys, err = c.keys(); err != nil {
		return nil, err
	}
	client.http, err = newHTTPClient(c.HTTP, httpOptions{guard: true, redirects: webhookRedirects, now: now})
	return &oneByOne{Closer: client.http, deliver: client.deliver}, err
}

// webhookBody is the JSON body of a call.
type webhookBody struct {
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

func (c *webhookClient) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	target := c.fixed
	if target == nil {
		var err error
		if target, err = parseURL(d.Address, c.allowHTTP); err != nil {
			return refuseAddress("address", err.Error())
		}
	}
	body, err := json.Marshal(webhookBody{
		Key: d.Key, JobID: d.JobID, ChannelID: d.ChannelID, ExternalID: d.ExternalID, Category: d.Category, Medium: d.Medium,
		Locale: d.Locale, Title: d.Title, Body: d.Body, Data: d.Data, Attempt: d.Attempt,
	})
	if err != nil {
		return refuseContent("content", "data is not JSON")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return refuseContent("request", "the request is not valid HTTP")
	}
	stamp := strconv.FormatInt(c.now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", d.Key)
	req.Header.Set(webhookID, d.Key)
	req.Header.Set(webhookTimestamp, stamp)
	req.Header.Set(webhookSignature, signWebhook(c.keys, d.Key, stamp, body))
	answer, err := c.http.do(req)
	if err != nil {
		failure := failureOf(err)
		if c.fixed != nil && failure.Code == codeBlocked {
			failure.Class, failure.Refusal = sender.Retryable, ""
		}
		return failure
	}
	if answer.status == http.StatusGone && c.fixed == nil {
		return answer.as(sender.InvalidAddress, "410", "the receiver answers 410 Gone")
	}
	return answer.result()
}
