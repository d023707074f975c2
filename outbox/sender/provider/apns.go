package provider

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/belfryhq/belfry/outbox/sender"
)

// apnsClient sends to Apple devices.
type apnsClient struct {
	cfg    APNsConfig
	http   *httpClient
	tokens *apnsTokens
	now    func() time.Time
}

func (c *APNsConfig) kind() string { return "apns" }

// open implements Config.
func (c *APNsConfig) open(now func() time.Time) (Client, error) {
	text, err := readSecret("apns.key", c.Key, c.KeyFile)
	if err != nil {
		return nil, err
	}
	key, err := parseAPNsKey(text)
	if err != nil {
		return nil, fmt.Errorf("apns.key_file: %w", err)
	}
	client := &apnsClient{cfg: *c, now: now}
	client.tokens = &apnsTokens{key: key, keyID: c.KeyID, teamID: c.TeamID, now: now}
	if client.http, err = newHTTPClient(c.HTTP, httpOptions{http2: true, now: now}); err != nil {
		return nil, fmt.Errorf("apns.%w", err)
	}
	return &oneByOne{Closer: client.http, deliver: client.deliver}, nil
}

// apnsDevice matches device tokens that are safe in the request's path. The length is limited by apnsMaxDevice
// instead of a repetition, which would be slow to compile at every start.
var apnsDevice = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

const apnsMaxDevice = 512

func (c *apnsClient) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	if len(d.Address) > apnsMaxDevice || !apnsDevice.MatchString(d.Address) {
		return refuseAddress("token", "the address is not a device token; allowed values: hexadecimal digits")
	}
	body, err := apnsPayload(d, c.cfg.Sound)
	if err != nil {
		return refuseContent("payload", err.Error())
	}
	if len(body) > apnsMaxPayload {
		return refuseContent("payload_too_large", fmt.Sprintf("the payload has %d bytes; the maximum is %d", len(body), apnsMaxPayload))
	}
	token, err := c.tokens.get()
	if err != nil {
		return refuseContent("token", "the provider token cannot be signed")
	}
	answer, reason, err := c.call(ctx, d, body, token)
	var wait time.Duration
	if err == nil && reason == apnsExpired {
		if token, wait = c.tokens.replace(token); token != "" {
			answer, reason, err = c.call(ctx, d, body, token)
		}
	}
	if err != nil {
		return failureOf(err)
	}
	result := classifyAPNs(answer, reason)
	if reason == apnsExpired {
		result.RetryAfter = max(result.RetryAfter, wait)
	}
	return result
}

// call makes one request and returns the answer and the reason that it contains, if any.
func (c *apnsClient) call(ctx context.Context, d sender.Delivery, body []byte, token string) (httpAnswer, string, error) {
	url := strings.TrimRight(c.cfg.Endpoint, "/") + "/3/device/" + d.Address
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return httpAnswer{}, "", fmt.Errorf("make the request: %w", err)
	}
	expiration := int64(0) // APNs does not store the message
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
	answer, err := c.http.do(request)
	if err != nil {
		return answer, "", err
	}
	var said struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(answer.body, &said) // without a reason the status is enough
	return answer, keptCode(said.Reason), nil
}

// apnsExpired is the reason with which Apple requires a new provider token.
const apnsExpired = "ExpiredProviderToken"

// apnsReasons are the reasons whose class differs from the class of their status.
var apnsReasons = map[string]sender.Class{
	"BadDeviceToken":         sender.InvalidAddress,
	"DeviceTokenNotForTopic": sender.Permanent, // the topic may be wrong
	"Unregistered":           sender.InvalidAddress,
	"ExpiredToken":           sender.InvalidAddress,
	"IdleTimeout":            sender.Retryable,
	apnsExpired:              sender.Retryable, // a new token is available later
	"InvalidProviderToken":   sender.Retryable, // the sender's credentials, not the message
	"MissingProviderToken":   sender.Retryable,
}

// classifyAPNs returns the class of an answer. A known reason takes precedence over the status.
func classifyAPNs(answer httpAnswer, reason string) sender.Result {
	if answer.status < 300 {
		return answer.result()
	}
	class, known := apnsReasons[reason]
	switch {
	case known && answer.status < 500:
	case answer.status == http.StatusGone:
		class = sender.InvalidAddress
	default:
		class = classOfStatus(answer.status)
	}
	code, detail := strconv.Itoa(answer.status), http.StatusText(answer.status)
	if reason != "" {
		code, detail = code+" "+reason, "APNs returned "+reason
	}
	return answer.as(class, code, detail)
}

const (
	apnsTokenUse = 40 * time.Minute // Apple rejects a token that is older than an hour
	apnsTokenGap = 20 * time.Minute // Apple rejects more frequent changes
)

// apnsTokens stores the provider token, which authorizes all calls.
type apnsTokens struct {
	key           *ecdsa.PrivateKey
	keyID, teamID string
	now           func() time.Time

	mu      sync.Mutex
	current string
	issued  time.Time
}

// get returns the token to use.
func (t *apnsTokens) get() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != "" && t.now().Sub(t.issued) < apnsTokenUse {
		return t.current, nil
	}
	return t.sign()
}

// replace returns a token other than used, which Apple reported as expired, or the wait until the token may be
// replaced.
func (t *apnsTokens) replace(used string) (string, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != used {
		return t.current, 0 // another call has replaced it
	}
	if wait := t.issued.Add(apnsTokenGap).Sub(t.now()); wait > 0 {
		return "", wait
	}
	token, err := t.sign()
	if err != nil {
		return "", apnsTokenGap
	}
	return token, 0
}

// sign creates a new token. The caller holds mu.
func (t *apnsTokens) sign() (string, error) {
	now := t.now()
	claim := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": t.teamID, "iat": now.Unix()})
	claim.Header = map[string]any{"alg": "ES256", "kid": t.keyID} // without typ, like Apple's example
	token, err := claim.SignedString(t.key)
	if err != nil {
		return "", err
	}
	t.current, t.issued = token, now
	return token, nil
}

// apnsMaxPayload is the maximum payload of APNs in bytes.
const apnsMaxPayload = 4096

type apnsAlert struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
}

// apnsPayload returns the payload for the device.
func apnsPayload(d sender.Delivery, sound string) ([]byte, error) {
	var data map[string]json.RawMessage
	if err := json.Unmarshal(d.Data, &data); err != nil {
		return nil, errors.New("data is not a JSON object")
	}
	aps := map[string]any{}
	if sound != "" {
		aps["sound"] = sound
	}
	if more, ok := data["aps"]; ok {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(more, &fields); err != nil {
			return nil, errors.New("data.aps is not a JSON object")
		}
		for name, value := range fields {
			aps[name] = value
		}
		delete(data, "aps")
	}
	aps["alert"] = apnsAlert{Title: d.Title, Body: d.Body}
	return encodePayload(map[string]any{"aps": aps, "data": data, "key": d.Key})
}

// encodePayload encodes JSON for a device without HTML escapes, which would waste bytes.
func encodePayload(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the payload: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
