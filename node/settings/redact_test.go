package settings_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/node/settings"
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
		"webpush":  {"private_key_file", "subject", "urgency", "hosts", "allow_addresses", "ca_file"},
		"smtp":     {"host", "tls", "ca_file", "auth", "password_file", "from", "reply_to", "message_id_domain", "hello"},
		"alimtalk": {"service_id", "secret_key_file", "plus_friend_id", "template_code", "country_code", "invalid_address_codes", "allow_addresses", "ca_file"},
	}
	for name, kind := range provider.Kinds() {
		fill(reflect.ValueOf(kind.Config).Elem())
		got := make(map[string]bool)
		shownTexts("", settings.Senders{{Kind: name, Settings: kind.Config}}.Shown()[0][name], got)
		keys := make(map[string]bool)
		for _, key := range want[name] {
			keys[key] = true
		}
		require.Equal(t, keys, got, "%s shows other texts than listed", name)
	}
}
