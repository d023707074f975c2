package fake

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxAlimTalk is the maximum number of messages in one call.
const maxAlimTalk = 100

// Request status codes of one message. A000 is documented. The documentation has no codes of
// refusals.
const (
	sensAccepted = "A000"
	sensRefused  = "A100"
)

// sensError returns an error in the form of Naver Cloud's API gateway
// (api.ncloud-docs.com/docs/en/common-ncpapi).
func sensError(status int) reply {
	code := map[int]string{
		http.StatusBadRequest: "100", http.StatusUnauthorized: "200", http.StatusForbidden: "210", http.StatusNotFound: "300",
		http.StatusTooManyRequests: "420", http.StatusRequestEntityTooLarge: "430", http.StatusServiceUnavailable: "500",
		http.StatusGatewayTimeout: "510",
	}[status]
	return jsonReply(status, strconv.Itoa(status), map[string]any{
		"error": map[string]string{"errorCode": cmp.Or(code, "900"), "message": http.StatusText(status)},
	})
}

// signedSENS verifies a call's headers.
func (s *Server) signedSENS(r *http.Request) bool {
	timestamp, access := r.Header.Get("x-ncp-apigw-timestamp"), password("alimtalk access")
	millis, err := strconv.ParseInt(timestamp, 10, 64)
	want := signature([]byte(password("alimtalk secret")), r.Method+" "+r.RequestURI+"\n"+timestamp+"\n"+access)
	return err == nil && within(s.config.Now(), millis/1000, tolerance) &&
		r.Header.Get("x-ncp-iam-access-key") == access && r.Header.Get("x-ncp-apigw-signature-v2") == want
}

// alimTalk is SENS AlimTalk v2: up to 100 messages a call
// (api.ncloud-docs.com/docs/en/ai-application-service-sens-alimtalkv2).
func (s *Server) alimTalk() dialect {
	return dialect{provider: AlimTalk, refuse: sensError, read: s.readSENS, accept: s.takeSENS}
}

// readSENS parses a call.
func (s *Server) readSENS(r *http.Request, body []byte) ([]message, reply) {
	var call struct {
		PlusFriendID string
		TemplateCode string
		Messages     []struct{ CountryCode, To, Title, Content string }
	}
	err := json.Unmarshal(body, &call)
	messages := make([]message, max(len(call.Messages), 1))
	for i, m := range call.Messages {
		messages[i] = message{
			address: m.To, title: m.Title, body: m.Content, country: cmp.Or(m.CountryCode, "82"),
			unkeyed: r.PathValue("service") + "\x00" + m.CountryCode + "\x00" + m.To + "\x00" + call.TemplateCode + "\x00" + m.Content,
		}
	}
	switch {
	case !s.signedSENS(r):
		return messages, sensError(http.StatusUnauthorized)
	case r.PathValue("service") != alimTalkService:
		return messages, sensError(http.StatusForbidden)
	case err != nil, len(call.Messages) < 1, len(call.Messages) > maxAlimTalk, call.TemplateCode == "", call.PlusFriendID == "":
		return messages, sensError(http.StatusBadRequest)
	}
	return messages, reply{}
}

// takeSENS answers with the status of each message, and stores its result.
func (s *Server) takeSENS(_ *http.Request, taken []message) reply {
	now := s.config.Now()
	list := make([]map[string]any, len(taken))
	for i, m := range taken {
		id, code := m.id(AlimTalk), sensAccepted
		if m.fault == kindRefused {
			code = sensRefused
		} else {
			s.receipts.add(id, receipt{known: now.Add(s.config.ReceiptDelay), of: m.fault})
		}
		list[i] = map[string]any{
			"messageId": id, "countryCode": m.country, "to": m.address, "content": m.body, "requestStatusCode": code,
			"requestStatusName": map[bool]string{true: "success", false: "fail"}[code == sensAccepted],
		}
	}
	return jsonReply(http.StatusAccepted, "", map[string]any{
		"requestId": "r-" + taken[0].id(AlimTalk), "requestTime": now.UTC().Format("2006-01-02T15:04:05.000"),
		"statusCode": "202", "statusName": "success", "messages": list,
	})
}

// receipt is the result of an accepted message.
type receipt struct {
	known time.Time
	of    kind // the fault that applies
}

// receipts has the results by message id. They are safe for concurrent use.
type receipts struct {
	mu   sync.Mutex
	byID map[string]receipt
}

// add stores the first result of an id.
func (r *receipts) add(id string, of receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = make(map[string]receipt)
	}
	if _, ok := r.byID[id]; !ok {
		r.byID[id] = of
	}
}

func (r *receipts) find(id string) (receipt, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, ok := r.byID[id]
	return of, ok
}

// alimTalkReceipt answers with the result of one message.
func (s *Server) alimTalkReceipt(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("message")
	of, known := s.receipts.find(id)
	switch {
	case !s.signedSENS(r):
		sensError(http.StatusUnauthorized).write(w)
		return
	case !known:
		sensError(http.StatusNotFound).write(w)
		return
	}
	status, code := of.result(s.config.Now())
	body := map[string]any{"requestId": "r-" + id, "messageId": id, "requestStatusCode": sensAccepted, "messageStatusName": status}
	if code != "" {
		body["completeTime"], body["messageStatusCode"] = of.known.UTC().Format("2006-01-02T15:04:05"), code
	}
	jsonReply(http.StatusOK, "", body).write(w)
}

// result returns the name and the code of a result.
func (r receipt) result(now time.Time) (status, code string) {
	switch {
	case r.of == kindUnreported || now.Before(r.known):
		return "processing", ""
	case r.of == kindInvalid: // not a user of KakaoTalk
		return "fail", "3019"
	case r.of == kindUndelivered: // cannot be delivered
		return "fail", "3018"
	}
	return "success", "0000"
}
