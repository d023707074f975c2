-- The installation: the place of the database.

-- name: InstallationRead :one
-- The place where the database was created or adopted, and its present place. The first three columns are
-- NULL if the row is missing; then the database is not adopted. The last three contain the halt.
SELECT i.id, i.system_identifier, i.database_oid, h.system_identifier, h.database_oid,
       i.database_oid IS NOT NULL AND concat_ws('/', i.database_oid, i.system_identifier) = concat_ws('/', h.database_oid, h.system_identifier),
       coalesce(i.place, ''), i.halted_at, coalesce(i.halted_by, ''), coalesce(i.halt_reason, '')
  FROM belfry.here() h
  LEFT JOIN belfry.installation i ON true;
