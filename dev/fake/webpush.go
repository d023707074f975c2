package fake

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// receiver is the browser's side of a subscription (RFC 8291). It is derived from the id in the
// endpoint, so that subscriptions use no memory.
type receiver struct {
	private *ecdh.PrivateKey
	auth    []byte
}

func receiverOf(id string) receiver {
	return receiver{private: must(curveKey("subscription " + id).ECDH()), auth: secret("subscription auth " + id)[:16]}
}

// Subscription returns the Web Push subscription of browser id. It is the same at every call, and at
// every start with the same address.
func (s *Server) Subscription(id string) string { return Subscription(s.url, id) }

// Subscription returns the Web Push subscription of a browser at the fake with a URL. The fake does not
// have to run.
func Subscription(url, id string) string {
	name := base64url([]byte(id))
	r := receiverOf(name)
	return string(must(json.Marshal(map[string]any{
		"endpoint": url + "/webpush/" + name,
		"keys":     map[string]string{"p256dh": base64url(r.private.PublicKey().Bytes()), "auth": base64url(r.auth)},
	})))
}

// webpush is a push service with its browsers.
func (s *Server) webpush() dialect {
	refuse := func(status int) reply {
		return jsonReply(status, strconv.Itoa(status), map[string]any{"code": status, "error": http.StatusText(status)})
	}
	return dialect{
		provider: WebPush, refuse: refuse, invalid: refuse(http.StatusGone),
		read: func(r *http.Request, body []byte) ([]message, reply) {
			id := r.PathValue("id")
			plain, err := receiverOf(id).open(body)
			var content struct{ Title, Body, Key string }
			if err == nil {
				err = json.Unmarshal(plain, &content)
			}
			m := message{address: id, key: content.Key, title: content.Title, body: content.Body}
			switch ttl, ttlErr := strconv.Atoi(r.Header.Get("TTL")); {
			case len(body) > 4096:
				return ofOne(m, refuse(http.StatusRequestEntityTooLarge))
			case !s.provenPush(r):
				return ofOne(m, refuse(http.StatusForbidden))
			case ttlErr != nil, ttl < 0, err != nil, r.Header.Get("Content-Encoding") != "aes128gcm":
				return ofOne(m, refuse(http.StatusBadRequest))
			}
			return ofOne(m, reply{})
		},
		accept: func(r *http.Request, taken []message) reply {
			return reply{status: http.StatusCreated,
				header: http.Header{"Location": {"http://" + r.Host + "/webpush/message/" + taken[0].id(WebPush)}}}
		},
	}
}

// provenPush verifies a VAPID header (RFC 8292) with the key of this fake's subscriptions.
func (s *Server) provenPush(r *http.Request) bool {
	parameters, ok := strings.CutPrefix(r.Header.Get("Authorization"), "vapid t=")
	token, key, named := strings.Cut(parameters, ", k=")
	c, signed := openToken(token, &s.keys.vapid.PublicKey)
	now := s.config.Now()
	return ok && named && key == s.keys.vapidPublic && signed && c.Audience == "http://"+r.Host &&
		c.Expires > now.Unix() && c.Expires <= now.Add(24*time.Hour+time.Minute).Unix()
}

// errPush reports a body that the browser cannot decrypt.
var errPush = errors.New("the body is not encrypted for this subscription")

// open decrypts a body of one record (RFC 8188, RFC 8291): salt, record size, length of the sender's
// key, the key, and the ciphertext.
func (r receiver) open(body []byte) ([]byte, error) {
	const keyAt, header = 21, 86
	if len(body) < header {
		return nil, errPush
	}
	sender, err := ecdh.P256().NewPublicKey(body[keyAt:header])
	if err != nil {
		return nil, errPush
	}
	shared, err := r.private.ECDH(sender)
	if err != nil {
		return nil, errPush
	}
	expand := func(key, salt []byte, info string, size int) []byte {
		return must(hkdf.Key(sha256.New, key, salt, info, size))
	}
	salt := body[:16]
	input := expand(shared, r.auth, "WebPush: info\x00"+string(r.private.PublicKey().Bytes())+string(sender.Bytes()), 32)
	block := must(aes.NewCipher(expand(input, salt, "Content-Encoding: aes128gcm\x00", 16)))
	plain, err := must(cipher.NewGCM(block)).Open(nil, expand(input, salt, "Content-Encoding: nonce\x00", 12), body[header:], nil)
	if err != nil {
		return nil, errPush
	}
	// The last record ends with 2 and padding of zeros.
	content, ended := bytes.CutSuffix(bytes.TrimRight(plain, "\x00"), []byte{2})
	if !ended {
		return nil, errPush
	}
	return content, nil
}
