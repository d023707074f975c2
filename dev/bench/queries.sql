-- Statements of the benchmarks. Identifiers replace the markers in double braces.

-- name: ChannelsVacuum :exec
-- Sets hint bits and the visibility map once, so that no measurement pays for it.
VACUUM (ANALYZE) belfry.channels;

-- name: ChannelsActive :one
-- The number of rows of a job to everyone.
SELECT count(*) FROM belfry.channels WHERE active;

-- name: ChannelSample :one
-- Ids of some channels.
SELECT array_agg(c.id ORDER BY c.id) FROM (SELECT id FROM belfry.channels WHERE active ORDER BY id LIMIT @limit) c;

-- name: OutboxEmpty :exec
-- Gives the tables of the outbox new, empty files.
TRUNCATE belfry.notifications, belfry.message_rows, belfry.job_claims, belfry.leases, belfry.handovers, belfry.attempts, belfry.activities, belfry.job_values;

-- name: JobsEmpty :exec
-- Removes the jobs of earlier rounds.
DELETE FROM belfry.jobs;

-- name: RowCount :one
-- The rows of a job, of either type.
SELECT (SELECT count(*) FROM belfry.notifications WHERE arrival = (SELECT j.arrival FROM belfry.jobs j WHERE j.id = @job_id)) + (SELECT count(*) FROM belfry.messages WHERE job_id = @job_id);

-- name: NotificationInsertAll :exec
-- Writes all rows of an inbox job to everyone in one statement.
INSERT INTO belfry.notifications (channel_id, arrival)
SELECT id, @job_id FROM belfry.channels WHERE active;

-- name: MessageInsertAll :exec
-- The same for a push job.
INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at)
SELECT @job_id, id, now() FROM belfry.channels WHERE active;

-- name: NotificationInsertOffset :one
-- Writes one page of OFFSET paging and returns the number of keys read. 0 ends the walk.
WITH page AS (
    SELECT id, active FROM belfry.channels ORDER BY id LIMIT @limit OFFSET @offset
), written AS (
    INSERT INTO belfry.notifications (channel_id, arrival) SELECT id, @job_id FROM page WHERE active
)
SELECT count(*) FROM page;

-- name: SentInsert :exec
-- A push job to everyone of which all messages were sent @age seconds ago. Triggers have to be off.
WITH t AS (SELECT now() - make_interval(secs => @age) AS at), j AS (
    INSERT INTO belfry.jobs (id, type, category, title, route, schedule_at, status, bound, "cursor", fence, attempts, chunks, channels_read,
                             channels_total, channels_matched, rows_written, requested_by, created_at, started_at, finished_at, walked_at, delivered_at)
    SELECT nextval('belfry.jobs_id_seq'), 'push', 'popular_content', 'bench', '{push}', t.at, 'PROCESSED', '1', '1', 1, 1, 1, @messages, @messages,
           @messages, @messages, 'bench', t.at, t.at, t.at, t.at, t.at
      FROM t
    RETURNING id
), d AS (
    INSERT INTO belfry.job_deliveries (job_id, relay, written, sent) SELECT j.id, 'bench', @messages, @messages FROM j
)
INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, attempts, status, sent_at, sender)
SELECT j.id, c.id, t.at, 1, 'SENT', t.at, 'bench' FROM t, j, belfry.channels c WHERE c.active ORDER BY c.id;

-- name: OldestAge :exec
-- Ages the jobs of the oldest partition of notifications that has young ones. Triggers have to be off.
UPDATE belfry.jobs
   SET finished_at = now() - make_interval(secs => @age)
 WHERE type = 'inbox' AND arrival / 1000000000 = (SELECT min(j.arrival) / 1000000000 FROM belfry.jobs j WHERE j.finished_at > now() - make_interval(secs => @age / 2));

-- name: RelationCreate :exec
-- A relation of recipients of another size.
CREATE TABLE IF NOT EXISTS {{relation}} (id bigint PRIMARY KEY, external_id text NOT NULL, platform text NOT NULL, active boolean NOT NULL);

-- name: RelationFill :exec
-- Fills it with n channels.
INSERT INTO {{relation}} SELECT i, 'u-' || i, 'ios', true FROM generate_series(1, @n::bigint) i ON CONFLICT DO NOTHING;

-- name: PlatformRare :script
-- Puts three channels in 100,000 on a platform.
INSERT INTO belfry.platforms (name, description) VALUES ('kiosk', 'a rare one') ON CONFLICT DO NOTHING;
UPDATE belfry.channels SET platform = 'kiosk' WHERE id % 100000 IN (1, 2, 3) AND active;

-- name: MessagesVacuum :exec
-- Sets hint bits and statistics once, so that no measurement pays for it.
VACUUM (ANALYZE) belfry.message_rows;

-- name: MessagesSent :one
-- The numbers of sent messages and of all messages, from a job on.
SELECT count(*) FILTER (WHERE m.status = 'SENT'), count(*) FROM belfry.messages m WHERE m.job_id >= @first;

-- name: SnapshotTake :one
-- Takes a snapshot, which holds back vacuum while its transaction is open.
SELECT count(*) FROM belfry.categories;

-- name: RiverVacuum :exec
-- Sets hint bits and statistics once.
VACUUM (ANALYZE) river_job;

-- name: RiverCompleted :one
-- The number of completed jobs.
SELECT count(*) FROM river_job j WHERE j.state = 'completed';

-- name: OrdersCreate :exec
-- The application's own table.
CREATE TABLE IF NOT EXISTS orders (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer   bigint      NOT NULL,
    cents      bigint      NOT NULL,
    items      jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- name: OrderInsert :exec
-- An order.
INSERT INTO orders (customer, cents, items) VALUES (@customer, @cents, @items);

-- name: ActivityInsert :exec
-- The order's message.
INSERT INTO belfry.activities (channel_id, title, body) VALUES (@customer, 'Your order is on its way', 'Thank you');

-- name: ActivityNotify :exec
-- The order's message, and a notification.
SELECT belfry.notify(@customer, 'activity', 'Your order is on its way', 'Thank you');

-- name: LikeNotify :one
-- A message with a notification to the first channel from @channel on that receives both; returns the activity's id and
-- the channel.
SELECT belfry.notify(c.id, 'activity', 'Kim likes it', 'Look'), c.id
  FROM belfry.channels c
 WHERE c.id >= @channel AND c.active AND NOT EXISTS (SELECT FROM belfry.opt_outs o WHERE o.channel_id = c.id)
 ORDER BY c.id
 LIMIT 1;

-- name: ValuesInsert :exec
-- Content of a job for each channel.
INSERT INTO belfry.job_values (job_id, channel_id, value) SELECT @job_id, id, '{"points": 10}' FROM belfry.channels WHERE active;

-- name: ActivityInsertLater :one
-- A message that falls due later; returns its due time.
INSERT INTO belfry.activities (channel_id, title, body, deliver_at)
VALUES (@channel, 'Kim likes it', 'Look', clock_timestamp() + make_interval(secs => @seconds)) RETURNING deliver_at;

-- name: OrderAndActivityInsert :exec
-- The order and its message in one statement.
WITH o AS (INSERT INTO orders (customer, cents, items) VALUES (@customer, @cents, @items) RETURNING id, customer)
INSERT INTO belfry.activities (channel_id, title, body, data)
SELECT o.customer, 'Your order is on its way', 'Thank you', jsonb_build_object('order', o.id) FROM o;
