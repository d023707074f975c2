package fake

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Credentials are what callers prove themselves with. They are made up and open
// nothing but the fake.
type Credentials struct {
	WebhookSecret string `json:"webhook_secret"` // whsec_ and base64
	SMSToken      string `json:"sms_token"`
	FCMProject    string `json:"fcm_project"`
	// FCMServiceAccount is the JSON file of a service account; its token_uri is the fake.
	FCMServiceAccount string `json:"fcm_service_account"`
	APNsKey           string `json:"apns_key"` // the text of a .p8 file
	APNsKeyID         string `json:"apns_key_id"`
	APNsTeamID        string `json:"apns_team_id"`
	VAPIDKey          string `json:"vapid_key"`        // the private key, 32 bytes in base64url
	VAPIDPublicKey    string `json:"vapid_public_key"` // 65 bytes in base64url
	AlimTalkAccessKey string `json:"alimtalk_access_key"`
	AlimTalkSecretKey string `json:"alimtalk_secret_key"`
	AlimTalkService   string `json:"alimtalk_service"`
	SMTPUser          string `json:"smtp_user"`
	SMTPPassword      string `json:"smtp_password"`
	// CertificatePEM is what a client trusts to speak TLS with the fake.
	CertificatePEM string `json:"certificate_pem"`
}

// The files of Config.Keys. The last two are copies for configuration files, and so is
// Server.FCMServiceAccountFile.
const (
	vaultFile       = "fake.json"
	APNsKeyFile     = "apns.p8"
	CertificateFile = "certificate.pem"
)

// secrets is what vaultFile holds. All else is derived from the master.
type secrets struct {
	Master []byte `json:"master"` // 32 bytes
	FCMKey []byte `json:"fcm_key"`
}

// vault has the keys in the form that they are used in.
type vault struct {
	secrets secrets
	apns    *ecdsa.PrivateKey
	vapid   *ecdsa.PrivateKey
	tls     tls.Certificate

	// An RSA key takes a while to make, and only FCM has one.
	fcm func() (*rsa.PrivateKey, error)
}

// openVault reads the credentials of a directory, or makes them.
func openVault(dir string) (*vault, error) {
	if dir == "" {
		return makeSecrets().open()
	}
	path := filepath.Join(dir, vaultFile)
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = makeVault(dir, path)
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path) //nolint:gosec // the directory that the caller named
	if err != nil {
		return nil, err
	}
	var s secrets
	if err := json.Unmarshal(text, &s); err != nil || len(s.Master) != 32 {
		return nil, fmt.Errorf("%s does not hold a fake's credentials; remove it to have new ones made", path)
	}
	v, err := s.open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to have new ones made", path, err)
	}
	return v, nil
}

// makeVault makes credentials and writes them to path. Of several at once the first
// one's stay.
func makeVault(dir, path string) error {
	s := makeSecrets()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make a key for FCM: %w", err)
	}
	if s.FCMKey, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		return fmt.Errorf("make a key for FCM: %w", err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	err = writeFile(path, text, os.Link) // unlike renaming, it replaces nothing
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// writeFile puts a file in its place in one step, for its owner's eyes only.
func writeFile(path string, text []byte, put func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".fake-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = put(f.Name(), path)
	}
	if gone := os.Remove(f.Name()); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// makeSecrets makes everything but FCM's key.
func makeSecrets() secrets {
	s := secrets{Master: make([]byte, 32)}
	_, _ = rand.Read(s.Master) // never fails
	return s
}

// open parses and derives the keys.
func (s secrets) open() (*vault, error) {
	v := &vault{secrets: s}
	v.apns, v.vapid = v.key("apns"), v.key("vapid")
	key := v.key("tls")
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "belfry fake"},
		NotBefore: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2125, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	certificate, err := x509.CreateCertificate(nil, template, template, key.Public(), key) // without randomness it is always the same one
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	v.tls = tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}
	v.fcm = sync.OnceValues(func() (*rsa.PrivateKey, error) {
		if s.FCMKey == nil {
			return rsa.GenerateKey(rand.Reader, 2048)
		}
		parsed, err := x509.ParsePKCS8PrivateKey(s.FCMKey)
		if err != nil {
			return nil, fmt.Errorf("read FCM's key: %w", err)
		}
		key, ok := parsed.(*rsa.PrivateKey)
		if !ok {
			return nil, errors.New("FCM's key is no RSA key")
		}
		return key, nil
	})
	return v, nil
}

// key derives a private key of the curve P-256 by its name.
func (v *vault) key(name string) *ecdsa.PrivateKey {
	for n := 0; ; n++ {
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), v.secret(fmt.Sprintf("%s key %d", name, n), 32)); err == nil { // not 0, and below the order of the curve
			return key
		}
	}
}

// secret derives a shared secret by its name.
func (v *vault) secret(name string, size int) []byte { return derive(v.secrets.Master, name, size) }

// text is secret as text of letters, digits, - and _.
func (v *vault) text(name string, size int) string {
	return base64.RawURLEncoding.EncodeToString(v.secret(name, size))
}

// The names that callers give; nothing about them is secret.
const (
	fcmProject      = "belfry-fake"
	fcmAccount      = "fake@belfry-fake.iam.gserviceaccount.com"
	apnsKeyID       = "FAKEKEY001"
	apnsTeamID      = "FAKETEAM01"
	alimTalkService = "ncp:kkobizmsg:kr:0000001:belfry-fake"
	smtpUser        = "belfry"
)

// credentials returns what callers need. tokenURI is where FCM's tokens come from.
func (v *vault) credentials(tokenURI string) (Credentials, error) {
	key, err := v.fcm()
	if err != nil {
		return Credentials{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Credentials{}, fmt.Errorf("write FCM's key: %w", err)
	}
	account, err := json.MarshalIndent(map[string]string{
		"type": "service_account", "project_id": fcmProject, "private_key_id": "fake",
		"private_key": pemText("PRIVATE KEY", der), "client_email": fcmAccount, "client_id": "1", "token_uri": tokenURI,
	}, "", "  ")
	if err != nil {
		return Credentials{}, err
	}
	apns, err := x509.MarshalPKCS8PrivateKey(v.apns)
	if err != nil {
		return Credentials{}, fmt.Errorf("write the key of APNs: %w", err)
	}
	scalar, err := v.vapid.Bytes()
	if err != nil {
		return Credentials{}, fmt.Errorf("write the VAPID key: %w", err)
	}
	public, err := v.vapidPublic()
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{
		WebhookSecret: v.webhookSecret(), SMSToken: v.text("sms", 24),
		FCMProject: fcmProject, FCMServiceAccount: string(account) + "\n",
		APNsKey: pemText("PRIVATE KEY", apns), APNsKeyID: apnsKeyID, APNsTeamID: apnsTeamID,
		VAPIDKey: base64.RawURLEncoding.EncodeToString(scalar), VAPIDPublicKey: public,
		AlimTalkAccessKey: v.text("alimtalk access", 15), AlimTalkSecretKey: v.text("alimtalk secret", 30), AlimTalkService: alimTalkService,
		SMTPUser: smtpUser, SMTPPassword: v.text("smtp", 18), CertificatePEM: pemText("CERTIFICATE", v.tls.Certificate[0]),
	}, nil
}

func (v *vault) webhookSecret() string {
	return "whsec_" + base64.StdEncoding.EncodeToString(v.secret("webhook", 32))
}

// vapidPublic is the public key as subscriptions and headers have it.
func (v *vault) vapidPublic() (string, error) {
	public, err := v.vapid.PublicKey.Bytes()
	if err != nil {
		return "", fmt.Errorf("write the VAPID key: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(public), nil
}

func pemText(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// writeCopies puts the files that configuration files name into dir; account is that of
// the service account.
func writeCopies(dir, account string, c Credentials) error {
	return errors.Join(
		writeFile(filepath.Join(dir, account), []byte(c.FCMServiceAccount), os.Rename),
		writeFile(filepath.Join(dir, APNsKeyFile), []byte(c.APNsKey), os.Rename),
		writeFile(filepath.Join(dir, CertificateFile), []byte(c.CertificatePEM), os.Rename),
	)
}
