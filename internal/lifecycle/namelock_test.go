package lifecycle_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// A name is one living process's: another is refused while it beats, also of the same kind
// only; one that was silent loses it and learns who has it.
func TestHold_OneLivingProcessHasAName(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	first, err := lifecycle.LockNames(ctx, db.Pool, lifecycle.Name{Kind: lifecycle.RunnerName, Name: "a"})
	require.NoError(t, err)
	_, err = lifecycle.LockNames(ctx, db.Pool, lifecycle.Name{Kind: lifecycle.RelayName, Name: "a"})
	require.NoError(t, err, "names of relays are others")

	beating, cease := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- first.Run(beating) }()
	_, err = lifecycle.LockNames(ctx, db.Pool, lifecycle.Name{Kind: lifecycle.RunnerName, Name: "a"})
	var held *lifecycle.NameInUseError
	require.ErrorAs(t, err, &held)
	require.ErrorContains(t, err, `runner.name "a" is in use by process `)
	var rivals int
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT count(*) FROM belfry.names WHERE rival IS NOT NULL AND rival_at IS NOT NULL`).Scan(&rivals))
	require.Equal(t, 1, rivals)
	cease()
	require.NoError(t, <-ended)

	_, err = db.Pool.Exec(ctx, `UPDATE belfry.names SET beat_at = now() - interval '7 seconds'`)
	require.NoError(t, err)
	second, err := lifecycle.LockNames(ctx, db.Pool, lifecycle.Name{Kind: lifecycle.RunnerName, Name: "a"})
	require.NoError(t, err)
	require.ErrorAs(t, first.Run(ctx), &held, "it has been silent")
	require.NoError(t, first.Release(ctx), "and gives back what is not its own")
	_, err = db.Pool.Exec(ctx, `UPDATE belfry.names SET beat_at = now()`)
	require.NoError(t, err)
	require.NoError(t, second.Release(ctx))
	_, err = lifecycle.LockNames(ctx, db.Pool, lifecycle.Name{Kind: lifecycle.RunnerName, Name: "a"})
	require.NoError(t, err)
}

// A process with several names beats for all of them by one statement, and ends when any of
// them is another's.
func TestHold_SeveralNamesHaveOneBeat(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	h, err := lifecycle.LockNames(ctx, db.Pool, lifecycle.Name{Kind: lifecycle.RunnerName, Name: "a"}, lifecycle.Name{Kind: lifecycle.RelayName, Name: "b"})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	require.Eventually(t, func() bool {
		var beaten, transactions int
		require.NoError(t, db.Pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE beat_at > since), count(DISTINCT xmin::text) FROM belfry.names`).Scan(&beaten, &transactions))
		require.Contains(t, []int{0, 2}, beaten, "both or none")
		return beaten == 2 && transactions == 1
	}, 30*time.Second, 10*time.Millisecond)
	_, err = db.Pool.Exec(ctx, `UPDATE belfry.names SET instance = gen_random_uuid() WHERE name = 'b'`)
	require.NoError(t, err)
	var held *lifecycle.NameInUseError
	require.ErrorAs(t, <-ended, &held)
	require.Equal(t, "b", held.Name)
	require.NoError(t, h.Release(ctx))
}

// A name whose heartbeat is in the future was held until then, by no process.
func TestNameLock_IgnoresHeartbeatsOfTheFuture(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.names (kind, name, instance, host, pid, beat_at) VALUES ('runner', 'a', gen_random_uuid(), 'h', 1, now() + interval '1 year')`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := lifecycle.LockNames(ctx, db.Pool, lifecycle.Name{Kind: lifecycle.RunnerName, Name: "a"})
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
}

// A role that delivers could take the names of runners, and a role that runs the names of relays.
func TestNameLock_KindsBelongToRoles(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	common := []string{`GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, INSERT, UPDATE, DELETE ON belfry.names TO :role`}
	roles := map[string]*dbtest.DB{
		lifecycle.RunnerName: db.Role(t, append(common, `GRANT UPDATE ON belfry.jobs TO :role`)...),
		lifecycle.RelayName:  db.Role(t, append(common, `GRANT INSERT (job_id) ON belfry.attempts TO :role`)...),
	}
	for kind, role := range roles {
		h, err := lifecycle.LockNames(t.Context(), role.Pool, lifecycle.Name{Kind: kind, Name: "a"})
		require.NoError(t, err)
		for other, weak := range roles {
			if other == kind {
				continue
			}
			_, err := lifecycle.LockNames(t.Context(), weak.Pool, lifecycle.Name{Kind: kind, Name: "b"})
			require.ErrorContains(t, err, "belfry.names.kind: '"+kind+"' is not allowed for "+weak.User+"; allowed values: "+other)
			for _, sql := range []string{`UPDATE belfry.names SET beat_at = now()`, `UPDATE belfry.names SET kind = '` + other + `'`, `DELETE FROM belfry.names`} {
				_, err := weak.Pool.Exec(t.Context(), sql)
				require.ErrorContains(t, err, "is not allowed for "+weak.User, sql)
			}
		}
		require.NoError(t, h.Release(t.Context()))
	}
}

// A role that runs could write rows for the instance of another process: it renews and frees its own names alone.
func TestHold_RenewsNoOtherName(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	h, err := lifecycle.LockNames(ctx, db.Pool, lifecycle.Name{Kind: lifecycle.RunnerName, Name: "a"})
	require.NoError(t, err)
	_, err = db.Pool.Exec(ctx, `INSERT INTO belfry.names (kind, name, instance, host, pid, since, beat_at)
		SELECT 'runner', 'x' || g, n.instance, 'h', 1, '2026-01-01', '2026-01-01' FROM belfry.names n, generate_series(1, 3) g`)
	require.NoError(t, err)
	ended := make(chan error, 1)
	beating, cease := context.WithCancel(ctx)
	go func() { ended <- h.Run(beating) }()
	require.Eventually(t, func() bool {
		var beaten bool
		require.NoError(t, db.Pool.QueryRow(ctx, `SELECT bool_or(beat_at > since) FROM belfry.names WHERE name = 'a'`).Scan(&beaten))
		return beaten
	}, 30*time.Second, 10*time.Millisecond)
	cease()
	require.NoError(t, <-ended)
	require.NoError(t, h.Release(ctx))
	var others int
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE beat_at = since) FROM belfry.names`).Scan(&others))
	require.Equal(t, 3, others)
}
