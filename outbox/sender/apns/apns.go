package apns

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// client sends to Apple devices.
type client struct {
	cfg    Config
	http   *httpcall.Client
	tokens *tokens
	now    func() time.Time
}

// New reads the files that cfg names and opens no connection. now is the clock.
func New(cfg Config, now func() time.Time) (*sender.OneByOne, error) {
	if err := cfg.Validate("apns"); err != nil {
		return nil, err
	}
	text, err := httpcall.Secret("apns.key", cfg.Key, cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("apns.key_file: %w", err)
	}
	c := &client{cfg: cfg, now: now}
	c.tokens = &tokens{key: key, keyID: cfg.KeyID, teamID: cfg.TeamID, now: now}
	if c.http, err = httpcall.New(cfg.HTTP, httpcall.Options{HTTP2: true, Now: now}); err != nil {
		return nil, fmt.Errorf("apns.%w", err)
	}
	return &sender.OneByOne{Closer: c.http, Deliver: c.deliver}, nil
}

// deviceToken is what may stand in the request's path, up to maxToken bytes of it. The
// expression does not count: each start of belfry would compile all the repetitions.
var deviceToken = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

const maxToken = 512

func (c *client) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	if len(d.Address) > maxToken || !deviceToken.MatchString(d.Address) {
		return sender.Result{Class: sender.InvalidAddress, Code: "token", Detail: "the address is not a device token; allowed are hexadecimal digits"}
	}
	body, err := payload(d, c.cfg.Sound)
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "payload", Detail: err.Error()}
	}
	if len(body) > maxPayload {
		return sender.Result{Class: sender.Permanent, Code: "payload_too_large", Detail: fmt.Sprintf("the payload has %d bytes; allowed are %d", len(body), maxPayload)}
	}
	token, err := c.tokens.get()
	if err != nil {
		return sender.Result{Class: sender.Permanent, Code: "token", Detail: "the provider token cannot be signed"}
	}
	answer, reason, err := c.call(ctx, d, body, token)
	var wait time.Duration
	if err == nil && reason == expired {
		if token, wait = c.tokens.replace(token); token != "" {
			answer, reason, err = c.call(ctx, d, body, token)
		}
	}
	if err != nil {
		return httpcall.Failure(err)
	}
	result := classify(answer, reason)
	if reason == expired {
		result.RetryAfter = max(result.RetryAfter, wait)
	}
	return result
}

// call makes one request and returns the reason in its answer, if it has one.
func (c *client) call(ctx context.Context, d sender.Delivery, body []byte, token string) (httpcall.Answer, string, error) {
	url := strings.TrimRight(c.cfg.Endpoint, "/") + "/3/device/" + d.Address
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return httpcall.Answer{}, "", fmt.Errorf("make the request: %w", err)
	}
	expiration := int64(0) // now or never
	if c.cfg.Expiration > 0 {
		expiration = c.now().Add(c.cfg.Expiration).Unix()
	}
	h := request.Header
	h.Set("Authorization", "bearer "+token)
	h.Set("Content-Type", "application/json")
	h.Set("Apns-Topic", c.cfg.Topic)
	h.Set("Apns-Push-Type", "alert")
	h.Set("Apns-Priority", strconv.Itoa(c.cfg.Priority))
	h.Set("Apns-Expiration", strconv.FormatInt(expiration, 10))
	h.Set("Apns-Id", d.Key)
	h.Set("Apns-Collapse-Id", d.Key)
	answer, err := c.http.Do(request)
	if err != nil {
		return answer, "", err
	}
	var said struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(answer.Body, &said) // a body without a reason leaves the status to speak
	return answer, httpcall.Code(said.Reason), nil
}

// expired is the reason by which Apple asks for a new provider token.
const expired = "ExpiredProviderToken"

// reasons are those that mean something else than their status.
var reasons = map[string]sender.Class{
	"BadDeviceToken":         sender.InvalidAddress,
	"DeviceTokenNotForTopic": sender.InvalidAddress,
	"Unregistered":           sender.InvalidAddress,
	"ExpiredToken":           sender.InvalidAddress,
	"IdleTimeout":            sender.Retryable,
	expired:                  sender.Retryable, // a token is at hand later
}

// classify reads an answer. A reason is Apple's own word and counts more than a status.
func classify(answer httpcall.Answer, reason string) sender.Result {
	if answer.Status < 300 {
		return answer.Result()
	}
	class, known := reasons[reason]
	switch {
	case known && answer.Status < 500:
	case answer.Status == http.StatusGone:
		class = sender.InvalidAddress
	default:
		class = httpcall.ClassOf(answer.Status)
	}
	code, detail := strconv.Itoa(answer.Status), http.StatusText(answer.Status)
	if reason != "" {
		code, detail = code+" "+reason, "APNs says "+reason
	}
	return answer.As(class, code, detail)
}
