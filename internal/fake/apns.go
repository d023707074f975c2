package fake

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// maxAPNs is the size of a notification's payload.
const maxAPNs = 4096

// apnsReason is an error as Apple words them
// (developer.apple.com/documentation/usernotifications, handling responses from APNs).
func (s *Server) apnsReason(status int, reason string) reply {
	body := map[string]any{"reason": reason}
	if status == http.StatusGone {
		body["timestamp"] = s.config.Now().UnixMilli()
	}
	return jsonReply(status, reason, body)
}

// apnsRefuse words an HTTP status.
func (s *Server) apnsRefuse(status int) reply {
	reasons := map[int]string{
		http.StatusBadRequest: "BadMessageId", http.StatusForbidden: "InvalidProviderToken", http.StatusNotFound: "BadPath",
		http.StatusMethodNotAllowed: "MethodNotAllowed", http.StatusGone: "ExpiredToken",
		http.StatusRequestEntityTooLarge: "PayloadTooLarge", http.StatusTooManyRequests: "TooManyRequests",
		http.StatusInternalServerError: "InternalServerError", http.StatusServiceUnavailable: "ServiceUnavailable",
	}
	reason, ok := reasons[status]
	if !ok {
		reason = strings.ReplaceAll(http.StatusText(status), " ", "")
	}
	return s.apnsReason(status, reason)
}

// apns is Apple's push service with token authentication, by HTTP/2 alone.
func (s *Server) apns() dialect {
	return dialect{
		provider: APNs, refuse: s.apnsRefuse,
		read: func(r *http.Request, body []byte) ([]message, reply) {
			var call struct {
				APS struct {
					Alert struct{ Title, Body string }
				}
			}
			err := json.Unmarshal(body, &call)
			m := message{key: r.Header.Get("apns-id"), address: r.PathValue("token"), title: call.APS.Alert.Title, body: call.APS.Alert.Body}
			switch reason := s.apnsProof(r); {
			case r.ProtoMajor < 2:
				return ofOne(m, s.apnsReason(http.StatusHTTPVersionNotSupported, "HTTPVersionNotSupported"))
			case reason != "":
				return ofOne(m, s.apnsReason(http.StatusForbidden, reason))
			case r.Header.Get("apns-topic") == "":
				return ofOne(m, s.apnsReason(http.StatusBadRequest, "MissingTopic"))
			case len(body) > maxAPNs:
				return ofOne(m, s.apnsReason(http.StatusRequestEntityTooLarge, "PayloadTooLarge"))
			case err != nil:
				return ofOne(m, s.apnsReason(http.StatusBadRequest, "PayloadEmpty"))
			}
			return ofOne(m, reply{})
		},
		accept: func(_ *http.Request, taken []message) reply {
			return reply{status: http.StatusOK, header: http.Header{"Apns-Id": {cmp.Or(taken[0].key, taken[0].id)}}}
		},
		invalid: func() reply { return s.apnsReason(http.StatusGone, "Unregistered") },
	}
}

// apnsProof verifies a provider token and returns the reason to refuse it, or "".
func (s *Server) apnsProof(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "bearer ")
	if !ok {
		return "MissingProviderToken"
	}
	c, err := openToken(token, "ES256", byEC(&s.vault.apns.PublicKey))
	switch {
	case err != nil || c.Issuer != apnsTeamID || c.keyID != apnsKeyID:
		return "InvalidProviderToken"
	case !within(s.config.Now(), c.IssuedAt, time.Hour):
		return "ExpiredProviderToken"
	}
	return ""
}
