package provider

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// maxURL is the maximum length of a URL in bytes.
const maxURL = 2048

// parseURL reads an absolute https URL, or http where allowed, with a host and without
// user information; a fragment is dropped. The error does not quote the text, which may be a recipient's
// address.
func parseURL(text string, allowHTTP bool) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, fmt.Errorf("the URL has %d bytes; the maximum is %d", len(text), maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("not a URL")
	case u.Scheme == "http" && !allowHTTP:
		return nil, errors.New("an http URL; allowed values: https URLs")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("not an absolute https URL")
	case u.Hostname() == "":
		return nil, errors.New("a URL without a host")
	case u.User != nil:
		return nil, errors.New("a URL with a user name; none is allowed")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// parseEndpoint reads the URL of a provider from the configuration. It is parseURL, but also permits http to
// this machine, for fakes and emulators.
func parseEndpoint(text string, allowHTTP bool) (*url.URL, error) {
	u, err := parseURL(text, true)
	if err != nil || allowHTTP || u.Scheme == "https" {
		return u, err
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" || err == nil && addr.Unmap().IsLoopback() {
		return u, nil
	}
	return nil, errors.New("an http URL; allowed values: https, http to this machine, and http elsewhere with allow_http")
}

// maxSecretFile is the maximum size of a file with a secret.
const maxSecretFile = 64 << 10

// readSecret returns the value, or the content of the file without a byte order mark and surrounding white
// space. It returns an error if both are set, and an empty text if neither is. Errors name the keys key and
// key_file, but no values.
func readSecret(key, value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	if value != "" {
		return "", fmt.Errorf("%s: both %s and %s_file are set; set only one", key, key, key)
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("%s_file: %w", key, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecretFile {
		return "", fmt.Errorf("%s_file: %s is not a regular file of up to %d bytes", key, file, maxSecretFile)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s_file: %w", key, err)
	}
	if bytes.HasPrefix(content, []byte{0xff, 0xfe}) || bytes.HasPrefix(content, []byte{0xfe, 0xff}) {
		return "", fmt.Errorf("%s_file: %s is UTF-16; save it as UTF-8", key, file)
	}
	text := strings.TrimSpace(strings.TrimPrefix(string(content), "\ufeff"))
	if text == "" {
		return "", fmt.Errorf("%s_file: %s is empty", key, file)
	}
	return text, nil
}
