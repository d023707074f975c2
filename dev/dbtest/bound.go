package dbtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Bound makes each statement fail that deletes or updates more rows of a table of belfry than a number.
func Bound(t require.TestingT, pool *pgxpool.Pool, action, table string, most int) {
	_, err := pool.Exec(context.Background(), fmt.Sprintf(`
		CREATE FUNCTION public.bound() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE n bigint := (SELECT count(*) FROM gone);
		BEGIN
			IF n > %[3]d THEN RAISE EXCEPTION 'one statement: %[1]s of %% rows of %[2]s', n; END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER bound AFTER %[1]s ON belfry.%[2]s REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.bound()`,
		action, table, most))
	require.NoError(t, err)
}
