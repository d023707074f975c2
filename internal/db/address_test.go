package db_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/db"
)

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dsn, want string }{
		{"postgres://u:p@h:5433/prod?sslmode=disable", "host=h port=5433 user=u password=p"},
		{"postgresql://u:p@h:5433?dbname=prod", "host=h port=5433 user=u password=p"},
		{"postgres://u:p@/prod?host=/tmp&port=5433&database=prod", "host=/tmp port=5433 user=u password=p"},
		{"host=h port=5433 user=u password='p' dbname=prod", "host=h port=5433 user=u password=p"},
	} {
		got, err := db.WithDatabase(c.dsn, "other")
		require.NoError(t, err)
		config, err := pgx.ParseConfig(got)
		require.NoError(t, err)
		want, err := pgx.ParseConfig(c.want)
		require.NoError(t, err)
		require.Equal(t, "other", config.Database, got)
		require.Equal(t, want.Host, config.Host)
		require.Equal(t, want.Port, config.Port)
		require.Equal(t, want.User, config.User)
		require.Equal(t, want.Password, config.Password)
	}
	got, err := db.WithDatabase("postgres://u:p@h/prod?options=-c%20jit%3Doff%20-c%20a.b%3D1%2B1&connect_timeout=5", "other")
	require.NoError(t, err)
	require.Equal(t, "postgres://u:p@h/other?connect_timeout=5&options=-c%20jit%3Doff%20-c%20a.b%3D1%2B1", got, "psql takes a + for a +")
	_, err = db.WithDatabase("postgres://u:secret@h:port/db", "other")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}
