package inbox

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// Key verifies tokens. It has one algorithm.
type Key struct {
	// ID is the kid of tokens that the key verifies.
	ID string `mapstructure:"id" json:"id"`
	// Algorithm is EdDSA, ES256 or HS256.
	Algorithm string `mapstructure:"algorithm" json:"algorithm"`
	// Key is a public key in PEM, or for HS256 a secret of 32 or more bytes.
	Key string `mapstructure:"key" json:"key,omitempty"`
	// KeyFile contains Key, a secret in its first line.
	KeyFile string `mapstructure:"key_file" json:"key_file,omitempty"`
}

const (
	algorithmHMAC = "HS256"
	minSecret     = 32
	maxKeyFile    = 16 << 10
	pemHeader     = "-----BEGIN "
)

// algorithms are the allowed algorithms, each with the function that reads a key of it.
func algorithms() map[string]func(text []byte) (any, error) {
	return map[string]func([]byte) (any, error){
		"EdDSA": func(text []byte) (any, error) { return publicKey(jwt.ParseEdPublicKeyFromPEM(text)) },
		"ES256": func(text []byte) (any, error) {
			key, err := jwt.ParseECPublicKeyFromPEM(text)
			if err == nil && key.Curve != elliptic.P256() {
				err = errors.New("another curve than P-256")
			}
			return publicKey[*ecdsa.PublicKey](key, err)
		},
		algorithmHMAC: secret,
	}
}

func publicKey[T crypto.PublicKey](key T, err error) (any, error) {
	if err != nil { // of the library, which may repeat parts of the text
		return nil, errors.New("is not a public key of the algorithm; allowed values: a public key in PEM (-----BEGIN PUBLIC KEY-----)")
	}
	return key, nil
}

// secret reads a secret of HMAC. It rejects PEM, of which the first line is known and a public key no secret.
func secret(text []byte) (any, error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	line = bytes.TrimRight(line, "\r")
	if len(line) < minSecret || bytes.HasPrefix(text, []byte(pemHeader)) {
		return nil, fmt.Errorf("is not a secret of HS256; allowed values: %d or more bytes in one line, such as the output of "+
			"`openssl rand -base64 32`", minSecret)
	}
	return line, nil
}

// Secret reports whether the key is a secret, and not a public key.
func (k Key) Secret() bool { return k.Algorithm == algorithmHMAC }

func (k Key) validate(prefix string) error {
	var errs []error
	if len(k.ID) < 1 || len(k.ID) > 100 || strings.ContainsFunc(k.ID, func(c rune) bool { return c <= ' ' || c > '~' }) {
		errs = append(errs, fmt.Errorf("%s.id: %q is not allowed; allowed values: 1 to 100 visible ASCII characters", prefix, k.ID))
	}
	known := algorithms()
	if known[k.Algorithm] == nil {
		errs = append(errs, fmt.Errorf("%s.algorithm: %q is not allowed; allowed values: EdDSA, ES256, HS256", prefix, k.Algorithm))
	}
	if (k.Key == "") == (k.KeyFile == "") {
		errs = append(errs, fmt.Errorf("%s.key_file: exactly one of key and key_file is required; allowed values: a file with a public key "+
			"in PEM, or for HS256 with a secret", prefix))
	} else if k.Key != "" && known[k.Algorithm] != nil {
		if _, err := known[k.Algorithm]([]byte(k.Key)); err != nil {
			errs = append(errs, fmt.Errorf("%s.key: %w", prefix, err))
		}
	}
	return errors.Join(errs...)
}

// verifier is a Key that has been read.
type verifier struct {
	algorithm string
	key       any
}

// CheckServed reports missing settings and unusable keys of a valid configuration.
func (c Config) CheckServed() error {
	_, err := c.verifiers()
	return err
}

// verifiers returns the keys of CheckServed, by id.
func (c Config) verifiers() (map[string]verifier, error) {
	all, known := make(map[string]verifier, len(c.Keys)), algorithms()
	var errs []error
	if c.Audience == "" {
		errs = append(errs, errors.New("inbox.audience: is empty; allowed values: the aud of readers' tokens, such as https://inbox.example.com"))
	}
	if len(c.Keys) == 0 {
		errs = append(errs, errors.New("inbox.keys: is empty; allowed values: the keys that verify readers' tokens"))
	}
	for i, k := range c.Keys {
		text := []byte(k.Key)
		var err error
		if k.KeyFile != "" {
			text, err = readKey(k.KeyFile)
		}
		v := verifier{algorithm: k.Algorithm}
		if err == nil {
			v.key, err = known[k.Algorithm](text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("inbox.keys[%d].key_file: %w", i, err))
		}
		all[k.ID] = v
	}
	return all, errors.Join(errs...)
}

func readKey(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	return slices.Clip(text), err
}
