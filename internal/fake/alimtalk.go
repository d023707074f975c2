package fake

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxAlimTalk is how many messages one call takes.
const maxAlimTalk = 100

// sensError is an error as Naver Cloud's API gateway words them
// (api.ncloud-docs.com/docs/en/common-ncpapi).
func sensError(status int) reply {
	codes := map[int]string{
		http.StatusBadRequest: "100", http.StatusUnauthorized: "200", http.StatusForbidden: "210", http.StatusNotFound: "300",
		http.StatusTooManyRequests: "420", http.StatusRequestEntityTooLarge: "430", http.StatusServiceUnavailable: "500",
		http.StatusGatewayTimeout: "510",
	}
	code, ok := codes[status]
	if !ok {
		code = "900"
	}
	return jsonReply(status, strconv.Itoa(status), map[string]any{"error": map[string]string{"errorCode": code, "message": http.StatusText(status)}})
}

// alimTalkCall is a call of SENS AlimTalk v2
// (api.ncloud-docs.com/docs/en/ai-application-service-sens-alimtalkv2).
type alimTalkCall struct {
	PlusFriendID string `json:"plusFriendId"`
	TemplateCode string `json:"templateCode"`
	Messages     []struct {
		CountryCode string `json:"countryCode"`
		To          string `json:"to"`
		Title       string `json:"title"`
		Content     string `json:"content"`
	} `json:"messages"`
}

// alimTalkMessage is what the answer says of one message.
type alimTalkMessage struct {
	MessageID         string `json:"messageId"`
	CountryCode       string `json:"countryCode"`
	To                string `json:"to"`
	Content           string `json:"content"`
	RequestStatusCode string `json:"requestStatusCode"`
	RequestStatusName string `json:"requestStatusName"`
	RequestStatusDesc string `json:"requestStatusDesc"`
	UseSMSFailover    bool   `json:"useSmsFailover"`
}

// Request status codes of one message. A000 is documented; of refusals only that
// their code is another.
const (
	sensAccepted = "A000"
	sensRefused  = "A100"
)

// signedSENS verifies a call's headers.
func (s *Server) signedSENS(r *http.Request) bool {
	timestamp := r.Header.Get("x-ncp-apigw-timestamp")
	millis, err := strconv.ParseInt(timestamp, 10, 64)
	access := s.vault.text("alimtalk access", 15)
	if err != nil || r.Header.Get("x-ncp-iam-access-key") != access || !within(s.config.Now(), millis/1000, tolerance) {
		return false
	}
	mac := hmac.New(sha256.New, []byte(s.vault.text("alimtalk secret", 30)))
	mac.Write([]byte(r.Method + " " + r.RequestURI + "\n" + timestamp + "\n" + access))
	want := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return hmac.Equal([]byte(r.Header.Get("x-ncp-apigw-signature-v2")), []byte(want))
}

// alimTalk is SENS AlimTalk: up to 100 messages a call.
func (s *Server) alimTalk() dialect {
	return dialect{provider: AlimTalk, batch: true, read: s.readSENS, accept: s.takeSENS, refuse: sensError}
}

// readSENS understands a call.
func (s *Server) readSENS(r *http.Request, body []byte) ([]message, reply) {
	var call alimTalkCall
	err := json.Unmarshal(body, &call)
	messages := make([]message, max(len(call.Messages), 1))
	for i, m := range call.Messages {
		messages[i] = message{
			address: m.To, title: m.Title, body: m.Content, country: cmp.Or(m.CountryCode, "82"),
			unkeyed: r.PathValue("service") + "\x00" + m.CountryCode + "\x00" + m.To + "\x00" + call.TemplateCode + "\x00" + m.Content,
		}
		if len(call.Messages) == 1 {
			messages[i].key = r.Header.Get("Idempotency-Key")
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

// takeSENS answers for each message, and notes its result.
func (s *Server) takeSENS(_ *http.Request, taken []message) reply {
	now := s.config.Now()
	list := make([]alimTalkMessage, len(taken))
	for i, m := range taken {
		list[i] = alimTalkMessage{
			MessageID: m.id, CountryCode: m.country, To: m.address, Content: m.body,
			RequestStatusCode: sensAccepted, RequestStatusName: "success", RequestStatusDesc: "success",
		}
		if m.fault == kindRefused {
			list[i].RequestStatusCode, list[i].RequestStatusName, list[i].RequestStatusDesc = sensRefused, "fail", "refused by order"
			continue
		}
		s.receipts.add(m.id, receipt{known: now.Add(s.config.ReceiptDelay), of: m.fault})
	}
	return jsonReply(http.StatusAccepted, "", map[string]any{
		"requestId": "r-" + taken[0].name(1), "requestTime": now.UTC().Format("2006-01-02T15:04:05.000"),
		"statusCode": "202", "statusName": "success", "messages": list,
	})
}

// receipt is the result of an accepted message.
type receipt struct {
	known time.Time
	of    kind // the fault that decides it
}

// receipts are the results by message id. They are safe for concurrent use.
type receipts struct {
	mu   sync.Mutex
	most int // results that are kept; of more nothing is known
	byID map[string]receipt
}

// add keeps the first result of an id.
func (r *receipts) add(id string, of receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = make(map[string]receipt)
	}
	if _, ok := r.byID[id]; !ok && len(r.byID) < r.most {
		r.byID[id] = of
	}
}

func (r *receipts) find(id string) (receipt, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, ok := r.byID[id]
	return of, ok
}

// alimTalkReceipt answers for the result of one message.
func (s *Server) alimTalkReceipt(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("message")
	of, known := s.receipts.find(id)
	var answer reply
	switch {
	case !s.signedSENS(r):
		answer = sensError(http.StatusUnauthorized)
	case !known:
		answer = sensError(http.StatusNotFound)
	default:
		body := map[string]any{
			"requestId": "r-" + id, "messageId": id, "plusFriendId": "@belfry", "to": "", "content": "",
			"requestStatusCode": sensAccepted, "requestStatusName": "success", "requestStatusDesc": "success",
			"messageStatusName": "processing",
		}
		if code, desc := of.result(s.config.Now()); code != "" {
			body["completeTime"] = of.known.UTC().Format("2006-01-02T15:04:05")
			body["messageStatusCode"], body["messageStatusDesc"], body["messageStatusName"] = code, desc, "fail"
			if code == "0000" {
				body["messageStatusName"] = "success"
			}
		}
		answer = jsonReply(http.StatusOK, "", body)
	}
	s.aside(w, r, targetReceipts, answer, sensError)
}

// result returns a result's code and its description, or "" while it is not known.
func (r receipt) result(now time.Time) (code, desc string) {
	switch {
	case r.of == kindUnreported || now.Before(r.known):
		return "", ""
	case r.of == kindInvalid:
		return "3019", "not a user of KakaoTalk"
	case r.of == kindUndelivered:
		return "3018", "cannot be delivered"
	}
	return "0000", "success"
}
