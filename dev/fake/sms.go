package fake

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// sms is a generic gateway for senders with request templates. It accepts JSON with the fields to
// and text.
func (s *Server) sms() dialect {
	refuse := func(status int, code, counted string) reply {
		return jsonReply(status, counted, map[string]any{"error": map[string]string{"code": code, "message": http.StatusText(status)}})
	}
	return dialect{
		provider: SMS, invalid: refuse(http.StatusBadRequest, "invalid_number", "invalid_number"),
		refuse: func(status int) reply { return refuse(status, "error", strconv.Itoa(status)) },
		read: func(r *http.Request, body []byte) ([]message, reply) {
			var call struct{ To, Text string }
			err := json.Unmarshal(body, &call)
			m := message{key: r.Header.Get("Idempotency-Key"), address: call.To, body: call.Text}
			switch {
			case r.Header.Get("Authorization") != "Bearer "+password("sms"):
				return ofOne(m, refuse(http.StatusUnauthorized, "unauthorized", "unauthorized"))
			case err != nil || m.address == "" || m.body == "":
				return ofOne(m, refuse(http.StatusBadRequest, "bad_request", "bad_request"))
			}
			return ofOne(m, reply{})
		},
		accept: func(_ *http.Request, taken []message) reply {
			return jsonReply(http.StatusOK, "", map[string]string{"id": taken[0].id(SMS), "status": "queued"})
		},
	}
}
