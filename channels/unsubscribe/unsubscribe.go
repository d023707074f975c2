// Package unsubscribe signs and verifies the links with which a recipient opts out without
// logging in (RFC 8058).
//
//	sender: Links.Sign ──► …/unsubscribe/SIGNED ──► Links.Read :API
//
//	SIGNED = base64url( version, channel, category, medium │ HMAC-SHA256 )
//
// # Invariants
//
//  1. Read returns a Link that Sign has signed with one of the keys, or ErrLink. Without a
//     key, a link can be neither created nor changed.
//  2. Sign uses the first key, and Read accepts every key. The operator retains an old key in
//     a later place while its links are in use.
//  3. No error contains a link or a key.
//  4. Reload replaces all keys, or none of them.
//
// # What it does not promise
//
// Links do not expire, because mail is read late and an opt-out can be reverted. A link is
// not encrypted: it contains the channel's id, the category and the medium, but no address
// and no external ID.
package unsubscribe

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// Link identifies the opt-out of a link.
type Link struct {
	ChannelID int64
	Category  string
	Medium    string
}

// ErrLink reports an invalid link, or a link whose key has been removed.
var ErrLink = errors.New("unsubscribe: not a link")

const (
	version   = 1
	minKey    = 32
	maxKeys   = 16
	maxFile   = 64 << 10
	maxSigned = 1024 // the longest text that Read decodes, in characters
)

// purpose separates signatures of links from other uses of a key.
const purpose = "belfry unsubscribe\x00"

// encoding is strict, so that each link has exactly one text.
func encoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

// Links signs and verifies links. It is safe for concurrent use.
type Links struct {
	file string // the file of the keys; "" if New received them
	keys atomic.Pointer[[][]byte]
}

// New returns Links with 1 to 16 keys, each of 32 or more bytes. The first key signs.
func New(keys ...string) (*Links, error) {
	if len(keys) < 1 || len(keys) > maxKeys {
		return nil, fmt.Errorf("%d keys are not allowed; allowed values: 1 to %d keys", len(keys), maxKeys)
	}
	var all [][]byte
	for i, key := range keys {
		if len(key) < minKey {
			return nil, fmt.Errorf(
				"key %d has %d bytes; allowed values: %d or more bytes, such as the output of `openssl rand -base64 32`", i+1, len(key), minKey)
		}
		all = append(all, []byte(key))
	}
	l := new(Links)
	l.keys.Store(&all)
	return l, nil
}

// Open reads the keys from a file, one per line. Blank lines are ignored.
func Open(file string) (*Links, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a regular file of up to %d bytes", file, maxFile)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var keys []string
	for line := range strings.Lines(string(content)) {
		if key := strings.TrimSpace(line); key != "" {
			keys = append(keys, key)
		}
	}
	l, err := New(keys...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	l.file = file
	return l, nil
}

// Reload reads the file of Open again, and reports whether the keys changed. After an error the previous keys
// remain. Without a file it has no effect.
func (l *Links) Reload() (changed bool, err error) {
	if l.file == "" {
		return false, nil
	}
	next, err := Open(l.file)
	if err != nil {
		return false, err
	}
	keys := next.keys.Load()
	before := l.keys.Swap(keys)
	return !slices.EqualFunc(*before, *keys, bytes.Equal), nil
}

// Sign returns the last part of a link's path: letters, digits, - and _. A category and a
// medium have at most 255 bytes.
func (l *Links) Sign(link Link) string {
	content := binary.BigEndian.AppendUint64([]byte{version}, uint64(link.ChannelID)) //nolint:gosec // the same bits
	content = append(content, byte(len(link.Category)))                               //nolint:gosec // at most 255
	content = append(append(content, link.Category...), link.Medium...)
	return encoding().EncodeToString(append(content, sum((*l.keys.Load())[0], content)...))
}

// Read returns the signed Link, or ErrLink.
func (l *Links) Read(signed string) (Link, error) {
	if len(signed) > maxSigned {
		return Link{}, ErrLink
	}
	all, err := encoding().DecodeString(signed)
	const head = 1 + 8 + 1
	if err != nil || strings.ContainsAny(signed, "\r\n") || len(all) < head+sha256.Size { // the decoder ignores line ends
		return Link{}, ErrLink
	}
	content, mac := all[:len(all)-sha256.Size], all[len(all)-sha256.Size:]
	good := slices.ContainsFunc(*l.keys.Load(), func(key []byte) bool { return hmac.Equal(mac, sum(key, content)) })
	rest, length := content[head:], int(content[head-1])
	if !good || content[0] != version || len(rest) < length {
		return Link{}, ErrLink
	}
	return Link{
		ChannelID: int64(binary.BigEndian.Uint64(content[1:])), //nolint:gosec // the same bits
		Category:  string(rest[:length]), Medium: string(rest[length:]),
	}, nil
}

func sum(key, content []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose))
	mac.Write(content)
	return mac.Sum(nil)
}
