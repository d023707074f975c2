-- Statements of the look for a pooler.

-- name: BackendPID :one
-- The server process that executes this. Always one row.
SELECT pg_backend_pid();

-- name: Probe :one
-- What is prepared to see whether it is still there: @mark, which tells whose it is. Always
-- one row.
SELECT {{mark}}::text;
