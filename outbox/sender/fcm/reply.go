package fcm

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// quotaPause is the least wait that FCM asks for after a 429, where it names none itself
// (https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode).
const quotaPause = time.Minute

// reply is FCM's answer: a name, or an error.
type reply struct {
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

// code is FCM's own error code, or else Google's status.
func (r reply) code() string {
	for _, d := range r.Error.Details {
		if d.ErrorCode != "" {
			return httpcall.Code(d.ErrorCode)
		}
	}
	return httpcall.Code(r.Error.Status)
}

// blamesToken reports whether an INVALID_ARGUMENT is about the registration token. FCM
// names the field; for some tokens it says so only in the message, with no other detail
// (https://firebase.google.com/docs/cloud-messaging/error-codes, example 2).
func (r reply) blamesToken() bool {
	named := false
	for _, d := range r.Error.Details {
		for _, v := range d.FieldViolations {
			if v.Field == "message.token" {
				return true
			}
			named = true
		}
	}
	return !named && strings.Contains(r.Error.Message, "registration token is not a valid")
}

// read says what an answer means, and whether it refuses the access token.
func read(answer httpcall.Answer) (result sender.Result, badToken bool) {
	var r reply
	if err := json.Unmarshal(answer.Body, &r); err != nil {
		r = reply{} // of what is no JSON the status alone counts
	}
	if answer.Status >= 200 && answer.Status < 300 {
		if !strings.HasPrefix(r.Name, "projects/") {
			return answer.As(sender.Unknown, "answer", "an answer that is not FCM's"), false
		}
		result = answer.Result()
		result.Receipt = r.Name
		return result, false
	}
	result = answer.Result()
	code := r.code()
	if code != "" {
		result.Code = code
	}
	switch code {
	case "UNREGISTERED":
		return answer.As(sender.InvalidAddress, code, "the app is no longer registered"), false
	case "INVALID_ARGUMENT":
		if r.blamesToken() {
			return answer.As(sender.InvalidAddress, code, "the registration token is not valid"), false
		}
		return answer.As(sender.Permanent, code, "FCM refuses the message"), false
	case "SENDER_ID_MISMATCH":
		return answer.As(sender.Permanent, code, "the registration token is another project's"), false
	case "THIRD_PARTY_AUTH_ERROR":
		return answer.As(sender.Permanent, code, "the project's APNs or Web Push credentials are not valid"), false
	case "QUOTA_EXCEEDED", "UNAVAILABLE", "INTERNAL":
		result = answer.As(sender.Retryable, code, result.Detail)
	}
	if answer.Status == http.StatusTooManyRequests && result.RetryAfter == 0 {
		result.RetryAfter = quotaPause
	}
	return result, answer.Status == http.StatusUnauthorized
}
