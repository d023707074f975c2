package fcm

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"regexp"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// Config sets the project and how its messages are marked.
type Config struct {
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

// DefaultConfig is Google's own service, at high priority.
func DefaultConfig() Config {
	return Config{Endpoint: "https://fcm.googleapis.com", Priority: "high"}
}

// maxTTL is FCM's own limit.
const maxTTL = 28 * 24 * time.Hour

var projectShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:_-]{0,99}$`) })

// Validate returns every problem at once, each with its key under path, or nil. It reads
// no file.
func (c Config) Validate(path string) error {
	problems := sender.Problems{Path: path}
	check := problems.Check
	switch {
	case c.ServiceAccount != "" && c.ServiceAccountFile != "":
		check(false, "service_account", "both service_account and service_account_file are set; allowed is one of them")
	case c.ServiceAccount == "" && c.ServiceAccountFile == "":
		check(false, "service_account", "is missing; required is service_account or service_account_file")
	case c.ServiceAccount != "":
		_, err := parseAccount(c.ServiceAccount)
		check(err == nil, "service_account", "%v", err)
	}
	check(c.Project == "" || projectShape().MatchString(c.Project), "project", "%q is not allowed; allowed are up to 100 letters, digits, ., :, _ and -", c.Project)
	_, err := httpcall.ParseEndpoint(c.Endpoint, c.AllowHTTP)
	check(err == nil, "endpoint", "%v", err)
	if c.TokenURL != "" {
		_, err = httpcall.ParseEndpoint(c.TokenURL, c.AllowHTTP)
		check(err == nil, "token_url", "%v", err)
	}
	check(c.Priority == "high" || c.Priority == "normal", "priority", "%q is not allowed; allowed are high and normal", c.Priority)
	check(c.TTL == 0 || c.TTL >= time.Second && c.TTL <= maxTTL, "ttl", "%s is not allowed; allowed are 0 (four weeks) and %s to %s", c.TTL, time.Second, maxTTL)
	return problems.Err()
}

// account is what of a service account's key is used.
type account struct {
	email, keyID, project, tokenURL string
	key                             *rsa.PrivateKey
}

// parseAccount reads a service account's JSON. Errors quote nothing of it.
func parseAccount(text string) (account, error) {
	var doc struct {
		Type         string `json:"type"`
		ProjectID    string `json:"project_id"`
		PrivateKeyID string `json:"private_key_id"`
		PrivateKey   string `json:"private_key"`
		ClientEmail  string `json:"client_email"`
		TokenURI     string `json:"token_uri"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return account{}, errors.New("is no JSON object; allowed is a service account's key as Google hands it out")
	}
	if doc.Type != "service_account" || doc.ClientEmail == "" {
		return account{}, errors.New("is no service account's key: type must be service_account and client_email be set")
	}
	key, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(doc.PrivateKey))
	switch {
	case errors.Is(err, jwt.ErrKeyMustBePEMEncoded):
		return account{}, errors.New("its private_key is no PEM block")
	case err != nil:
		return account{}, errors.New("its private_key is no RSA key by PKCS #8 or PKCS #1")
	}
	return account{email: doc.ClientEmail, keyID: doc.PrivateKeyID, project: doc.ProjectID, tokenURL: doc.TokenURI, key: key}, nil
}
