package provider

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// alimtalkClient sends AlimTalk. It is safe for concurrent use.
type alimtalkClient struct {
	cfg    AlimtalkConfig
	client *httpClient
	secret []byte
	now    func() time.Time
	most   atomic.Int64 // messages of a call: half of those of a refused one, and twice as many after an accepted one
}

func (c *AlimtalkConfig) kind() string { return "alimtalk" }

// open implements Config.
func (c *AlimtalkConfig) open(now func() time.Time) (Client, error) {
	secret, err := readSecret("alimtalk.secret_key", c.SecretKey, c.SecretKeyFile)
	if err != nil {
		return nil, err
	}
	client := &alimtalkClient{cfg: *c, secret: []byte(secret), now: now}
	client.most.Store(int64(c.MaxBatch))
	if client.client, err = newHTTPClient(c.HTTP, httpOptions{now: now}); err != nil {
		return nil, fmt.Errorf("alimtalk.%w", err)
	}
	return client, nil
}

// Close ends idle connections.
func (s *alimtalkClient) Close() error { return s.client.Close() }

// MaxBatch implements sender.Sender.
func (s *alimtalkClient) MaxBatch() int { return s.cfg.MaxBatch }

// Send implements sender.Sender. It makes one or more calls for each template of the batch. While a provider refuses calls
// of several messages, Send makes a last one with a single message in time, which has an answer. Parts that no further call
// has time for are Untried.
func (s *alimtalkClient) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	var parts []alimtalkPart
	for i, d := range batch {
		p, refusal := s.prepare(i, d)
		if p.message == nil {
			results[i] = refusal
			continue
		}
		parts = append(parts, p)
	}
	slices.SortStableFunc(parts, func(a, b alimtalkPart) int { return strings.Compare(a.template, b.template) })
	began, limit := s.now(), 2*callTimeout
	if deadline, limited := ctx.Deadline(); limited {
		limit = time.Until(deadline)
	}
	var calls [][]alimtalkPart
	for len(parts) > 0 {
		n := takeParts(parts, int(s.most.Load()))
		calls, parts = append(calls, parts[:n]), parts[n:]
	}
	var longest time.Duration
	for answered := false; len(calls) > 0; {
		first := calls[0]
		calls = calls[1:]
		at := s.now()
		if !answered && len(first) > 1 && at.Add(2*longest).After(began.Add(limit)) {
			calls, first = slices.Insert(calls, 0, first[1:]), first[:1]
		}
		refused := s.call(ctx, first, results)
		longest = max(longest, s.now().Sub(at))
		if refused {
			s.most.Store(int64(len(first) / 2))
			calls = slices.Insert(calls, 0, first[:len(first)/2], first[len(first)/2:])
		} else if results[first[0].at].Class == sender.Pending && int64(len(first)) >= s.most.Load() {
			s.most.Store(min(2*int64(len(first)), int64(s.cfg.MaxBatch)))
		}
		if answered = answered || !refused; answered && s.now().Sub(began) >= limit/2 {
			for _, p := range slices.Concat(calls...) {
				results[p.at] = sender.Result{Class: sender.Retryable, Code: "timeout", Detail: "no time was left for a call", Untried: true}
			}
			break
		}
	}
	return results
}

// call sends parts that have the same template, and stores their results. It returns true instead if the provider
// refused several as a whole, because of any of them.
func (s *alimtalkClient) call(ctx context.Context, parts []alimtalkPart, results []sender.Result) (refused bool) {
	all := func(r sender.Result) {
		for _, p := range parts {
			results[p.at] = r
		}
	}
	messages := make([]json.RawMessage, len(parts))
	for i, p := range parts {
		messages[i] = p.message
	}
	body, err := json.Marshal(map[string]any{"plusFriendId": s.cfg.PlusFriendID, "templateCode": parts[0].template, "messages": messages})
	if err != nil {
		all(refuseContent("content", "the request cannot be encoded"))
		return false
	}
	answer, err := s.do(ctx, http.MethodPost, "", body)
	switch {
	case err != nil:
		all(failureOf(err))
	case answer.status == http.StatusBadRequest && len(parts) > 1:
		return true
	case answer.status >= 300:
		all(alimtalkRefusal(answer))
	default:
		s.accepted(answer, parts, results)
	}
	return false
}

// do makes one signed call to the service's messages resource.
func (s *alimtalkClient) do(ctx context.Context, method, path string, body []byte) (httpAnswer, error) {
	text := strings.TrimRight(s.cfg.Endpoint, "/") + "/alimtalk/v2/services/" + s.cfg.ServiceID + "/messages" + path
	request, err := http.NewRequestWithContext(ctx, method, text, bytes.NewReader(body))
	if err != nil {
		return httpAnswer{}, fmt.Errorf("make the request: %w", err)
	}
	timestamp := strconv.FormatInt(s.now().UnixMilli(), 10)
	mac := hmac.New(sha256.New, s.secret)
	_, _ = fmt.Fprintf(mac, "%s %s\n%s\n%s", method, request.URL.RequestURI(), timestamp, s.cfg.AccessKey) // never fails
	h := request.Header
	h.Set("X-Ncp-Apigw-Timestamp", timestamp)
	h.Set("X-Ncp-Iam-Access-Key", s.cfg.AccessKey)
	h.Set("X-Ncp-Apigw-Signature-V2", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	if body != nil {
		h.Set("Content-Type", "application/json; charset=utf-8")
	}
	return s.client.do(request)
}
