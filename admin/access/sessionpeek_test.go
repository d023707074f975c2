package access_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"
)

// Hundreds of pages that are open ask whether their sessions still are good by one statement.
func TestSessions_PeekSharesStatements(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	secrets := make([]string, 2)
	for i := range secrets {
		secrets[i] = p.signIn(t).Secret
	}
	before := p.db.Pool.Stat().AcquireCount()
	var asking sync.WaitGroup
	answers := make([]error, 200)
	for i := range answers {
		asking.Go(func() {
			secret := "nobody's"
			if i%2 == 0 {
				secret = secrets[i/2%2]
			}
			who, err := p.sessions.Peek(t.Context(), secret)
			if answers[i] = err; err == nil && (who.Name != "ann" || who.Role != operation.Operator || !who.User) {
				answers[i] = fmt.Errorf("it is %+v", who)
			}
		})
	}
	asking.Wait()
	require.LessOrEqual(t, p.db.Pool.Stat().AcquireCount()-before, int64(10), "connections that were taken")
	for i, err := range answers {
		if i%2 == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, access.ErrSession)
		}
	}

	p.exec(t, `UPDATE belfry.sessions SET used_at = now() - interval '61 minutes' WHERE id = (SELECT min(id) FROM belfry.sessions)`)
	_, err := p.sessions.Peek(t.Context(), secrets[0])
	require.ErrorIs(t, err, access.ErrSession, "one that was not used")
	_, err = p.do(t, "sessions revoke", "user", "ann")
	require.NoError(t, err)
	_, err = p.sessions.Peek(t.Context(), secrets[1])
	require.ErrorIs(t, err, access.ErrSession)
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = p.sessions.Peek(gone, secrets[1])
	require.ErrorIs(t, err, context.Canceled)
}
