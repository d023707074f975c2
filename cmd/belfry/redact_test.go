package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/outbox/sender/provider"
)

// fill puts a text that must not be shown into every text of a struct.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("https://hidden.example/topsecret?key=topsecret")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("topsecret").Convert(v.Type().Key()), value)
	default:
	}
}

// shownTexts lists the keys whose text is shown as it is.
func shownTexts(prefix string, shown any, into map[string]bool) {
	switch shown := shown.(type) {
	case map[string]any:
		for key, value := range shown {
			shownTexts(strings.TrimPrefix(prefix+"."+key, "."), value, into)
		}
	default:
		if strings.Contains(fmt.Sprint(shown), "topsecret") {
			into[prefix] = true
		}
	}
}

// Of the settings of a provider nothing is shown but what somebody has found to be no
// secret: this test lists it.
func TestConfig_OfSendersOnlyWhatIsNoSecretIsShown(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"webhook":  {"secret_file", "allow_addresses", "ca_file"},
		"sms":      {"method", "content_type", "idempotency_header", "from", "auth", "secret_file", "message_id_path", "code_path", "ca_file"},
		"fcm":      {"service_account_file", "project", "priority", "ca_file"},
		"apns":     {"team_id", "key_id", "key_file", "topic", "sound", "allow_addresses", "ca_file"},
		"webpush":  {"private_key_file", "subject", "urgency", "allow_addresses", "ca_file"},
		"smtp":     {"host", "tls", "ca_file", "auth", "password_file", "from", "reply_to", "message_id_domain", "hello"},
		"alimtalk": {"service_id", "secret_key_file", "plus_friend_id", "template_code", "country_code", "invalid_address_codes", "allow_addresses", "ca_file"},
	}
	for name, kind := range provider.Kinds() {
		fill(reflect.ValueOf(kind.Config).Elem())
		got := make(map[string]bool)
		shownTexts("", senderList{{Kind: name, Settings: kind.Config}}.shown()[0][name], got)
		keys := make(map[string]bool)
		for _, key := range want[name] {
			keys[key] = true
		}
		require.Equal(t, keys, got, "%s shows other texts than listed", name)
	}
}

func TestConfig_SecretsOfSendersAreNotShown(t *testing.T) {
	t.Parallel()
	environ := []string{`BELFRY_SENDERS=[{"name": "hook", "kind": "webhook", "webhook": {"url": "https://example.com/topsecret", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}}]`}
	r := command(t, environ, "config", "show", "--json")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout, `"url": "https://example.com"`)
	require.Contains(t, r.stdout, `"secrets": "(1 set)"`)
	require.Contains(t, r.stdout, `"concurrency": 16`)
	require.NotContains(t, r.stdout, "topsecret")
	require.NotContains(t, r.stdout, "whsec")
	r = command(t, environ, "config", "show")
	require.Regexp(t, `(?m)^senders +\[hook\] +BELFRY_SENDERS$`, r.stdout)
}

// A sender without a retry of its own takes that of delivery, wherever each was given.
func TestConfig_SendersTakeTheRetryOfDelivery(t *testing.T) {
	t.Parallel()
	s, err := loadConfig(config.Input{Environ: []string{
		`BELFRY_SENDERS=[{"name": "a", "kind": "webhook", "retry": {"attempts": 7}, "webhook": {"url": "https://example.com", "secret_file": "/etc/hook"}}, {"name": "b", "kind": "webhook", "medium": "push", "webhook": {"url": "https://example.com", "secret_file": "/etc/hook"}}]`,
		"BELFRY_DELIVERY_RETRY_ATTEMPTS=5", "BELFRY_DELIVERY_RETRY_MAX=1h",
	}}, nil)
	require.NoError(t, err)
	require.Equal(t, 7, s.Senders[0].Retry.Attempts)
	require.Equal(t, 5, s.Senders[1].Retry.Attempts)
	require.Equal(t, "1h0m0s", s.Senders[0].Retry.Max.String())
}
