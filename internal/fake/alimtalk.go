package fake

import (
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

// readSENS understands a call. One that cannot be read counts as one message.
func (s *Server) readSENS(w http.ResponseWriter, r *http.Request) (alimTalkCall, []message, *reply) {
	var call alimTalkCall
	body, refused := readAll(w, r)
	if refused != nil {
		return call, make([]message, 1), refused
	}
	err := json.Unmarshal(body, &call)
	messages := make([]message, max(len(call.Messages), 1))
	for i, m := range call.Messages {
		messages[i] = message{address: m.To, title: m.Title, body: m.Content}
		if len(call.Messages) == 1 {
			messages[i].key = r.Header.Get("Idempotency-Key")
		}
		messages[i].seal(AlimTalk, r.PathValue("service")+"\x00"+m.CountryCode+"\x00"+m.To+"\x00"+call.TemplateCode+"\x00"+m.Content)
	}
	status := 0
	switch {
	case !s.signedSENS(r):
		status = http.StatusUnauthorized
	case r.PathValue("service") != alimTalkService:
		status = http.StatusForbidden
	case err != nil, len(call.Messages) < 1, len(call.Messages) > maxAlimTalk, call.TemplateCode == "", call.PlusFriendID == "":
		status = http.StatusBadRequest
	}
	if status == 0 {
		return call, messages, nil
	}
	answer := sensError(status)
	return call, messages, &answer
}

// alimTalkSend answers a call of up to 100 messages.
func (s *Server) alimTalkSend(w http.ResponseWriter, r *http.Request) {
	arrived := s.config.Now()
	call, messages, refused := s.readSENS(w, r)
	about := make([]subject, len(messages))
	for i := range messages {
		about[i] = messages[i].subject()
	}
	drawn := s.plan.draw(string(AlimTalk), ofCall, about...)
	s.ledger.request(AlimTalk, drawn)
	f := drawn.fault
	k := f.kind()
	all := func(v verdict) {
		for i := range messages {
			s.ledger.record(AlimTalk, &messages[i], arrived, k, v)
		}
	}
	if !pause(r.Context(), drawn.late) {
		all(verdict{})
		abandon(w)
		return
	}
	taken := f.taken() && refused == nil
	switch {
	case k == kindStatus:
		answer := retryLater(sensError(f.Status), f.RetryAfter)
		if taken {
			s.take(call, messages, arrived, k, true)
		} else {
			all(verdict{code: answer.code, retryAfter: f.RetryAfter})
		}
		answer.write(w)
	case k == kindHang || k == kindReset:
		if taken {
			s.take(call, messages, arrived, k, true)
		} else {
			all(verdict{})
		}
		s.leaveUnanswered(w, r, k)
	case refused != nil:
		k = kindNone
		all(verdict{code: refused.code})
		refused.write(w)
	default:
		answer, accepted := s.take(call, messages, arrived, k, k == kindGarbage)
		if !answer.spoil(w, r, f) {
			s.ledger.unanswered(AlimTalk, accepted)
		}
	}
}

// take accepts the messages of a call, but for faults of single ones, and returns
// the answer and how many were accepted.
func (s *Server) take(call alimTalkCall, messages []message, arrived time.Time, k kind, lost bool) (reply, int) {
	list := make([]alimTalkMessage, 0, len(messages))
	accepted := 0
	for i := range messages {
		m := &messages[i]
		single := s.plan.draw(string(AlimTalk), ofMessage, m.subject()).fault.kind()
		s.ledger.fault(AlimTalk, single)
		answer := alimTalkMessage{
			CountryCode: "82", To: m.address, Content: m.body,
			RequestStatusCode: sensAccepted, RequestStatusName: "success", RequestStatusDesc: "success",
		}
		if c := call.Messages[i].CountryCode; c != "" {
			answer.CountryCode = c
		}
		decided := k
		if single != kindNone {
			decided = single
		}
		if single == kindRefused {
			s.ledger.record(AlimTalk, m, arrived, decided, verdict{code: sensRefused})
			answer.MessageID = m.id(1)
			answer.RequestStatusCode, answer.RequestStatusName, answer.RequestStatusDesc = sensRefused, "fail", "refused by order"
		} else {
			accepted++
			n := s.ledger.record(AlimTalk, m, arrived, decided, verdict{accepted: true, lost: lost})
			answer.MessageID = m.id(n)
			s.receipts.add(answer.MessageID, receipt{known: arrived.Add(s.config.ReceiptDelay), of: single})
		}
		list = append(list, answer)
	}
	first := messages[0]
	return jsonReply(http.StatusAccepted, "", map[string]any{
		"requestId": "r-" + first.id(1), "requestTime": arrived.UTC().Format("2006-01-02T15:04:05.000"),
		"statusCode": "202", "statusName": "success", "messages": list,
	}), accepted
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
