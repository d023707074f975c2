-- Statements of the listener.

-- name: Listen :exec
-- Subscribes a connection to {{channel}}.
LISTEN {{channel}};

-- name: Echo :exec
-- Notifies @channel as everybody does: what the listener does not hear of it, it would not
-- hear of anybody.
SELECT belfry.ring(@channel);

-- name: NameTake :exec
-- Takes a name for a process, or takes it over from one that has not beaten for @silence
-- (names_pkey). No row is written: another holds it.
INSERT INTO belfry.names AS n (kind, name, instance, host, pid, since, beat_at)
SELECT @kind, @name, @instance, @host, @pid, t, t FROM clock_timestamp() t -- one moment: it has not beaten yet
    ON CONFLICT ON CONSTRAINT names_pkey DO UPDATE
       SET instance = excluded.instance, host = excluded.host, pid = excluded.pid, since = excluded.since, beat_at = excluded.beat_at,
           rival = NULL, rival_at = NULL
     WHERE n.instance = excluded.instance OR n.beat_at < clock_timestamp() - @silence::interval;

-- name: NameHolder :one
-- Who holds a name, and when that one beat last. No row: nobody.
SELECT n.instance, n.host, n.pid, n.since, n.beat_at FROM belfry.names n WHERE n.kind = @kind AND n.name = @name;

-- name: NamesBeat :many
-- Says that the holder lives, in all of its names. Another has taken over those that are
-- not returned.
UPDATE belfry.names n SET beat_at = clock_timestamp() WHERE n.instance = @instance RETURNING n.kind, n.name;

-- name: NameRefused :exec
-- Notes who was refused a name.
UPDATE belfry.names n SET rival = @rival, rival_at = clock_timestamp() WHERE n.kind = @kind AND n.name = @name AND n.instance <> @instance;

-- name: NamesRelease :exec
-- Gives names back.
DELETE FROM belfry.names n WHERE n.instance = @instance;
