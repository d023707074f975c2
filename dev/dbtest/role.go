package dbtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Role returns the database with the connection of a new role, which may log in and has the
// privileges that statements grant. The owner executes them with the quoted name of the role for
// each :role. The role is dropped when the test ends, unless the test failed.
func (db *DB) Role(t testing.TB, statements ...string) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	name, password := databasePrefix+strings.ToLower(rand.Text()), rand.Text()
	role := quote(name)
	_, err := db.Pool.Exec(ctx, "CREATE ROLE "+role+" LOGIN PASSWORD '"+password+"'")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setupTimeout)
		defer cancel()
		for _, statement := range []string{"DROP OWNED BY ", "DROP ROLE "} {
			_, err := db.Pool.Exec(ctx, statement+role)
			require.NoError(t, err)
		}
	})
	for _, statement := range statements {
		_, err := db.Pool.Exec(ctx, strings.ReplaceAll(statement, ":role", role))
		require.NoError(t, err, statement)
	}
	dsn, err := dsnAs(db.DSN, name, password)
	require.NoError(t, err)
	as := &DB{DSN: dsn, Name: db.Name, User: name}
	as.Pool, err = openPool(ctx, as.DSN, poolSize)
	require.NoError(t, err)
	t.Cleanup(func() { closePool(t, as.Pool, releaseTimeout) })
	return as
}

// dsnAs returns a connection string for another user.
func dsnAs(dsn, user, password string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " user=" + user + " password=" + password, nil // the last of repeated keywords applies
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("connection string: %w", err)
	}
	u.User = url.UserPassword(user, password)
	return u.String(), nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
