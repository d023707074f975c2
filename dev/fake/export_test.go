package fake

import (
	"crypto/ecdh"
	"encoding/base64"
	"errors"
)

// OpenPush decrypts a push message by a browser's keys, all in base64url.
func OpenPush(private, auth, body string) ([]byte, error) {
	scalar, err1 := base64.RawURLEncoding.DecodeString(private)
	secret, err2 := base64.RawURLEncoding.DecodeString(auth)
	text, err3 := base64.RawURLEncoding.DecodeString(body)
	key, err4 := ecdh.P256().NewPrivateKey(scalar)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	return receiver{private: key, auth: secret}.open(text)
}
