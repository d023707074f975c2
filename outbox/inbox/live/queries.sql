-- Statements of the live notification centre. Each calls functions of the role profile inbox.

-- name: ArrivalList :many
-- The visible arrivals above @after and among @holes, at most @rows, ascending; without @after the arrivals among the
-- newest @rows numbers. The row of arrival 0 is always there. All transactions with an id below settled were over. server
-- changes when the server restarts or another one takes over.
SELECT 0::bigint AS arrival, 0::bigint AS channel_id, false AS walks, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS settled,
       extract(epoch FROM pg_postmaster_start_time())::float8 AS server
UNION ALL
SELECT a.arrival, coalesce(a.channel_id, 0), a.walks, 0, 0 FROM belfry.inbox_arrivals(@after, @holes, @rows) a
 ORDER BY 1;

-- name: TransactionID :one
-- Draws a transaction id. All ids that are assigned are lower.
SELECT pg_current_xact_id()::text::bigint;

-- name: WalkList :many
-- The progress of jobs (belfry.inbox_walks), and the row of arrival 0 with the time before the snapshot.
SELECT 0::bigint AS arrival, (extract(epoch FROM statement_timestamp())::bigint)::text AS "cursor", false AS running, false AS walked, false AS by_channel
UNION ALL
SELECT w.arrival, w."cursor", w.running, w.walked, w.by_channel FROM belfry.inbox_walks(@followed, now() - make_interval(secs => @seconds::float8)) w
 ORDER BY 1;

-- name: ChannelsReached :many
-- The channels among @channels that have the notification @arrival.
SELECT belfry.inbox_reached(@arrival, @channels);

-- name: EntryList :many
-- The notifications with @arrivals of the @channels, each with its place in these lists. One that is archived, withdrawn or
-- hidden by an opt-out has no row.
SELECT u.n, p.id, p.at, p.category, p.title, p.body, p.data, p.seen, p.read, p.count
  FROM unnest(@channels::bigint[], @arrivals::bigint[]) WITH ORDINALITY u (channel_id, arrival, n)
 CROSS JOIN LATERAL belfry.inbox_page(u.channel_id, before => u.arrival + 1, max_rows => 1, after => u.arrival - 1) p
 ORDER BY u.n;

-- name: ArrivalsSince :many
-- The first @rows arrivals of a channel's notifications above @after, or among @late, ascending.
SELECT belfry.inbox_since(@channel_id, @after, @late, @rows);
