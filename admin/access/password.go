package access

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"
)

// The cost of a password's hash: the first of OWASP's recommendations for argon2id with 19 MiB.
// A hash of another cost is made again when its user signs in.
const (
	passwordMemory  = 19 << 10 // KiB
	passwordTime    = 2
	passwordThreads = 1
	passwordSalt    = 16
	passwordKey     = 32
)

// minPassword and maxPassword are how many characters a password has; any will do.
const (
	minPassword = 12
	maxPassword = 1000
)

// passwordProblem says what is wrong with a new password; "": nothing. It does not repeat the
// password.
func passwordProblem(name, password string) string {
	n := utf8.RuneCountInString(password)
	var said string
	switch {
	case !utf8.ValidString(password) || strings.ContainsRune(password, 0):
		said = "is no text"
	case n < minPassword || n > maxPassword:
		said = fmt.Sprintf("has %d characters", n)
	case strings.EqualFold(password, name):
		said = "is the name"
	case strings.Count(password, password[:1]) == len(password):
		said = "is one character again and again"
	default:
		return ""
	}
	return fmt.Sprintf("%s; allowed values: %d to %d characters, other than the name", said, minPassword, maxPassword)
}

// passwordHash is a hash of argon2id with what it was made by.
type passwordHash struct {
	memory, time uint32
	threads      uint8
	salt, key    []byte
}

// newPasswordHash makes the hash of a password, at today's cost.
func newPasswordHash(password string) (passwordHash, error) {
	h, err := nobodysHash()
	if err == nil {
		h.key = h.of(password, passwordKey)
	}
	return h, err
}

// nobodysHash is a hash that no password has, whose check costs what each one's does: its key is
// random, and to make it costs nothing.
func nobodysHash() (passwordHash, error) {
	h := passwordHash{
		memory: passwordMemory, time: passwordTime, threads: passwordThreads,
		salt: make([]byte, passwordSalt), key: make([]byte, passwordKey),
	}
	if _, err := rand.Read(h.salt); err != nil {
		return h, err
	}
	_, err := rand.Read(h.key)
	return h, err
}

// of computes the key of a password: however it was typed, its letters are the same.
func (h passwordHash) of(password string, length int) []byte {
	return argon2.IDKey([]byte(norm.NFKC.String(password)), h.salt, h.time, h.memory, h.threads, uint32(length)) //nolint:gosec // a length of some bytes
}

// matches reports whether a password is the one. It takes the time and memory of the hash.
func (h passwordHash) matches(password string) bool {
	return subtle.ConstantTimeCompare(h.key, h.of(password, len(h.key))) == 1
}

// current reports whether the hash has today's cost.
func (h passwordHash) current() bool {
	return h.memory == passwordMemory && h.time == passwordTime && h.threads == passwordThreads && len(h.key) == passwordKey
}

// String is the hash in PHC form.
func (h passwordHash) String() string {
	text := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.threads, text(h.salt), text(h.key))
}

// Bounds of a hash that was made elsewhere: it decides how much memory a sign-in takes.
const (
	maxPasswordMemory = 64 << 10 // KiB
	maxPasswordTime   = 16
)

// parsePasswordHash reads a hash in PHC form.
func parsePasswordHash(text string) (h passwordHash, err error) {
	parts := strings.Split(text, "$")
	var version int
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return h, errPasswordHash
	}
	if _, err = fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return h, errPasswordHash
	}
	if _, err = fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.time, &h.threads); err != nil {
		return h, errPasswordHash
	}
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return h, errPasswordHash
	}
	if h.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
		return h, errPasswordHash
	}
	if h.memory < 8 || h.memory > maxPasswordMemory || h.time < 1 || h.time > maxPasswordTime || h.threads < 1 || h.threads > 16 || len(h.salt) < 8 || len(h.key) < 16 || len(h.key) > 64 {
		return h, errPasswordHash
	}
	return h, nil
}
