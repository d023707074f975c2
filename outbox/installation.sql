-- Where the database was made or adopted.

-- name: InstallationRead :one
-- Where the database was made or adopted and where it is. The first three are NULL when
-- the row is missing: then it is adopted nowhere. The last three say whether it is halted.
SELECT i.id, i.system_identifier, i.database_oid, h.system_identifier, h.database_oid,
       i.database_oid IS NOT NULL AND concat_ws('/', i.database_oid, i.system_identifier) = concat_ws('/', h.database_oid, h.system_identifier),
       coalesce(i.place, ''), i.halted_at, coalesce(i.halted_by, ''), coalesce(i.halt_reason, '')
  FROM belfry.here() h
  LEFT JOIN belfry.installation i ON true;
