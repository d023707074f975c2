package provider

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
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

// webpushClient sends to browsers.
type webpushClient struct {
	cfg   WebPushConfig
	http  *httpClient
	vapid *vapid
}

func (c *WebPushConfig) kind() string { return "webpush" }

// open implements Config.
func (c *WebPushConfig) open(now func() time.Time) (Client, error) {
	text, err := readSecret("webpush.private_key", c.PrivateKey, c.PrivateKeyFile)
	if err != nil {
		return nil, err
	}
	key, err := parseVAPIDKey(text)
	if err != nil {
		return nil, fmt.Errorf("webpush.private_key_file: %w", err)
	}
	client := &webpushClient{cfg: *c}
	if client.vapid, err = newVAPID(key, c.Subject, now); err != nil {
		return nil, err
	}
	if client.http, err = newHTTPClient(c.HTTP, httpOptions{guard: true, now: now}); err != nil {
		return nil, fmt.Errorf("webpush.%w", err)
	}
	return &oneByOne{Closer: client.http, deliver: client.deliver}, nil
}

func (c *webpushClient) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	to, err := parseSubscription(d.Address, c.cfg.AllowHTTP)
	if err != nil {
		return refuseAddress("subscription", err.Error())
	}
	if !c.cfg.serves(to.endpoint.Hostname()) {
		return refuseAddress(codeBlocked, "the host of the endpoint is no push service; permit it with hosts")
	}
	body, err := sealPush(d, to)
	switch {
	case errors.Is(err, errRecordTooLarge):
		return refuseContent("payload_too_large", err.Error())
	case err != nil:
		return refuseContent("payload", "the payload cannot be encrypted")
	}
	request, err := c.request(ctx, d, to, body)
	if err != nil {
		return refuseContent("request", "the request is not valid HTTP")
	}
	answer, err := c.http.do(request)
	if err != nil {
		return failureOf(err)
	}
	if answer.status == http.StatusNotFound || answer.status == http.StatusGone {
		return answer.as(sender.InvalidAddress, strconv.Itoa(answer.status), "the push service does not know the subscription")
	}
	return answer.result()
}

// sealPush returns the body of a push message, encrypted with a new key pair and salt.
func sealPush(d sender.Delivery, to subscription) ([]byte, error) {
	plain, err := webpushPayload(d)
	if err != nil {
		return nil, err
	}
	local, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key pair: %w", err)
	}
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	return encryptPush(plain, to, local, salt)
}

// webpushPayload is the payload for the service worker.
func webpushPayload(d sender.Delivery) ([]byte, error) {
	return encodePayload(struct {
		Title string          `json:"title"`
		Body  string          `json:"body"`
		Data  json.RawMessage `json:"data"`
		Key   string          `json:"key"`
	}{d.Title, d.Body, d.Data, d.Key})
}

func (c *webpushClient) request(ctx context.Context, d sender.Delivery, to subscription, body []byte) (*http.Request, error) {
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

// subscription is a browser's PushSubscription, the address of a channel.
type subscription struct {
	endpoint *url.URL
	public   *ecdh.PublicKey
	secret   []byte
}

// parseSubscription parses an address. Its errors do not quote it.
func parseSubscription(address string, allowHTTP bool) (subscription, error) {
	var raw struct {
		Endpoint string `json:"endpoint"`
		Keys     struct {
			P256dh string `json:"p256dh"`
			Auth   string `json:"auth"`
		} `json:"keys"`
	}
	if err := json.Unmarshal([]byte(address), &raw); err != nil {
		return subscription{},
			errors.New(`address is not a subscription; allowed values: JSON as {"endpoint": "https://…", "keys": {"p256dh": "…", "auth": "…"}}`)
	}
	endpoint, err := parseURL(raw.Endpoint, allowHTTP)
	if err != nil {
		return subscription{}, fmt.Errorf("endpoint: %w", err)
	}
	point, err := decodeBase64URL(raw.Keys.P256dh)
	if err != nil {
		return subscription{}, errors.New("keys.p256dh is not base64url")
	}
	public, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		return subscription{}, errors.New("keys.p256dh is not an uncompressed point of P-256")
	}
	secret, err := decodeBase64URL(raw.Keys.Auth)
	if err != nil || len(secret) != authBytes {
		return subscription{}, fmt.Errorf("keys.auth is not %d bytes in base64url", authBytes)
	}
	return subscription{endpoint: endpoint, public: public, secret: secret}, nil
}

// audience returns the origin of the push service (RFC 8292 §2, RFC 6454 §6.1).
func (s subscription) audience() string {
	usual := map[string]string{"https": ":443", "http": ":80"}[s.endpoint.Scheme]
	return s.endpoint.Scheme + "://" + strings.TrimSuffix(strings.ToLower(s.endpoint.Host), usual)
}

// decodeBase64URL decodes base64url with or without padding. It also accepts the standard alphabet, which some
// libraries write.
func decodeBase64URL(text string) ([]byte, error) {
	text = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(text, "="))
	return base64.RawURLEncoding.DecodeString(text)
}
