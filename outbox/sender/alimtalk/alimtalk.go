package alimtalk

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
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// Sender sends AlimTalk. It is safe for concurrent use.
type Sender struct {
	cfg    Config
	client *httpcall.Client
	secret []byte
	now    func() time.Time
}

// New reads the files that cfg names and opens no connection. now is the clock.
func New(cfg Config, now func() time.Time) (*Sender, error) {
	if err := cfg.Validate("alimtalk"); err != nil {
		return nil, err
	}
	secret, err := httpcall.Secret("alimtalk.secret_key", cfg.SecretKey, cfg.SecretKeyFile)
	if err != nil {
		return nil, err
	}
	s := &Sender{cfg: cfg, secret: []byte(secret), now: now}
	if s.client, err = httpcall.New(cfg.HTTP, httpcall.Options{Now: now}); err != nil {
		return nil, fmt.Errorf("alimtalk.%w", err)
	}
	return s, nil
}

// Close ends idle connections.
func (s *Sender) Close() error { return s.client.Close() }

// MaxBatch implements sender.Sender.
func (s *Sender) MaxBatch() int { return s.cfg.MaxBatch }

// Send implements sender.Sender: one call for each template of the batch.
func (s *Sender) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	var parts []part
	for i, d := range batch {
		p, refusal := s.prepare(i, d)
		if p.message == nil {
			results[i] = refusal
			continue
		}
		parts = append(parts, p)
	}
	slices.SortStableFunc(parts, func(a, b part) int { return strings.Compare(a.template, b.template) })
	for len(parts) > 0 {
		n := take(parts, s.cfg.MaxBatch)
		s.call(ctx, parts[:n], results)
		parts = parts[n:]
	}
	return results
}

// call sends parts, which have one template, and fills in their results.
func (s *Sender) call(ctx context.Context, parts []part, results []sender.Result) {
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
		all(sender.Result{Class: sender.Permanent, Code: "content", Detail: "the request cannot be encoded"})
		return
	}
	answer, err := s.do(ctx, http.MethodPost, "", body)
	switch {
	case err != nil:
		all(httpcall.Failure(err))
	case answer.Status == http.StatusBadRequest && len(parts) > 1:
		half := len(parts) / 2
		s.call(ctx, parts[:half], results)
		s.call(ctx, parts[half:], results)
	case answer.Status >= 300:
		all(refused(answer))
	default:
		s.accepted(answer, parts, results)
	}
}

// do makes one signed call to the messages of the service.
func (s *Sender) do(ctx context.Context, method, path string, body []byte) (httpcall.Answer, error) {
	text := strings.TrimRight(s.cfg.Endpoint, "/") + "/alimtalk/v2/services/" + s.cfg.ServiceID + "/messages" + path
	request, err := http.NewRequestWithContext(ctx, method, text, bytes.NewReader(body))
	if err != nil {
		return httpcall.Answer{}, fmt.Errorf("make the request: %w", err)
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
	return s.client.Do(request)
}
