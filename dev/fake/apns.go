package fake

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// apnsReason returns an error in the form of APNs
// (developer.apple.com/documentation/usernotifications, handling responses from APNs).
func apnsReason(status int, reason string) reply {
	return jsonReply(status, reason, map[string]any{"reason": reason})
}

// apnsRefuse returns the error of an HTTP status.
func apnsRefuse(status int) reply {
	reason := map[int]string{
		http.StatusBadRequest: "BadMessageId", http.StatusForbidden: "InvalidProviderToken", http.StatusNotFound: "BadPath",
		http.StatusGone: "ExpiredToken", http.StatusRequestEntityTooLarge: "PayloadTooLarge",
	}[status]
	return apnsReason(status, cmp.Or(reason, strings.ReplaceAll(http.StatusText(status), " ", "")))
}

// apns is Apple's push service with token authentication, only with HTTP/2.
func (s *Server) apns() dialect {
	return dialect{
		provider: APNs, refuse: apnsRefuse, invalid: apnsReason(http.StatusGone, "Unregistered"),
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
				return ofOne(m, apnsRefuse(http.StatusHTTPVersionNotSupported))
			case reason != "":
				return ofOne(m, apnsReason(http.StatusForbidden, reason))
			case r.Header.Get("apns-topic") == "":
				return ofOne(m, apnsReason(http.StatusBadRequest, "MissingTopic"))
			case err != nil:
				return ofOne(m, apnsReason(http.StatusBadRequest, "PayloadEmpty"))
			}
			return ofOne(m, reply{})
		},
		accept: func(_ *http.Request, taken []message) reply {
			return reply{status: http.StatusOK, header: http.Header{"Apns-Id": {cmp.Or(taken[0].key, taken[0].id(APNs))}}}
		},
	}
}

// apnsProof verifies a provider token and returns the reason for a refusal, or "".
func (s *Server) apnsProof(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "bearer ")
	c, signed := openToken(token, &s.keys.apns.PublicKey)
	switch {
	case !ok:
		return "MissingProviderToken"
	case !signed || c.Issuer != apnsTeamID || c.KeyID != apnsKeyID:
		return "InvalidProviderToken"
	case !within(s.config.Now(), c.IssuedAt, time.Hour):
		return "ExpiredProviderToken"
	}
	return ""
}
