package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bundle is an API over a database of its own.
type bundle struct {
	db  *dbtest.DB
	url string // of the prefix
	log *dbtest.Buffer

	handler *api.Handler
}

// tokens are good: each is the name of its role, or begins with it, as viewer-2.
func tokens(_ context.Context, token string) (access.Identity, error) {
	var who access.Identity
	role, _, _ := strings.Cut(token, "-")
	if who.Role.UnmarshalText([]byte(role)) != nil {
		return who, access.ErrToken
	}
	who.Name = "the-" + token
	return who, nil
}

// setup serves operations, or all of them; change may be nil.
func setup(t *testing.T, change func(*api.Options)) *bundle {
	t.Helper()
	return setupOn(t, dbtest.Reused(t, 10), change)
}

// setupOn is setup on a database.
func setupOn(t *testing.T, db *dbtest.DB, change func(*api.Options)) *bundle {
	t.Helper()
	b := &bundle{db: db, log: new(dbtest.Buffer)}
	recipients, err := channels.New(channels.Config{Relation: channels.DefaultRelation})
	require.NoError(t, err)
	c := api.Options{
		Operations: admin.Operations(),
		Env: operation.Env{
			DB: b.db.Pool, Jobs: job.NewStore(b.db.Pool), Broadcaster: jobs.NewBroadcaster(api.PollInterval), Channels: recipients, Retention: outbox.DefaultRetention(), Compose: operation.Compose(compose.DefaultConfig()),
			Carrier: operation.Carrier{Transport: outbox.NoCarrier},
		},
		Authenticate: tokens,
		Log:          zerolog.New(b.log),
	}
	c.Sessions, err = access.NewSessions(b.db.Pool, 12*time.Hour, time.Hour)
	require.NoError(t, err)
	if change != nil {
		change(&c)
	}
	b.handler = api.New(c)
	b.handler.HoldBeats()
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	b.url = server.URL + api.Prefix
	return b
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
}

// problem is the answer as an error, with the locations of what is wrong.
func (a answer) problem(t *testing.T) api.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), a.text)
	var p api.Problem
	require.NoError(t, json.Unmarshal([]byte(a.text), &p), a.text)
	require.Equal(t, a.status, p.Status)
	return p
}

// call sends a request with a role's token; body "" is none.
func (b *bundle) call(t *testing.T, role, method, path, body string, headers ...string) answer {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, reader)
	require.NoError(t, err)
	if role != "" {
		req.Header.Set("Authorization", "Bearer "+role)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	return send(t, req)
}

func send(t *testing.T, req *http.Request) answer {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(client.CloseIdleConnections)
	res, err := client.Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return answer{res.StatusCode, res.Header, string(bytes.TrimSpace(text))}
}

func (b *bundle) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := b.db.Pool.Exec(t.Context(), statement)
	require.NoError(t, err)
}
