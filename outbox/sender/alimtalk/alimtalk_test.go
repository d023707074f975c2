package alimtalk_test

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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/alimtalk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)

// call is one request as the provider saw it.
type call struct {
	header http.Header
	line   string
	body   string

	PlusFriendID string           `json:"plusFriendId"`
	TemplateCode string           `json:"templateCode"`
	Messages     []map[string]any `json:"messages"`
}

// provider keeps the calls and answers as a test orders.
type provider struct {
	answer func(w http.ResponseWriter, c call)

	mu    sync.Mutex
	calls []call
}

// seen is every call so far.
func (p *provider) seen() []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c := call{header: r.Header, line: r.Method + " " + r.RequestURI, body: string(body)}
	_ = json.Unmarshal(body, &c)
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	if p.answer != nil {
		p.answer(w, c)
		return
	}
	accept(w, c)
}

// accept answers as the provider does when it takes every message: it repeats them.
func accept(w http.ResponseWriter, c call) {
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

func last(p *provider) call {
	calls := p.seen()
	return calls[len(calls)-1]
}

func setup(t *testing.T, answer func(http.ResponseWriter, call), adjust func(*alimtalk.Config)) (*provider, *alimtalk.Sender) {
	t.Helper()
	p := &provider{answer: answer}
	service := httptest.NewServer(p)
	t.Cleanup(service.Close)
	cfg := alimtalk.DefaultConfig()
	cfg.Endpoint, cfg.ServiceID, cfg.PlusFriendID, cfg.TemplateCode = service.URL, "ncp:kkobizmsg:kr:1234:belfry", "@belfry", "NOTICE1"
	cfg.AccessKey, cfg.SecretKey = "ACCESS", "not for your eyes"
	if adjust != nil {
		adjust(&cfg)
	}
	s, err := alimtalk.New(cfg, func() time.Time { return at })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return p, s
}

func delivery(to string) sender.Delivery {
	return sender.Delivery{
		Key: "0190a5c4-0000-8000-8000-000000000001", JobID: 7, ChannelID: 9, Medium: "alimtalk",
		Address: to, Title: "not sent", Body: "주문이 <접수>되었습니다.", Data: []byte(`{}`), Attempt: 1,
	}
}

func deliveries(n int) []sender.Delivery {
	batch := make([]sender.Delivery, n)
	for i := range batch {
		batch[i] = delivery(fmt.Sprintf("010-5555-%04d", i))
	}
	return batch
}

func send(t *testing.T, s *alimtalk.Sender, batch ...sender.Delivery) []sender.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	results := s.Send(ctx, batch)
	require.Len(t, results, len(batch))
	return results
}

// verify checks a call's signature as the provider does.
func verify(t *testing.T, c call) {
	t.Helper()
	require.Equal(t, "1772600767089", c.header.Get("x-ncp-apigw-timestamp"))
	require.Equal(t, "ACCESS", c.header.Get("x-ncp-iam-access-key"))
	mac := hmac.New(sha256.New, []byte("not for your eyes"))
	mac.Write([]byte(c.line + "\n1772600767089\nACCESS"))
	require.Equal(t, base64.StdEncoding.EncodeToString(mac.Sum(nil)), c.header.Get("x-ncp-apigw-signature-v2"))
}

func TestSend_SpeaksTheProtocol(t *testing.T) {
	t.Parallel()
	p, s := setup(t, nil, nil)
	require.Equal(t, 100, s.MaxBatch())
	d := delivery("+82 10-1234-5678")
	d.Data = []byte(`{"template_code":"OTHER-2","n":1,"alimtalk":{"title":"강조","buttons":[{"type":"WL","name":"보기"}]}}`)
	require.Equal(t, []sender.Result{{Class: sender.Pending, Code: "A000", Receipt: "id-01012345678"}}, send(t, s, d))
	require.Len(t, p.seen(), 1)
	require.Equal(t, "POST /alimtalk/v2/services/ncp:kkobizmsg:kr:1234:belfry/messages", p.seen()[0].line)
	require.Equal(t, "application/json; charset=utf-8", p.seen()[0].header.Get("Content-Type"))
	verify(t, p.seen()[0])
	require.JSONEq(t, `{"plusFriendId":"@belfry","templateCode":"OTHER-2","messages":[{
		"countryCode":"82","to":"01012345678","content":"주문이 <접수>되었습니다.","useSmsFailover":false,
		"title":"강조","buttons":[{"type":"WL","name":"보기"}]
	}]}`, p.seen()[0].body)
}

// One call takes a hundred messages; each template has calls of its own, and results keep
// the order of the batch.
func TestSend_GroupsByTemplate(t *testing.T) {
	t.Parallel()
	p, s := setup(t, nil, nil)
	batch := deliveries(100)
	for i := range batch {
		if i%2 == 1 {
			batch[i].Data = []byte(`{"template_code":"ODD"}`)
		}
	}
	for i, r := range send(t, s, batch...) {
		require.Equal(t, sender.Result{Class: sender.Pending, Code: "A000", Receipt: fmt.Sprintf("id-0105555%04d", i)}, r)
	}
	require.Len(t, p.seen(), 2)
	for _, c := range p.seen() {
		require.Len(t, c.Messages, 50)
	}
}

// The answer repeats the contents: calls are kept so short that it can be read.
func TestSend_LongContentsAreAnsweredInFull(t *testing.T) {
	t.Parallel()
	p, s := setup(t, nil, nil)
	batch := deliveries(100)
	for i := range batch {
		batch[i].Body = strings.Repeat("안", 1000)
	}
	for i, r := range send(t, s, batch...) {
		require.Equal(t, sender.Pending, r.Class, i)
	}
	require.Greater(t, len(p.seen()), 1)
	require.Less(t, len(p.seen()), 12)
}

// What the provider says of each message, in whatever order.
func TestSend_ReadsEveryMessagesOwnCode(t *testing.T) {
	t.Parallel()
	_, s := setup(t, func(w http.ResponseWriter, _ call) {
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
	batch := append(deliveries(5), delivery("01055550004"), delivery("01055550009"))
	require.Equal(t, []sender.Result{
		{Class: sender.InvalidAddress, Code: "3019", Detail: "the provider refused the message"},
		{Class: sender.Permanent, Code: "A110", Detail: "the provider refused the message"},
		{Class: sender.Pending, Code: "A000", Receipt: "two"},
		{Class: sender.Accepted, Code: "A000"},
		{Class: sender.Pending, Code: "A000", Receipt: "same-1"},
		{Class: sender.Pending, Code: "A000", Receipt: "same-2"},
		{Class: sender.Unknown, Code: "202", Detail: "the provider's answer does not tell what became of the message"},
	}, send(t, s, batch...))
}

// One number for two channels: each has an answer of its own, wherever it stands.
func TestSend_ReadsTwoMessagesToOneNumber(t *testing.T) {
	t.Parallel()
	_, s := setup(t, func(w http.ResponseWriter, _ call) {
		_, _ = io.WriteString(w, `{"messages":[
			{"messageId":"3","to":"01055550000","requestStatusCode":"A000"},
			{"messageId":"1","to":"01055550001","requestStatusCode":"A000"},
			{"messageId":"2","to":"01055550001","requestStatusCode":"A000"}
		]}`)
	}, nil)
	got := send(t, s, delivery("01055550001"), delivery("01055550001"), delivery("01055550000"))
	require.Equal(t, []string{"1", "2", "3"}, []string{got[0].Receipt, got[1].Receipt, got[2].Receipt})
}

// Every class of a whole call; all its messages share it.
func TestSend_ClassifiesAnswers(t *testing.T) {
	t.Parallel()
	silence := "the provider's answer does not tell what became of the message"
	for name, test := range map[string]struct {
		status int
		body   string
		want   sender.Result
	}{
		"garbage":         {202, "<html>", sender.Result{Class: sender.Unknown, Code: "202", Detail: silence}},
		"empty":           {202, "", sender.Result{Class: sender.Unknown, Code: "202", Detail: silence}},
		"no messages":     {202, `{"requestId":"x","messages":null}`, sender.Result{Class: sender.Unknown, Code: "202", Detail: silence}},
		"huge":            {202, `{"x":"` + strings.Repeat("x", 1<<20) + `"}`, sender.Result{Class: sender.Unknown, Code: "202", Detail: silence}},
		"not authorised":  {401, `{"error":{"errorCode":"200","message":"Authentication Failed"}}`, sender.Result{Class: sender.Permanent, Code: "401 200", Detail: "Unauthorized"}},
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
			p, s := setup(t, func(w http.ResponseWriter, _ call) {
				if test.status != http.StatusAccepted {
					w.Header().Set("Retry-After", "7")
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}, nil)
			for _, got := range send(t, s, deliveries(3)...) {
				require.Equal(t, test.want, got)
			}
			require.Len(t, p.seen(), 1)
		})
	}
}

// A bad message is refused alone: its neighbours go out, each once.
func TestSend_ABadRequestHarmsNoNeighbour(t *testing.T) {
	t.Parallel()
	taken := map[string]int{}
	var mu sync.Mutex
	p, s := setup(t, func(w http.ResponseWriter, c call) {
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
		accept(w, c)
	}, nil)
	for i, got := range send(t, s, deliveries(100)...) {
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

// A lost answer is unknown for every message of the call; what the same Send had no time
// to call for is retryable.
func TestSend_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	_, s := setup(t, func(http.ResponseWriter, call) { panic(http.ErrAbortHandler) }, nil)
	for _, got := range send(t, s, deliveries(3)...) {
		require.Equal(t, sender.Unknown, got.Class, got)
		require.Equal(t, "connection", got.Code)
	}

	released := make(chan struct{})
	p, s := setup(t, func(http.ResponseWriter, call) { <-released }, nil)
	defer close(released)
	batch := deliveries(2)
	batch[1].Data = []byte(`{"template_code":"ZZZ"}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	got := s.Send(ctx, batch)
	require.Equal(t, sender.Unknown, got[0].Class, got[0])
	require.Equal(t, "timeout", got[0].Code)
	require.Equal(t, sender.Retryable, got[1].Class, got[1])
	require.Len(t, p.seen(), 1)

	// Half an answer: what could be read of it counts.
	_, s = setup(t, func(w http.ResponseWriter, _ call) {
		w.Header().Set("Content-Length", "9999")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"messages":[{"messageId":"one","to":"01055550000","requestStatusCode":"A000"},{"messageId":"tw`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, nil)
	got = send(t, s, deliveries(2)...)
	require.Equal(t, sender.Result{Class: sender.Pending, Code: "A000", Receipt: "one"}, got[0])
	require.Equal(t, sender.Unknown, got[1].Class)

	_, s = setup(t, nil, func(c *alimtalk.Config) { c.Endpoint = "http://127.0.0.1:1" })
	require.Equal(t, sender.Retryable, send(t, s, deliveries(1)...)[0].Class)
}

// Receipts: a failure to ask is never a failure of the message.
func TestReceipts(t *testing.T) {
	t.Parallel()
	p, s := setup(t, func(w http.ResponseWriter, c call) {
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
	got := s.Receipts(t.Context(), []string{"sent", "nobody", "blocked", "refused", "processing", "garbage", "busy", "broken", "a/b?c"})
	require.Equal(t, []sender.Result{
		{Class: sender.Accepted, Code: "0000"},
		{Class: sender.InvalidAddress, Code: "3019", Detail: "the provider could not deliver the message"},
		{Class: sender.Permanent, Code: "3020", Detail: "the provider could not deliver the message"},
		{Class: sender.Permanent, Code: "A110", Detail: "the provider refused the message"},
		{Class: sender.Pending, Detail: "the provider has no result yet"},
		{Class: sender.Pending, Detail: "the provider has no result yet"},
		{Class: sender.Pending, Code: "429", Detail: "Too Many Requests", RetryAfter: 5 * time.Second, Receipt: "busy"},
		{Class: sender.Pending, Code: "connection", Detail: "closed without an answer", Receipt: "broken"},
		{Class: sender.Pending, Code: "404", Detail: "Not Found", Receipt: "a/b?c"},
	}, got)
	for _, c := range p.seen() {
		verify(t, c)
		require.True(t, strings.HasPrefix(c.line, "GET /alimtalk/v2/services/ncp:kkobizmsg:kr:1234:belfry/messages/"), c.line)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range s.Receipts(ctx, make([]string, 30)) {
		require.Equal(t, sender.Pending, r.Class)
	}
}

func TestSend_ReadsNumbers(t *testing.T) {
	t.Parallel()
	p, s := setup(t, nil, nil)
	for address, want := range map[string]string{
		"010-1234-5678": "82 01012345678", "+82 10 1234 5678": "82 01012345678", "+82(0)10.1234.5678": "82 01012345678",
		"+1 212 555 0123": "1 2125550123", "+81 90-1234-5678": "81 9012345678", "+852 5123 4567": "852 51234567", " 01012345678 ": "82 01012345678",
	} {
		require.Equal(t, sender.Pending, send(t, s, delivery(address))[0].Class, address)
		m := last(p).Messages[0]
		require.Equal(t, want, fmt.Sprint(m["countryCode"], " ", m["to"]), address)
	}
	before := len(p.seen())
	for _, address := range []string{"", "+", "1234", "kim@example.org", "0101234567890123", "010 1234 567x", "+82", "01012345678\r\nX: y", "０１０１２３４５６７８"} {
		got := send(t, s, delivery(address))[0]
		require.Equal(t, sender.InvalidAddress, got.Class, address)
		require.NotContains(t, got.Detail, "1234")
	}
	require.Len(t, p.seen(), before)
}

// Content that cannot be sent is refused alone, without a call.
func TestSend_RefusesContentWithoutACall(t *testing.T) {
	t.Parallel()
	p, s := setup(t, nil, func(c *alimtalk.Config) { c.TemplateCode = "" })
	template := func(change func(*sender.Delivery)) sender.Delivery {
		d := delivery("01012345678")
		d.Data = []byte(`{"template_code":"A"}`)
		change(&d)
		return d
	}
	for detail, d := range map[string]sender.Delivery{
		"there is no template code": delivery("01012345678"),
		"the content has 0":         template(func(d *sender.Delivery) { d.Body = "" }),
		"the content has 1001":      template(func(d *sender.Delivery) { d.Body = strings.Repeat("안", 1001) }),
		"data.template_code":        template(func(d *sender.Delivery) { d.Data = []byte(`{"template_code":1}`) }),
		"data.alimtalk has":         template(func(d *sender.Delivery) { d.Data = []byte(`{"template_code":"A","alimtalk":{"to":"1"}}`) }),
	} {
		got := send(t, s, d)[0]
		require.Equal(t, sender.Permanent, got.Class, detail)
		require.Equal(t, "content", got.Code)
		require.Contains(t, got.Detail, detail)
		require.Contains(t, got.Detail, "allowed")
	}
	require.Empty(t, p.seen())
	got := send(t, s, delivery("01012345678"), template(func(*sender.Delivery) {}))
	require.Equal(t, []sender.Class{sender.Permanent, sender.Pending}, []sender.Class{got[0].Class, got[1].Class})
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	require.EqualError(t, alimtalk.DefaultConfig().Validate("senders[4].alimtalk"), strings.Join([]string{
		`senders[4].alimtalk.service_id: "" is not allowed; allowed is an id such as ncp:kkobizmsg:kr:123456789012:name`,
		`senders[4].alimtalk.access_key: is empty; allowed is an account's access key`,
		`senders[4].alimtalk.secret_key: is empty; allowed is an account's secret key, or a file in secret_key_file`,
		`senders[4].alimtalk.plus_friend_id: "" is not allowed; allowed is a KakaoTalk channel's id, such as @name`,
	}, "\n"))
	valid := alimtalk.DefaultConfig()
	valid.ServiceID, valid.AccessKey, valid.SecretKey, valid.PlusFriendID = "ncp:kkobizmsg:kr:1:x", "a", "topsecret", "@x"
	require.NoError(t, valid.Validate("x"))
	for key, change := range map[string]func(*alimtalk.Config){
		"endpoint":                 func(c *alimtalk.Config) { c.Endpoint = "sens" },
		"service_id":               func(c *alimtalk.Config) { c.ServiceID = "a/b" },
		"secret_key":               func(c *alimtalk.Config) { c.SecretKeyFile = "file" },
		"template_code":            func(c *alimtalk.Config) { c.TemplateCode = "a b" },
		"country_code":             func(c *alimtalk.Config) { c.CountryCode = "+82" },
		"max_batch":                func(c *alimtalk.Config) { c.MaxBatch = 101 },
		"invalid_address_codes[0]": func(c *alimtalk.Config) { c.InvalidAddressCodes = []string{""} },
		"allow_addresses":          func(c *alimtalk.Config) { c.HTTP.AllowAddresses = []string{"anywhere"} },
	} {
		c := valid
		change(&c)
		err := c.Validate("x")
		require.ErrorContains(t, err, "x."+key)
		require.ErrorContains(t, err, "allowed")
		require.NotContains(t, err.Error(), "topsecret")
		_, err = alimtalk.New(c, time.Now)
		require.Error(t, err)
	}
}

func TestNew_ReadsTheSecretFromAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte("not for your eyes\n"), 0o600))
	p, s := setup(t, nil, func(c *alimtalk.Config) { c.SecretKey, c.SecretKeyFile = "", path })
	require.Equal(t, sender.Pending, send(t, s, delivery("01012345678"))[0].Class)
	verify(t, p.seen()[0])

	cfg := alimtalk.DefaultConfig()
	cfg.ServiceID, cfg.AccessKey, cfg.PlusFriendID, cfg.SecretKeyFile = "x", "a", "@x", path+".none"
	_, err := alimtalk.New(cfg, time.Now)
	require.ErrorContains(t, err, "alimtalk.secret_key_file")
}
