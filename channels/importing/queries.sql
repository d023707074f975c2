-- Statements of an import.

-- name: PlatformNames :one
-- The platforms that audiences may name, sorted.
SELECT coalesce(array_agg(p.name ORDER BY p.name), '{}') FROM belfry.platforms p;

-- name: ImportTable :exec
-- Creates the table that receives a batch by COPY. It has no constraints, because
-- belfry.channels has them. It is dropped at the end of the transaction.
CREATE TEMPORARY TABLE belfry_import (
    external_id text, platform text, active boolean, location point, locale text, time_zone text,
    attributes jsonb, addresses jsonb, removed text[]
) ON COMMIT DROP;

-- name: ImportInsert :exec
-- Inserts the rows of the batch without a channel, in external_id order, so that two
-- imports lock channels in the same order. The anti-join prevents existing channels from
-- using up ids. ON CONFLICT skips channels that another transaction inserted meanwhile;
-- ImportUpdate updates them.
INSERT INTO belfry.channels (external_id, platform, active, location, locale, time_zone, attributes, addresses)
SELECT i.external_id, i.platform, coalesce(i.active, true), i.location, i.locale, i.time_zone, i.attributes, i.addresses
FROM pg_temp.belfry_import i
WHERE NOT EXISTS (SELECT FROM belfry.channels c WHERE c.external_id = i.external_id)
ORDER BY i.external_id
ON CONFLICT (external_id) DO NOTHING;

-- name: ImportUpdate :exec
-- Updates the channels that differ from the batch, locked in id order, and writes no other
-- channel. Columns that are not in @columns, the columns of the file, retain their values.
-- Address columns of single media are merged.
WITH changed AS (
    SELECT c.id, i.platform, coalesce(i.active, c.active) AS active,
           CASE WHEN 'latitude' = ANY (@columns::text[]) THEN i.location ELSE c.location END AS location,
           CASE WHEN 'locale' = ANY (@columns::text[]) THEN i.locale ELSE c.locale END AS locale,
           CASE WHEN 'time_zone' = ANY (@columns::text[]) THEN i.time_zone ELSE c.time_zone END AS time_zone,
           CASE WHEN 'attributes' = ANY (@columns::text[]) THEN i.attributes ELSE c.attributes END AS attributes,
           CASE WHEN 'addresses' = ANY (@columns::text[]) THEN i.addresses ELSE (c.addresses - i.removed) || i.addresses END AS addresses
    FROM pg_temp.belfry_import i
    JOIN belfry.channels c ON c.external_id = i.external_id
    WHERE i.platform <> c.platform
       OR i.active <> c.active
       OR ('latitude' = ANY (@columns::text[]) AND (i.location[0], i.location[1]) IS DISTINCT FROM (c.location[0], c.location[1]))
       OR ('locale' = ANY (@columns::text[]) AND i.locale <> c.locale)
       OR ('time_zone' = ANY (@columns::text[]) AND i.time_zone <> c.time_zone)
       OR ('attributes' = ANY (@columns::text[]) AND i.attributes <> c.attributes)
       OR CASE WHEN 'addresses' = ANY (@columns::text[]) THEN i.addresses ELSE (c.addresses - i.removed) || i.addresses END <> c.addresses
    ORDER BY c.id
    FOR NO KEY UPDATE OF c
)
UPDATE belfry.channels c
SET platform = n.platform, active = n.active, location = n.location, locale = n.locale, time_zone = n.time_zone,
    attributes = n.attributes, addresses = n.addresses, updated_at = now()
FROM changed n
WHERE c.id = n.id;
