package provider

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

var alimtalkAt = time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)

// alimtalkCall is one request as the provider saw it.
type alimtalkCall struct {
	header http.Header
	line   string
	body   string

	PlusFriendID string           `json:"plusFriendId"`
	TemplateCode string           `json:"templateCode"`
	Messages     []map[string]any `json:"messages"`
}

// alimtalkProvider keeps the calls and answers as a test orders.
type alimtalkProvider struct {
	answer func(w http.ResponseWriter, c alimtalkCall)

	mu    sync.Mutex
	calls []alimtalkCall
}

// seen is every call so far.
func (p *alimtalkProvider) seen() []alimtalkCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *alimtalkProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c := alimtalkCall{header: r.Header, line: r.Method + " " + r.RequestURI, body: string(body)}
	_ = json.Unmarshal(body, &c)
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	if p.answer != nil {
		p.answer(w, c)
		return
	}
	alimtalkAccept(w, c)
}

// alimtalkAccept answers as the provider does when it takes every message: it repeats
// them.
func alimtalkAccept(w http.ResponseWriter, c alimtalkCall) {
	w.WriteHeader(http.StatusAccepted)
	var messages []map[string]any
	for _, m := range c.Messages {
		messages = append(messages, map[string]any{
			"messageId": fmt.Sprint("id-", m["to"]), "countryCode": m["countryCode"], "to": m["to"], "content": m["content"],
			"requestStatusCode": "A000", "requestStatusName": "success", "requestStatusDesc": "성공", "useSmsFailover": false,
		})
	}
	out, err := json.Marshal(map[string]any{
		"requestId": "RQ-1", "requestTime": "2026-03-04T14:06:07.089", "statusCode": "202", "statusName": "success", "messages": messages,
	})
	if err == nil {
		_, _ = w.Write(out)
	}
}

func alimtalkLast(p *alimtalkProvider) alimtalkCall {
	calls := p.seen()
	return calls[len(calls)-1]
}

func alimtalkSetup(t *testing.T, answer func(http.ResponseWriter, alimtalkCall), adjust func(*AlimtalkConfig)) (*alimtalkProvider, Client) {
	t.Helper()
	p := &alimtalkProvider{answer: answer}
	service := httptest.NewServer(p)
	t.Cleanup(service.Close)
	cfg := DefaultAlimtalk()
	cfg.Endpoint, cfg.ServiceID, cfg.PlusFriendID, cfg.TemplateCode = service.URL, "ncp:kkobizmsg:kr:1234:belfry", "@belfry", "NOTICE1"
	cfg.AccessKey, cfg.SecretKey = "ACCESS", "not for your eyes"
	if adjust != nil {
		adjust(cfg)
	}
	s := open(t, cfg, func() time.Time { return alimtalkAt })
	return p, s
}

func alimtalkDelivery(to string) sender.Delivery {
	return sender.Delivery{
		Key: "0190a5c4-0000-8000-8000-000000000001", JobID: 7, ChannelID: 9, Medium: "alimtalk",
		Address: to, Title: "not sent", Body: "주문이 <접수>되었습니다.", Data: []byte(`{}`), Attempt: 1,
	}
}

func alimtalkDeliveries(n int) []sender.Delivery {
	batch := make([]sender.Delivery, n)
	for i := range batch {
		batch[i] = alimtalkDelivery(fmt.Sprintf("010-5555-%04d", i))
	}
	return batch
}

func alimtalkSend(t *testing.T, s Client, batch ...sender.Delivery) []sender.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	results := s.Send(ctx, batch)
	require.Len(t, results, len(batch))
	return results
}

// alimtalkVerify checks a call's signature as the provider does.
func alimtalkVerify(t *testing.T, c alimtalkCall) {
	t.Helper()
	require.Equal(t, "1772600767089", c.header.Get("x-ncp-apigw-timestamp"))
	require.Equal(t, "ACCESS", c.header.Get("x-ncp-iam-access-key"))
	mac := hmac.New(sha256.New, []byte("not for your eyes"))
	mac.Write([]byte(c.line + "\n1772600767089\nACCESS"))
	require.Equal(t, base64.StdEncoding.EncodeToString(mac.Sum(nil)), c.header.Get("x-ncp-apigw-signature-v2"))
}

func TestAlimtalk_SpeaksTheProtocol(t *testing.T) {
	t.Parallel()
	p, s := alimtalkSetup(t, nil, nil)
	require.Equal(t, 100, s.MaxBatch())
	d := alimtalkDelivery("+82 10-1234-5678")
	d.Data = []byte(`{"template_code":"OTHER-2","n":1,"alimtalk":{"title":"강조","buttons":[{"type":"WL","name":"보기"}]}}`)
	require.Equal(t, []sender.Result{{Class: sender.Pending, Code: "A000", Receipt: "id-01012345678"}}, alimtalkSend(t, s, d))
	require.Len(t, p.seen(), 1)
	require.Equal(t, "POST /alimtalk/v2/services/ncp:kkobizmsg:kr:1234:belfry/messages", p.seen()[0].line)
	require.Equal(t, "application/json; charset=utf-8", p.seen()[0].header.Get("Content-Type"))
	alimtalkVerify(t, p.seen()[0])
	require.JSONEq(t, `{"plusFriendId":"@belfry","templateCode":"OTHER-2","messages":[{
		"countryCode":"82","to":"01012345678","content":"주문이 <접수>되었습니다.","useSmsFailover":false,
		"title":"강조","buttons":[{"type":"WL","name":"보기"}]
	}]}`, p.seen()[0].body)
}

// One call takes a hundred messages; each template has calls of its own, and results keep
// the order of the batch.
func TestAlimtalk_GroupsByTemplate(t *testing.T) {
	t.Parallel()
	p, s := alimtalkSetup(t, nil, nil)
	batch := alimtalkDeliveries(100)
	for i := range batch {
		if i%2 == 1 {
			batch[i].Data = []byte(`{"template_code":"ODD"}`)
		}
	}
	for i, r := range alimtalkSend(t, s, batch...) {
		require.Equal(t, sender.Result{Class: sender.Pending, Code: "A000", Receipt: fmt.Sprintf("id-0105555%04d", i)}, r)
	}
	require.Len(t, p.seen(), 2)
	for _, c := range p.seen() {
		require.Len(t, c.Messages, 50)
	}
}

// The answer repeats the contents: calls are kept so short that it can be read.
func TestAlimtalk_LongContentsAreAnsweredInFull(t *testing.T) {
	t.Parallel()
	p, s := alimtalkSetup(t, nil, nil)
	batch := alimtalkDeliveries(100)
	for i := range batch {
		batch[i].Body = strings.Repeat("안", 1000)
	}
	for i, r := range alimtalkSend(t, s, batch...) {
		require.Equal(t, sender.Pending, r.Class, i)
	}
	require.Greater(t, len(p.seen()), 1)
	require.Less(t, len(p.seen()), 12)
}

// What the provider says of each message, in whatever order.
func TestAlimtalk_ReadsEveryMessagesOwnCode(t *testing.T) {
	t.Parallel()
	_, s := alimtalkSetup(t, func(w http.ResponseWriter, _ alimtalkCall) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"requestId":"RQ","statusCode":"202","messages":[
			{"messageId":"two","to":"01055550002","requestStatusCode":"A000","requestStatusName":"success"},
			{"to":"821055550000","requestStatusCode":"3019","requestStatusName":"fail","requestStatusDesc":"01055550000"},
			{"to":"01055550001","requestStatusCode":"A110","requestStatusName":"fail","requestStatusDesc":"주문이 접수되었습니다"},
			{"to":"01055550003","requestStatusCode":"A000"},
			{"messageId":"same-1","to":"01055550004","requestStatusCode":"A000"},
			{"messageId":"same-2","to":"01055550004","requestStatusCode":"A000"}
		]}`)
	}, nil)
	batch := append(alimtalkDeliveries(5), alimtalkDelivery("01055550004"), alimtalkDelivery("01055550009"))
	require.Equal(t, []sender.Result{
		{Class: sender.InvalidAddress, Code: "3019", Detail: "the provider refused the message"},
		{Class: sender.Permanent, Code: "A110", Detail: "the provider refused the message"},
		{Class: sender.Pending, Code: "A000", Receipt: "two"},
		{Class: sender.Accepted, Code: "A000"},
		{Class: sender.Pending, Code: "A000", Receipt: "same-1"},
		{Class: sender.Pending, Code: "A000", Receipt: "same-2"},
		{Class: sender.Unknown, Code: "202", Detail: "the provider's answer has no result for the message"},
	}, alimtalkSend(t, s, batch...))
}

// One number for two channels: each has an answer of its own, wherever it stands.
func TestAlimtalk_ReadsTwoMessagesToOneNumber(t *testing.T) {
	t.Parallel()
	_, s := alimtalkSetup(t, func(w http.ResponseWriter, _ alimtalkCall) {
		_, _ = io.WriteString(w, `{"messages":[
			{"messageId":"3","to":"01055550000","requestStatusCode":"A000"},
			{"messageId":"1","to":"01055550001","requestStatusCode":"A000"},
			{"messageId":"4","to":"821155550001","requestStatusCode":"A000"},
			{"messageId":"2","to":"1055550001","requestStatusCode":"A000"}
		]}`)
	}, nil)
	got := alimtalkSend(t, s, alimtalkDelivery("01055550001"), alimtalkDelivery("01055550001"), alimtalkDelivery("01055550000"), alimtalkDelivery("01155550001"))
	require.Equal(t, []string{"1", "2", "3", "4"}, []string{got[0].Receipt, got[1].Receipt, got[2].Receipt, got[3].Receipt})
}

// Every class of a whole call; all its messages share it.
func TestAlimtalk_ClassifiesAnswers(t *testing.T) {
	t.Parallel()
	silence := "the provider's answer has no result for the message"
	for name, test := range map[string]struct {
		status int
		body   string
		want   sender.Result
	}{
		"garbage":         {202, "<html>", sender.Result{Class: sender.Unknown, Code: "202", Detail: silence}},
		"empty":           {202, "", sender.Result{Class: sender.Unknown, Code: "202", Detail: silence}},
		"no messages":     {202, `{"requestId":"x","messages":null}`, sender.Result{Class: sender.Unknown, Code: "202", Detail: silence}},
		"huge":            {202, `{"x":"` + strings.Repeat("x", 1<<20) + `"}`, sender.Result{Class: sender.Unknown, Code: "202", Detail: silence}},
		"not authorised":  {401, `{"error":{"errorCode":"200","message":"Authentication Failed"}}`, sender.Result{Class: sender.Retryable, Code: "401 200", Detail: "Unauthorized", RetryAfter: 7 * time.Second}},
		"forbidden":       {403, `{"status":403}`, sender.Result{Class: sender.Permanent, Code: "403", Detail: "Forbidden"}},
		"no such service": {404, ``, sender.Result{Class: sender.Permanent, Code: "404", Detail: "Not Found"}},
		"too many":        {429, `{"error":{"errorCode":"410"}}`, sender.Result{Class: sender.Retryable, Code: "429 410", Detail: "Too Many Requests", RetryAfter: 7 * time.Second}},
		"failed":          {500, ``, sender.Result{Class: sender.Retryable, Code: "500", Detail: "Internal Server Error", RetryAfter: 7 * time.Second}},
		"gateway":         {502, ``, sender.Result{Class: sender.Unknown, Code: "502", Detail: "Bad Gateway", RetryAfter: 7 * time.Second}},
		"unavailable":     {503, ``, sender.Result{Class: sender.Retryable, Code: "503", Detail: "Service Unavailable", RetryAfter: 7 * time.Second}},
		"gateway timeout": {504, ``, sender.Result{Class: sender.Unknown, Code: "504", Detail: "Gateway Timeout", RetryAfter: 7 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := alimtalkSetup(t, func(w http.ResponseWriter, _ alimtalkCall) {
				if test.status != http.StatusAccepted {
					w.Header().Set("Retry-After", "7")
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}, nil)
			for _, got := range alimtalkSend(t, s, alimtalkDeliveries(3)...) {
				require.Equal(t, test.want, got)
			}
			require.Len(t, p.seen(), 1)
		})
	}
}

// A bad message is refused alone: its neighbours go out, each once.
func TestAlimtalk_ABadRequestHarmsNoNeighbour(t *testing.T) {
	t.Parallel()
	taken := map[string]int{}
	var mu sync.Mutex
	p, s := alimtalkSetup(t, func(w http.ResponseWriter, c alimtalkCall) {
		if strings.Contains(c.body, "01055550037") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"errorCode":"400","message":"to 01055550037 is wrong"}}`)
			return
		}
		mu.Lock()
		for _, m := range c.Messages {
			taken[m["to"].(string)]++
		}
		mu.Unlock()
		alimtalkAccept(w, c)
	}, nil)
	for i, got := range alimtalkSend(t, s, alimtalkDeliveries(100)...) {
		if i == 37 {
			require.Equal(t, sender.Result{Class: sender.Permanent, Code: "400 400", Detail: "Bad Request"}, got)
			continue
		}
		require.Equal(t, sender.Pending, got.Class, i)
		mu.Lock()
		require.Equal(t, 1, taken[fmt.Sprintf("0105555%04d", i)])
		mu.Unlock()
	}
	require.Len(t, taken, 99)
	require.LessOrEqual(t, len(p.seen()), 15) // 1 + 2 × ⌈log₂ 100⌉
}

// Bad messages cost their neighbours no attempt, however many calls it takes to find them: what this Send has no time for
// is sent by the next one. Each Send answers at least one message.
func TestAlimtalk_BadRequestsTakeNoNeighboursAttempt(t *testing.T) {
	t.Parallel()
	var elapsed atomic.Int64
	p := &alimtalkProvider{answer: func(w http.ResponseWriter, c alimtalkCall) {
		elapsed.Add(int64(long / 5))
		if strings.Contains(c.body, `7"`) { // each tenth number, and no other text
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		alimtalkAccept(w, c)
	}}
	service := httptest.NewServer(p)
	t.Cleanup(service.Close)
	cfg := DefaultAlimtalk()
	cfg.Endpoint, cfg.ServiceID, cfg.PlusFriendID, cfg.TemplateCode = service.URL, "ncp:kkobizmsg:kr:1234:belfry", "@belfry", "NOTICE1"
	cfg.AccessKey, cfg.SecretKey = "ACCESS", "not for your eyes"
	s := open(t, cfg, func() time.Time { return alimtalkAt.Add(time.Duration(elapsed.Load())) })
	left, sends := alimtalkDeliveries(100), 0
	var refused []string
	for ; len(left) > 0; sends++ {
		var again []sender.Delivery
		for i, got := range alimtalkSend(t, s, left...) {
			switch {
			case got.Untried:
				require.Equal(t, sender.Result{Class: sender.Retryable, Code: "timeout", Detail: "no time was left for a call", Untried: true}, got)
				again = append(again, left[i])
			case got.Class == sender.Permanent:
				refused = append(refused, left[i].Address)
			default:
				require.Equal(t, sender.Pending, got.Class)
			}
		}
		require.Less(t, len(again), len(left))
		left = again
	}
	require.Len(t, refused, 10)
	require.Greater(t, sends, 3)
}

// A Send ends in its time while halves are refused: a call that is cut off may have been accepted, and its messages would
// come twice.
func TestAlimtalk_StartsNoCallThatHasNoTime(t *testing.T) {
	t.Parallel()
	var elapsed atomic.Int64
	const latency = long * 26 / 100
	p := &alimtalkProvider{answer: func(w http.ResponseWriter, c alimtalkCall) {
		elapsed.Add(int64(latency))
		if strings.Contains(c.body, `55550000"`) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		alimtalkAccept(w, c)
	}}
	service := httptest.NewServer(p)
	t.Cleanup(service.Close)
	cfg := DefaultAlimtalk()
	cfg.Endpoint, cfg.ServiceID, cfg.PlusFriendID, cfg.TemplateCode = service.URL, "ncp:kkobizmsg:kr:1234:belfry", "@belfry", "NOTICE1"
	cfg.AccessKey, cfg.SecretKey = "ACCESS", "not for your eyes"
	s := open(t, cfg, func() time.Time { return alimtalkAt.Add(time.Duration(elapsed.Load())) })
	left, permanent := alimtalkDeliveries(100), 0
	for sends := 0; len(left) > 0; sends++ {
		require.Less(t, sends, 12)
		began := elapsed.Load()
		var again []sender.Delivery
		for i, got := range alimtalkSend(t, s, left...) {
			switch {
			case got.Untried:
				again = append(again, left[i])
			case got.Class == sender.Permanent:
				permanent++
			}
		}
		require.LessOrEqual(t, elapsed.Load()-began, int64(long))
		require.Less(t, len(again), len(left))
		left = again
	}
	require.Equal(t, 1, permanent)
}

// A lost answer is unknown for every message of the call; what the same Send had no time
// to call for is retryable.
func TestAlimtalk_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	_, s := alimtalkSetup(t, func(http.ResponseWriter, alimtalkCall) { panic(http.ErrAbortHandler) }, nil)
	for _, got := range alimtalkSend(t, s, alimtalkDeliveries(3)...) {
		require.Equal(t, sender.Unknown, got.Class, got)
		require.Equal(t, "connection", got.Code)
	}

	released := make(chan struct{})
	p, s := alimtalkSetup(t, func(http.ResponseWriter, alimtalkCall) { <-released }, nil)
	defer close(released)
	batch := alimtalkDeliveries(2)
	batch[1].Data = []byte(`{"template_code":"ZZZ"}`)
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	got := s.Send(ctx, batch)
	require.Equal(t, sender.Unknown, got[0].Class, got[0])
	require.Equal(t, "timeout", got[0].Code)
	require.Equal(t, sender.Retryable, got[1].Class, got[1])
	require.Len(t, p.seen(), 1)

	// Half an answer: what could be read of it counts.
	_, s = alimtalkSetup(t, func(w http.ResponseWriter, _ alimtalkCall) {
		w.Header().Set("Content-Length", "9999")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"messages":[{"messageId":"one","to":"01055550000","requestStatusCode":"A000"},{"messageId":"tw`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, nil)
	got = alimtalkSend(t, s, alimtalkDeliveries(2)...)
	require.Equal(t, sender.Result{Class: sender.Pending, Code: "A000", Receipt: "one"}, got[0])
	require.Equal(t, sender.Unknown, got[1].Class)

	_, s = alimtalkSetup(t, nil, func(c *AlimtalkConfig) { c.Endpoint = "http://127.0.0.1:1" })
	require.Equal(t, sender.Retryable, alimtalkSend(t, s, alimtalkDeliveries(1)...)[0].Class)
}

// Receipts: a failure to ask is never a failure of the message.
func TestAlimtalk_Receipts(t *testing.T) {
	t.Parallel()
	p, s := alimtalkSetup(t, func(w http.ResponseWriter, c alimtalkCall) {
		switch id := c.line[strings.LastIndex(c.line, "/")+1:]; id {
		case "sent":
			_, _ = io.WriteString(w, `{"requestStatusCode":"A000","requestStatusName":"success","messageStatusCode":"0000","messageStatusName":"success"}`)
		case "nobody":
			_, _ = io.WriteString(w, `{"requestStatusCode":"A000","requestStatusName":"success","messageStatusCode":"3019","messageStatusName":"fail","messageStatusDesc":"01055550000"}`)
		case "blocked":
			_, _ = io.WriteString(w, `{"requestStatusCode":"A000","requestStatusName":"success","messageStatusCode":"3020","messageStatusName":"fail"}`)
		case "refused":
			_, _ = io.WriteString(w, `{"requestStatusCode":"A110","requestStatusName":"fail"}`)
		case "processing":
			_, _ = io.WriteString(w, `{"requestStatusCode":"A000","requestStatusName":"success","messageStatusName":"processing"}`)
		case "another":
			_, _ = io.WriteString(w, `{"messageId":"sent","requestStatusCode":"A000","messageStatusCode":"3019","messageStatusName":"fail"}`)
		case "own":
			_, _ = io.WriteString(w, `{"messageId":"own","requestStatusCode":"A000","messageStatusCode":"0000","messageStatusName":"success"}`)
		case "garbage":
			_, _ = io.WriteString(w, `<html>`)
		case "busy":
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusTooManyRequests)
		case "broken":
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}, nil)
	receipts := s.(sender.ReceiptReader).Receipts
	got := receipts(t.Context(), []string{"sent", "nobody", "blocked", "refused", "processing", "another", "own", "garbage", "busy", "broken", "a/b?c"})
	require.Equal(t, []sender.Result{
		{Class: sender.Accepted, Code: "0000"},
		{Class: sender.InvalidAddress, Code: "3019", Detail: "the provider could not deliver the message"},
		{Class: sender.Permanent, Code: "3020", Detail: "the provider could not deliver the message"},
		{Class: sender.Permanent, Code: "A110", Detail: "the provider refused the message"},
		{Class: sender.Pending, Detail: "the provider has no result yet"},
		{Class: sender.Pending, Detail: "the provider answered with the result of another message"},
		{Class: sender.Accepted, Code: "0000"},
		{Class: sender.Pending, Detail: "the provider has no result yet"},
		{Class: sender.Pending, Code: "429", Detail: "Too Many Requests", RetryAfter: 5 * time.Second, Receipt: "busy"},
		{Class: sender.Pending, Code: "connection", Detail: "closed without an answer", Receipt: "broken"},
		{Class: sender.Pending, Code: "404", Detail: "Not Found", Receipt: "a/b?c"},
	}, got)
	for _, c := range p.seen() {
		alimtalkVerify(t, c)
		require.True(t, strings.HasPrefix(c.line, "GET /alimtalk/v2/services/ncp:kkobizmsg:kr:1234:belfry/messages/"), c.line)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range receipts(ctx, make([]string, 30)) {
		require.Equal(t, sender.Pending, r.Class)
	}
}

func TestAlimtalk_ReadsNumbers(t *testing.T) {
	t.Parallel()
	p, s := alimtalkSetup(t, nil, nil)
	for address, want := range map[string]string{
		"010-1234-5678": "82 01012345678", "+82 10 1234 5678": "82 01012345678", "+82(0)10.1234.5678": "82 01012345678",
		"+1 212 555 0123": "1 2125550123", "+81 90-1234-5678": "81 9012345678", "+852 5123 4567": "852 51234567", " 01012345678 ": "82 01012345678",
	} {
		require.Equal(t, sender.Pending, alimtalkSend(t, s, alimtalkDelivery(address))[0].Class, address)
		m := alimtalkLast(p).Messages[0]
		require.Equal(t, want, fmt.Sprint(m["countryCode"], " ", m["to"]), address)
	}
	before := len(p.seen())
	for _, address := range []string{"", "+", "1234", "kim@example.org", "0101234567890123", "010 1234 567x", "+82", "01012345678\r\nX: y", "０１０１２３４５６７８"} {
		got := alimtalkSend(t, s, alimtalkDelivery(address))[0]
		require.Equal(t, []any{sender.Permanent, sender.RefusedAddress}, []any{got.Class, got.Refusal}, address)
		require.NotContains(t, got.Detail, "1234")
	}
	require.Len(t, p.seen(), before)
}

// Content that cannot be sent is refused alone, without a call.
func TestAlimtalk_RefusesContentWithoutACall(t *testing.T) {
	t.Parallel()
	p, s := alimtalkSetup(t, nil, func(c *AlimtalkConfig) { c.TemplateCode = "" })
	template := func(change func(*sender.Delivery)) sender.Delivery {
		d := alimtalkDelivery("01012345678")
		d.Data = []byte(`{"template_code":"A"}`)
		change(&d)
		return d
	}
	for detail, d := range map[string]sender.Delivery{
		"there is no template code": alimtalkDelivery("01012345678"),
		"the content has 0":         template(func(d *sender.Delivery) { d.Body = "" }),
		"the content has 1001":      template(func(d *sender.Delivery) { d.Body = strings.Repeat("안", 1001) }),
		"data.template_code":        template(func(d *sender.Delivery) { d.Data = []byte(`{"template_code":1}`) }),
		"data.alimtalk has":         template(func(d *sender.Delivery) { d.Data = []byte(`{"template_code":"A","alimtalk":{"to":"1"}}`) }),
	} {
		got := alimtalkSend(t, s, d)[0]
		require.Equal(t, sender.Permanent, got.Class, detail)
		require.Equal(t, "content", got.Code)
		require.Contains(t, got.Detail, detail)
		require.Regexp(t, `allowed values|; set `, got.Detail)
	}
	require.Empty(t, p.seen())
	got := alimtalkSend(t, s, alimtalkDelivery("01012345678"), template(func(*sender.Delivery) {}))
	require.Equal(t, []sender.Class{sender.Permanent, sender.Pending}, []sender.Class{got[0].Class, got[1].Class})
}

func TestAlimtalk_Validate(t *testing.T) {
	t.Parallel()
	require.EqualError(t, Validate("senders[4].alimtalk", DefaultAlimtalk()), strings.Join([]string{
		`senders[4].alimtalk.service_id: "" is not allowed; allowed values: an id such as ncp:kkobizmsg:kr:123456789012:name`,
		`senders[4].alimtalk.access_key: is empty; set an account's access key`,
		`senders[4].alimtalk.secret_key: is empty; set an account's secret key, or a file in secret_key_file`,
		`senders[4].alimtalk.plus_friend_id: "" is not allowed; allowed values: a KakaoTalk channel's id, such as @name`,
	}, "\n"))
	valid := DefaultAlimtalk()
	valid.ServiceID, valid.AccessKey, valid.SecretKey, valid.PlusFriendID = "ncp:kkobizmsg:kr:1:x", "a", "topsecret", "@x"
	refuses(t, valid, map[string]func(*AlimtalkConfig){
		"endpoint":                 func(c *AlimtalkConfig) { c.Endpoint = "sens" },
		"service_id":               func(c *AlimtalkConfig) { c.ServiceID = "a/b" },
		"secret_key":               func(c *AlimtalkConfig) { c.SecretKeyFile = "file" },
		"template_code":            func(c *AlimtalkConfig) { c.TemplateCode = "a b" },
		"country_code":             func(c *AlimtalkConfig) { c.CountryCode = "+82" },
		"max_batch":                func(c *AlimtalkConfig) { c.MaxBatch = 101 },
		"invalid_address_codes[0]": func(c *AlimtalkConfig) { c.InvalidAddressCodes = []string{""} },
		"allow_addresses[0]":       func(c *AlimtalkConfig) { c.HTTP.AllowAddresses = []string{"anywhere"} },
	})
}

func TestAlimtalk_ReadsTheSecretFromAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte("not for your eyes\n"), 0o600))
	p, s := alimtalkSetup(t, nil, func(c *AlimtalkConfig) { c.SecretKey, c.SecretKeyFile = "", path })
	require.Equal(t, sender.Pending, alimtalkSend(t, s, alimtalkDelivery("01012345678"))[0].Class)
	alimtalkVerify(t, p.seen()[0])

	cfg := DefaultAlimtalk()
	cfg.ServiceID, cfg.AccessKey, cfg.PlusFriendID, cfg.SecretKeyFile = "x", "a", "@x", path+".none"
	_, err := New(cfg, time.Now)
	require.ErrorContains(t, err, "alimtalk.secret_key_file")
}
