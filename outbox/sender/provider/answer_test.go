package provider

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

// I11: of 4xx only 401, 408, 425 and 429 may be tried again. I9: a gateway's 502 and 504 are
// unknown.
func TestClassOf(t *testing.T) {
	t.Parallel()
	named := map[int]sender.Class{
		401: sender.Retryable, 408: sender.Retryable, 425: sender.Retryable, 429: sender.Retryable, 500: sender.Retryable, 503: sender.Retryable,
		502: sender.Unknown, 504: sender.Unknown,
	}
	for status := 100; status < 600; status++ {
		want, ok := named[status]
		switch {
		case ok:
		case status/100 == 2:
			want = sender.Accepted
		case status/100 == 5:
			want = sender.Unknown
		default:
			want = sender.Permanent
		}
		require.Equal(t, want, classOfStatus(status), status)
	}
}

func TestAnswer_Result(t *testing.T) {
	t.Parallel()
	header := http.Header{"Retry-After": {"7"}}
	require.Equal(t, sender.Result{Class: sender.Accepted, Code: "204", Detail: "No Content"}, httpAnswer{status: 204, header: header}.result())
	require.Equal(t, sender.Result{Class: sender.Retryable, Code: "429", Detail: "Too Many Requests", RetryAfter: 7 * time.Second}, httpAnswer{status: 429, header: header}.result())
	require.Equal(t, sender.Result{Class: sender.Unknown, Code: "502", Detail: "Bad Gateway", RetryAfter: 7 * time.Second}, httpAnswer{status: 502, header: header}.result())
	require.Equal(t, sender.Result{Class: sender.Permanent, Code: "302", Detail: "Found (not followed)"}, httpAnswer{status: 302, header: header}.result())
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 500_000_000, time.UTC)
	for _, test := range []struct {
		text, date string
		want       time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"120", "", 2 * time.Minute},
		{" 120 ", "", 2 * time.Minute},
		{"1.2", "", 2 * time.Second},
		{"-5", "", 0},
		{"soon", "", 0},
		{"0x10", "", 0},
		{"1_0", "", 0},
		{"12 apples", "", 0},
		{"99999999999999999999", "", 24 * time.Hour},
		{"1e999", "", 24 * time.Hour},
		{"Sat, 21 Nov 2026 12:00:10 GMT", "", 10 * time.Second}, // 9.5 s, rounded up
		{"Sat, 21 Nov 2026 11:00:00 GMT", "", 0},
		{"Sat, 21 Nov 2099 11:00:00 GMT", "", 24 * time.Hour},
		{"Saturday, 21-Nov-26 12:00:10 GMT", "", 10 * time.Second},
		{"Sat Nov 21 12:00:10 2026", "", 10 * time.Second},
		{"Sat, 21 Nov 2026 12:00:10 +0000", "", 10 * time.Second},
		{"Sat, 21 Nov 2026 21:00:10 +0900", "", 10 * time.Second},
		{"2026-11-21T12:00:10Z", "", 10 * time.Second},
		{"2026-11-21T21:00:10+09:00", "", 10 * time.Second},
		{"2026-11-21", "", 0},
		{"1795262410", "", 24 * time.Hour}, // an instant
		// Our clock is an hour ahead of the provider's: its own Date tells.
		{"Sat, 21 Nov 2026 11:00:10 GMT", "Sat, 21 Nov 2026 11:00:00 GMT", 10 * time.Second},
		// And an hour behind: the longer wait counts.
		{"Sat, 21 Nov 2026 13:00:10 GMT", "Sat, 21 Nov 2026 13:00:00 GMT", time.Hour + 10*time.Second},
	} {
		h := http.Header{"Retry-After": {test.text}}
		if test.date != "" {
			h.Set("Date", test.date)
		}
		require.Equal(t, test.want, retryAfter(h, now), "%q, Date %q", test.text, test.date)
	}
}

// I11: whatever a provider writes, the wait is none or whole seconds within a day, and
// never shorter than a date that was read.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "1", "1.5", "9e99", "Sat, 21 Nov 2026 12:00:10 GMT", "nan", "0x1p-2", "\x00"} {
		f.Add(seed, "Sat, 21 Nov 2026 12:00:00 GMT", int64(1_795_262_400))
	}
	f.Fuzz(func(t *testing.T, text, date string, unix int64) {
		now := time.Unix(unix%(1<<40), 999)
		wait := retryAfter(http.Header{"Retry-After": {text}, "Date": {date}}, now)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.LessOrEqual(t, wait, 24*time.Hour)
		require.Zero(t, wait%time.Second)
		if at, err := http.ParseTime(text); err == nil && wait < 24*time.Hour {
			require.False(t, now.Add(wait).Before(at), "early")
		}
	})
}

func TestCode(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"UNREGISTERED", "21211", "A000", "not_found", "30-5:1", "200100"} {
		require.Equal(t, text, keptCode(text))
	}
	for _, text := range []string{"", "010-1234-5678", "+821012345678", "1234567", "tel:8210123456", "a b", "<script>", "é", "a@example.com", string(make([]byte, 65))} {
		require.Empty(t, keptCode(text), text)
	}
}

// An address becomes invalid only by an answer about that address: every kind, and what its
// provider answers about addresses, senders, credentials and content.
func TestAnswers_OnlyOneAboutTheAddressMakesItInvalid(t *testing.T) {
	t.Parallel()
	var status int
	var body string
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	google := fcmStart(t)
	google.set(nil, answer)
	apple := apnsSetup(t, answer, nil)
	service, browsers := webpushSetup(t, answer, nil, time.Now)
	server := serve(t, answer).URL
	fixed := webhookConfig()
	fixed.URL = server
	gateway := smsAnswers()
	gateway.URL, gateway.Unknown = server, SMSMatch{}
	_, talk := alimtalkSetup(t, func(w http.ResponseWriter, _ alimtalkCall) { answer(w, nil) }, nil)
	type call struct {
		client   Client
		delivery sender.Delivery
	}
	calls := map[string]call{
		"fcm":           {google.sender(t, google.config(t)), fcmDelivery()},
		"apns":          {apple.sender, apnsDelivery()},
		"webpush":       {browsers, webpushDelivery(webpushNewBrowser(t).subscription(t, service.URL))},
		"webhook":       {open(t, webhookConfig(), time.Now), webhookDelivery(server)},
		"webhook fixed": {open(t, fixed, time.Now), webhookDelivery("")},
		"sms":           {open(t, &gateway, smsNow), smsDelivery()},
		"alimtalk":      {talk, alimtalkDelivery("01012345678")},
	}
	google404 := `{"error":{"status":"NOT_FOUND","details":[{"errorCode":"UNREGISTERED"}]}}`
	for _, test := range []struct {
		kind   string
		status int
		body   string
		want   sender.Class
	}{
		{"fcm", 404, google404, sender.InvalidAddress},
		{"fcm", 404, `{"error":{"status":"NOT_FOUND"}}`, sender.Permanent}, // the project
		{"fcm", 400, `{"error":{"status":"INVALID_ARGUMENT"}}`, sender.Permanent},
		{"fcm", 403, `{"error":{"details":[{"errorCode":"SENDER_ID_MISMATCH"}]}}`, sender.Permanent},
		{"fcm", 401, `{"error":{"status":"UNAUTHENTICATED"}}`, sender.Retryable},
		{"fcm", 401, `{"error":{"details":[{"errorCode":"THIRD_PARTY_AUTH_ERROR"}]}}`, sender.Retryable},
		{"apns", 410, `{"reason":"Unregistered"}`, sender.InvalidAddress},
		{"apns", 400, `{"reason":"BadDeviceToken"}`, sender.InvalidAddress},
		{"apns", 400, `{"reason":"DeviceTokenNotForTopic"}`, sender.Permanent},
		{"apns", 400, `{"reason":"BadTopic"}`, sender.Permanent},
		{"apns", 403, `{"reason":"InvalidProviderToken"}`, sender.Retryable},
		{"apns", 404, `{"reason":"BadPath"}`, sender.Permanent},
		{"webpush", 404, "", sender.InvalidAddress},
		{"webpush", 410, "", sender.InvalidAddress},
		{"webpush", 400, "", sender.Permanent},
		{"webpush", 403, "", sender.Permanent},
		{"webhook", 410, "", sender.InvalidAddress},
		{"webhook", 404, "", sender.Permanent},
		{"webhook", 403, "", sender.Permanent},
		{"webhook fixed", 410, "", sender.Permanent},
		{"sms", 200, `{"messages":[{"status":"bad_number"}]}`, sender.InvalidAddress},
		{"sms", 400, `{"messages":[{"status":"bad_sender"}]}`, sender.Permanent},
		{"sms", 410, "", sender.Permanent},
		{"alimtalk", 202, `{"messages":[{"to":"01012345678","requestStatusCode":"3019"}]}`, sender.InvalidAddress},
		{"alimtalk", 202, `{"messages":[{"to":"01012345678","requestStatusCode":"A110"}]}`, sender.Permanent},
		{"alimtalk", 404, "", sender.Permanent},
	} {
		status, body = test.status, test.body
		c := calls[test.kind]
		require.Equal(t, test.want, deliver(t, c.client, c.delivery).Class, "%s: %d %s", test.kind, test.status, test.body)
	}
	for kind, c := range calls {
		for _, status = range []int{401, 408, 425, 429, 500, 503} {
			body = ""
			require.Equal(t, sender.Retryable, deliver(t, c.client, c.delivery).Class, "%s: %d", kind, status)
		}
	}
}
