-- The statements with which a process begins.

-- name: SessionStandard :many
-- Takes back what a role, a database or a server has by default and belfry's statements
-- are not written for (@names, @values: db.Settings), one row for each setting that was another,
-- with its name first. Where its server process is not @pid, a pooler stands between, and may
-- give the connection to others: only settings that are @pooled are set.
SELECT s.name, set_config(s.name, s.value, false)
  FROM unnest(@names::text[], @values::text[], @pooled::boolean[]) s (name, value, pooled)
 WHERE current_setting(s.name, true) <> s.value
   AND (s.pooled OR pg_backend_pid() = @pid::bigint);

-- name: SessionUnfit :many
-- What belfry cannot work with and does not change, by name, with its value. A search_path is
-- one if a function of another schema would be found before the server's own.
SELECT s.name, s.value
  FROM (VALUES ('server_encoding', current_setting('server_encoding'), current_setting('server_encoding') <> 'UTF8'),
               ('client_encoding', current_setting('client_encoding'), current_setting('client_encoding') <> 'UTF8'),
               ('session_replication_role', current_setting('session_replication_role'), current_setting('session_replication_role') = 'replica'),
               ('search_path', current_setting('search_path'), array_position(current_schemas(false), 'pg_catalog') > 1)) s (name, value, unfit)
 WHERE s.unfit;
