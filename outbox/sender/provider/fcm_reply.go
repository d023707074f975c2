package provider

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

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
	return !named && strings.Contains(r.Error.Message, "registration token is not a valid")
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
