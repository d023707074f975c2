-- name: HealthProbe :one
-- The values of the enabled health checks, from the server's statistics; the marks name the view and column
-- of the checkpointer's counter, which differ by version. NULL means that the check is off, that there is
-- nothing to measure, or that the role may not see the value. replicas_hidden distinguishes the last case:
-- standbys show no state without pg_monitor. belfry's own backends are recognised by their name, and relays
-- report the number of their transactions.
SELECT (SELECT count(*)::integer FROM pg_stat_activity
         WHERE @transactions::boolean AND pid <> pg_backend_pid()
           AND (state = 'active' OR state_change > clock_timestamp() - interval '1 second')
           AND coalesce(backend_type, 'client backend') = 'client backend'
           AND datid IS NOT NULL AND usesysid IS NOT NULL
           AND coalesce(application_name, '') NOT LIKE 'belfry%') AS recent_backends,
       CASE WHEN @transactions::boolean
            THEN (SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database) END AS transactions,
       CASE WHEN @transactions::boolean THEN (SELECT least(coalesce(sum(w.transactions), 0), 1e18)::bigint FROM belfry.relays w) END AS of_relays,
       r.lag AS lag_seconds, coalesce(r.hidden, false) AS replicas_hidden,
       CASE WHEN @checkpoints::boolean THEN (SELECT {{requested}} FROM {{checkpointer}}) END AS checkpoints,
       CASE WHEN @checkpoints::boolean AND NOT pg_is_in_recovery()
            THEN (pg_current_wal_insert_lsn() - '0/0')::bigint END AS wal_bytes
  FROM (SELECT extract(epoch FROM max(replay_lag))::double precision AS lag, bool_or(state IS NULL) AS hidden
          FROM pg_stat_replication
         WHERE @replicas::boolean) r;
