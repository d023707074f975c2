package provider

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"regexp"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/belfryhq/belfry/outbox/sender"
)

// FCMConfig sets how push messages are sent by Firebase Cloud Messaging, HTTP v1
// (https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages/send).
//
//	POST <endpoint>/v1/projects/<project>/messages:send
//	Authorization: Bearer <token of the service account>
//
//	{"message":{"token":"…","notification":{"title":"…","body":"…"},
//	  "data":{…,"belfry_key":"…"},
//	  "android":{"priority":"high","notification":{"tag":"…"}},
//	  "apns":{"headers":{"apns-collapse-id":"…"}}}}
//
// FCM has no place for an idempotency key: a message that is posted twice is sent twice.
// The key goes to the device instead, as data.belfry_key, by which an app can drop a
// repeat, and as the notification's tag on Android and the collapse id on iOS, by which
// the system replaces a notification already shown. There is no collapse_key: different
// messages never replace each other. Values of data that are no text become JSON text,
// for FCM takes nothing else.
//
//	200 with a name ─────────────────────────────────► accepted, the name as receipt
//	200 with anything else ──────────────────────────► unknown
//	UNREGISTERED; INVALID_ARGUMENT of the token ─────► invalid address
//	other INVALID_ARGUMENT, SENDER_ID_MISMATCH,
//	other 4xx ───────────────────────────────────────► permanent
//	UNAUTHENTICATED (401), THIRD_PARTY_AUTH_ERROR ───► retryable: the credentials are refused
//	QUOTA_EXCEEDED (429) ────────────────────────────► retryable, not before Retry-After, or a minute
//	UNAVAILABLE (503), INTERNAL (500) ───────────────► retryable
//	502, 504, no answer ─────────────────────────────► unknown
//	no access token ─────────────────────────────────► retryable, nothing was sent
//
// # Invariants
//
//  1. An access token is asked for once however many sends want it, is refreshed before it
//     expires, and after a 401 is replaced, unless it is younger than a minute, and the
//     message posted once more: a 401 says that the first was not accepted.
//  2. While the token's provider fails it is asked at most once a second, and a token
//     that is still good goes on being used.
//
// The token is had by a JSON Web Token signed with the service account's key, as in
// https://developers.google.com/identity/protocols/oauth2/service-account.
type FCMConfig struct {
	// ServiceAccount is the service account's key, as the JSON that Google hands out.
	ServiceAccount string `mapstructure:"service_account"`
	// ServiceAccountFile names a file with it.
	ServiceAccountFile string `mapstructure:"service_account_file"`
	// Project is the Firebase project; empty: the service account's.
	Project string `mapstructure:"project"`
	// Endpoint is where FCM is; a fake or an emulator may stand in.
	Endpoint string `mapstructure:"endpoint"`
	// TokenURL is where access tokens are had; empty: what the service account says.
	TokenURL string `mapstructure:"token_url"`
	// AllowHTTP lets Endpoint and TokenURL be http beyond this machine.
	AllowHTTP bool `mapstructure:"allow_http"`
	// Priority is high, to be shown at once, or normal, to spare the battery.
	Priority string `mapstructure:"priority"`
	// TTL is how long FCM keeps a message for a device that is off; 0: as long as it
	// does by itself, four weeks.
	TTL time.Duration `mapstructure:"ttl"`
	// CAFile names a PEM file of authorities that are trusted beside the system's.
	CAFile string `mapstructure:"ca_file"`
}

// DefaultFCM is Google's own service, at high priority.
func DefaultFCM() *FCMConfig {
	return &FCMConfig{Endpoint: "https://fcm.googleapis.com", Priority: "high"}
}

// fcmMaxTTL is FCM's own limit.
const fcmMaxTTL = 28 * 24 * time.Hour

var fcmProject = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:_-]{0,99}$`) })

// validate implements Config.
func (c *FCMConfig) validate(p *sender.Problems) {
	check := p.Check
	switch {
	case c.ServiceAccount != "" && c.ServiceAccountFile != "":
		check(false, "service_account", "both service_account and service_account_file are set; allowed is one of them")
	case c.ServiceAccount == "" && c.ServiceAccountFile == "":
		check(false, "service_account", "is missing; required is service_account or service_account_file")
	case c.ServiceAccount != "":
		_, err := parseFCMAccount(c.ServiceAccount)
		check(err == nil, "service_account", "%v", err)
	}
	check(c.Project == "" || fcmProject().MatchString(c.Project), "project", "%q is not allowed; allowed are up to 100 letters, digits, ., :, _ and -", c.Project)
	_, err := parseEndpoint(c.Endpoint, c.AllowHTTP)
	check(err == nil, "endpoint", "%v", err)
	if c.TokenURL != "" {
		_, err = parseEndpoint(c.TokenURL, c.AllowHTTP)
		check(err == nil, "token_url", "%v", err)
	}
	check(c.Priority == "high" || c.Priority == "normal", "priority", "%q is not allowed; allowed are high and normal", c.Priority)
	check(c.TTL == 0 || c.TTL >= time.Second && c.TTL <= fcmMaxTTL, "ttl", "%s is not allowed; allowed are 0 (four weeks) and %s to %s", c.TTL, time.Second, fcmMaxTTL)
}

// fcmAccount is what of a service account's key is used.
type fcmAccount struct {
	email, keyID, project, tokenURL string
	key                             *rsa.PrivateKey
}

// parseFCMAccount reads a service account's JSON. Errors quote nothing of it.
func parseFCMAccount(text string) (fcmAccount, error) {
	var doc struct {
		Type         string `json:"type"`
		ProjectID    string `json:"project_id"`
		PrivateKeyID string `json:"private_key_id"`
		PrivateKey   string `json:"private_key"`
		ClientEmail  string `json:"client_email"`
		TokenURI     string `json:"token_uri"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return fcmAccount{}, errors.New("is no JSON object; allowed is a service account's key as Google hands it out")
	}
	if doc.Type != "service_account" || doc.ClientEmail == "" {
		return fcmAccount{}, errors.New("is no service account's key: type must be service_account and client_email be set")
	}
	key, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(doc.PrivateKey))
	switch {
	case errors.Is(err, jwt.ErrKeyMustBePEMEncoded):
		return fcmAccount{}, errors.New("its private_key is no PEM block")
	case err != nil:
		return fcmAccount{}, errors.New("its private_key is no RSA key by PKCS #8 or PKCS #1")
	}
	return fcmAccount{email: doc.ClientEmail, keyID: doc.PrivateKeyID, project: doc.ProjectID, tokenURL: doc.TokenURI, key: key}, nil
}
