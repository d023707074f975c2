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

// FCMConfig configures push messages through Firebase Cloud Messaging, HTTP v1
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
// FCM has no field for an idempotency key: a message that is posted twice is sent twice. The device receives the
// key instead: as data.belfry_key, with which an app can drop a repeat, and as the notification's tag on Android
// and the collapse id on iOS, with which the system replaces a notification that is already shown. There is no
// collapse_key, so different messages never replace each other. Values of data that are not texts are sent as
// JSON texts, because FCM accepts only texts.
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
//  1. An access token is requested once for all concurrent sends, and refreshed before it expires. After a 401 it
//     is replaced, unless it is younger than a minute, and the message is posted again: a 401 means that the
//     first post was not accepted.
//  2. While the token provider fails, it is called at most once a second, and a valid token remains in use.
//
// The token is requested with a JSON Web Token that is signed with the service account's key, see
// https://developers.google.com/identity/protocols/oauth2/service-account.
type FCMConfig struct {
	// ServiceAccount is the service account's key in Google's JSON format.
	ServiceAccount string `mapstructure:"service_account"`
	// ServiceAccountFile names a file with the service account's key.
	ServiceAccountFile string `mapstructure:"service_account_file"`
	// Project is the Firebase project. Empty means the service account's project.
	Project string `mapstructure:"project"`
	// Endpoint is the URL of FCM, of a fake or of an emulator.
	Endpoint string `mapstructure:"endpoint"`
	// TokenURL is the URL of access tokens. Empty means the service account's token_uri.
	TokenURL string `mapstructure:"token_url"`
	// AllowHTTP permits http for Endpoint and TokenURL on other machines.
	AllowHTTP bool `mapstructure:"allow_http"`
	// Priority is high (shown immediately) or normal (saves battery).
	Priority string `mapstructure:"priority"`
	// TTL is the time for which FCM stores a message for an offline device. Zero means FCM's default of four
	// weeks.
	TTL time.Duration `mapstructure:"ttl"`
	// CAFile names a PEM file of trusted certificate authorities, in addition to the system's.
	CAFile string `mapstructure:"ca_file"`
}

// DefaultFCM returns the settings of Google's service, with high priority.
func DefaultFCM() *FCMConfig {
	return &FCMConfig{Endpoint: "https://fcm.googleapis.com", Priority: "high"}
}

// fcmMaxTTL is FCM's limit.
const fcmMaxTTL = 28 * 24 * time.Hour

var fcmProject = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:_-]{0,99}$`) })

// validate implements Config.
func (c *FCMConfig) validate(p *sender.ValidationErrors) {
	check := p.Check
	switch {
	case c.ServiceAccount != "" && c.ServiceAccountFile != "":
		check(false, "service_account", "both service_account and service_account_file are set; set only one")
	case c.ServiceAccount == "" && c.ServiceAccountFile == "":
		check(false, "service_account", "is missing; set service_account or service_account_file")
	case c.ServiceAccount != "":
		_, err := parseFCMAccount(c.ServiceAccount)
		check(err == nil, "service_account", "%v", err)
	}
	check(c.Project == "" || fcmProject().MatchString(c.Project), "project",
		"%q is not allowed; allowed values: up to 100 letters, digits, ., :, _ and -", c.Project)
	_, err := parseEndpoint(c.Endpoint, c.AllowHTTP)
	check(err == nil, "endpoint", "%v", err)
	if c.TokenURL != "" {
		_, err = parseEndpoint(c.TokenURL, c.AllowHTTP)
		check(err == nil, "token_url", "%v", err)
	}
	check(c.Priority == "high" || c.Priority == "normal", "priority", "%q is not allowed; allowed values: high and normal", c.Priority)
	check(c.TTL == 0 || c.TTL >= time.Second && c.TTL <= fcmMaxTTL, "ttl",
		"%s is not allowed; allowed values: 0 (four weeks) and %s to %s", c.TTL, time.Second, fcmMaxTTL)
}

// fcmAccount contains the used parts of a service account's key.
type fcmAccount struct {
	email, keyID, project, tokenURL string
	key                             *rsa.PrivateKey
}

// parseFCMAccount parses a service account's JSON. Its errors do not quote it.
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
		return fcmAccount{}, errors.New("is not a JSON object; must be a service account's key in Google's JSON format")
	}
	if doc.Type != "service_account" || doc.ClientEmail == "" {
		return fcmAccount{}, errors.New("is not a service account's key: type must be service_account, and client_email is required")
	}
	key, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(doc.PrivateKey))
	switch {
	case errors.Is(err, jwt.ErrKeyMustBePEMEncoded):
		return fcmAccount{}, errors.New("its private_key is not a PEM block")
	case err != nil:
		return fcmAccount{}, errors.New("its private_key is not an RSA key in PKCS #8 or PKCS #1")
	}
	return fcmAccount{email: doc.ClientEmail, keyID: doc.PrivateKeyID, project: doc.ProjectID, tokenURL: doc.TokenURI, key: key}, nil
}
