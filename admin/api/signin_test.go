package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
)

const (
	annsPassword = "correct horse battery"
	login        = `{"name": "ann", "password": "` + annsPassword + `"}`
)

// withAnn adds ann, an operator.
func (b *bundle) withAnn(t *testing.T) {
	t.Helper()
	a := b.call(t, "admin", "POST", "/users/ann/add", `{"role": "operator", "password": "`+annsPassword+`"}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.NotContains(t, a.text, "argon2")
}

// cookie is the one that an answer sets.
func (a answer) cookie(t *testing.T) *http.Cookie {
	t.Helper()
	require.Equal(t, http.StatusOK, a.status, a.text)
	list := (&http.Response{Header: a.header}).Cookies()
	require.Len(t, list, 1)
	return list[0]
}

// A person signs in, acts under the own name, and signs out; nothing else is a session.
func TestSignIn_ASessionFromLoginToLogout(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.withAnn(t)
	a := b.call(t, "", "POST", "/login", login)
	cookie := a.cookie(t)
	var who api.SignedIn
	require.NoError(t, json.Unmarshal([]byte(a.text), &who))
	require.Equal(t, "ann", who.Name)
	require.Equal(t, operation.Operator, who.Role)
	require.NotContains(t, a.text, cookie.Value, "no script reads the secret")
	session := "belfry=" + cookie.Value
	a = b.call(t, "", "POST", "/lanes/night/pause", `{"reason": "x"}`, "Cookie", session)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Contains(t, a.text, `"paused_by":"ann"`)
	require.Contains(t, b.call(t, "viewer", "GET", "/lanes/events", "").text, `"actor":"ann"`)
	require.Equal(t, http.StatusForbidden, b.call(t, "", "PATCH", "/limits", `{"priority": 1}`, "Cookie", session).status, "the role is ann's")
	require.Equal(t, http.StatusForbidden, b.call(t, "", "POST", "/users/ann/set-password", `{"password": "abcdefghijklm"}`, "Cookie", session).status)

	forged := []byte(cookie.Value)
	forged[3] ^= 1
	for _, headers := range [][]string{
		{"Cookie", "belfry=" + string(forged)}, {"Cookie", "belfry="}, {"Cookie", "Belfry=" + cookie.Value}, {"Cookie", "__Host-belfry=" + cookie.Value},
		{"Cookie", session + "; belfry=x"}, {"Cookie", "belfry=" + strings.Repeat("x", 9000)}, {"Authorization", "Bearer " + cookie.Value},
		{"Cookie", session, "Authorization", "Bearer nobody"}, {"Cookie", session, "Authorization", "Basic x"}, {"X-Forwarded-User", "ann"},
	} {
		a = b.call(t, "", "GET", "/lanes", "", headers...)
		require.Equal(t, http.StatusUnauthorized, a.status, headers)
		require.NotEmpty(t, a.header.Get("WWW-Authenticate"))
	}

	next := b.call(t, "", "POST", "/login", login, "Cookie", session).cookie(t)
	require.NotEqual(t, cookie.Value, next.Value, "each sign-in has a session of its own")
	require.Equal(t, http.StatusUnauthorized, b.call(t, "", "GET", "/lanes", "", "Cookie", session).status, "and ends the one before")
	session = "belfry=" + next.Value
	require.Equal(t, http.StatusOK, b.call(t, "", "GET", "/lanes", "", "Cookie", session).status)
	gone := b.call(t, "", "POST", "/logout", "", "Cookie", session).cookie(t)
	require.Empty(t, gone.Value)
	require.Equal(t, http.StatusUnauthorized, b.call(t, "", "GET", "/lanes", "", "Cookie", session).status, "it is not good again")
	b.call(t, "", "POST", "/logout", "").cookie(t)

	a = b.call(t, "admin", "POST", "/users/ann/link", "")
	var link access.SignInLink
	require.NoError(t, json.Unmarshal([]byte(a.text), &link))
	body := fmt.Sprintf(`{"link": %q}`, link.Secret)
	require.Empty(t, b.call(t, "", "GET", "/login", "").header.Get("Set-Cookie"))
	require.Equal(t, http.StatusMethodNotAllowed, b.call(t, "", "PUT", "/login", "").status)
	require.Equal(t, http.StatusOK, b.call(t, "", "POST", "/login", body).status)
	require.Equal(t, http.StatusUnauthorized, b.call(t, "", "POST", "/login", body).status, "a link is good once")
	require.NotContains(t, b.log.String(), annsPassword)
	require.NotContains(t, b.log.String(), link.Secret)
}

// A user and a token of one name are two, and no fast hash of a password is kept.
func TestSignIn_KeysOfRequestsAreTheUsers(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) {
		c.Authenticate = func(context.Context, string) (access.Identity, error) {
			return access.Identity{Name: "ann", Role: operation.Admin}, nil
		}
	})
	b.withAnn(t)
	session := "belfry=" + b.call(t, "", "POST", "/login", login).cookie(t).Value
	key := []string{"Idempotency-Key", "k"}
	require.Equal(t, http.StatusOK, b.call(t, "token", "POST", "/lanes/night/pause", "", key...).status)
	a := b.call(t, "", "POST", "/lanes/day/pause", "", append(key, "Cookie", session)...)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Empty(t, a.header.Get("Idempotent-Replayed"))
	fingerprint := func() (f []byte) {
		require.NoError(t, b.db.Pool.QueryRow(t.Context(), `DELETE FROM belfry.requests WHERE key = 'p' RETURNING fingerprint`).Scan(&f))
		return f
	}
	var all [][]byte
	for _, password := range []string{annsPassword, "another " + annsPassword} {
		require.Equal(t, http.StatusOK, b.call(t, "token", "POST", "/users/ann/set-password", `{"password": "`+password+`"}`, "Idempotency-Key", "p").status)
		all = append(all, fingerprint())
	}
	require.Equal(t, all[0], all[1])
}

// The cookie goes where api.public_url says, and nowhere else.
func TestSignIn_CookieIsBoundToThePublicURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		public, name, path string
		secure             bool
	}{
		{"", "belfry", "/", false},
		{"http://localhost:8470/x", "belfry", "/x", false},
		{"https://belfry.example.com", "__Host-belfry", "/", true},
		{"https://example.com/a/b/", "__Secure-belfry", "/a/b", true},
	} {
		b := setup(t, func(c *api.Options) { c.PublicURL = test.public })
		b.withAnn(t)
		a := b.call(t, "", "POST", "/login", login, "Host", "evil.example", "X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "ftp")
		c := a.cookie(t)
		require.Equal(t, []any{test.name, test.path, test.secure, true, http.SameSiteLaxMode, ""}, []any{c.Name, c.Path, c.Secure, c.HttpOnly, c.SameSite, c.Domain})
		require.Equal(t, http.StatusOK, b.call(t, "", "GET", "/lanes", "", "Cookie", test.name+"="+c.Value).status)
		require.Equal(t, http.StatusForbidden, b.call(t, "", "POST", "/login", login, "Origin", "https://evil.example").status, "nobody is signed in by another site")
		require.Equal(t, http.StatusForbidden, b.call(t, "", "POST", "/lanes/x/pause", "", "Cookie", test.name+"="+c.Value, "Sec-Fetch-Site", "cross-site").status)
		require.Equal(t, http.StatusForbidden, b.call(t, "", "POST", "/logout", "", "Cookie", test.name+"="+c.Value, "Origin", "null").status)
	}
}

// Who guesses is locked out by name, and learns nothing of whether it is anybody's.
func TestSignIn_LocksANameOut(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.handler.StopLockoutClock()
	b.withAnn(t)
	guess := func(name string) (answers []answer) {
		for range 12 {
			a := b.call(t, "", "POST", "/login", fmt.Sprintf(`{"name": %q, "password": "guessed it, did I"}`, name))
			a.header.Del("Date")
			a.header.Del("Retry-After")
			answers = append(answers, a)
		}
		return answers
	}
	anns := guess("ann")
	require.Equal(t, []int{401, 429}, []int{anns[9].status, anns[10].status})
	require.Equal(t, http.StatusTooManyRequests, b.call(t, "", "POST", "/login", login).status, "the right one is not visited at, either")
	a := b.call(t, "admin", "POST", "/users/ann/link", "")
	var link access.SignInLink
	require.NoError(t, json.Unmarshal([]byte(a.text), &link))
	require.Equal(t, http.StatusOK, b.call(t, "", "POST", "/login", fmt.Sprintf(`{"link": %q}`, link.Secret)).status, "ann is not kept out")
	require.Equal(t, anns, guess("nobody"), "a name that is nobody's has the same answers")
	var events, named int
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE name = 'ann') FROM belfry.events WHERE kind = 'locked out'`).Scan(&events, &named))
	require.Equal(t, []int{2, 1}, []int{events, named}, "one event for each lockout, none for a guess, and no name that is nobody's")
	require.Equal(t, 2, strings.Count(b.log.String(), "too many refused sign-ins by one name"))
	require.Equal(t, http.StatusOK, b.call(t, "viewer", "GET", "/lanes", "").status, "a token is not concerned")
}

// A lockout of a name is for addresses from which the name has not signed in lately.
func TestSignIn_ALockoutKeepsNobodyOutFromWhereTheySignIn(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.handler.StopLockoutClock()
	b.withAnn(t)
	signedIn := func(name, address, ago string) {
		b.exec(t, fmt.Sprintf(`INSERT INTO belfry.events (subject, name, kind, actor, at, detail) VALUES ('user', '%s', 'signed in', '%s', now() - interval '%s', '{"address": "%s"}')`, name, name, ago, address))
	}
	signedIn("ann", "127.0.0.1", "31 days")
	signedIn("ann", "127.0.0.2", "1 hour")
	signedIn("kim", "127.0.0.1", "1 hour")
	wrong := `{"name": "ann", "password": "guessed it, did I"}`
	for range 10 {
		require.Equal(t, http.StatusUnauthorized, b.call(t, "", "POST", "/login", wrong).status)
	}
	require.Equal(t, http.StatusTooManyRequests, b.call(t, "", "POST", "/login", login).status)
	signedIn("ann", "127.0.0.1", "29 days")
	require.Equal(t, http.StatusUnauthorized, b.call(t, "", "POST", "/login", wrong).status, "the password is visited at")
	require.Equal(t, http.StatusOK, b.call(t, "", "POST", "/login", login).status)
}

// Guesses of many names are bounded by the address that they come from.
func TestLong_SignInLocksAnAddressOut(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.handler.StopLockoutClock()
	var last answer
	for i := 0; i <= 20 && last.status != http.StatusTooManyRequests; i++ {
		last = b.call(t, "", "POST", "/login", fmt.Sprintf(`{"name": "u%d", "password": "x"}`, i))
	}
	require.Equal(t, http.StatusTooManyRequests, last.status)
	require.Contains(t, last.problem(t).Detail, "from this address")
	require.NotEmpty(t, last.header.Get("Retry-After"))
}

// What is not a sign-in is refused before anything is visited up.
func TestSignIn_RefusesBadInput(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, test := range []struct {
		path, body string
		status     int
	}{
		{"/login", ``, 422}, {"/login", `{}`, 422}, {"/login", `[]`, 400}, {"/login", `{"name": "ann"}`, 422}, {"/login", `{"password": "x"}`, 422},
		{"/login", `{"name": "ann", "password": null}`, 401}, {"/login", `{"name": ["ann"], "password": "x"}`, 422}, {"/login", `{"name": "a\u0000", "password": "x"}`, 422},
		{"/login", `{"name": "a", "password": "x", "link": "y"}`, 422}, {"/login", `{"name": "a", "password": "x", "role": "admin"}`, 422},
		{"/login", `{"name": "a", "name": "b", "password": "x"}`, 400}, {"/login?next=//evil.example", login, 422},
		{"/login", `{"link": "` + strings.Repeat("x", 4001) + `"}`, 422}, {"/login", `{"link": "` + strings.Repeat("x", 1<<20) + `"}`, 413},
		{"/login", "{\"link\": \"\xff\"}", 400}, {"/login/", login, 401}, {"/login/..", login, 401}, {"/logins", login, 401}, {"/login/x/add", login, 401},
	} {
		a := b.call(t, "", "POST", test.path, test.body)
		require.Equal(t, test.status, a.status, "%s %.60s: %s", test.path, test.body, a.text)
		a.problem(t)
		require.Empty(t, a.header.Get("Set-Cookie"))
		require.Empty(t, a.header.Get("Location"))
	}
	require.Equal(t, http.StatusUnsupportedMediaType, b.call(t, "", "POST", "/login", login, "Content-Type", "text/plain").status, "what a form of another site can send")
	require.Equal(t, http.StatusUnprocessableEntity, b.call(t, "admin", "POST", "/users/x/add", `{"role": "viewer", "password": "short"}`).status)
}

// A belfry that writes nothing opens no session, and says what to do instead.
func TestSignIn_NobodySignsInWhereNothingIsWritten(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) { c.ReadOnly, c.Sessions = true, nil })
	for _, path := range []string{"/login", "/logout"} {
		a := b.call(t, "", "POST", path, login)
		require.Equal(t, http.StatusForbidden, a.status)
		require.Contains(t, a.problem(t).Detail, "api.read_only")
	}
	require.Equal(t, http.StatusUnauthorized, b.call(t, "", "GET", "/lanes", "", "Cookie", "belfry=x").status)
}

// An open stream is not its user: it neither keeps a session from ending unused, nor outlasts it.
func TestSignIn_AStreamIsNoUse(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.withAnn(t)
	session := "belfry=" + b.call(t, "", "POST", "/login", login).cookie(t).Value
	sessions, err := access.NewSessions(b.db.Pool, 12*time.Hour, time.Hour)
	require.NoError(t, err)
	ended := make(chan struct{})
	h := api.New(api.Options{Operations: []operation.Operation{forever("hi", ended)}, Log: zerolog.Nop(), Authenticate: tokens, Sessions: sessions})
	h.SetStreams(8, 8, 10*time.Millisecond, time.Minute)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+api.Prefix+"/people/talk", nil)
	require.NoError(t, err)
	req.Header.Set("Cookie", session)
	req.Header.Set("Accept", "text/event-stream")
	res, err := server.Client().Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	r := bufio.NewReader(res.Body)
	beats := func() {
		for n := 0; n < 4; {
			line, err := r.ReadString('\n')
			require.NoError(t, err)
			if line == ": still here\n" {
				n++
			}
		}
	}
	beats()
	b.exec(t, `UPDATE belfry.sessions SET used_at = now() - interval '10 minutes'`)
	beats()
	var unused bool
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT used_at < now() - interval '9 minutes' FROM belfry.sessions`).Scan(&unused))
	require.True(t, unused, "the stream used the session")
	b.exec(t, `UPDATE belfry.sessions SET used_at = now() - interval '61 minutes'`)
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Contains(t, string(rest), "event: problem")
	<-ended
}
