package fake

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	_ "embed" // the key of FCM
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
)

// The credentials are valid only for a fake and are no secrets: each is derived from its name, so that
// a configuration stays valid after a restart. These are the names that callers send.
const (
	fcmProject      = "belfry-fake"
	fcmAccount      = "fake@belfry-fake.iam.gserviceaccount.com"
	apnsKeyID       = "FAKEKEY001"
	apnsTeamID      = "FAKETEAM01"
	alimTalkService = "ncp:kkobizmsg:kr:0000001:belfry-fake"
	smtpUser        = "belfry"
)

// fcmKey is an RSA key, which cannot be derived from a name: PKCS #8 in PEM.
//
//go:embed fcm.pem
var fcmKey []byte

// keys are the signing keys of callers.
type keys struct {
	apns, vapid *ecdsa.PrivateKey
	fcm         *rsa.PrivateKey

	vapidPublic string // in the encoding of subscriptions and headers
}

func openKeys() keys {
	k := keys{apns: curveKey("apns"), vapid: curveKey("vapid")}
	k.vapidPublic = base64url(must(k.vapid.PublicKey.Bytes()))
	block, _ := pem.Decode(fcmKey)
	k.fcm, _ = must(x509.ParsePKCS8PrivateKey(block.Bytes)).(*rsa.PrivateKey)
	return k
}

// must returns a value that is derived from constants, or panics.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func base64url(text []byte) string { return base64.RawURLEncoding.EncodeToString(text) }

// secret derives 32 bytes from a name.
func secret(name string) []byte {
	sum := sha256.Sum256([]byte("belfry fake " + name))
	return sum[:]
}

// password returns secret as text of letters, digits, - and _.
func password(name string) string { return base64url(secret(name)) }

// curveKey derives a private key of the curve P-256 from a name.
func curveKey(name string) *ecdsa.PrivateKey {
	for {
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret(name)); err == nil { // not 0, and below the order of the curve
			return key
		}
		name += "+"
	}
}

// privatePEM returns a key in PEM.
func privatePEM(key any) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))}))
}

// serviceAccount returns the JSON file of FCM's service account.
func (s *Server) serviceAccount() string {
	return string(must(json.Marshal(map[string]string{
		"type": "service_account", "project_id": fcmProject, "private_key_id": "fake", "private_key": privatePEM(s.keys.fcm),
		"client_email": fcmAccount, "client_id": "1", "token_uri": s.url + "/token",
	})))
}
