package fake

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/http"
	"net/mail"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

// newMail is a mail of which only the recipient is known.
func newMail(address string) *message {
	m := &message{address: address}
	m.seal(SMTP, "")
	return m
}

// readMail understands a mail. Its key is the local part of its Message-ID.
func readMail(address string, text []byte) (*message, error) {
	m := newMail(address)
	parsed, err := mail.ReadMessage(bytes.NewReader(text))
	if err != nil {
		return m, err
	}
	id := strings.Trim(strings.TrimSpace(parsed.Header.Get("Message-ID")), "<>")
	m.key, _, _ = strings.Cut(id, "@")
	m.seal(SMTP, "")
	m.title = parsed.Header.Get("Subject")
	if decoded, err := new(mime.WordDecoder).DecodeHeader(m.title); err == nil {
		m.title = decoded
	}
	body := parsed.Body
	switch strings.ToLower(parsed.Header.Get("Content-Transfer-Encoding")) {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	content, err := io.ReadAll(body)
	m.body = strings.TrimSpace(string(content))
	return m, err
}

// data takes a mail and answers as a fault has it.
func (m *mailSession) data(ctx context.Context) {
	if len(m.to) == 0 {
		m.say("503 5.5.1 RCPT comes first")
		return
	}
	m.say("354 end with a line of one dot")
	text, err := m.readData()
	s, arrived := m.mail.server, m.mail.server.config.Now()
	to := m.to[0]
	m.from, m.to = false, nil
	var refused string
	switch {
	case errors.Is(err, errMailSize):
		refused = "552 5.3.4 message too large"
	case err != nil: // before the final dot: no mail at all
		m.finished = true
		return
	}
	msg, err := readMail(to, text)
	if err != nil && refused == "" {
		refused = "554 5.6.0 malformed message"
	}
	drawn := s.plan.draw(string(SMTP), ofCall, msg.subject())
	s.ledger.request(SMTP, drawn)
	f := &drawn.fault
	settle := func(v verdict) int64 { return s.ledger.record(SMTP, msg, arrived, f.kind, v) }
	if !m.patient(ctx, drawn.late) {
		settle(verdict{})
		m.reset()
		return
	}
	taken := f.accepted && refused == ""
	switch {
	case f.kind == kindStatus:
		code := mailCode(f)
		settle(verdict{accepted: taken, lost: taken, code: code})
		m.say(code + " " + code[:1] + ".3.0 by order")
	case f.kind == kindHang || f.kind == kindReset:
		settle(verdict{accepted: taken, lost: taken})
		if f.kind == kindHang {
			m.patient(ctx, mailIdle)
		}
		m.reset()
	case refused != "":
		f = &Fault{}
		settle(verdict{code: refused[:3]})
		m.say(refused)
	default:
		n := settle(verdict{accepted: true, lost: f.kind == kindGarbage})
		if !m.accept(ctx, f, msg.id(n)) {
			s.ledger.unanswered(SMTP, 1)
		}
	}
}

// mailCode is a status as SMTP has it: HTTP's, ordered for all providers, become
// the codes that mean as much.
func mailCode(f *Fault) string {
	switch {
	case f.target == string(SMTP):
		return strconv.Itoa(f.status)
	case f.status >= http.StatusInternalServerError || f.status == http.StatusTooManyRequests || f.status == http.StatusRequestTimeout:
		return "451"
	}
	return "554"
}

// accept answers that a mail is taken, and reports whether the answer went out.
func (m *mailSession) accept(ctx context.Context, f *Fault, id string) bool {
	answer := "250 2.0.0 queued as " + id + "\r\n"
	switch f.kind {
	case kindGarbage:
		m.write("\x00\xffgarbage\r\n")
		return true
	case kindSlow:
		for _, b := range []byte(answer) {
			if !m.write(string(b)) || !m.patient(ctx, f.high/time.Duration(len(answer))) {
				m.finished = true
				return false
			}
		}
		return true
	case kindHuge:
		line := "250-" + strings.Repeat(" ", 1000) + "\r\n"
		for left := f.size; left > 0; left -= int64(len(line)) {
			if !m.write(line) {
				return false
			}
		}
	case kindNone, kindLatency, kindStatus, kindHang, kindReset, kindInvalid, kindUndelivered, kindUnreported, kindRefused:
	}
	return m.write(answer)
}

// patient waits, and reports whether the client is still there.
func (m *mailSession) patient(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	// A client that leaves is seen by reading, which a deadline in the past ends.
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = m.conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection, where nothing is read
	})
	defer func() {
		if !stop() {
			<-fired
		}
	}()
	if err := m.conn.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	_, err := m.in.Peek(1)
	if err != nil && ctx.Err() == nil {
		return false
	}
	<-ctx.Done() // it may have sent its next command already
	return errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// reset ends the connection without an answer.
func (m *mailSession) reset() {
	resetConn(m.conn)
	m.finished = true
}

// errMailSize is a mail that is too large; it was read to its end.
var errMailSize = errors.New("the mail is too large")

// readData reads up to the final dot.
func (m *mailSession) readData() ([]byte, error) {
	if err := m.conn.SetReadDeadline(time.Now().Add(mailIdle)); err != nil {
		return nil, err
	}
	r := textproto.NewReader(m.in).DotReader()
	text, err := io.ReadAll(io.LimitReader(r, mailSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) <= mailSize {
		return text, nil
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, err
	}
	return nil, errMailSize
}
