package fake

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// receiver is the browser's side of a subscription (RFC 8291). It is derived from
// the fake's master secret and the id in the endpoint, so that any number of them
// takes no memory.
type receiver struct {
	private *ecdh.PrivateKey
	auth    []byte
}

func (v *vault) receiver(id string) receiver {
	key, err := v.key("subscription " + id).ECDH()
	if err != nil {
		panic(err) // the curve is P-256
	}
	return receiver{private: key, auth: v.secret("subscription auth "+id, 16)}
}

// subscription is what a browser hands out.
type subscription struct {
	Endpoint string `json:"endpoint"`
	Keys     struct {
		P256DH string `json:"p256dh"`
		Auth   string `json:"auth"`
	} `json:"keys"`
}

// Subscription returns the Web Push subscription of a browser that id names: the
// same at every call, and at every start with the same Config.Keys and address. Its
// endpoint is by TLS where the server listens so.
func (s *Server) Subscription(id string) string {
	base := s.TLSURL()
	if base == "" {
		base = s.URL()
	}
	name := base64.RawURLEncoding.EncodeToString([]byte(id))
	r := s.vault.receiver(name)
	sub := subscription{Endpoint: base + "/webpush/" + name}
	sub.Keys.P256DH = base64.RawURLEncoding.EncodeToString(r.private.PublicKey().Bytes())
	sub.Keys.Auth = base64.RawURLEncoding.EncodeToString(r.auth)
	text, err := json.Marshal(sub)
	if err != nil {
		panic(err) // three texts
	}
	return string(text)
}

// maxSubscriptions bounds one request for subscriptions.
const maxSubscriptions = 100_000

// subscribe hands out subscriptions, one a line.
func (s *Server) subscribe(w http.ResponseWriter, r *http.Request) {
	count := 1
	if text := r.URL.Query().Get("count"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxSubscriptions {
			problem(w, fmt.Sprintf("count %q is not allowed; allowed are 1 to %d", brief(text), maxSubscriptions))
			return
		}
		count = n
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	for range count {
		if _, err := fmt.Fprintln(w, s.Subscription(rand.Text())); err != nil {
			return
		}
	}
}

// webpush is a push service and the browser behind it.
func (s *Server) webpush() dialect {
	refuse := func(status int) reply {
		return jsonReply(status, strconv.Itoa(status), map[string]any{"code": status, "error": http.StatusText(status)})
	}
	return dialect{
		provider: WebPush, refuse: refuse,
		read: func(r *http.Request, body []byte) ([]message, reply) {
			m := message{address: r.PathValue("id")}
			if status := s.readPush(r, body, &m); status != 0 {
				return ofOne(m, refuse(status))
			}
			return ofOne(m, reply{})
		},
		accept: func(r *http.Request, taken []message) reply {
			return reply{status: http.StatusCreated, header: http.Header{"Location": {"http://" + r.Host + "/webpush/message/" + taken[0].id}}}
		},
		invalid: func() reply { return refuse(http.StatusGone) },
	}
}

// maxPush is the size of a push message's body.
const maxPush = 4096

// readPush verifies and decrypts a push message. It returns the status of a
// refusal, or 0.
func (s *Server) readPush(r *http.Request, body []byte, m *message) int {
	plain, err := s.vault.receiver(m.address).open(body)
	var content struct{ Title, Body, Key string }
	if err == nil && json.Unmarshal(plain, &content) == nil {
		m.key, m.title, m.body = content.Key, content.Title, content.Body
	}
	ttl, ttlErr := strconv.Atoi(r.Header.Get("TTL"))
	switch {
	case len(body) > maxPush:
		return http.StatusRequestEntityTooLarge
	case r.Header.Get("Authorization") == "":
		return http.StatusUnauthorized
	case !s.provenPush(r):
		return http.StatusForbidden
	case ttlErr != nil, ttl < 0, err != nil, r.Header.Get("Content-Encoding") != "aes128gcm":
		return http.StatusBadRequest
	}
	return 0
}

// provenPush verifies a VAPID header (RFC 8292) by the key that subscriptions of
// this fake are bound to.
func (s *Server) provenPush(r *http.Request) bool {
	parameters, ok := strings.CutPrefix(r.Header.Get("Authorization"), "vapid ")
	if !ok {
		return false
	}
	var token, key string
	for parameter := range strings.SplitSeq(parameters, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		switch name {
		case "t":
			token = value
		case "k":
			key = strings.TrimRight(value, "=")
		}
	}
	if key != s.vapid {
		return false
	}
	c, err := openToken(token, "ES256", byEC(&s.vault.vapid.PublicKey))
	if err != nil {
		return false
	}
	var audience string
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	now := s.config.Now()
	return json.Unmarshal(c.Audience, &audience) == nil && audience == scheme+r.Host &&
		c.Expires > now.Unix() && c.Expires <= now.Add(24*time.Hour+time.Minute).Unix()
}

// errPush is any body that the browser cannot open.
var errPush = errors.New("the body is not encrypted for this subscription")

// open decrypts a body of one record (RFC 8188, RFC 8291).
func (r receiver) open(body []byte) ([]byte, error) {
	const salt, size, key = 16, 4, 65
	const header = salt + size + 1 + key
	if len(body) < header || body[salt+size] != key {
		return nil, errPush
	}
	if record := binary.BigEndian.Uint32(body[salt:]); int64(len(body)-header) > int64(record) {
		return nil, errPush
	}
	sender, err := ecdh.P256().NewPublicKey(body[salt+size+1 : header])
	if err != nil {
		return nil, errPush
	}
	shared, err := r.private.ECDH(sender)
	if err != nil {
		return nil, errPush
	}
	info := "WebPush: info\x00" + string(r.private.PublicKey().Bytes()) + string(sender.Bytes())
	input, err1 := hkdf.Key(sha256.New, shared, r.auth, info, 32)
	secret, err2 := hkdf.Key(sha256.New, input, body[:salt], "Content-Encoding: aes128gcm\x00", 16)
	nonce, err3 := hkdf.Key(sha256.New, input, body[:salt], "Content-Encoding: nonce\x00", 12)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	plain, err := gcm.Open(nil, nonce, body[header:], nil)
	if err != nil {
		return nil, errPush
	}
	// The last record ends with 2 and padding of zeros.
	end := len(plain)
	for end > 0 && plain[end-1] == 0 {
		end--
	}
	if end == 0 || plain[end-1] != 2 {
		return nil, errPush
	}
	return plain[:end-1], nil
}
