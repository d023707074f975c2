-- Statements of package channels. Store.New replaces the markers once, with
-- quoted identifiers and constant expressions only, never with data:
--
--   {{relation}}     the quoted name of channels.relation
--   {{location}}, {{locale}}, {{time_zone}}, {{attributes}}, {{addresses}}
--                    the column c.<name>, or its empty value where the relation
--                    has no such column
--   {{platform}}     the column c.platform
--
-- Of another relation than belfry.channels, {{platform}}, {{locale}} and {{time_zone}} are
-- cut to one character more than is allowed, so that no megabytes leave the server.
--
-- Everything else is bound as a named argument. A page statement examines at
-- most @limit keys and always returns one row: how many it examined, the last
-- one, and the ids of those that match, as one array. One array of 50,000 ids
-- leaves the server three times as fast as 50,000 rows do.
--
-- id may be smallint, integer or bigint. It is compared as it is: the operators across
-- these types are members of one operator family, so that the relation's own index
-- serves whatever its width, and @after and @bound may lie outside the type. Only what
-- leaves a statement is cast, in the SELECT list.
--
-- A circle is @center, @radius_m and one or two boxes around it. The boxes are a
-- cheap first test, and keep locations that are no place on earth, which a user's
-- own relation may hold, from belfry.distance_m, which would raise an error.

-- name: RelationColumns :many
-- The columns of the relation and their types; no row: no such relation.
-- @relation is the quoted name.
SELECT a.attname, format_type(a.atttypid, NULL), a.attnotnull, a.attgenerated = 'v'
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = to_regclass(@relation) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum;

-- name: Bound :one
-- The highest id; no row when the relation is empty. Walks the id index
-- backwards.
SELECT c.id::bigint FROM {{relation}} c ORDER BY c.id DESC LIMIT 1;

-- name: LowestID :one
-- The lowest id, for estimates; no row when the relation is empty.
SELECT c.id::bigint FROM {{relation}} c ORDER BY c.id LIMIT 1;

-- name: EstimateRows :one
-- The planner's estimate of the rows of the relation, which also a view has and
-- which a table has before its first ANALYZE. It executes nothing.
EXPLAIN (FORMAT JSON) SELECT c.id FROM {{relation}} c;

-- name: PageEveryone :one
-- A page of the active channels. Relies on the index on id.
SELECT count(*), max(p.id), array_agg(p.id) FILTER (WHERE p.active)
FROM (
    SELECT c.id::bigint AS id, c.active
    FROM {{relation}} c
    WHERE c.id > @after::bigint AND c.id <= @bound::bigint
    ORDER BY c.id
    LIMIT @limit
) p;

-- name: PagePlatforms :one
-- A page of the active channels on @platforms. Relies on the index on id.
SELECT count(*), max(p.id), array_agg(p.id) FILTER (WHERE p.active AND p.platform = ANY (@platforms::text[]))
FROM (
    SELECT c.id::bigint AS id, c.active, c.platform
    FROM {{relation}} c
    WHERE c.id > @after::bigint AND c.id <= @bound::bigint
    ORDER BY c.id
    LIMIT @limit
) p;

-- name: PageRadius :one
-- A page of a dense circle: id order, every key tested. The boxes are a cheap
-- first test. @platforms may be NULL. Relies on the index on id.
SELECT count(*), max(p.id), array_agg(p.id) FILTER (
    WHERE p.active
      AND (p.location <@ @box_1::box OR p.location <@ @box_2::box)
      AND belfry.distance_m(p.location, @center::point) <= @radius_m::float8
      AND (@platforms::text[] IS NULL OR p.platform = ANY (@platforms::text[])))
FROM (
    SELECT c.id::bigint AS id, c.active, c.platform, c.location
    FROM {{relation}} c
    WHERE c.id > @after::bigint AND c.id <= @bound::bigint
    ORDER BY c.id
    LIMIT @limit
) p;

-- name: SliceIDs :one
-- The ids of @ids that exist and match now. @platforms and all of the circle may
-- be NULL. The LIMIT keeps the planner to one index scan per id, whatever it
-- believes about the relation's size: the cost is bounded by the slice.
SELECT array_agg(m.id)
FROM unnest(@ids::bigint[]) k (id)
CROSS JOIN LATERAL (
    SELECT c.id::bigint AS id, c.active, c.platform, {{location}} AS location
    FROM {{relation}} c
    WHERE c.id = k.id
    LIMIT 1
) m
WHERE m.active
  AND (@platforms::text[] IS NULL OR m.platform = ANY (@platforms::text[]))
  AND (@radius_m::float8 IS NULL
       OR ((m.location <@ @box_1::box OR m.location <@ @box_2::box)
           AND belfry.distance_m(m.location, @center::point) <= @radius_m::float8));

-- name: SegmentIDs :one
-- A page of a segment's members, each looked up in the relation. @platforms may
-- be NULL. Relies on segment_members_pkey and the index on id.
SELECT count(*), max(p.channel_id), array_agg(p.channel_id) FILTER (
    WHERE m.active AND (@platforms::text[] IS NULL OR m.platform = ANY (@platforms::text[])))
FROM (
    SELECT s.channel_id
    FROM belfry.segment_members s
    WHERE s.segment = @segment AND s.channel_id > @after::bigint AND s.channel_id <= @bound::bigint
    ORDER BY s.channel_id
    LIMIT @limit
) p
LEFT JOIN LATERAL (
    SELECT c.active, c.platform FROM {{relation}} c WHERE c.id = p.channel_id LIMIT 1
) m ON true;

-- name: PageChannels :many
-- The keys of a page in id order with whether each matches; a key that does not
-- match carries no further data. @platforms and all of the circle may be NULL.
-- Relies on the index on id.
SELECT p.id, p.matches,
       CASE WHEN p.matches THEN p.external_id END, CASE WHEN p.matches THEN p.platform END,
       CASE WHEN p.matches THEN p.location END,
       CASE WHEN p.matches THEN p.locale END, CASE WHEN p.matches THEN p.time_zone END,
       CASE WHEN p.matches THEN p.attributes END, CASE WHEN p.matches THEN p.addresses END
FROM (
    SELECT c.id::bigint AS id, c.external_id, {{platform}} AS platform, {{location}} AS location, {{locale}} AS locale,
           {{time_zone}} AS time_zone, {{attributes}} AS attributes, {{addresses}} AS addresses,
           coalesce(c.active
               AND (@platforms::text[] IS NULL OR c.platform = ANY (@platforms::text[]))
               AND (@radius_m::float8 IS NULL
                    OR (({{location}} <@ @box_1::box OR {{location}} <@ @box_2::box)
                        AND belfry.distance_m({{location}}, @center::point) <= @radius_m::float8)),
               false) AS matches
    FROM {{relation}} c
    WHERE c.id > @after::bigint AND c.id <= @bound::bigint
    ORDER BY c.id
    LIMIT @limit
) p;

-- name: SliceChannels :many
-- The channels of @ids that exist and match now, in the order given, with their data.
-- @platforms and all of the circle may be NULL.
SELECT m.id, true, m.external_id, m.platform, m.location, m.locale, m.time_zone, m.attributes, m.addresses
FROM unnest(@ids::bigint[]) k (id)
CROSS JOIN LATERAL (
    SELECT c.id::bigint AS id, c.active, c.external_id, {{platform}} AS platform, {{location}} AS location, {{locale}} AS locale,
           {{time_zone}} AS time_zone, {{attributes}} AS attributes, {{addresses}} AS addresses
    FROM {{relation}} c
    WHERE c.id = k.id
    LIMIT 1
) m
WHERE m.active
  AND (@platforms::text[] IS NULL OR m.platform = ANY (@platforms::text[]))
  AND (@radius_m::float8 IS NULL
       OR ((m.location <@ @box_1::box OR m.location <@ @box_2::box)
           AND belfry.distance_m(m.location, @center::point) <= @radius_m::float8));

-- name: SegmentChannels :many
-- The members of a page in id order with whether each matches, as PageChannels.
-- @platforms may be NULL.
SELECT p.channel_id, coalesce(m.matches, false),
       m.external_id, m.platform, m.location, m.locale, m.time_zone, m.attributes, m.addresses
FROM (
    SELECT s.channel_id
    FROM belfry.segment_members s
    WHERE s.segment = @segment AND s.channel_id > @after::bigint AND s.channel_id <= @bound::bigint
    ORDER BY s.channel_id
    LIMIT @limit
) p
LEFT JOIN LATERAL (
    SELECT c.external_id, {{platform}} AS platform, {{location}} AS location, {{locale}} AS locale,
           {{time_zone}} AS time_zone, {{attributes}} AS attributes, {{addresses}} AS addresses,
           c.active AND (@platforms::text[] IS NULL OR c.platform = ANY (@platforms::text[])) AS matches
    FROM {{relation}} c
    WHERE c.id = p.channel_id
    LIMIT 1
) m ON true;

-- name: RadiusCandidates :one
-- Up to @limit channels inside the boxes, from the GiST index on location alone,
-- and of them the ids that lie inside the circle. count = @limit: there are more.
-- A NULL box finds nothing. The LIMIT stands inside: at most @limit entries are
-- examined, however few of them lie in the circle.
SELECT count(*), array_agg(k.id) FILTER (WHERE belfry.distance_m(k.location, @center::point) <= @radius_m::float8)
FROM (
    SELECT c.id::bigint AS id, c.location FROM {{relation}} c
    WHERE c.location <@ @box_1::box AND c.id > @after::bigint AND c.id <= @bound::bigint
    UNION ALL
    SELECT c.id::bigint AS id, c.location FROM {{relation}} c
    WHERE c.location <@ @box_2::box AND c.id > @after::bigint AND c.id <= @bound::bigint
    LIMIT @limit
) k;

-- name: ResolveExternalIDs :one
-- The ids of the channels with the @external_ids, in no order.
SELECT array_agg(c.id::bigint) FROM {{relation}} c
WHERE c.external_id = ANY (@external_ids::text[]) AND c.id > @after::bigint AND c.id <= @bound::bigint;

-- name: ListedWithout :one
-- How many of @ids and @external_ids, either of them empty, have no channel, and a few of
-- them. Relies on the indexes on id and external_id.
SELECT count(*), coalesce((array_agg(k.name ORDER BY k.name))[1:5], '{}')
FROM (SELECT DISTINCT i.id::text AS name FROM unnest(@ids::bigint[]) i (id)
      WHERE NOT EXISTS (SELECT FROM {{relation}} c WHERE c.id = i.id)
      UNION ALL
      SELECT DISTINCT e.id FROM unnest(@external_ids::text[]) e (id)
      WHERE NOT EXISTS (SELECT FROM {{relation}} c WHERE c.external_id = e.id)) k;

-- name: SegmentSize :one
-- Whether the segment exists, and how many members of it lie in the window,
-- counted up to @limit.
SELECT EXISTS (SELECT FROM belfry.segments g WHERE g.name = @segment),
       (SELECT count(*) FROM (
            SELECT FROM belfry.segment_members s
            WHERE s.segment = @segment AND s.channel_id > @after::bigint AND s.channel_id <= @bound::bigint
            LIMIT @limit) m);

-- name: EstimateSegment :one
-- The planner's estimate of a segment's members. It executes nothing.
EXPLAIN (FORMAT JSON) SELECT FROM belfry.segment_members s WHERE s.segment = @segment;

-- name: CountEveryone :one
-- Preview: active channels, on @platforms unless NULL. Reads the whole relation.
SELECT count(*) FROM {{relation}} c
WHERE c.active AND (@platforms::text[] IS NULL OR c.platform = ANY (@platforms::text[]));

-- name: CountRadius :one
-- Preview of a circle, by the GiST index on location. @platforms may be NULL.
SELECT count(*)
FROM (
    SELECT c.active, c.platform, c.location FROM {{relation}} c WHERE c.location <@ @box_1::box
    UNION ALL
    SELECT c.active, c.platform, c.location FROM {{relation}} c WHERE c.location <@ @box_2::box
) k
WHERE k.active
  AND belfry.distance_m(k.location, @center::point) <= @radius_m::float8
  AND (@platforms::text[] IS NULL OR k.platform = ANY (@platforms::text[]));

-- name: CountIDs :one
-- Preview of a list of ids; repeated ones count once.
SELECT count(*) FROM {{relation}} c WHERE c.id = ANY (@ids::bigint[]) AND c.active;

-- name: CountExternalIDs :one
-- Preview of a list of external ids; repeated ones count once.
SELECT count(*) FROM {{relation}} c WHERE c.external_id = ANY (@external_ids::text[]) AND c.active;

-- name: CountSegment :one
-- Preview of a segment and whether it exists. @platforms may be NULL.
SELECT EXISTS (SELECT FROM belfry.segments g WHERE g.name = @segment),
       (SELECT count(*) FROM belfry.segment_members s JOIN {{relation}} c ON c.id = s.channel_id
        WHERE s.segment = @segment AND c.active
          AND (@platforms::text[] IS NULL OR c.platform = ANY (@platforms::text[])));

-- name: RelationFacts :one
-- What Check asks the catalog about the relation: its kind, whether this user may
-- read it, and whether a unique index holds id alone. No row: no such relation.
SELECT r.relkind::text, has_table_privilege(r.oid, 'SELECT'),
       EXISTS (
            SELECT FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid AND a.attname = 'id'
            WHERE i.indrelid = r.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
              AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
FROM pg_catalog.pg_class r
WHERE r.oid = to_regclass(@relation);

-- name: RelationSecured :one
-- Whether the relation, or a table that a view of it reads, has row-level security; those
-- tables, their policies, and this user. Whether it hides rows from this user, only the planner
-- tells.
WITH RECURSIVE under (oid) AS (
    SELECT to_regclass(@relation)::oid
    UNION
    SELECT d.refobjid
      FROM under u
      JOIN pg_catalog.pg_rewrite w ON w.ev_class = u.oid
      JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = w.oid
       AND d.refclassid = 'pg_catalog.pg_class'::regclass
), secured AS (
    SELECT c.oid, c.oid::regclass::text AS name FROM under u JOIN pg_catalog.pg_class c ON c.oid = u.oid WHERE c.relrowsecurity
)
SELECT EXISTS (SELECT FROM secured),
       coalesce((SELECT string_agg(s.name, ', ' ORDER BY s.name) FROM secured s), ''),
       coalesce((SELECT 'policy ' || string_agg(quote_ident(p.polname), ', ' ORDER BY p.polname)
           FROM secured s JOIN pg_catalog.pg_policy p ON p.polrelid = s.oid), 'it has no policy, so all of them'),
       quote_ident(current_user);

-- name: RecipientsRecorded :one
-- The relation that belfry.recipients names and its owner there, if SQL functions would not
-- read @relation: they name another one, or one that another role owned. No row: it is in
-- step, or there is no such relation.
SELECT format('%I.%I', n.nspname, c.relname), format('%I.%I', r.relation_schema, r.relation_name), r.relation_owner::text, o.rolname::text, pg_has_role(b.nspowner, 'USAGE'), b.nspowner::regrole::text
FROM belfry.recipients r
JOIN pg_catalog.pg_class c ON c.oid = to_regclass(@relation)
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
JOIN pg_catalog.pg_namespace b ON b.nspname = 'belfry'
WHERE (r.relation_schema, r.relation_name) <> (n.nspname, c.relname)
   OR o.rolname <> r.relation_owner AND NOT o.rolsuper AND o.oid <> b.nspowner;

-- name: RecipientsRecord :exec
-- Records @relation, for the schema's owner.
SELECT belfry.record_recipients(@relation::text::regclass);

-- name: PreferIndexes :exec
-- For the rest of Check's transaction: plans that avoid an index although there
-- is one, because the relation is small, would look like faults. What cannot avoid them
-- costs 1e10, and is not to be compiled for it.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_custom_plan', true);

-- name: ExplainPage :one
-- How a page would be read: by an index on id, in its order, if the contract is
-- kept. It executes nothing.
EXPLAIN (FORMAT JSON) SELECT c.id FROM {{relation}} c WHERE c.id > 0 AND c.id <= 9000000000000000000 ORDER BY c.id LIMIT 1000;

-- name: ExplainExternalIDs :one
-- How external ids would be resolved. It executes nothing.
EXPLAIN (FORMAT JSON) SELECT c.id FROM {{relation}} c WHERE c.external_id = ANY ('{a,b}'::text[]);

-- name: ExplainCircle :one
-- How a circle's channels would be found. It executes nothing.
EXPLAIN (FORMAT JSON) SELECT c.id FROM {{relation}} c WHERE c.location <@ box '((1,1),(0,0))';

-- name: SampleKeys :one
-- The first @limit keys of a view, which no catalog vouches for: how many, how
-- many different ones, and whether any key at all is NULL.
SELECT count(k.id), count(DISTINCT k.id), EXISTS (SELECT FROM {{relation}} c WHERE c.id IS NULL)
FROM (SELECT c.id FROM {{relation}} c ORDER BY c.id LIMIT @limit) k;

-- name: SegmentCreate :one
-- A new, empty segment, made by @actor for @reason.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
INSERT INTO belfry.segments (name, description) SELECT @segment, @description FROM act RETURNING name;

-- name: SegmentMembers :one
-- How many members a segment has (segment_members_pkey).
SELECT count(*) FROM belfry.segment_members s WHERE s.segment = @segment;

-- name: SegmentDrop :exec
-- Removes a segment with its members, by @actor for @reason.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
DELETE FROM belfry.segments g USING act WHERE g.name = @segment;

-- name: SegmentList :many
-- Every segment with the number of its members, counted from the index and no further than @most.
SELECT g.name, g.description, g.created_at,
       (SELECT count(*) FROM (SELECT FROM belfry.segment_members s WHERE s.segment = g.name LIMIT @most) t)
FROM belfry.segments g
ORDER BY g.name;

-- name: SegmentLock :one
-- Lets one change of a segment in at a time; no row: no such segment.
SELECT name FROM belfry.segments WHERE name = @segment FOR UPDATE;

-- name: SegmentStage :exec
-- Where the keys of a change of a segment arrive.
CREATE TEMPORARY TABLE belfry_members (key text) ON COMMIT DROP;

-- name: SegmentResolveIDs :exec
-- The channels with the staged ids; a NULL id for those without one.
CREATE TEMPORARY TABLE belfry_member_ids ON COMMIT DROP AS
SELECT DISTINCT m.key, c.id FROM pg_temp.belfry_members m LEFT JOIN {{relation}} c ON c.id = m.key::bigint;

-- name: SegmentResolveExternalIDs :exec
-- The channels with the staged external ids; a NULL id for those without one.
CREATE TEMPORARY TABLE belfry_member_ids ON COMMIT DROP AS
SELECT DISTINCT m.key, c.id FROM pg_temp.belfry_members m LEFT JOIN {{relation}} c ON c.external_id = m.key;

-- name: SegmentUnknown :one
-- How many keys have no channel, and a few of them.
SELECT count(*), coalesce((array_agg(i.key ORDER BY i.key))[1:5], '{}') FROM pg_temp.belfry_member_ids i WHERE i.id IS NULL;

-- name: SegmentDeleteOthers :exec
-- Removes the members that are not among the resolved ones.
DELETE FROM belfry.segment_members s
WHERE s.segment = @segment AND NOT EXISTS (SELECT FROM pg_temp.belfry_member_ids i WHERE i.id = s.channel_id);

-- name: SegmentDelete :exec
-- Removes the resolved channels from a segment.
DELETE FROM belfry.segment_members s
WHERE s.segment = @segment AND s.channel_id IN (SELECT i.id FROM pg_temp.belfry_member_ids i WHERE i.id IS NOT NULL);

-- name: SegmentInsert :exec
-- Adds the resolved channels to a segment; those that are members stay untouched.
INSERT INTO belfry.segment_members (segment, channel_id)
SELECT @segment, i.id FROM pg_temp.belfry_member_ids i WHERE i.id IS NOT NULL GROUP BY i.id ORDER BY i.id
ON CONFLICT (segment, channel_id) DO NOTHING;

-- name: SegmentRecord :exec
-- The event of a change of a segment's members.
INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
VALUES ('segment', @segment, 'changed', coalesce(nullif(@actor, ''), session_user), @reason,
        jsonb_build_object('session_user', session_user, 'added', @added::bigint, 'removed', @removed::bigint));

-- name: ChannelsInspect :many
-- Every key of a page in id order: whether it is active, whether the audience would
-- contain it if it were, and its creation and change times (NULL if the relation has no
-- such columns). A list is not compared. @platforms, @segment and all of the circle may be
-- NULL. Relies on the index on id and segment_members_pkey; the LIMITs restrict it to one
-- index scan per key.
SELECT p.id, coalesce(p.active, false),
       coalesce((@platforms::text[] IS NULL OR p.platform = ANY (@platforms::text[]))
            AND (@radius_m::float8 IS NULL
                 OR ((p.location <@ @box_1::box OR p.location <@ @box_2::box)
                     AND belfry.distance_m(p.location, @center::point) <= @radius_m::float8))
            AND (@segment::text IS NULL
                 OR (SELECT true FROM belfry.segment_members s WHERE s.segment = @segment AND s.channel_id = p.id LIMIT 1)), false),
       p.created_at, p.updated_at
FROM (
    SELECT c.id::bigint AS id, c.active, c.platform, {{location}} AS location, {{created_at}} AS created_at, {{updated_at}} AS updated_at
    FROM {{relation}} c
    WHERE c.id > @after::bigint AND c.id <= @bound::bigint
    ORDER BY c.id
    LIMIT @limit
) p;

-- name: Recipients :many
-- The recipients among @ids, with the columns that sending needs; their attributes only if @attributes.
-- The LIMIT keeps the planner to one index scan per id, whatever it believes about the
-- relation's size. The array stands in a query of its own, here and below, whose length no
-- plan knows: otherwise one for the few channels at hand always seems to be worth its making.
SELECT m.id, m.active, m.external_id, m.platform, m.locale, m.time_zone, m.attributes::text, m.addresses::text
FROM unnest((SELECT @ids::bigint[])) k (id)
CROSS JOIN LATERAL (
    SELECT c.id::bigint AS id, c.active, c.external_id, {{platform}} AS platform, {{locale}} AS locale, {{time_zone}} AS time_zone,
           CASE WHEN @attributes::boolean THEN {{attributes}} END AS attributes, {{addresses}} AS addresses
    FROM {{relation}} c
    WHERE c.id = k.id
    LIMIT 1
) m;

-- name: RecipientsRange :many
-- As Recipients, of all ids from @low to @high.
SELECT c.id::bigint AS id, c.active, c.external_id, {{platform}}, {{locale}}, {{time_zone}},
       CASE WHEN @attributes::boolean THEN ({{attributes}})::text END, ({{addresses}})::text
FROM {{relation}} c
WHERE c.id BETWEEN @low::bigint AND @high::bigint;

-- name: ChannelPlace :one
-- The latitude and longitude of a channel, NULL where it or the relation has none. The LIMIT
-- keeps the planner to one index scan. No row: there is no such channel.
SELECT p.location[1], p.location[0]
FROM (SELECT {{location}} AS location FROM {{relation}} c WHERE c.id = @id LIMIT 1) p;

-- name: OptOuts :many
-- The opt-outs of channels: one descent of opt_outs_pkey each, and the OFFSET keeps the
-- planner to that.
SELECT o.channel_id, o.category, o.medium, o.reason, o.opted_out_at
FROM unnest((SELECT @ids::bigint[])) k (id)
CROSS JOIN LATERAL (
    SELECT p.channel_id, p.category, p.medium, p.reason, p.opted_out_at
    FROM belfry.opt_outs p
    WHERE p.channel_id = k.id
    OFFSET 0
) o;

-- name: OptOutsRange :many
-- As OptOuts, of all channels from @low to @high: one range of opt_outs_pkey.
SELECT o.channel_id, o.category, o.medium, o.reason, o.opted_out_at
FROM belfry.opt_outs o
WHERE o.channel_id BETWEEN @low::bigint AND @high::bigint;

-- name: InvalidAddresses :many
-- The addresses of channels that are not to be used again (invalid_addresses_pkey), as
-- OptOuts.
SELECT i.channel_id, i.medium, i.sha256
FROM unnest((SELECT @ids::bigint[])) k (id)
CROSS JOIN LATERAL (
    SELECT p.channel_id, p.medium, p.sha256
    FROM belfry.invalid_addresses p
    WHERE p.channel_id = k.id
    OFFSET 0
) i;

-- name: InvalidAddressesRange :many
-- As InvalidAddresses, of all channels from @low to @high.
SELECT i.channel_id, i.medium, i.sha256
FROM belfry.invalid_addresses i
WHERE i.channel_id BETWEEN @low::bigint AND @high::bigint;

-- name: OptOutRecord :many
-- Records an opt-out and returns it, or the one that was there. No row: it was removed
-- at the same time. An unknown category or medium raises 23514.
SELECT o.channel_id, o.category, o.medium, o.reason, o.opted_out_at
FROM belfry.opt_out(@channel_id, @category, @medium, @reason) o;

-- name: OptOutRemove :many
-- Removes one opt-out and returns it. No row: there was none.
SELECT o.channel_id, o.category, o.medium, o.reason, o.opted_out_at
FROM belfry.opt_in(@channel_id, @category, @medium) o;

-- name: OptOutEvent :exec
-- The event of an opt-out that this transaction recorded; none where it stood before.
INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
SELECT 'channel', o.channel_id::text, 'opted_out', coalesce(nullif(@actor, ''), session_user), o.reason,
       jsonb_build_object('session_user', session_user, 'category', o.category, 'medium', o.medium)
  FROM belfry.opt_outs o
 WHERE o.channel_id = @channel_id AND o.category = @category AND o.medium = @medium AND o.xmin = pg_current_xact_id()::xid;

-- name: OptInEvent :exec
-- The event of an opt-out that was taken back.
INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
VALUES ('channel', @channel_id::bigint::text, 'opted_in', coalesce(nullif(@actor, ''), session_user), @reason,
        jsonb_build_object('session_user', session_user, 'category', @category::text, 'medium', @medium::text));

-- name: CategoryList :many
-- Every category by name; quiet hours and the cap's window in seconds.
SELECT c.name, c.description, c.route, extract(epoch FROM c.quiet_start)::bigint, extract(epoch FROM c.quiet_end)::bigint,
       c.cap, extract(epoch FROM c.cap_window)::bigint, c.max_recipients, c.approval_above, c.activities_per_hour, belfry.version('category', c.name)
FROM belfry.categories c
ORDER BY c.name;

-- name: CategoryAdd :exec
-- A new category. One that there is already raises 23505 (categories_pkey).
INSERT INTO belfry.categories (name, description) VALUES (@name, @description);

-- name: ActorSet :exec
-- Sets the actor and the reason of the event of this transaction.
SELECT FROM belfry.act(@actor, @reason);

-- name: CategorySet :exec
-- Changes a category. A NULL @route keeps the route;
-- quiet hours, cap, ceiling and approval are kept unless @set_quiet, @set_cap, @set_most,
-- @set_approval, @set_activities. No row: no such category.
UPDATE belfry.categories c
SET route = coalesce(@route::text[], c.route),
    quiet_start = CASE WHEN @set_quiet::boolean THEN time '00:00' + make_interval(secs => @quiet_start::float8) ELSE c.quiet_start END,
    quiet_end = CASE WHEN @set_quiet::boolean THEN time '00:00' + make_interval(secs => @quiet_end::float8) ELSE c.quiet_end END,
    cap = CASE WHEN @set_cap::boolean THEN @cap::integer ELSE c.cap END,
    cap_window = CASE WHEN @set_cap::boolean THEN make_interval(secs => @cap_window::float8) ELSE c.cap_window END,
    max_recipients = CASE WHEN @set_most::boolean THEN @max_recipients::integer ELSE c.max_recipients END,
    approval_above = CASE WHEN @set_approval::boolean THEN @approval_above::integer ELSE c.approval_above END,
    activities_per_hour = CASE WHEN @set_activities::boolean THEN @activities_per_hour::integer ELSE c.activities_per_hour END
WHERE c.name = @name;

-- name: CategoryGet :many
-- One category, as CategoryList. No row: there is none.
SELECT c.name, c.description, c.route, extract(epoch FROM c.quiet_start)::bigint, extract(epoch FROM c.quiet_end)::bigint,
       c.cap, extract(epoch FROM c.cap_window)::bigint, c.max_recipients, c.approval_above, c.activities_per_hour, belfry.version('category', c.name)
FROM belfry.categories c
WHERE c.name = @name;

-- name: ChannelBlank :exec
-- Empties a channel of belfry.channels but for its external id, by which an erasure that was
-- interrupted finds it again: it is in no audience from now on, and reached nowhere.
UPDATE belfry.channels
   SET active = false, location = NULL, locale = '', time_zone = '', attributes = '{}', addresses = '{}'
 WHERE id = @id;

-- name: ChannelForget :one
-- Deletes what belfry.channels and the tables beside it have of a channel (channels_pkey,
-- opt_outs_pkey, invalid_addresses_pkey, segment_members_pkey by segment), or with @dry_run
-- counts it. belfry.channels is left out unless @own. The events of its opt-outs and of what it
-- was sent stay, and say of nobody (events_subject_idx).
WITH members AS MATERIALIZED (
    SELECT k.segment FROM belfry.segments s
     CROSS JOIN LATERAL (SELECT m.segment FROM belfry.segment_members m WHERE m.segment = s.name AND m.channel_id = @id OFFSET 0) k
), left_segments AS (
    DELETE FROM belfry.segment_members m
     WHERE NOT @dry_run::boolean AND m.segment = ANY (ARRAY(SELECT k.segment FROM members k)) AND m.channel_id = @id
), preferences AS (
    DELETE FROM belfry.opt_outs o WHERE NOT @dry_run::boolean AND o.channel_id = @id
), addresses AS (
    DELETE FROM belfry.invalid_addresses a WHERE NOT @dry_run::boolean AND a.channel_id = @id
), told AS (
    UPDATE belfry.events e SET name = '', reason = '' WHERE NOT @dry_run::boolean AND e.subject = 'channel' AND e.name = @id::bigint::text
), gone AS (
    DELETE FROM belfry.channels c WHERE NOT @dry_run::boolean AND @own::boolean AND c.id = @id
)
SELECT (SELECT count(*) FROM belfry.channels c WHERE @own::boolean AND c.id = @id),
       (SELECT count(*) FROM belfry.opt_outs o WHERE o.channel_id = @id),
       (SELECT count(*) FROM belfry.invalid_addresses a WHERE a.channel_id = @id), (SELECT count(*) FROM members);
