-- Statements of a process that starts.

-- name: SessionStandard :many
-- Sets the settings that belfry's statements require (@names, @values: db.Settings) and a role, a database or
-- a server may have changed. Returns one row for each setting with another value, its name first. If the
-- server process is not @pid, there is a pooler, which may give the connection to other clients: only
-- @pooled settings are set.
SELECT s.name, set_config(s.name, s.value, false)
  FROM unnest(@names::text[], @values::text[], @pooled::boolean[]) s (name, value, pooled)
 WHERE current_setting(s.name, true) <> s.value
   AND (s.pooled OR pg_backend_pid() = @pid::bigint);

-- name: SessionUnfit :many
-- Settings with values that belfry cannot work with and does not change, by name. A search_path is included
-- if it resolves a function of another schema before the server's own.
SELECT s.name, s.value
  FROM (VALUES ('server_encoding', current_setting('server_encoding'), current_setting('server_encoding') <> 'UTF8'),
               ('client_encoding', current_setting('client_encoding'), current_setting('client_encoding') <> 'UTF8'),
               ('session_replication_role', current_setting('session_replication_role'), current_setting('session_replication_role') = 'replica'),
               ('search_path', current_setting('search_path'), array_position(current_schemas(false), 'pg_catalog') > 1)) s (name, value, unfit)
 WHERE s.unfit;
