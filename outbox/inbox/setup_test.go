package inbox_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox/inbox"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	audience = "https://inbox.example.com"
	page     = "https://www.example.com" // the origin of pages
	secret   = "0123456789abcdef0123456789abcdef"
)

// bundle is a notification centre over HTTP.
type bundle struct {
	*outboxtest.Database

	t       *testing.T
	handler *inbox.Handler
	url     string
	log     *dbtest.Buffer
	ed      ed25519.PrivateKey
	ec      *ecdsa.PrivateKey
	pem     string // the public key of ed
}

// setup serves the centre with a role that has the profile inbox. Channel 2 has the notifications "first" and "second",
// and channel 3 has "other".
func setup(t *testing.T, changes ...func(*inbox.Config)) *bundle {
	t.Helper()
	b := &bundle{Database: &outboxtest.Database{DB: dbtest.Reused(t, 4)}, t: t, log: new(dbtest.Buffer)}
	b.Exec(t, `INSERT INTO belfry.channels (id, external_id, platform) SELECT g, 'u-' || g, 'ios' FROM generate_series(1, 3) g`)
	b.notify("first", 2)
	b.notify("second", 2)
	b.notify("other", 3)
	b.serve(b.DB.Role(t, grants(t)...), changes...)
	return b
}

// grants are the statements for a role with the profile inbox.
func grants(t *testing.T) []string {
	t.Helper()
	recipients, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	d := &admintest.Desk{T: t, Env: &operation.Env{Role: operation.Viewer, Channels: recipients}}
	o, in := d.Input("roles", "for", "inbox", "role", "ROLE")
	out, err := o.Run(t.Context(), d.Env, in)
	require.NoError(t, err)
	list := out.(*doctor.RoleGrants).Statements
	for i := range list {
		list[i] = strings.ReplaceAll(list[i], `"ROLE"`, ":role")
	}
	return list
}

// notify writes a notification of a job to a channel.
func (b *bundle) notify(title string, channel int64) {
	b.t.Helper()
	id := outboxtest.One[int64](b.t, b.Database, `INSERT INTO belfry.jobs (type, category, title, data, variants, lane)
		VALUES ('inbox', 'operator_notice', $1, '{"deep": "<link>"}', '{"ko": {"title": "제목"}}', md5($1)) RETURNING id`, title)
	b.Exec(b.t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	b.Exec(b.t, `INSERT INTO belfry.notifications (arrival, channel_id) SELECT j.arrival, $2 FROM belfry.jobs j WHERE j.id = $1`, id, channel)
	b.Exec(b.t, `UPDATE belfry.jobs SET bound = '3', "cursor" = '3', chunks = 1, channels_read = 3, channels_matched = 1, rows_written = 1 WHERE id = $1`, id)
	b.Exec(b.t, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`, id)
}

// serve serves the centre with the connections of role.
func (b *bundle) serve(role *dbtest.DB, changes ...func(*inbox.Config)) {
	b.t.Helper()
	var err error
	_, b.ed, err = ed25519.GenerateKey(rand.Reader)
	require.NoError(b.t, err)
	b.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b.t, err)
	b.pem = pemOf(b.t, b.ed.Public())
	file := filepath.Join(b.t.TempDir(), "ec.pem")
	require.NoError(b.t, os.WriteFile(file, []byte(pemOf(b.t, b.ec.Public())), 0o600))
	c := inbox.DefaultConfig()
	c.Audience, c.Origins = audience, []string{page}
	c.RatePerSecond, c.Burst = 10_000, 10_000
	c.Keys = []inbox.Key{
		{ID: "ed", Algorithm: "EdDSA", Key: b.pem}, {ID: "ec", Algorithm: "ES256", KeyFile: file}, {ID: "hs", Algorithm: "HS256", Key: secret},
	}
	for _, change := range changes {
		change(&c)
	}
	require.NoError(b.t, c.Validate())
	b.handler, err = inbox.New(c, inbox.NewStore(role.Pool), zerolog.New(b.log))
	require.NoError(b.t, err)
	server := httptest.NewServer(b.handler)
	b.t.Cleanup(server.Close)
	b.url = server.URL
}

func pemOf(t *testing.T, public any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// claims are those of a good token for a subject, except the changes.
func claims(subject string, changes ...func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{"aud": audience, "sub": subject, "exp": time.Now().Add(10 * time.Minute).Unix()}
	for _, change := range changes {
		change(c)
	}
	return c
}

// set returns a change of a claim. A nil value deletes it.
func set(name string, value any) func(jwt.MapClaims) {
	return func(c jwt.MapClaims) {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
}

// signed returns a token.
func signed(t *testing.T, method jwt.SigningMethod, kid string, key any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	token.Header["kid"] = kid
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return text
}

// token is a good token of a channel.
func (b *bundle) token(channel int64) string {
	return signed(b.t, jwt.SigningMethodEdDSA, "ed", b.ed, claims(fmt.Sprint(channel)))
}

// answer is a response.
type answer struct {
	status int
	header http.Header
	text   string
}

// into decodes the body.
func into[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.text), &v), a.text)
	return v
}

// detail is the detail of a problem.
func (a answer) detail(t *testing.T) string {
	t.Helper()
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	p := into[struct {
		Title, Detail string
		Status        int
	}](t, a)
	require.Equal(t, a.status, p.Status)
	require.Equal(t, http.StatusText(a.status), p.Title)
	return p.Detail
}

// call sends a request with a token; "" means without one.
func (b *bundle) call(token, method, path, body string, headers ...string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	require.NoError(b.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	require.NoError(b.t, res.Body.Close())
	return answer{res.StatusCode, res.Header, string(text)}
}
