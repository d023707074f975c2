package fake

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// fcmError is an error as Google's APIs word them
// (firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode).
func fcmError(status int, canonical, code string) reply {
	body := map[string]any{"code": status, "message": canonical, "status": canonical}
	if code != "" {
		body["details"] = []map[string]string{{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}}
	}
	return jsonReply(status, strconv.Itoa(status), map[string]any{"error": body})
}

// fcmRefuse words an HTTP status.
func fcmRefuse(status int) reply {
	words, ok := map[int][2]string{
		http.StatusBadRequest:          {"INVALID_ARGUMENT", "INVALID_ARGUMENT"},
		http.StatusUnauthorized:        {"UNAUTHENTICATED", ""},
		http.StatusForbidden:           {"PERMISSION_DENIED", "SENDER_ID_MISMATCH"},
		http.StatusNotFound:            {"NOT_FOUND", ""},
		http.StatusTooManyRequests:     {"RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"},
		http.StatusInternalServerError: {"INTERNAL", "INTERNAL"},
		http.StatusServiceUnavailable:  {"UNAVAILABLE", "UNAVAILABLE"},
	}[status]
	if !ok {
		words[0] = "UNKNOWN"
	}
	return fcmError(status, words[0], words[1])
}

// fcm is Firebase Cloud Messaging, HTTP v1.
func (s *Server) fcm() dialect {
	return dialect{
		provider: FCM, refuse: fcmRefuse,
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
			token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			switch {
			case subtle.ConstantTimeCompare([]byte(token), []byte(s.bearer)) != 1:
				return ofOne(m, fcmRefuse(http.StatusUnauthorized))
			case r.PathValue("project") != fcmProject:
				return ofOne(m, fcmRefuse(http.StatusForbidden))
			case err != nil || m.address == "":
				return ofOne(m, fcmRefuse(http.StatusBadRequest))
			}
			return ofOne(m, reply{})
		},
		accept: func(_ *http.Request, taken []message) reply {
			return jsonReply(http.StatusOK, "", map[string]string{"name": "projects/" + fcmProject + "/messages/" + taken[0].id})
		},
		invalid: func() reply {
			a := fcmError(http.StatusNotFound, "NOT_FOUND", "UNREGISTERED")
			a.code = "UNREGISTERED"
			return a
		},
	}
}

// fcmToken answers OAuth's JWT bearer grant (RFC 7523).
func (s *Server) fcmToken(w http.ResponseWriter, r *http.Request) {
	good := jsonReply(http.StatusOK, "", map[string]any{"access_token": s.bearer, "token_type": "Bearer", "expires_in": 3600})
	if body, refused := readAll(w, r); refused.status != 0 {
		good = refused
	} else if !s.granted(string(body)) {
		good = jsonReply(http.StatusBadRequest, "", map[string]string{"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
	}
	s.aside(w, r, targetToken, good, func(status int) reply {
		return jsonReply(status, "", map[string]string{"error": "temporarily_unavailable", "error_description": http.StatusText(status)})
	})
}

func (s *Server) granted(form string) bool {
	values, err := url.ParseQuery(form)
	if err != nil || values.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		return false
	}
	key, err := s.vault.fcm()
	if err != nil {
		return false
	}
	c, err := openToken(values.Get("assertion"), "RS256", byRSA(&key.PublicKey))
	now := s.config.Now()
	return err == nil && c.Issuer == fcmAccount && within(now, c.IssuedAt, time.Hour) && now.Unix() < c.Expires &&
		strings.Contains(c.Scope, "firebase.messaging")
}
