package access_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

const annsPassword = "correct horse battery"

// people is a database with the user ann, an operator, and the sessions of its people.
type people struct {
	db       *dbtest.DB
	env      *operation.Env
	sessions *access.Sessions
}

func newPeople(t *testing.T) *people {
	t.Helper()
	base := dbtest.Reused(t, 10)
	sessions, err := access.NewSessions(base.Pool, 12*time.Hour, time.Hour)
	require.NoError(t, err)
	p := &people{base, &operation.Env{DB: base.Pool, Jobs: job.NewStore(base.Pool), Role: operation.Admin, Actor: "root@host"}, sessions}
	_, err = p.do(t, "users add", "name", "ann", "role", "operator", "password", annsPassword)
	require.NoError(t, err)
	return p
}

// do runs an operation with parameters, each a name and a text.
func (p *people) do(t *testing.T, name string, params ...string) (any, error) {
	t.Helper()
	return admintest.Do(t, p.env, name, params...)
}

func (p *people) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := p.db.Pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func (p *people) signIn(t *testing.T) access.Opened {
	t.Helper()
	opened, err := p.sessions.SignIn(t.Context(), "ann", annsPassword, "192.0.2.1")
	require.NoError(t, err)
	return opened
}

// found is who a session is of.
func (p *people) found(t *testing.T, secret string) error {
	t.Helper()
	who, err := p.sessions.Find(t.Context(), secret)
	if err == nil {
		require.Equal(t, access.Identity{Name: "ann", Role: operation.Operator, User: true}, who)
	}
	return err
}

func TestSessions_AreGoodUntilTheyEnd(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	a, b := p.signIn(t), p.signIn(t)
	require.NotEqual(t, a.Secret, b.Secret, "each sign-in has a session of its own")
	require.WithinRange(t, a.ExpiresAt, time.Now().Add(11*time.Hour), time.Now().Add(13*time.Hour))
	require.NoError(t, p.found(t, a.Secret))
	require.NoError(t, p.found(t, b.Secret))
	for _, secret := range []string{"", "x", a.Secret + "x", a.Secret[1:], strings.ToUpper(a.Secret), "\x00"} {
		require.ErrorIs(t, p.found(t, secret), access.ErrSession, "%q", secret)
	}
	require.NoError(t, p.sessions.SignOut(t.Context(), a.Secret))
	require.NoError(t, p.sessions.SignOut(t.Context(), a.Secret), "it has ended already")
	require.ErrorIs(t, p.found(t, a.Secret), access.ErrSession, "nobody comes back by an old cookie")
	require.NoError(t, p.found(t, b.Secret))
	p.exec(t, `UPDATE belfry.sessions SET used_at = now() - interval '61 minutes'`)
	require.ErrorIs(t, p.found(t, b.Secret), access.ErrSession, "it was not used for an hour")
	p.exec(t, `UPDATE belfry.sessions SET used_at = now() - interval '59 minutes'`)
	require.NoError(t, p.found(t, b.Secret))
	p.exec(t, `UPDATE belfry.sessions SET expires_at = now() - interval '1 second'`)
	require.ErrorIs(t, p.found(t, b.Secret), access.ErrSession, "its time is over, though it was used now")

	var dump string
	require.NoError(t, p.db.Pool.QueryRow(t.Context(), `SELECT string_agg(to_jsonb(e)::text, '') || (SELECT string_agg(to_jsonb(s)::text, '') FROM belfry.sessions s) || (SELECT string_agg(to_jsonb(u)::text, '') FROM belfry.users u) FROM belfry.events e`).Scan(&dump))
	require.NotContains(t, dump, a.Secret)
	require.NotContains(t, dump, annsPassword)
	events, err := p.env.Jobs.ControlEvents(t.Context(), "user", "ann", 0, 0)
	require.NoError(t, err)
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Kind+" by "+e.Actor)
		require.NotContains(t, string(e.Detail), "argon2id")
	}
	require.Equal(t, []string{"signed out by ann", "signed in by ann", "signed in by ann", "created by root@host"}, kinds)
}

// Whatever somebody is to lose ends the sessions, and the links, in the same transaction; also
// by plain SQL.
func TestSessions_EndWithWhatTheyStandOn(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	for _, act := range [][]string{
		{"users set", "name", "ann", "role", "operator"},
		{"users set-password", "name", "ann", "password", annsPassword},
		{"users disable", "name", "ann"},
		{"sessions revoke", "user", "ann"},
		{"users remove", "name", "ann"},
	} {
		session := p.signIn(t)
		link, err := p.do(t, "users link", "name", "ann")
		require.NoError(t, err)
		_, err = p.do(t, act[0], act[1:]...)
		require.NoError(t, err, act)
		require.ErrorIs(t, p.found(t, session.Secret), access.ErrSession, act)
		_, err = p.sessions.Exchange(t.Context(), link.(access.SignInLink).Secret, "")
		require.ErrorIs(t, err, access.ErrSignIn, act)
		if act[0] == "users disable" {
			_, err = p.sessions.SignIn(t.Context(), "ann", annsPassword, "")
			require.ErrorIs(t, err, access.ErrSignIn)
			_, err = p.do(t, "users link", "name", "ann")
			require.ErrorIs(t, err, access.ErrNoUser)
			_, err = p.do(t, "users enable", "name", "ann")
			require.NoError(t, err)
		}
	}
	_, err := p.sessions.SignIn(t.Context(), "ann", annsPassword, "")
	require.ErrorIs(t, err, access.ErrSignIn, "there is no ann any more")
	_, err = p.do(t, "users remove", "name", "ann")
	require.ErrorIs(t, err, access.ErrNoUser)
	_, err = p.do(t, "sessions revoke", "user", "ann")
	require.ErrorIs(t, err, access.ErrNoSession)
	_, err = p.do(t, "sessions revoke")
	require.ErrorContains(t, err, "either the ids of sessions or --user NAME")
}

// A password that is being changed opens no session that the change would not end.
func TestSessions_NoneOutlivesAChangeOfThePassword(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	tx, err := p.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `UPDATE belfry.users SET password = '$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', password_at = now()`)
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := p.sessions.SignIn(t.Context(), "ann", annsPassword, "")
		failed <- err
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := p.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == 1
	}, admintest.Patience, 10*time.Millisecond, "the sign-in waits for the change")
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorIs(t, <-failed, access.ErrSignIn)
}

// What is wrong with a sign-in is one error, and a link is good once.
func TestSessions_SignInTellsNothing(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	for _, try := range [][2]string{{"ann", annsPassword + " "}, {"ann", ""}, {"ann", strings.Repeat("x", 100_000)}, {"bob", annsPassword}, {"", ""}, {"Ann", annsPassword}, {strings.Repeat("n", 10_000), "x"}} {
		_, err := p.sessions.SignIn(t.Context(), try[0], try[1], "")
		require.ErrorIs(t, err, access.ErrSignIn)
		require.EqualError(t, err, access.ErrSignIn.Error())
	}
	out, err := p.do(t, "users link", "name", "ann")
	require.NoError(t, err)
	link := out.(access.SignInLink)
	require.WithinRange(t, link.ExpiresAt, time.Now().Add(9*time.Minute), time.Now().Add(11*time.Minute))
	require.ErrorIs(t, p.found(t, link.Secret), access.ErrSession, "a link is no session")
	var ended sync.WaitGroup
	opened := make(chan access.Opened, 8)
	for range cap(opened) {
		ended.Go(func() {
			if o, err := p.sessions.Exchange(t.Context(), link.Secret, ""); err == nil {
				opened <- o
			}
		})
	}
	ended.Wait()
	close(opened)
	require.Len(t, opened, 1, "one of many at once")
	require.NoError(t, p.found(t, (<-opened).Secret))
	out, err = p.do(t, "users link", "name", "ann")
	require.NoError(t, err)
	p.exec(t, `UPDATE belfry.sessions SET expires_at = now() WHERE kind = 'link'`)
	_, err = p.sessions.Exchange(t.Context(), out.(access.SignInLink).Secret, "")
	require.ErrorIs(t, err, access.ErrSignIn, "it has expired")
}

// Nobody has more than twenty sessions, and what has expired is deleted.
func TestSessions_AreBounded(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	first := p.signIn(t)
	p.exec(t, `INSERT INTO belfry.sessions (kind, sha256, name, role, via, created_at, expires_at) SELECT 'session', sha256(n::text::bytea), 'ann', 'operator', 'password', now() - interval '1 day', now() + CASE WHEN n > 50 THEN interval '1 hour' ELSE interval '-1 hour' END FROM generate_series(1, 100) n`)
	last := p.signIn(t)
	list, err := p.do(t, "sessions list", "user", "ann")
	require.NoError(t, err)
	require.Len(t, list.(operation.List[access.Session]).Items, 20)
	require.NoError(t, p.found(t, last.Secret))
	require.ErrorIs(t, p.found(t, first.Secret), access.ErrSession)
	var rows int
	require.NoError(t, p.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.sessions`).Scan(&rows))
	require.Equal(t, 20, rows)
}

// A hash of another cost is made again at the next sign-in, without a change of the password.
func TestSessions_UpgradeAnOldHash(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	old := access.HashAt(annsPassword, 8<<10, 1)
	p.exec(t, `UPDATE belfry.users SET password = $1`, old)
	before := p.signIn(t)
	var hash string
	require.NoError(t, p.db.Pool.QueryRow(t.Context(), `SELECT password FROM belfry.users`).Scan(&hash))
	require.True(t, strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$"), hash)
	require.NoError(t, p.found(t, before.Secret), "that is no change of the password")
	p.signIn(t)
	for _, bad := range []string{
		"$argon2id$v=19$m=9999999,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"$argon2id$v=19$m=19456,t=999999,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"$argon2id$v=19$m=19456,t=2,p=1$AA$AA",
	} {
		p.exec(t, `UPDATE belfry.users SET password = $1`, bad)
		_, err := p.sessions.SignIn(t.Context(), "ann", annsPassword, "")
		require.ErrorIs(t, err, access.ErrSignIn, "nobody's table decides how much memory that takes")
	}
	_, err := p.db.Pool.Exec(t.Context(), `UPDATE belfry.users SET password = 'plain'`)
	require.ErrorContains(t, err, "belfry.users.password: is no hash")
}

// Passwords are checked a few at a time: each takes memory.
func TestSessions_CheckAFewPasswordsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	free := access.Occupy(p.sessions)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := p.sessions.SignIn(ctx, "ann", annsPassword, "")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	free()
	p.signIn(t)
}

func TestUsers_RefuseWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	for _, test := range [][3]string{
		{"bob", "eleven char", "password: has 11 characters; allowed values: 12 to 1000 characters, other than the name"},
		{"bob", strings.Repeat("ab", 501), "password: has 1002 characters"},
		{"bob", "aaaaaaaaaaaaaaa", "password: is one character again and again"},
		{"bob", "abcdefghijklm\xff", "password: is no text"},
		{"bob@example.com", "BOB@example.com", "password: is the name"},
		{"Bob", annsPassword, "name: 'Bob' is not the name of a user; allowed values: 1 to 63 of a-z"},
		{"ann", annsPassword, "a user of that name exists already"},
	} {
		_, err := p.do(t, "users add", "name", test[0], "role", "viewer", "password", test[1])
		require.ErrorContains(t, err, test[2])
		require.NotContains(t, err.Error(), test[1])
	}
	_, err := p.do(t, "users add", "name", "bob", "role", "viewer")
	require.ErrorContains(t, err, "password: is required")
	_, err = p.do(t, "users set", "name", "ann")
	require.ErrorContains(t, err, "role: is required; allowed values: viewer, author, operator, admin")
	for _, name := range []string{"users set-password", "users disable", "users link", "users remove", "users add", "users set", "sessions revoke"} {
		require.Equal(t, operation.Admin, admintest.Operation(t, name).Role, name)
	}
	_, err = p.do(t, "users add", "name", "bob", "role", "viewer", "password", "비밀번호는 열두 글자")
	require.ErrorContains(t, err, "has 11 characters", "characters, not bytes")
	_, err = p.do(t, "users add", "name", "bob", "role", "viewer", "password", "비밀번호는 열두 글자.")
	require.NoError(t, err)
}

// Whoever reads every table does not see hashes.
func TestUsers_HashesAreForWhoOperates(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	p.signIn(t)
	for _, table := range []string{"belfry.users", "belfry.sessions"} {
		count := func(grant string) (n int) {
			role := p.db.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role", grant)
			require.NoError(t, role.Pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
			return n
		}
		require.Equal(t, 0, count("GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO :role"), table)
		require.Equal(t, 1, count("GRANT SELECT, INSERT, UPDATE ON "+table+" TO :role"), table)
	}
}
