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

// tolerance is the maximum difference between a signed instant and now.
const tolerance = 5 * time.Minute

func webhookSecret() string { return "whsec_" + base64.StdEncoding.EncodeToString(secret("webhook")) }

// signature returns the signature of a text, in base64.
func signature(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// webhook is a receiver that verifies the signatures of Standard Webhooks
// (github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md).
func (s *Server) webhook() dialect {
	refuse := func(status int) reply {
		return jsonReply(status, strconv.Itoa(status), map[string]string{"error": http.StatusText(status)})
	}
	return dialect{
		provider: Webhook, refuse: refuse, invalid: refuse(http.StatusGone),
		read: func(r *http.Request, body []byte) ([]message, reply) {
			var content struct{ Title, Body string }
			err := json.Unmarshal(body, &content)
			m := message{
				address: r.PathValue("any"), key: cmp.Or(r.Header.Get("Idempotency-Key"), r.Header.Get("webhook-id")),
				title: content.Title, body: content.Body,
			}
			switch {
			case !s.signedWebhook(r, body):
				return ofOne(m, refuse(http.StatusUnauthorized))
			case err != nil:
				return ofOne(m, refuse(http.StatusBadRequest))
			}
			return ofOne(m, reply{})
		},
		accept: func(_ *http.Request, taken []message) reply {
			return jsonReply(http.StatusOK, "", map[string]string{"id": taken[0].id(Webhook)})
		},
	}
}

func (s *Server) signedWebhook(r *http.Request, body []byte) bool {
	id, timestamp := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	want := "v1," + signature(secret("webhook"), id+"."+timestamp+"."+string(body))
	return err == nil && within(s.config.Now(), seconds, tolerance) &&
		strings.Contains(" "+r.Header.Get("webhook-signature")+" ", " "+want+" ")
}
