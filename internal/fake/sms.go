package fake

import (
	"crypto/subtle"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// sms is a gateway of no particular make, for senders whose requests are templates:
// it takes JSON or a form with the fields to, text, from and key.
func (s *Server) sms() dialect {
	refuse := func(status int, code string) reply {
		return jsonReply(status, code, map[string]any{"error": map[string]string{"code": code, "message": http.StatusText(status)}})
	}
	return dialect{
		provider: SMS,
		read: func(r *http.Request, body []byte) ([]message, reply) {
			m, ok := readSMS(r, body)
			switch {
			case !s.knownSMS(r):
				return ofOne(m, refuse(http.StatusUnauthorized, "unauthorized"))
			case !ok || m.address == "" || m.body == "":
				return ofOne(m, refuse(http.StatusBadRequest, "bad_request"))
			}
			return ofOne(m, reply{})
		},
		accept: func(_ *http.Request, taken []message) reply {
			return jsonReply(http.StatusOK, "", map[string]string{"id": taken[0].id, "status": "queued"})
		},
		refuse: func(status int) reply {
			a := refuse(status, strings.ReplaceAll(strings.ToLower(http.StatusText(status)), " ", "_"))
			a.code = strconv.Itoa(status)
			return a
		},
		invalid: func() reply { return refuse(http.StatusBadRequest, "invalid_number") },
	}
}

// knownSMS verifies a bearer token, or the password of basic authentication.
func (s *Server) knownSMS(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, token, _ = r.BasicAuth()
	}
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

func readSMS(r *http.Request, body []byte) (m message, ok bool) {
	m.key = r.Header.Get("Idempotency-Key")
	var fields struct{ To, Text, From, Key string }
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil:
		return m, false
	case kind == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return m, false
		}
		fields.To, fields.Text, fields.Key = form.Get("to"), form.Get("text"), form.Get("key")
	case json.Unmarshal(body, &fields) != nil:
		return m, false
	}
	if m.key == "" {
		m.key = fields.Key
	}
	m.address, m.body = fields.To, fields.Text
	return m, true
}
