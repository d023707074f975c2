package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// fcmClient sends through FCM.
type fcmClient struct {
	http     *httpClient
	tokens   *fcmTokens
	url      string
	priority string
	ttl      time.Duration
	now      func() time.Time
}

func (c *FCMConfig) kind() string { return "fcm" }

// open implements Config.
func (c *FCMConfig) open(now func() time.Time) (Client, error) {
	text, err := readSecret("service_account", c.ServiceAccount, c.ServiceAccountFile)
	if err != nil {
		return nil, err
	}
	who, err := parseFCMAccount(text)
	if err != nil {
		return nil, fmt.Errorf("service_account: %w", err)
	}
	project := c.Project
	if project == "" {
		project = who.project
	}
	if !fcmProject().MatchString(project) {
		return nil, errors.New("project: is missing, and the service account has no valid one")
	}
	tokenURL := c.TokenURL
	if tokenURL == "" {
		tokenURL = who.tokenURL
	}
	if _, err := parseEndpoint(tokenURL, c.AllowHTTP); err != nil {
		return nil, fmt.Errorf("token_url: the service account's token_uri: %w", err)
	}
	client := &fcmClient{
		url:      strings.TrimSuffix(c.Endpoint, "/") + "/v1/projects/" + url.PathEscape(project) + "/messages:send",
		priority: c.Priority, ttl: c.TTL, now: now,
	}
	client.http, err = newHTTPClient(HTTPConfig{CAFile: c.CAFile}, httpOptions{now: now})
	if err != nil {
		return nil, err
	}
	client.tokens = &fcmTokens{client: client.http, account: who, url: tokenURL, now: now, asking: make(chan struct{}, 1)}
	return &oneByOne{Closer: client.http, deliver: client.deliver}, nil
}

func (c *fcmClient) deliver(ctx context.Context, d sender.Delivery) sender.Result {
	if d.Address == "" {
		return refuseAddress("address", "no registration token")
	}
	data, err := fcmData(d.Data)
	if err != nil {
		return refuseContent("content", "data is not a JSON object")
	}
	data["belfry_key"] = d.Key
	if name, size := fcmReserved(data), fcmSize(d, data); name != "" {
		return refuseContent("reserved_key",
			"data."+name+" is a name that FCM reserves; not allowed are from, message_type, and names that begin with google. or gcm.")
	} else if size > fcmMaxPayload {
		return refuseContent("payload_too_large", fmt.Sprintf("title, body and data have %d bytes; the maximum is %d", size, fcmMaxPayload))
	}
	body, err := c.message(d, data)
	if err != nil {
		return refuseContent("content", "the message cannot be encoded")
	}
	for again := false; ; again = true {
		token, failure := c.tokens.get(ctx)
		if failure != nil {
			return *failure
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
		if err != nil {
			return refuseContent("request", "the request is not valid HTTP")
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		answer, err := c.http.do(req)
		if err != nil {
			return failureOf(err)
		}
		result, badToken := readFCM(answer)
		if !badToken || again || !c.tokens.drop(token) { // invariant 1
			return result
		}
	}
}

// message returns the body of a call.
func (c *fcmClient) message(d sender.Delivery, data map[string]string) ([]byte, error) {
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

// fcmMaxPayload is the maximum size of title, body and data together in bytes
// (https://firebase.google.com/docs/cloud-messaging/concept-options). FCM also counts its own framing, so it may
// refuse a slightly smaller message.
const fcmMaxPayload = 4096

// fcmSize returns the size of the texts of a message, without their JSON.
func fcmSize(d sender.Delivery, data map[string]string) int {
	size := len(d.Title) + len(d.Body)
	for name, value := range data {
		size += len(name) + len(value)
	}
	return size
}

// fcmReserved returns the first name of data, in alphabetical order, that FCM rejects, or an empty text.
func fcmReserved(data map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if name == "from" || name == "message_type" || strings.HasPrefix(name, "google.") || strings.HasPrefix(name, "gcm.") {
			return name
		}
	}
	return ""
}

// fcmData returns the members of data as texts, which FCM requires.
func fcmData(data json.RawMessage) (map[string]string, error) {
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

// fcmQuotaPause is the minimum wait after a 429 without Retry-After, as FCM requires
// (https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode).
const fcmQuotaPause = time.Minute

// fcmReply is FCM's answer: the name of a message, or an error.
type fcmReply struct {
	Name  string `json:"name"`
	Error struct {
		Message string `json:"message"`
		Status  string `json:"status"`
		Details []struct {
			ErrorCode       string `json:"errorCode"`
			FieldViolations []struct {
				Field string `json:"field"`
			} `json:"fieldViolations"`
		} `json:"details"`
	} `json:"error"`
}

// code returns FCM's error code or, without one, Google's status.
func (r fcmReply) code() string {
	for _, d := range r.Error.Details {
		if d.ErrorCode != "" {
			return keptCode(d.ErrorCode)
		}
	}
	return keptCode(r.Error.Status)
}

// blamesToken reports whether an INVALID_ARGUMENT concerns the registration token. FCM names the field; for some
// tokens only the error's message has this information
// (https://firebase.google.com/docs/cloud-messaging/error-codes, example 2).
func (r fcmReply) blamesToken() bool {
	named := false
	for _, d := range r.Error.Details {
		for _, v := range d.FieldViolations {
			if v.Field == "message.token" {
				return true
			}
			named = true
		}
	}
	return !named && strings.HasPrefix(r.Error.Message, "The registration token is not a valid") // not a quoted title
}

// readFCM returns the result of an answer, and whether the answer rejects the access token.
func readFCM(answer httpAnswer) (result sender.Result, badToken bool) {
	var r fcmReply
	if err := json.Unmarshal(answer.body, &r); err != nil {
		r = fcmReply{} // the body is not JSON; use the status
	}
	if answer.status >= 200 && answer.status < 300 {
		if !strings.HasPrefix(r.Name, "projects/") {
			return answer.as(sender.Unknown, "answer", "not an answer of FCM"), false
		}
		result = answer.result()
		result.Receipt = r.Name
		return result, false
	}
	result = answer.result()
	code := r.code()
	if code != "" {
		result.Code = code
	}
	switch code {
	case "UNREGISTERED":
		return answer.as(sender.InvalidAddress, code, "the app is no longer registered"), false
	case "INVALID_ARGUMENT":
		if r.blamesToken() {
			return answer.as(sender.InvalidAddress, code, "the registration token is not valid"), false
		}
		return answer.as(sender.Permanent, code, "FCM refuses the message"), false
	case "SENDER_ID_MISMATCH":
		return answer.as(sender.Permanent, code, "the registration token belongs to another project"), false
	case "THIRD_PARTY_AUTH_ERROR":
		return answer.as(sender.Retryable, code, "the project's APNs or Web Push credentials are not valid"), false
	case "QUOTA_EXCEEDED", "UNAVAILABLE", "INTERNAL":
		result = answer.as(sender.Retryable, code, result.Detail)
	}
	if answer.status == http.StatusTooManyRequests && result.RetryAfter == 0 {
		result.RetryAfter = fcmQuotaPause
	}
	return result, answer.status == http.StatusUnauthorized
}
