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
	switch status {
	case http.StatusBadRequest:
		return fcmError(status, "INVALID_ARGUMENT", "INVALID_ARGUMENT")
	case http.StatusUnauthorized:
		return fcmError(status, "UNAUTHENTICATED", "")
	case http.StatusForbidden:
		return fcmError(status, "PERMISSION_DENIED", "SENDER_ID_MISMATCH")
	case http.StatusNotFound:
		return fcmError(status, "NOT_FOUND", "")
	case http.StatusTooManyRequests:
		return fcmError(status, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
	case http.StatusInternalServerError:
		return fcmError(status, "INTERNAL", "INTERNAL")
	case http.StatusServiceUnavailable:
		return fcmError(status, "UNAVAILABLE", "UNAVAILABLE")
	}
	return fcmError(status, "UNKNOWN", "")
}

// fcm is Firebase Cloud Messaging, HTTP v1.
func (s *Server) fcm() dialect {
	return dialect{
		provider: FCM, refuse: fcmRefuse,
		read: func(r *http.Request, body []byte) (m message, refused *reply) {
			var call struct {
				Message struct {
					Token        string
					Notification struct{ Title, Body string }
					Data         map[string]string
				}
			}
			err := json.Unmarshal(body, &call)
			m.key, m.address = call.Message.Data["belfry_key"], call.Message.Token
			m.title, m.body = call.Message.Notification.Title, call.Message.Notification.Body
			token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			var answer reply
			switch {
			case subtle.ConstantTimeCompare([]byte(token), []byte(s.bearer)) != 1:
				answer = fcmRefuse(http.StatusUnauthorized)
			case r.PathValue("project") != fcmProject:
				answer = fcmRefuse(http.StatusForbidden)
			case err != nil || m.address == "":
				answer = fcmRefuse(http.StatusBadRequest)
			default:
				return m, nil
			}
			return m, &answer
		},
		accept: func(_ *message, _ *http.Request, id string) reply {
			return jsonReply(http.StatusOK, "", map[string]string{"name": "projects/" + fcmProject + "/messages/" + id})
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
	body, refused := readAll(w, r)
	if refused == nil && !s.granted(string(body)) {
		answer := jsonReply(http.StatusBadRequest, "", map[string]string{"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
		refused = &answer
	}
	good := jsonReply(http.StatusOK, "", map[string]any{"access_token": s.bearer, "token_type": "Bearer", "expires_in": 3600})
	if refused != nil {
		good = *refused
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

// aside answers what is no call of a message: good, unless a fault was ordered.
func (s *Server) aside(w http.ResponseWriter, r *http.Request, target string, good reply, refuse func(status int) reply) {
	drawn := s.plan.draw(target, anyKind)
	f := drawn.fault
	k := f.kind()
	switch {
	case !pause(r.Context(), drawn.late):
		abandon(w)
	case k == kindHang || k == kindReset:
		s.leaveUnanswered(w, r, k)
	case k == kindStatus:
		retryLater(refuse(f.Status), f.RetryAfter).write(w)
	default:
		good.spoil(w, r, f)
	}
}
