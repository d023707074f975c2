package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox/inbox"
)

// openSettings are the text settings of senders that contain no secret. A setting that is not listed is
// hidden, so that a new one is secret by default.
var openSettings = []string{
	"name", "kind", "medium", "platforms", "retry.policy",
	"method", "content_type", "idempotency_header", "message_id_path", "code_path", // sms
	"project", "priority", // fcm
	"team_id", "key_id", "topic", "sound", // apns
	"subject", "urgency", "hosts", // webpush
	"host", "tls", "auth", "from", "reply_to", "message_id_domain", "hello", // smtp
	"service_id", "plus_friend_id", "template_code", "country_code", "invalid_address_codes", // alimtalk
	"allow_addresses", // and names that end in _file
}

// openURLs are addresses of providers. Only scheme and host are shown: a path or a query may contain a
// key.
var openURLs = []string{"url", "endpoint", "token_url"}

// setNotShown is the placeholder of a hidden value.
const setNotShown = "(set)"

// Shown is a setting without secrets.
type Shown struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Source string `json:"source"` // default, a file and line, a variable or a flag
}

// Text renders the value in the notation of a file. Schedules and senders are rendered as their names.
func (s Shown) Text() string {
	var names []string
	switch v := s.Value.(type) {
	case nil:
		return `""`
	case string:
		return cmp.Or(v, `""`)
	case []string:
		names = v
	case []schedule.Definition:
		for _, d := range v {
			names = append(names, d.Name)
		}
	case []inbox.Key:
		for _, k := range v {
			names = append(names, k.ID)
		}
	case []map[string]any:
		for _, sender := range v {
			names = append(names, fmt.Sprint(sender["name"]))
		}
	default:
		return fmt.Sprint(v)
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// Shown lists every setting, without secrets.
func (s Settings) Shown() []Shown {
	var list []Shown
	for _, k := range keys.Of(s.Config) {
		value := k.Value
		switch v := value.(type) {
		case time.Duration:
			value = v.String()
		case string:
			value = shownText(k.Name, v)
		case []string:
			value = slices.Concat([]string{}, v)
		case []schedule.Definition:
			value = slices.Concat([]schedule.Definition{}, v)
		case []inbox.Key:
			value = shownKeys(v)
		case Senders:
			value = v.Shown()
		}
		list = append(list, Shown{k.Name, value, s.Source(k.Name).String()})
	}
	return list
}

// shownText returns the value of a setting outside senders, without secrets.
func shownText(key, value string) string {
	switch key {
	case "database.url":
		return WithoutPassword(value)
	case "abort.cache", "delivery.redis.url":
		return WithoutUser(value)
	case "delivery.nats.password":
		return hidden(value)
	}
	return value
}

// Shown returns the senders without secrets, as data.
func (l Senders) Shown() []map[string]any {
	list := make([]map[string]any, 0, len(l))
	for _, entry := range l {
		item := shownFields("", reflect.ValueOf(entry.SenderConfig))
		item[keyKind] = entry.Kind
		item[entry.Kind] = shownFields("", reflect.ValueOf(entry.Settings).Elem())
		list = append(list, item)
	}
	return list
}

// shownFields renders a struct by its keys.
func shownFields(prefix string, v reflect.Value) map[string]any {
	fields := make(map[string]any)
	for _, f := range keys.Fields(v) {
		fields[f.Key] = shownField(prefix+f.Key, f.Value)
	}
	return fields
}

// shownField renders one value; key is its path within the sender or its section.
func shownField(key string, v reflect.Value) any {
	switch d, isDuration := v.Interface().(time.Duration); {
	case isDuration:
		return d.String()
	case v.Kind() == reflect.Struct:
		return shownFields(key+".", v)
	case isHidden(key, v) && (v.Kind() == reflect.Slice || v.Kind() == reflect.Map):
		return fmt.Sprintf("(%d set)", v.Len())
	case isHidden(key, v):
		return setNotShown
	case v.Kind() == reflect.Slice && v.Len() == 0:
		return []string{}
	case v.Kind() == reflect.Map:
		return ""
	case v.Kind() == reflect.String && v.Len() > 0 && slices.Contains(openURLs, key):
		return withoutPath(v.String())
	}
	return v.Interface()
}

// isHidden reports whether a value of a sender is set and may be a secret.
func isHidden(key string, v reflect.Value) bool {
	switch {
	case v.Kind() == reflect.Bool, v.CanInt(), v.CanUint(), v.CanFloat(), v.IsZero(), v.Kind() == reflect.Slice && v.Len() == 0:
		return false
	case v.Kind() == reflect.String && slices.Contains(openURLs, key):
		return false
	}
	return !slices.Contains(openSettings, key) && !strings.HasSuffix(key, "_file")
}

// withoutPath returns scheme and host of a URL.
func withoutPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return notShown
	}
	return u.Scheme + "://" + u.Host
}
