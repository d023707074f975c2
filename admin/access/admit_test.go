package access_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"
)

// admission is ann as a provider names her.
func admission(state string) access.Admission {
	return access.Admission{Name: "ann", Role: operation.Operator, Identity: `["https://login.example.com","1"]`, State: state}
}

// However often at once: a state opens one session, and an identity is one user from the first
// sign-in on.
func TestSessions_AdmitOneAtATime(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	var group sync.WaitGroup
	var opened, replayed atomic.Int64
	admit := func(state string) {
		group.Go(func() {
			switch _, err := p.sessions.Admit(t.Context(), admission(state), "192.0.2.1"); {
			case err == nil:
				opened.Add(1)
			default:
				require.ErrorIs(t, err, access.ErrReplayed)
				replayed.Add(1)
			}
		})
	}
	for range 6 {
		admit("one")
	}
	for _, state := range []string{"a", "b", "c", "d"} {
		admit(state)
	}
	group.Wait()
	require.EqualValues(t, 5, opened.Load())
	require.EqualValues(t, 5, replayed.Load())
	var users, sessions int
	require.NoError(t, p.db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM belfry.users WHERE name = 'oidc:ann'), (SELECT count(*) FROM belfry.sessions WHERE via = 'oidc')`).Scan(&users, &sessions))
	require.Equal(t, []int{1, 5}, []int{users, sessions})
}

// A state that is a day old may be forgotten: its sign-in is over for long.
func TestSessions_AdmitForgetsOldStates(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	_, err := p.sessions.Admit(t.Context(), admission("old"), "")
	require.NoError(t, err)
	p.exec(t, `UPDATE belfry.requests SET at = now() - interval '25 hours' WHERE key = 'old'`)
	_, err = p.sessions.Admit(t.Context(), admission("new"), "")
	require.NoError(t, err)
	var keys []string
	require.NoError(t, p.db.Pool.QueryRow(t.Context(), `SELECT array_agg(key) FROM belfry.requests WHERE who = 'oidc:'`).Scan(&keys))
	require.Equal(t, []string{"new"}, keys)
}

// Somebody else by the same name is somebody else, and a local user of that name too.
func TestSessions_AdmitByIdentity(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	_, err := p.sessions.Admit(t.Context(), admission("a"), "")
	require.NoError(t, err)
	other := admission("b")
	other.Identity, other.Role = `["https://login.example.com","2"]`, operation.Admin
	_, err = p.sessions.Admit(t.Context(), other, "")
	require.ErrorIs(t, err, access.ErrNotAdmitted)
	require.ErrorContains(t, err, "another account of the provider")
	other.Name = "bob"
	_, err = p.sessions.Admit(t.Context(), other, "")
	require.NoError(t, err, "nothing was used up")
	opened, err := p.sessions.SignIn(t.Context(), "ann", annsPassword, "")
	require.NoError(t, err)
	require.Equal(t, "ann", opened.Name)
	_, err = p.sessions.SignIn(t.Context(), "oidc:ann", "", "")
	require.ErrorIs(t, err, access.ErrSignIn)
	for _, sql := range []string{
		`UPDATE belfry.users SET password = NULL WHERE name = 'ann'`, `UPDATE belfry.users SET identity = 'x' WHERE name = 'ann'`,
		`UPDATE belfry.users SET identity = NULL WHERE name = 'oidc:ann'`, `UPDATE belfry.users SET password_at = now() WHERE name = 'oidc:ann'`,
		`UPDATE belfry.users SET name = 'ann2' WHERE name = 'oidc:ann'`, `INSERT INTO belfry.users (name, role, identity, password_at, created_by) VALUES ('oidc:x' || chr(10), 'viewer', 'y', NULL, '')`,
	} {
		_, err := p.db.Pool.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "allowed values: ", sql)
	}
}
