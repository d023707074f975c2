package dbtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Certificates are files in PEM: an authority, and a certificate of it for 127.0.0.1 with its
// key, which servers and their clients use alike.
type Certificates struct{ CA, Cert, Key string }

// NewCertificates makes certificates that are good for as long as a test takes.
func NewCertificates(t testing.TB) Certificates {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "belfry's tests"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"}, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	signed := func(template *x509.Certificate) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, key)
		require.NoError(t, err)
		return der
	}
	return Certificates{
		CA: file("ca.pem", "CERTIFICATE", signed(ca)), Cert: file("cert.pem", "CERTIFICATE", signed(of)),
		Key: file("key.pem", "PRIVATE KEY", private),
	}
}
