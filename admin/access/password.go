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

// The cost of a password's hash: OWASP's recommendation for argon2id with 19 MiB. A hash of another cost is
// replaced when its user signs in.
const (
	passwordMemory  = 19 << 10 // KiB
	passwordTime    = 2
	passwordThreads = 1
	passwordSalt    = 16
	passwordKey     = 32
)

// The allowed length of a password in characters. All characters are allowed.
const (
	minPassword = 12
	maxPassword = 1000
)

// passwordProblem returns the problem of a new password, or "". It does not contain the password.
func passwordProblem(name, password string) string {
	n := utf8.RuneCountInString(password)
	var problem string
	switch {
	case !utf8.ValidString(password) || strings.ContainsRune(password, 0):
		problem = "is no text"
	case n < minPassword || n > maxPassword:
		problem = fmt.Sprintf("has %d characters", n)
	case strings.EqualFold(password, name):
		problem = "is the name"
	case strings.Count(password, password[:1]) == len(password):
		problem = "is one character again and again"
	default:
		return ""
	}
	return fmt.Sprintf("%s; allowed values: %d to %d characters, other than the name", problem, minPassword, maxPassword)
}

// passwordHash is a hash of argon2id with its parameters.
type passwordHash struct {
	memory, time uint32
	threads      uint8
	salt, key    []byte
}

// newPasswordHash returns the hash of a password with the current cost.
func newPasswordHash(password string) (passwordHash, error) {
	h, err := dummyHash()
	if err == nil {
		h.key = h.of(password, passwordKey)
	}
	return h, err
}

// dummyHash returns a hash that no password matches. Its check takes as long as every other check.
func dummyHash() (passwordHash, error) {
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

// of computes the key of a password. It normalizes Unicode, so that the input method does not matter.
func (h passwordHash) of(password string, length int) []byte {
	return argon2.IDKey([]byte(norm.NFKC.String(password)), h.salt, h.time, h.memory, h.threads, uint32(length)) //nolint:gosec // at most 64
}

// matches reports whether a password has this hash. It takes the time and memory of the hash.
func (h passwordHash) matches(password string) bool {
	return subtle.ConstantTimeCompare(h.key, h.of(password, len(h.key))) == 1
}

// current reports whether the hash has the current cost.
func (h passwordHash) current() bool {
	return h.memory == passwordMemory && h.time == passwordTime && h.threads == passwordThreads && len(h.key) == passwordKey
}

// String returns the hash in PHC format.
func (h passwordHash) String() string {
	text := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.threads, text(h.salt), text(h.key))
}

// Limits of a stored hash, which determines the memory of a sign-in.
const (
	maxPasswordMemory = 64 << 10 // KiB
	maxPasswordTime   = 16
)

// parsePasswordHash parses a hash in PHC format.
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
	if h.memory < 8 || h.memory > maxPasswordMemory || h.time < 1 || h.time > maxPasswordTime || h.threads < 1 || h.threads > 16 ||
		len(h.salt) < 8 || len(h.key) < 16 || len(h.key) > 64 {
		return h, errPasswordHash
	}
	return h, nil
}
