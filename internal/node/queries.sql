-- The statements with which a process begins.

-- name: SessionStandard :many
-- Takes back what a role, a database or a server has by default and belfry's statements
-- are not written for, one row for each setting that was another, with its name first. A session that may not
-- write stays one when its server process is not @pid: a pooler stands between, and may
-- give the connection to others.
SELECT s.name, set_config(s.name, s.value, false)
  FROM (VALUES ('standard_conforming_strings', 'on'), ('quote_all_identifiers', 'off'), ('array_nulls', 'on'), ('transform_null_equals', 'off'),
               ('row_security', 'on'), ('default_transaction_isolation', 'read committed'), ('default_transaction_deferrable', 'off'),
               ('default_transaction_read_only', 'off')) s (name, value)
 WHERE current_setting(s.name) <> s.value
   AND (s.name NOT LIKE 'default!_transaction!_%' ESCAPE '!' OR pg_backend_pid() = @pid::bigint);
