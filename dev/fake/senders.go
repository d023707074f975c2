package fake

import (
	"net/netip"
	"net/url"
)

// Sender is an entry of belfry's setting senders.
type Sender struct {
	Name string
	Kind string
	// Settings is the section of the kind.
	Settings map[string]any
}

// Senders returns the senders that deliver to the fakes.
func (s *Server) Senders() []Sender {
	mail := netip.MustParseAddrPort(s.smtpAddress)
	local := []string{"127.0.0.0/8", "::1/128"}
	return []Sender{
		{"webpush", "webpush", map[string]any{
			"private_key": base64url(must(s.keys.vapid.Bytes())), "subject": "mailto:ops@example.com",
			"hosts": []string{must(url.Parse(s.url)).Hostname()}, "allow_http": true, "allow_addresses": local,
		}},
		{"apns", "apns", map[string]any{
			"endpoint": s.url, "team_id": apnsTeamID, "key_id": apnsKeyID, "key": privatePEM(s.keys.apns), "topic": "com.example.app",
		}},
		{"fcm", "fcm", map[string]any{"endpoint": s.url, "service_account": s.serviceAccount()}},
		{"sms", "sms", map[string]any{
			"url": s.url + "/sms", "auth": "bearer", "secret": password("sms"), "from": "belfry",
			"message_id_path": "id", "code_path": "error.code", "invalid_address": map[string]any{"codes": []string{"invalid_number"}},
		}},
		{"webhook", "webhook", map[string]any{
			"url": s.url + "/webhook/belfry", "secrets": []string{webhookSecret()}, "allow_http": true, "allow_addresses": local,
		}},
		{"alimtalk", "alimtalk", map[string]any{
			"endpoint": s.url, "service_id": alimTalkService, "access_key": password("alimtalk access"), "secret_key": password("alimtalk secret"),
			"plus_friend_id": "@belfry", "template_code": "belfry",
		}},
		{"email", "smtp", map[string]any{
			"host": mail.Addr().String(), "port": mail.Port(), "tls": "none", "username": smtpUser, "password": password("smtp"),
			"from": "belfry@example.com",
		}},
	}
}
