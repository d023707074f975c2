package provider

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// smtpServer speaks enough of SMTP to be refused by, and breaks where a test orders it
// to.
type smtpServer struct {
	t    *testing.T
	addr *net.TCPAddr
	cert *x509.Certificate
	tls  *tls.Config

	mu         sync.Mutex
	replies    map[string]string // by command: sent instead of the usual reply
	once       map[string]string // as replies, and only once
	stray      string            // sent after the reply to each mail
	faults     map[string]string // by command: drop, reset, hang, flood
	noSTARTTLS bool
	plain      bool // does not announce ENHANCEDSTATUSCODES
	utf8       bool // offers SMTPUTF8
	implicit   bool
	most       int           // connections at once, or 0; another is refused, or dropped if the fault of CROWDED is drop
	frees      time.Duration // for which an ended connection still counts
	greets     chan struct{} // greetings wait until it is closed, or nil
	closeAfter bool          // ends the connection after each message, without a word
	smtpRecord
	open   map[net.Conn]struct{}
	served int           // of open, those that are not refused
	hangs  chan struct{} // has one when a fault has it hang
	done   sync.WaitGroup
}

// smtpRecord is what the server saw.
type smtpRecord struct {
	connections int
	refused     int // connections above most
	auth        string
	lines       []string // commands, as they came
	strays      int
	mails       []string // contents, as they came
}

func (s *smtpServer) seen() smtpRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.smtpRecord
	r.lines, r.mails = slices.Clone(r.lines), slices.Clone(r.mails)
	return r
}

func smtpNewServer(t *testing.T, configure func(*smtpServer)) *smtpServer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	s := &smtpServer{
		t: t, cert: cert, open: map[net.Conn]struct{}{}, hangs: make(chan struct{}, 1), replies: map[string]string{},
		once: map[string]string{}, faults: map[string]string{},
		tls: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
	}
	if configure != nil {
		configure(s)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = listener.Addr().(*net.TCPAddr)
	s.done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.connections++
			s.open[conn] = struct{}{}
			s.mu.Unlock()
			s.done.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		s.mu.Lock()
		for conn := range s.open {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.done.Wait()
	})
	return s
}

// caFile is a file with the server's certificate.
func (s *smtpServer) caFile() string {
	path := filepath.Join(s.t.TempDir(), "ca.pem")
	require.NoError(s.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw}), 0o600))
	return path
}

func (s *smtpServer) set(configure func(*smtpServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	configure(s)
}

func (s *smtpServer) serve(raw net.Conn) {
	defer func() {
		_ = raw.Close()
		s.mu.Lock()
		delete(s.open, raw)
		s.mu.Unlock()
	}()
	if s.crowded() {
		if s.faults["CROWDED"] == "EHLO" {
			s.answer(raw, raw, "GREETING", "220 test ESMTP")
			_, _ = bufio.NewReader(raw).ReadString('\n')
			return
		}
		s.answer(raw, raw, "CROWDED", "421 4.7.0 too many concurrent connections")
		return
	}
	defer func() {
		time.AfterFunc(s.frees, func() { s.set(func(s *smtpServer) { s.served-- }) })
	}()
	conn := raw
	if s.implicit {
		conn = tls.Server(raw, s.tls)
	}
	in := bufio.NewReader(conn)
	if s.late(); !s.answer(raw, conn, "GREETING", "220 test ESMTP") {
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		verb := strings.ToUpper(strings.Fields(line + " x")[0])
		s.set(func(s *smtpServer) { s.lines = append(s.lines, line) })
		switch verb {
		case "EHLO":
			if !s.answer(raw, conn, verb, s.features(conn)) {
				return
			}
		case "STARTTLS":
			if !s.answer(raw, conn, verb, "220 go ahead") {
				return
			}
			if !s.replaced(verb) {
				conn = tls.Server(raw, s.tls)
				in = bufio.NewReader(conn)
			}
		case "AUTH":
			s.set(func(s *smtpServer) { s.auth = line })
			if !s.answer(raw, conn, verb, "235 2.7.0 welcome") {
				return
			}
		case "DATA":
			if !s.answer(raw, conn, verb, "354 go on") || !s.content(raw, conn, in) {
				return
			}
		case "QUIT":
			if s.faulty(verb) {
				_, _ = in.ReadByte() // until the client leaves
				return
			}
			_, _ = fmt.Fprint(conn, "221 bye\r\n")
			return
		default: // MAIL, RCPT, RSET, NOOP
			if !s.answer(raw, conn, verb, "250 2.0.0 ok") {
				return
			}
		}
	}
}

// crowded reports whether a connection is one too many.
func (s *smtpServer) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most == 0 || s.served < s.most {
		s.served++
		return false
	}
	s.refused++
	return true
}

// late waits for the time of a greeting, or for the end of the test.
func (s *smtpServer) late() {
	s.mu.Lock()
	greets := s.greets
	s.mu.Unlock()
	if greets != nil {
		select {
		case <-greets:
		case <-s.t.Context().Done():
		}
	}
}

func (s *smtpServer) faulty(command string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults[command] != ""
}

func (s *smtpServer) replaced(command string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replies[command] != ""
}

func (s *smtpServer) features(conn net.Conn) string {
	features := "250-test\r\n250-8BITMIME\r\n"
	if !s.plain {
		features += "250-ENHANCEDSTATUSCODES\r\n"
	}
	if s.utf8 {
		features += "250-SMTPUTF8\r\n"
	}
	if _, encrypted := conn.(*tls.Conn); !encrypted && !s.noSTARTTLS {
		features += "250-STARTTLS\r\n"
	}
	return features + "250 AUTH PLAIN LOGIN"
}

// content reads a mail to its final dot, unless it was refused.
func (s *smtpServer) content(raw, conn net.Conn, in *bufio.Reader) bool {
	s.mu.Lock()
	refusal := s.replies["DATA"]
	cut := s.faults["CONTENT"]
	s.mu.Unlock()
	if refusal != "" {
		return true
	}
	var mail strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return false
		}
		if cut != "" {
			_ = raw.(*net.TCPConn).SetLinger(0)
			return false
		}
		if line == ".\r\n" {
			break
		}
		mail.WriteString(line)
	}
	s.mu.Lock()
	s.mails = append(s.mails, mail.String())
	end, stray := s.closeAfter, s.stray
	s.mu.Unlock()
	if !s.answer(raw, conn, "DOT", "250 2.0.0 queued as 1") {
		return false
	}
	if stray != "" {
		_, _ = fmt.Fprint(conn, stray+"\r\n")
		s.set(func(s *smtpServer) { s.strays++ })
	}
	return !end
}

// answer sends the reply ordered for a command, or the usual one, or does the fault
// ordered; false ends the connection.
func (s *smtpServer) answer(raw, conn net.Conn, command, usual string) bool {
	s.mu.Lock()
	reply, fault := s.replies[command], s.faults[command]
	if s.once[command] != "" {
		reply = s.once[command]
		delete(s.once, command)
	}
	s.mu.Unlock()
	switch fault {
	case "drop":
		return false
	case "reset":
		_ = raw.(*net.TCPConn).SetLinger(0)
		return false
	case "hang":
		select {
		case s.hangs <- struct{}{}:
		default:
		}
		_, _ = bufio.NewReader(conn).ReadByte() // until the client leaves
		return false
	case "flood":
		for {
			if _, err := fmt.Fprint(conn, "250-"+strings.Repeat("x", 4000)+"\r\n"); err != nil {
				return false
			}
		}
	}
	if reply == "" {
		reply = usual
	}
	_, err := fmt.Fprint(conn, reply+"\r\n")
	return err == nil
}
