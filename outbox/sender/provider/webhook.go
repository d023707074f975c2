package provider

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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
	if answer.status == http.StatusGone && c.fixed == nil && !answer.redirected {
		return answer.as(sender.InvalidAddress, "410", "the receiver answers 410 Gone")
	}
	return answer.result()
}

// The header names of Standard Webhooks.
const (
	webhookID        = "Webhook-Id"
	webhookTimestamp = "Webhook-Timestamp"
	webhookSignature = "Webhook-Signature"
)

var (
	// ErrWebhookSignature is returned by VerifyWebhook for a call that was not signed with a known secret, or
	// whose body was changed.
	ErrWebhookSignature = errors.New("webhook signature does not match")
	// ErrWebhookTimestamp is returned by VerifyWebhook for a call whose timestamp is too old or too far in the
	// future.
	ErrWebhookTimestamp = errors.New("webhook timestamp is out of tolerance")
)

// WebhookTolerance is the maximum difference between a call's timestamp and the receiver's clock that Standard
// Webhooks recommends.
const WebhookTolerance = 5 * time.Minute

// VerifyWebhook checks that a call has a signature of any of the secrets (whsec_…), and that its timestamp is
// within the tolerance of now, either way. It is for receivers, which must pass the unmodified bytes of the body.
// It returns ErrWebhookSignature, ErrWebhookTimestamp, or an error that names a malformed secret.
func VerifyWebhook(header http.Header, body []byte, now time.Time, tolerance time.Duration, secrets ...string) error {
	id, stamp := header.Get(webhookID), header.Get(webhookTimestamp)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || id == "" {
		return ErrWebhookSignature
	}
	matches := false
	for i, secret := range secrets {
		key, err := parseWebhookSecret(secret)
		if err != nil {
			return fmt.Errorf("secrets[%d]: %w", i, err)
		}
		want := webhookMAC(key, id, stamp, body)
		for signature := range strings.FieldsSeq(header.Get(webhookSignature)) {
			text, isV1 := strings.CutPrefix(signature, "v1,")
			got, err := base64.StdEncoding.DecodeString(text)
			if isV1 && err == nil && hmac.Equal(got, want) {
				matches = true
			}
		}
	}
	if !matches {
		return ErrWebhookSignature
	}
	// The timestamp is authentic from here on.
	if seconds < now.Add(-tolerance).Unix() || seconds > now.Add(tolerance).Unix() {
		return ErrWebhookTimestamp
	}
	return nil
}

// signWebhook returns the header's value: one signature for each key, in their order.
func signWebhook(keys [][]byte, id, stamp string, body []byte) string {
	signatures := make([]string, 0, len(keys))
	for _, key := range keys {
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(webhookMAC(key, id, stamp, body)))
	}
	return strings.Join(signatures, " ")
}

func webhookMAC(key []byte, id, stamp string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(h, "%s.%s.", id, stamp) // a hash's Write does not fail
	_, _ = h.Write(body)
	return h.Sum(nil)
}

// parseWebhookSecret decodes a secret. The error does not quote it.
func parseWebhookSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("is not a secret; allowed values: whsec_ followed by the base64 of 24 to 64 bytes")
	}
	return key, nil
}
