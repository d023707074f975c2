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

// maxURL is how many bytes a URL has at most.
const maxURL = 2048

// parseURL reads an absolute https URL, or http where allowed, with a host and without
// user information; a fragment is dropped. The error does not quote the text, which may
// be somebody's address.
func parseURL(text string, allowHTTP bool) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, fmt.Errorf("the URL has %d bytes; allowed are up to %d", len(text), maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("not a URL")
	case u.Scheme == "http" && !allowHTTP:
		return nil, errors.New("a URL by http; allowed is https")
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

// parseEndpoint reads the URL of a provider as an operator configures it: as parseURL,
// and by http also where the host is this machine itself, as a fake or an emulator is.
func parseEndpoint(text string, allowHTTP bool) (*url.URL, error) {
	u, err := parseURL(text, true)
	if err != nil || allowHTTP || u.Scheme == "https" {
		return u, err
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" || err == nil && addr.Unmap().IsLoopback() {
		return u, nil
	}
	return nil, errors.New("a URL by http; allowed is https, http to this machine, and http elsewhere with allow_http")
}

// maxSecretFile bounds a file that holds a secret.
const maxSecretFile = 64 << 10

// readSecret returns the value, or the content of the file without a byte order mark and
// the white space around it. Only one of both may be set; neither gives the empty text. Errors name the keys
// key and key_file, never what is in them.
func readSecret(key, value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	if value != "" {
		return "", fmt.Errorf("%s: both %s and %s_file are set; allowed is one of them", key, key, key)
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
