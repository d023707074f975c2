-- Statements of the notification centre. Each calls functions of the role profile inbox.

-- name: InboxPage :many
-- The notifications of a channel before an id, 0 for the newest, in the locale, '' for the channel's. If they are fewer than
-- the limit and the list has more, a last row with the count 0 has the value of before for the next page.
  WITH p AS MATERIALIZED (
        SELECT id, at, category, title, body, data, seen, read, count
          FROM belfry.inbox_page(@channel_id, nullif(@before::bigint, 0), @limit, @archived, nullif(@locale::text, '')))
SELECT p.id, p.at, p.category, p.title, p.body, p.data, p.seen, p.read, p.count FROM p
UNION ALL
SELECT n, 'epoch', '', '', '', '{}', false, false, 0
  FROM belfry.inbox_next(@channel_id, nullif(@before::bigint, 0), @archived) n
 WHERE n IS NOT NULL AND (SELECT count(*) FROM p) < @limit
 ORDER BY id DESC, count DESC;

-- name: InboxCounts :one
-- The counts among the newest 100 notifications of a channel.
SELECT unread, unseen FROM belfry.inbox_unread(@channel_id);

-- name: InboxSeen :exec
-- Marks the list of a channel as opened.
SELECT belfry.inbox_seen(@channel_id);

-- name: InboxRead :exec
-- Marks notifications of a channel as read or unread.
SELECT belfry.inbox_read(@channel_id, @ids, @read);

-- name: InboxReadAll :exec
-- Marks all notifications of a channel as read.
SELECT belfry.inbox_read_all(@channel_id);

-- name: InboxArchive :exec
-- Archives notifications of a channel, or returns them to the list.
SELECT belfry.inbox_archive(@channel_id, @ids, @archived);

-- name: InboxPreferences :many
-- The preferences of a channel, for each category and medium.
SELECT category, medium, opted_out, receives FROM belfry.inbox_preferences(@channel_id);

-- name: InboxPrefer :exec
-- Records and deletes opt-outs of a channel, in the order of the lists.
SELECT belfry.inbox_prefer(@channel_id, p.category, p.medium, p.opted_out)
  FROM unnest(@categories::text[], @media::text[], @opted_out::boolean[]) p (category, medium, opted_out);

-- name: ChannelID :one
-- The id of the channel with an external id; without one the function raises an error.
SELECT belfry.channel_id(@external_id);
