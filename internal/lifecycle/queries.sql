-- Statements of the listener.

-- name: Listen :exec
-- Subscribes a connection to {{channel}}.
LISTEN {{channel}};

-- name: Echo :exec
-- Notifies @channel as everybody does: what the listener does not hear of it, it would not
-- hear of anybody.
SELECT belfry.ring(@channel);
