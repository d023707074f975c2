-- Statements of an import.

-- name: PlatformNames :one
-- The platforms that audiences may name, sorted.
SELECT coalesce(array_agg(p.name ORDER BY p.name), '{}') FROM belfry.platforms p;

-- name: ImportTable :exec
-- Where a batch of an import arrives, without constraints: the constraints of
-- belfry.channels judge it. It lives as long as the batch's transaction.
CREATE TEMPORARY TABLE belfry_import (
    external_id text, platform text, active boolean, location point, locale text, time_zone text,
    attributes jsonb, addresses jsonb, removed text[]
) ON COMMIT DROP;

-- name: ImportInsert :exec
-- Inserts those of the batch that have no channel yet. The rows come in
-- external_id order, so that two imports wait for each other in one order. The
-- anti-join keeps existing channels from using up ids; ON CONFLICT yields to
-- whoever inserted the same channel meanwhile, and ImportUpdate follows.
INSERT INTO belfry.channels (external_id, platform, active, location, locale, time_zone, attributes, addresses)
SELECT i.external_id, i.platform, coalesce(i.active, true), i.location, i.locale, i.time_zone, i.attributes, i.addresses
FROM pg_temp.belfry_import i
WHERE NOT EXISTS (SELECT FROM belfry.channels c WHERE c.external_id = i.external_id)
ORDER BY i.external_id
ON CONFLICT (external_id) DO NOTHING;

-- name: ImportUpdate :exec
-- Updates the channels of the batch that differ from it, locked in id order;
-- the others are not written. @columns are the columns the file has: the rest
-- keep their values. Address columns of single media are merged.
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
