package fake

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// fcmError returns an error in the form of Google's APIs
// (firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode).
func fcmError(status int, canonical, code string) reply {
	body := map[string]any{"code": status, "message": canonical, "status": canonical}
	if code != "" {
		body["details"] = []map[string]string{{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}}
	}
	return jsonReply(status, strconv.Itoa(status), map[string]any{"error": body})
}

// fcmRefuse returns the error of an HTTP status.
func fcmRefuse(status int) reply {
	words := map[int][2]string{
		http.StatusBadRequest:          {"INVALID_ARGUMENT", "INVALID_ARGUMENT"},
		http.StatusUnauthorized:        {"UNAUTHENTICATED"},
		http.StatusForbidden:           {"PERMISSION_DENIED", "SENDER_ID_MISMATCH"},
		http.StatusTooManyRequests:     {"RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"},
		http.StatusInternalServerError: {"INTERNAL", "INTERNAL"},
		http.StatusServiceUnavailable:  {"UNAVAILABLE", "UNAVAILABLE"},
	}[status]
	return fcmError(status, cmp.Or(words[0], "UNKNOWN"), words[1])
}

// fcm is Firebase Cloud Messaging, HTTP v1.
func (s *Server) fcm() dialect {
	invalid := fcmError(http.StatusNotFound, "NOT_FOUND", "UNREGISTERED")
	invalid.code = "UNREGISTERED"
	return dialect{
		provider: FCM, refuse: fcmRefuse, invalid: invalid,
		read: func(r *http.Request, body []byte) ([]message, reply) {
			var call struct {
				Message struct {
					Token        string
					Notification struct{ Title, Body string }
					Data         map[string]string
				}
			}
			err := json.Unmarshal(body, &call)
			c := call.Message
			m := message{key: c.Data["belfry_key"], address: c.Token, title: c.Notification.Title, body: c.Notification.Body}
			switch {
			case r.Header.Get("Authorization") != "Bearer "+password("fcm token"):
				return ofOne(m, fcmRefuse(http.StatusUnauthorized))
			case r.PathValue("project") != fcmProject:
				return ofOne(m, fcmRefuse(http.StatusForbidden))
			case err != nil || m.address == "", fcmRefused(c.Notification.Title+c.Notification.Body, c.Data):
				return ofOne(m, fcmRefuse(http.StatusBadRequest))
			}
			return ofOne(m, reply{})
		},
		accept: func(_ *http.Request, taken []message) reply {
			return jsonReply(http.StatusOK, "", map[string]string{"name": "projects/" + fcmProject + "/messages/" + taken[0].id(FCM)})
		},
	}
}

// fcmRefused reports whether FCM would refuse a message because of its size or a reserved key of
// data.
func fcmRefused(text string, data map[string]string) bool {
	size := len(text)
	for name, value := range data {
		size += len(name) + len(value)
		if name == "from" || name == "message_type" || strings.HasPrefix(name, "google.") || strings.HasPrefix(name, "gcm.") {
			return true
		}
	}
	return size > 4096
}

// fcmToken answers OAuth's JWT bearer grant (RFC 7523).
func (s *Server) fcmToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	c, signed := openToken(r.PostFormValue("assertion"), &s.keys.fcm.PublicKey)
	now := s.config.Now()
	if !signed || r.PostFormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" ||
		c.Issuer != fcmAccount || !within(now, c.IssuedAt, time.Hour) || now.Unix() >= c.Expires ||
		!strings.Contains(c.Scope, "firebase.messaging") {
		jsonReply(http.StatusBadRequest, "", map[string]string{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}).write(w)
		return
	}
	jsonReply(http.StatusOK, "", map[string]any{"access_token": password("fcm token"), "token_type": "Bearer", "expires_in": 3600}).write(w)
}
