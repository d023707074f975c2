package fake

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// tolerance is how far a signed instant may be from now.
const tolerance = 5 * time.Minute

// webhook is a receiver that verifies the signatures of Standard Webhooks
// (github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md).
func (s *Server) webhook() dialect {
	refuse := func(status int) reply {
		return jsonReply(status, strconv.Itoa(status), map[string]string{"error": http.StatusText(status)})
	}
	return dialect{
		provider: Webhook, refuse: refuse,
		read: func(r *http.Request, body []byte) ([]message, reply) {
			m := message{address: r.PathValue("any"), key: cmp.Or(r.Header.Get("Idempotency-Key"), r.Header.Get("webhook-id"))}
			var content struct{ Title, Body string }
			if !s.signedWebhook(r, body) {
				return ofOne(m, refuse(http.StatusUnauthorized))
			}
			if json.Unmarshal(body, &content) != nil {
				return ofOne(m, refuse(http.StatusBadRequest))
			}
			m.title, m.body = content.Title, content.Body
			return ofOne(m, reply{})
		},
		accept: func(_ *http.Request, taken []message) reply {
			return jsonReply(http.StatusOK, "", map[string]string{"id": taken[0].id})
		},
		invalid: func() reply { return refuse(http.StatusGone) },
	}
}

func (s *Server) signedWebhook(r *http.Request, body []byte) bool {
	id, timestamp := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" || !within(s.config.Now(), seconds, tolerance) {
		return false
	}
	mac := hmac.New(sha256.New, s.vault.secret("webhook", 32))
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, signature := range strings.Fields(r.Header.Get("webhook-signature")) {
		if hmac.Equal([]byte(signature), []byte(want)) {
			return true
		}
	}
	return false
}
