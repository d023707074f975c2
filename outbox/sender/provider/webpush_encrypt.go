package provider

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	saltBytes  = 16
	authBytes  = 16 // a subscription's authentication secret
	pointBytes = 65 // an uncompressed point of P-256
	tagBytes   = 16 // of AES-GCM
	// recordSize is the size that every push service must accept (RFC 8030 §7.2). The body of a message of
	// maxPlain bytes has exactly this size: one header and one record.
	recordSize        = 4096
	recordHeaderBytes = saltBytes + 4 + 1 + pointBytes
	maxPlain          = recordSize - recordHeaderBytes - tagBytes - 1
)

// errRecordTooLarge means that a payload does not fit into one record.
var errRecordTooLarge = errors.New("payload is too large")

// encryptPush returns the body of a push message: RFC 8291 §3.4 with the content coding
// aes128gcm of RFC 8188, in one record, without padding. local and salt must be new for every call, because key
// and nonce are derived from them. plain has at most maxPlain bytes.
func encryptPush(plain []byte, to subscription, local *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	if len(plain) > maxPlain {
		return nil, fmt.Errorf("%w: it has %d bytes; the maximum is %d", errRecordTooLarge, len(plain), maxPlain)
	}
	shared, err := local.ECDH(to.public)
	if err != nil {
		return nil, fmt.Errorf("agree on a key with the subscription: %w", err)
	}
	own := local.PublicKey().Bytes()
	info := append([]byte("WebPush: info\x00"), to.public.Bytes()...)
	info = append(info, own...)
	material, err := hkdf.Key(sha256.New, shared, to.secret, string(info), sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the keying material: %w", err)
	}
	pseudorandom, err := hkdf.Extract(sha256.New, material, salt)
	if err != nil {
		return nil, fmt.Errorf("derive the record's key: %w", err)
	}
	key, err := hkdf.Expand(sha256.New, pseudorandom, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, fmt.Errorf("derive the record's key: %w", err)
	}
	nonce, err := hkdf.Expand(sha256.New, pseudorandom, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, fmt.Errorf("derive the record's nonce: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make the record's cipher: %w", err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("make the record's cipher: %w", err)
	}
	body := make([]byte, 0, recordHeaderBytes+len(plain)+1+tagBytes)
	body = append(body, salt...)
	body = binary.BigEndian.AppendUint32(body, recordSize)
	body = append(body, pointBytes)
	body = append(body, own...)
	last := append(append(make([]byte, 0, len(plain)+1), plain...), 2) // 2 ends the last record
	return gcm.Seal(body, nonce, last, nil), nil
}
