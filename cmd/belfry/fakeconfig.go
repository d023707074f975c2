package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/internal/fake"
)

// fakeNotice begins a file that belfry fake wrote, and may write again.
const fakeNotice = "# Senders that deliver to the fakes of belfry fake."

// writeSenders puts the configuration into a file for its owner alone, since it has
// credentials, in one step. It replaces nothing that it has not written.
func writeSenders(name, text string) error {
	before, err := os.ReadFile(name)
	switch {
	case err == nil && !strings.HasPrefix(string(before), fakeNotice):
		return usagef("--write: %s was not written by belfry fake; name another file, or remove it", name)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--write: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".belfry-fake-*")
	if err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("--write: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// fakeSenders is the configuration with which belfry delivers to the fakes.
// keys is the directory of their credentials.
func fakeSenders(s *fake.Server, keys string) (string, error) {
	c, err := s.Credentials()
	if err != nil {
		return "", err
	}
	base := s.URL()
	if base == "" {
		base = s.TLSURL()
	}
	var b strings.Builder
	b.WriteString(fakeNotice + "\nsenders:\n")
	if s.TLSURL() != "" {
		fmt.Fprintf(&b, `  - name: webpush
    kind: webpush
    webpush: # addresses: POST %s/webpush/subscriptions
      private_key: %q
      subject: mailto:ops@example.com
      allow_addresses: [127.0.0.0/8, "::1/128"]
      ca_file: %q
`, base, c.VAPIDKey, filepath.Join(keys, fake.CertificateFile))
	}
	if base != "" {
		fakeHTTP(&b, base, c, keys, s.FCMServiceAccountFile())
	}
	if address := s.SMTPAddr(); address != "" {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, `  - name: email
    kind: smtp
    smtp:
      host: %q
      port: %s
      ca_file: %q
      username: %q
      password: %q
      from: belfry@example.com
`, host, port, filepath.Join(keys, fake.CertificateFile), c.SMTPUser, c.SMTPPassword)
	}
	return b.String(), nil
}

// fakeHTTP writes the senders that speak HTTP, but Web Push. account is the file of FCM's.
func fakeHTTP(b *strings.Builder, base string, c fake.Credentials, keys, account string) {
	allowHTTP := strconv.FormatBool(strings.HasPrefix(base, "http:"))
	trust := ""
	if strings.HasPrefix(base, "https:") {
		trust = fmt.Sprintf("\n      ca_file: %q", filepath.Join(keys, fake.CertificateFile))
	}
	fmt.Fprintf(b, `  - name: apns
    kind: apns
    apns:
      endpoint: %s
      team_id: %s
      key_id: %s
      key_file: %q
      topic: com.example.app%s
`, base, c.APNsTeamID, c.APNsKeyID, filepath.Join(keys, fake.APNsKeyFile), trust)
	fmt.Fprintf(b, `  - name: fcm
    kind: fcm
    fcm:
      endpoint: %s
      service_account_file: %q%s
`, base, filepath.Join(keys, account), trust)
	fmt.Fprintf(b, `  - name: sms
    kind: sms
    sms:
      url: %s/sms
      auth: bearer
      secret: %q
      from: belfry
      message_id_path: id
      code_path: error.code
      invalid_address: {codes: [invalid_number]}%s
`, base, c.SMSToken, trust)
	fmt.Fprintf(b, `  - name: webhook
    kind: webhook
    webhook:
      url: %s/webhook/belfry
      allow_http: %s
      allow_addresses: [127.0.0.0/8, "::1/128"]
      secrets: [%q]%s
`, base, allowHTTP, c.WebhookSecret, trust)
	fmt.Fprintf(b, `  - name: alimtalk
    kind: alimtalk
    alimtalk:
      endpoint: %s
      service_id: %q
      access_key: %q
      secret_key: %q
      plus_friend_id: "@belfry"
      template_code: belfry%s
`, base, c.AlimTalkService, c.AlimTalkAccessKey, c.AlimTalkSecretKey, trust)
}
