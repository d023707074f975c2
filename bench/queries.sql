-- Statements of the delivery benchmarks.

-- name: ServerDescribe :one
-- The version and the settings that decide what the figures mean.
SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('shared_buffers') AS shared_buffers,
       current_setting('max_wal_size') AS max_wal_size, current_setting('jit') AS jit;

-- name: OutboxEmpty :exec
-- Gives the tables of delivery new, empty files.
TRUNCATE belfry.messages, belfry.leases, belfry.handovers, belfry.attempts, belfry.activities;

-- name: JobsEmpty :exec
-- Removes the jobs of the rounds before.
DELETE FROM belfry.jobs;

-- name: MessagesVacuum :exec
-- Sets hint bits and statistics once, so that no measurement pays for it.
VACUUM (ANALYZE) belfry.messages;

-- name: RiverVacuum :exec
-- As MessagesVacuum.
VACUUM (ANALYZE) river_job;

-- name: RiverEmpty :exec
-- Gives River's table new, empty files.
TRUNCATE river_job;

-- name: ServerCheckpoint :exec
-- Starts each measurement with nothing left to write from the one before.
CHECKPOINT;

-- name: MessagesSent :one
-- How many messages were sent, and how many there are.
SELECT count(*) FILTER (WHERE m.status = 'SENT'), count(*) FROM belfry.messages m;

-- name: RiverCompleted :one
-- How many jobs were completed, and how many there are.
SELECT count(*) FILTER (WHERE j.state = 'completed'), count(*) FROM river_job j;

-- name: SnapshotTake :one
-- A snapshot, which holds back vacuum while its transaction is open.
SELECT count(*) FROM belfry.categories;

-- name: OrdersCreate :exec
-- The application's own table.
CREATE TABLE orders (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer   bigint      NOT NULL,
    cents      bigint      NOT NULL,
    items      jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- name: OrderInsert :exec
-- One order.
INSERT INTO orders (customer, cents, items) VALUES (@customer, @cents, @items);

-- name: ActivityInsert :exec
-- Its message.
INSERT INTO belfry.activities (channel_id, title, body) VALUES (@customer, 'Your order is on its way', 'Thank you');

-- name: OrderAndActivityInsert :exec
-- Both in one statement.
WITH o AS (INSERT INTO orders (customer, cents, items) VALUES (@customer, @cents, @items) RETURNING id, customer)
INSERT INTO belfry.activities (channel_id, title, body, data)
SELECT o.customer, 'Your order is on its way', 'Thank you', jsonb_build_object('order', o.id) FROM o;
