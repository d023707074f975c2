package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text      string
		allowHTTP bool
		problem   string
	}{
		{"https://example.com/hook?a=b", false, ""},
		{"https://[2001:db8::1]:8443/", false, ""},
		{"http://example.com", true, ""},
		{"http://example.com", false, "an http URL; allowed values: https URLs"},
		{"ftp://example.com", true, "not an absolute https URL"},
		{"example.com/hook", false, "not an absolute https URL"},
		{"", false, "not an absolute https URL"},
		{"https://", false, "a URL without a host"},
		{"https://:443/", false, "a URL without a host"},
		{"https://me:pw@example.com/", false, "a URL with a user name; none is allowed"},
		{"https://example.com/\x7f", false, "not a URL"},
		{"https://example.com:x/", false, "not a URL"},
		{"https://example.com/" + strings.Repeat("x", 2048), false, "the URL has 2068 bytes; the maximum is 2048"},
	} {
		u, err := parseURL(test.text, test.allowHTTP)
		if test.problem == "" {
			require.NoError(t, err, test.text)
			require.Equal(t, test.text, u.String())
			continue
		}
		require.EqualError(t, err, test.problem, test.text)
	}
	u, err := parseURL("https://example.com/a#b", false)
	require.NoError(t, err)
	require.Equal(t, "https://example.com/a", u.String())
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"https://fcm.googleapis.com", "http://127.0.0.1:8925", "http://localhost:8925/x", "http://[::1]:1/", "http://127.9.9.9"} {
		u, err := parseEndpoint(text, false)
		require.NoError(t, err, text)
		require.Equal(t, text, u.String())
	}
	for _, text := range []string{"http://10.0.0.1", "http://localhost.example.com", "http://fake:8925"} {
		_, err := parseEndpoint(text, false)
		require.EqualError(t, err, "an http URL; allowed values: https, http to this machine, and http elsewhere with allow_http", text)
		_, err = parseEndpoint(text, true)
		require.NoError(t, err, text)
	}
	_, err := parseEndpoint("ftp://127.0.0.1", true)
	require.EqualError(t, err, "not an absolute https URL")
}

func TestSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		return file
	}
	full, empty, huge := write("full", "\n s3cret \n"), write("empty", " \n"), write("huge", strings.Repeat("x", 65537))

	got, err := readSecret("secret", "value", "")
	require.NoError(t, err)
	require.Equal(t, "value", got)
	got, err = readSecret("secret", "", full)
	require.NoError(t, err)
	require.Equal(t, "s3cret", got)
	got, err = readSecret("secret", "", write("marked", "\xef\xbb\xbfs3cret\r\n"))
	require.NoError(t, err)
	require.Equal(t, "s3cret", got, "without the byte order mark")
	_, err = readSecret("secret", "", write("wide", "\xff\xfes\x003\x00"))
	require.ErrorContains(t, err, "is UTF-16; save it as UTF-8")
	got, err = readSecret("secret", "", "")
	require.NoError(t, err)
	require.Empty(t, got)

	_, err = readSecret("secret", "value", full)
	require.EqualError(t, err, "secret: both secret and secret_file are set; set only one")
	_, err = readSecret("secret", "", empty)
	require.ErrorContains(t, err, "secret_file: ")
	require.ErrorContains(t, err, "is empty")
	for _, file := range []string{dir, huge} {
		_, err = readSecret("secret", "", file)
		require.ErrorContains(t, err, "is not a regular file of up to 65536 bytes")
	}
	_, err = readSecret("secret", "", filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
