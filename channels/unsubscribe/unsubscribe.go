// Package unsubscribe makes and reads the links by which a recipient opts out, without
// logging in: RFC 8058.
//
//	sender: Links.Sign ──► …/unsubscribe/SIGNED ──► Links.Read :API
//
//	SIGNED = base64url( version, channel, category, medium │ HMAC-SHA256 )
//
// # Invariants
//
//  1. Read returns what Sign was given, under one of the keys, or ErrLink. Nobody without
//     a key makes a link, or makes one of another.
//  2. The first key signs, and every key reads: a key that goes from the first place stays
//     until its last mail has been read.
//  3. No error has a link or a key in it.
//  4. Reload puts all keys of the file into force, or none of them.
//
// # What it does not promise
//
// A link does not expire: mail is read late, and what a link does can be taken back. Who
// has a link can read the channel's number, the category and the medium in it; no address
// and no external ID is there.
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

// Link is what a link opts out of.
type Link struct {
	ChannelID int64
	Category  string
	Medium    string
}

// ErrLink is a text that is no link, or one whose key is gone.
var ErrLink = errors.New("unsubscribe: not a link")

const (
	version   = 1
	minKey    = 32
	maxKeys   = 16
	maxFile   = 64 << 10
	maxSigned = 1024 // characters that Read looks at
)

// purpose keeps a signature from being one of anything else that a key is used for.
const purpose = "belfry unsubscribe\x00"

// encoding has one text for one link.
func encoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

// Links makes and reads links. It is safe for concurrent use.
type Links struct {
	file string // that the keys are from; empty: none
	keys atomic.Pointer[[][]byte]
}

// New takes the keys, the one that signs first: 1 to 16, each of 32 or more bytes.
func New(keys ...string) (*Links, error) {
	if len(keys) < 1 || len(keys) > maxKeys {
		return nil, fmt.Errorf("%d keys are not allowed; allowed are 1 to %d", len(keys), maxKeys)
	}
	var all [][]byte
	for i, key := range keys {
		if len(key) < minKey {
			return nil, fmt.Errorf("key %d has %d bytes; allowed are %d and more, as `openssl rand -base64 32` writes them", i+1, len(key), minKey)
		}
		all = append(all, []byte(key))
	}
	l := new(Links)
	l.keys.Store(&all)
	return l, nil
}

// Open reads the keys from a file, one a line; blank lines are none.
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

// Reload reads the keys of Open again, and reports whether they are others. With an error those
// before stay. Links of New have no file, and stay as they are.
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

// Read returns what was signed, or ErrLink.
func (l *Links) Read(signed string) (Link, error) {
	if len(signed) > maxSigned {
		return Link{}, ErrLink
	}
	all, err := encoding().DecodeString(signed)
	const head = 1 + 8 + 1
	if err != nil || strings.ContainsAny(signed, "\r\n") || len(all) < head+sha256.Size { // the decoder skips ends of lines
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
