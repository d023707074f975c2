-- Statements of the listener and of process names.

-- name: Listen :exec
-- Subscribes a connection to {{channel}}.
LISTEN {{channel}};

-- name: Echo :exec
-- Notifies @channel in the same way as the triggers. If this notification does not arrive, no other would.
SELECT belfry.ring(@channel);

-- name: NameLock :exec
-- Locks a name for a process, or takes it over from a process without a heartbeat for @timeout (names_pkey).
-- A heartbeat more than a minute in the future counts as none.
-- No row is written if another process has it.
INSERT INTO belfry.names AS n (kind, name, instance, host, pid, since, beat_at)
SELECT @kind, @name, @instance, @host, @pid, t, t FROM clock_timestamp() t -- equal: no heartbeat yet
    ON CONFLICT ON CONSTRAINT names_pkey DO UPDATE
       SET instance = excluded.instance, host = excluded.host, pid = excluded.pid, since = excluded.since, beat_at = excluded.beat_at,
           rival = NULL, rival_at = NULL
     WHERE n.instance = excluded.instance OR n.beat_at NOT BETWEEN clock_timestamp() - @timeout::interval AND clock_timestamp() + interval '1 minute';

-- name: NameHolder :one
-- The process that has a name, with its last heartbeat. No row: the name is free.
SELECT n.instance, n.host, n.pid, n.since, n.beat_at FROM belfry.names n WHERE n.kind = @kind AND n.name = @name;

-- name: NamesHeartbeat :many
-- Renews the heartbeat of the names of a process, the parallel arrays @kinds and @names (names_pkey). Another
-- process has taken over the names that are not returned.
UPDATE belfry.names n SET beat_at = clock_timestamp()
  FROM unnest(@kinds::text[], @names::text[]) k (kind, name)
 WHERE n.kind = k.kind AND n.name = k.name AND n.instance = @instance
RETURNING n.kind, n.name;

-- name: NameRefused :exec
-- Records the process that was refused a name.
UPDATE belfry.names n SET rival = @rival, rival_at = clock_timestamp() WHERE n.kind = @kind AND n.name = @name AND n.instance <> @instance;

-- name: NamesUnlock :exec
-- Frees the names of a process, as NamesHeartbeat.
DELETE FROM belfry.names n
 USING unnest(@kinds::text[], @names::text[]) k (kind, name)
 WHERE n.kind = k.kind AND n.name = k.name AND n.instance = @instance;
