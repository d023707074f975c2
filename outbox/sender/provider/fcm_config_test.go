package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFCM_Validate(t *testing.T) {
	t.Parallel()
	require.EqualError(t, Validate("senders[0].fcm", DefaultFCM()), "senders[0].fcm.service_account: is missing; set service_account or service_account_file")
	cfg := DefaultFCM()
	cfg.ServiceAccountFile = "/etc/belfry/fcm.json"
	require.NoError(t, Validate("senders[0].fcm", cfg))

	err := Validate("senders[0].fcm", &FCMConfig{ServiceAccount: "hunter2", ServiceAccountFile: "x", Project: "a/b", Endpoint: "http://example.com", TokenURL: "x", Priority: "urgent", TTL: time.Millisecond})
	require.EqualError(t, err, `senders[0].fcm.service_account: both service_account and service_account_file are set; set only one
senders[0].fcm.project: "a/b" is not allowed; allowed values: up to 100 letters, digits, ., :, _ and -
senders[0].fcm.endpoint: an http URL; allowed values: https, http to this machine, and http elsewhere with allow_http
senders[0].fcm.token_url: not an absolute https URL
senders[0].fcm.priority: "urgent" is not allowed; allowed values: high and normal
senders[0].fcm.ttl: 1ms is not allowed; allowed values: 0 (four weeks) and 1s to 672h0m0s`)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestFCM_ServiceAccounts(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	with := func(name, value string) string {
		var doc map[string]string
		require.NoError(t, json.Unmarshal([]byte(fcmServiceAccount(t, "https://oauth2.googleapis.com/token")), &doc))
		doc[name] = value
		text, err := json.Marshal(doc)
		require.NoError(t, err)
		return string(text)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for _, test := range []struct{ name, text, problem string }{
		{"good", with("x", "y"), ""},
		{"PKCS #1", with("private_key", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(fcmPrivateKey()))), ""},
		{"no JSON", `hunter2`, "service_account: is not a JSON object; must be a service account's key in Google's JSON format"},
		{"a user's", with("type", "authorized_user"), "service_account: is not a service account's key: type must be service_account, and client_email is required"},
		{"no PEM", with("private_key", "hunter2"), "service_account: its private_key is not a PEM block"},
		{"broken", with("private_key", block("PRIVATE KEY", []byte("hunter2"))), "service_account: its private_key is not an RSA key in PKCS #8 or PKCS #1"},
		{"elliptic", with("private_key", block("PRIVATE KEY", der)), "service_account: its private_key is not an RSA key in PKCS #8 or PKCS #1"},
		{"no project", with("project_id", ""), "project: is missing, and the service account has no valid one"},
		{"token by http", with("token_uri", "http://example.com"), "token_url: the service account's token_uri: an http URL; allowed values: https, http to this machine, and http elsewhere with allow_http"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "account.json")
			require.NoError(t, os.WriteFile(file, []byte(test.text+"\n"), 0o600))
			byValue, byFile := DefaultFCM(), DefaultFCM()
			byValue.ServiceAccount, byFile.ServiceAccountFile = test.text, file
			s, err := New(byFile, time.Now)
			if test.problem == "" {
				require.NoError(t, err)
				require.NoError(t, s.Close())
				require.NoError(t, Validate("x", byValue))
				return
			}
			require.EqualError(t, err, test.problem)
			_, err = New(byValue, time.Now)
			require.ErrorContains(t, err, test.problem)
		})
	}
	cfg := DefaultFCM()
	cfg.ServiceAccountFile = filepath.Join(t.TempDir(), "none")
	_, err = New(cfg, time.Now)
	require.ErrorIs(t, err, os.ErrNotExist)
}
