-- The outbox: the rows of chunks and activities, and the state that relays need to deliver messages at least
-- once. notifications and messages are hot (one row per job and channel), hence narrow rows, no foreign
-- keys, no surrogate ids and nothing that needs ON CONFLICT: uniqueness comes from the key, integrity from
-- the chunk's transaction. Title, body and data live once, in the job.
--
-- Locks: belfry.names SHARE ROW EXCLUSIVE (instant)

-- Expressions that are bound at creation must not resolve to functions of other roles.
SET LOCAL search_path = pg_catalog, pg_temp;

-- One notification per (job, channel) (I2): arrival is the job's, and no other job has it, or the negated id of an activity. The key starts with
-- the channel so that one index serves both uniqueness and the list of a channel, newest first. Withdrawn
-- notifications remain, marked, for audits, and are not listed. A NULL costs no space, up to eight columns.
-- The partition notifications_N has 10^9 arrivals. A job writes into the newest one: in one index of all
-- notifications, a job to everyone would change a page for every few rows, and log the whole page (ADR 0057).
CREATE TABLE belfry.notifications (
    channel_id   bigint NOT NULL,
    arrival      bigint NOT NULL,
    read_at      timestamptz, -- NULL: see belfry.inbox
    archived_at  timestamptz,
    withdrawn_at timestamptz,
    revision     integer, -- of the content, if it was written after the cursor had passed; NULL: by job_revisions.cursor
    collapsed    integer, -- how many notifications it stands for (belfry.notify with a collapse key); NULL: one
    late         smallint, -- it was committed after a mark of everything, which does not count: 2: since then not seen, 1: seen
    CONSTRAINT notifications_arrival_check CHECK (arrival > 0),
    CONSTRAINT notifications_collapsed_check CHECK (collapsed > 1),
    CONSTRAINT notifications_late_check CHECK (late BETWEEN 1 AND 2),
    CONSTRAINT notifications_times_check CHECK (
        least(read_at, archived_at, withdrawn_at) >= '1970-01-01 00:00:00+00'
        AND greatest(read_at, archived_at, withdrawn_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT notifications_pkey PRIMARY KEY (channel_id, arrival)
) PARTITION BY RANGE (arrival);

-- The number of the partition of an arrival, and the first arrival of the partition with a number.
CREATE FUNCTION belfry.notifications_part(arrival bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN $1 / 1000000000;

CREATE FUNCTION belfry.notifications_from(part bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN $1 * 1000000000;

-- The partition with a number; NULL: it does not exist.
CREATE FUNCTION belfry.notifications_table(part bigint) RETURNS regclass
LANGUAGE sql STABLE
RETURN to_regclass('belfry.notifications_' || $1);

-- The size in bytes from which the newest partition is followed by another one, if it is also a tenth of all: about
-- twelve million notifications.
CREATE FUNCTION belfry.notifications_part_bytes() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 536870912;

-- Creates the partition with a number. ATTACH takes a weaker lock than PARTITION OF: readers and writers go on.
CREATE FUNCTION belfry.notifications_add(part bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    EXECUTE format('CREATE TABLE belfry.notifications_%s (LIKE belfry.notifications INCLUDING ALL)', part);
    EXECUTE format('ALTER TABLE belfry.notifications ATTACH PARTITION belfry.notifications_%s FOR VALUES FROM (%s) TO (%s)',
        part, belfry.notifications_from(part), belfry.notifications_from(part + 1));
END $$;

-- The arrival of a job that is claimed for the first time. A job that writes notifications creates the partition after
-- the newest one if it does not exist, or, when the newest one is full, takes the first arrival of the next one: not both,
-- because a claim that is rolled back takes the partition back, and not the arrival. If another session has locked the
-- table, a later claim does it. When it never succeeds, the newest partition grows (`belfry doctor` warns).
CREATE FUNCTION belfry.next_arrival(notifies boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    part bigint := belfry.notifications_part((SELECT s.last_value FROM belfry.arrivals_seq s));
BEGIN
    IF notifies AND (belfry.notifications_table(part + 1) IS NULL OR belfry.notifications_full(part)) THEN
        BEGIN
            LOCK TABLE belfry.notifications IN SHARE UPDATE EXCLUSIVE MODE;
            part := belfry.notifications_part((SELECT s.last_value FROM belfry.arrivals_seq s));
            IF belfry.notifications_table(part + 1) IS NULL THEN
                PERFORM belfry.notifications_add(part + 1);
            ELSIF belfry.notifications_full(part) THEN
                PERFORM setval('belfry.arrivals_seq', belfry.notifications_from(part + 1), false);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'belfry: notifications gets no next partition now: %', SQLERRM; -- the claim does not need it
        END;
    END IF;
    RETURN nextval('belfry.arrivals_seq');
END $$;

-- Whether the partition with a number is full.
CREATE FUNCTION belfry.notifications_full(part bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_relation_size(belfry.notifications_table($1)) >= greatest(belfry.notifications_part_bytes(),
           (SELECT sum(pg_relation_size(h.inhrelid)) / 10 FROM pg_inherits h WHERE h.inhparent = 'belfry.notifications'::regclass))
$$;

REVOKE EXECUTE ON FUNCTION belfry.notifications_add(bigint), belfry.next_arrival(boolean), belfry.notifications_full(bigint) FROM PUBLIC;

SELECT belfry.notifications_add(0), belfry.notifications_add(1);

-- The notifications of jobs by the job's id. Rows of one job are found by reading all.
CREATE VIEW belfry.job_notifications AS
SELECT j.id AS job_id, n.channel_id, n.arrival, n.read_at, n.archived_at, n.withdrawn_at
  FROM belfry.notifications n JOIN belfry.jobs j ON j.arrival = n.arrival;

-- One message per (job, channel) (I2), PENDING and due at next_attempt_at: the job's deliver_at, or the time
-- its chunk was written; for a DEAD or CANCELLED message the time of that. step is its position in the
-- route, attempts counts the calls of that step. reason is the reason why a message is DEAD or CANCELLED, or
-- for which a PENDING message waits. receipt is the provider's id of a message that awaits its result.
-- recalled_at is set by a recall on a message that it found PROCESSING: the attempt in progress is the last;
-- when it fails the message becomes CANCELLED, and the constraint keeps it from becoming due again. push is
-- the last of belfry.pushes that queued it after a claim: a QUEUED row always has one. The view belfry.messages shows
-- that of QUEUED messages that were never changed, too.
--
-- A job's messages are claimed in the order of their channels without a change of their rows: see belfry.job_claims.
-- A PENDING message of a job with the lease_id NULL has never been changed. It is in flight if the claims have
-- passed it, and the view belfry.messages shows it as PROCESSING. A message that was returned, or that was written
-- behind the claims, has a lease_id: its last lease, or 0. Every statement that writes a message reads these conditions first, and its time grows with
-- their length: hence array literals, and one condition on the columns that waiting messages must not have.
CREATE TABLE belfry.message_rows (
    job_id           bigint      NOT NULL,
    channel_id       bigint      NOT NULL,
    next_attempt_at  timestamptz NOT NULL,
    attempts         smallint    NOT NULL DEFAULT 0,
    status           text        NOT NULL DEFAULT 'PENDING',
    sent_at          timestamptz,
    last_error       text,
    recalled_at      timestamptz,
    step             smallint    NOT NULL DEFAULT 0,
    crashes          smallint    NOT NULL DEFAULT 0,
    lease_id         bigint,
    receipt          text,
    reason           text,
    revision         smallint, -- of the content that was sent; NULL: the job's first
    sender           text,     -- that took it
    push             bigint,
    CONSTRAINT messages_times_check CHECK (
        least(next_attempt_at, sent_at, recalled_at) >= '1970-01-01 00:00:00+00'
        AND greatest(next_attempt_at, sent_at, recalled_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT messages_pkey PRIMARY KEY (job_id, channel_id),
    -- Positions in a route are an index, and claims add these counts up.
    CONSTRAINT messages_counts_check CHECK (least(attempts, step, crashes, revision) >= 0 AND greatest(attempts, step, crashes) <= 10000),
    CONSTRAINT messages_lengths_check CHECK (greatest(octet_length(last_error), octet_length(receipt), octet_length(reason), octet_length(sender)) <= 4000),
    CONSTRAINT messages_status_check CHECK (status = ANY ('{PENDING,QUEUED,PROCESSING,SENT,DEAD,CANCELLED}')),
    CONSTRAINT messages_waiting_check CHECK (status <> ALL ('{PENDING,QUEUED}') OR (recalled_at IS NULL AND receipt IS NULL)),
    CONSTRAINT messages_owner_check CHECK (status <> 'PROCESSING' OR lease_id IS NOT NULL OR receipt IS NOT NULL),
    CONSTRAINT messages_reason_check CHECK (status <> ALL ('{DEAD,CANCELLED}') OR reason IS NOT NULL)
);

-- How far the messages of a job are claimed: each claim takes the next ones after the channel claimed_to (NULL: the
-- first ones) and moves it, in the
-- transaction that writes its lease, or the push with its keys. A message that was never changed and is not after
-- claimed_to is in flight under the lease with its key, or QUEUED by the push with its key. The row's lock makes claims disjoint: a statement that changes such messages for another
-- reason takes it first (belfry.own_claimed), and then the locks of messages.
CREATE TABLE belfry.job_claims (
    job_id     bigint CONSTRAINT job_claims_pkey PRIMARY KEY,
    claimed_to bigint,
    CONSTRAINT job_claims_job_id_check CHECK (job_id > 0)
) WITH (fillfactor = 50); -- room for HOT updates: every claim changes one

-- One claim of one relay, while any message of it is in flight. An expired lease is recovered: its messages
-- are found by their keys. The relay draws the id at random, because a claim commits asynchronously and a
-- sequence could assign its number again after a crash.
CREATE TABLE belfry.leases (
    id          bigint CONSTRAINT leases_pkey PRIMARY KEY,
    relay       text        NOT NULL,
    claimed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    job_ids     bigint[]    NOT NULL,
    channel_ids bigint[]    NOT NULL,
    CONSTRAINT leases_times_check CHECK (
        least(claimed_at, expires_at) >= '1970-01-01 00:00:00+00'
        AND greatest(claimed_at, expires_at) < '9999-12-31 00:00:00+00'),
    -- The longest lease that a relay may have. An erasure waits for the end of a message's lease.
    CONSTRAINT leases_expires_at_check CHECK (expires_at <= clock_timestamp() + interval '1 hour'),
    CONSTRAINT leases_keys_check CHECK (cardinality(job_ids) = cardinality(channel_ids) AND cardinality(job_ids) BETWEEN 1 AND 1000 -- outbox.MaxBatch
        AND array_position(job_ids, NULL) IS NULL AND array_position(channel_ids, NULL) IS NULL),
    CONSTRAINT leases_relay_check CHECK (octet_length(relay) <= 1000)
) WITH (fillfactor = 70); -- room for renewals

-- Keys do not compress, and each attempt costs a microsecond.
ALTER TABLE belfry.leases ALTER COLUMN job_ids SET STORAGE EXTERNAL, ALTER COLUMN channel_ids SET STORAGE EXTERNAL;

CREATE INDEX leases_expiry_idx ON belfry.leases (expires_at);

-- The pushes, while messages may be QUEUED by them. The messages of one push are either rows with its number, or
-- messages of the job job_id that were never changed: channel_ids are those that no relay has claimed yet, up to
-- last_channel, and tids the positions of their rows. Such pushes of a job follow each other in the order of its channels. A relay claims a message
-- by taking its key out of channel_ids, under the lock of the push. A key can remain after its message was cancelled
-- or deleted, until its copy is claimed or found lost.
CREATE TABLE belfry.pushes (
    queue        text        NOT NULL,
    number       bigint      NOT NULL,
    made_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id       bigint,
    last_channel bigint,
    channel_ids  bigint[]    NOT NULL DEFAULT '{}',
    tids         tid[]       NOT NULL DEFAULT '{}',
    queued       integer     NOT NULL GENERATED ALWAYS AS (cardinality(channel_ids)) STORED,
    CONSTRAINT pushes_times_check CHECK (made_at >= '1970-01-01 00:00:00+00' AND made_at < '9999-12-31 00:00:00+00'),
    CONSTRAINT pushes_pkey PRIMARY KEY (number, queue), -- claims find each by its number, whatever the statistics are
    CONSTRAINT pushes_queue_check CHECK (queue IN ('activities', 'bulk')),
    CONSTRAINT pushes_keys_check CHECK (cardinality(channel_ids) <= CASE WHEN job_id > 0 AND last_channel IS NOT NULL AND queue = 'bulk' THEN 1000 ELSE 0 END -- outbox.MaxBatch
        AND cardinality(tids) = cardinality(channel_ids) AND array_position(channel_ids, NULL) IS NULL AND array_position(tids, NULL) IS NULL),
    CONSTRAINT pushes_number_check CHECK (number > 0)
) WITH (fillfactor = 70); -- room for HOT updates: every claim changes some

-- Keys do not compress.
ALTER TABLE belfry.pushes ALTER COLUMN channel_ids SET STORAGE EXTERNAL, ALTER COLUMN tids SET STORAGE EXTERNAL;

CREATE INDEX pushes_job_idx ON belfry.pushes (job_id, last_channel) WHERE job_id IS NOT NULL;

-- The push by which a message that was never changed is QUEUED; NULL: none (pushes_job_idx).
CREATE FUNCTION belfry.push_of(job bigint, channel bigint) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN $2 = ANY (p.channel_ids) THEN p.number END
      FROM belfry.pushes p
     WHERE p.job_id = $1 AND p.last_channel >= $2
     ORDER BY p.last_channel LIMIT 1;
END;

-- The messages, with the status QUEUED or PROCESSING, and their push or lease, for those that were claimed and whose
-- rows were never changed. The lease is searched in all leases, if it is read.
CREATE VIEW belfry.messages AS
SELECT r.job_id, r.channel_id, r.next_attempt_at, r.attempts,
       CASE WHEN r.status = 'PENDING' AND r.lease_id IS NULL
                 AND r.channel_id <= (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = r.job_id)
            THEN CASE WHEN belfry.push_of(r.job_id, r.channel_id) IS NULL THEN 'PROCESSING' ELSE 'QUEUED' END ELSE r.status END AS status,
       r.sent_at, r.last_error, r.recalled_at, r.step, r.crashes,
       CASE WHEN r.status = 'PENDING' AND r.lease_id IS NULL
                 AND r.channel_id <= (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = r.job_id)
            THEN (SELECT l.id FROM belfry.leases l
                   WHERE EXISTS (SELECT FROM unnest(l.job_ids, l.channel_ids) u(job_id, channel_id) WHERE u.job_id = r.job_id AND u.channel_id = r.channel_id) LIMIT 1)
            ELSE r.lease_id END AS lease_id,
       r.receipt, r.reason, r.revision, r.sender,
       CASE WHEN r.status = 'PENDING' AND r.lease_id IS NULL THEN belfry.push_of(r.job_id, r.channel_id) ELSE r.push END AS push
  FROM belfry.message_rows r;

-- A final message changes by an operator's act alone, such as a redrive of dead letters: a role that only
-- delivers would otherwise send messages a second time. A message that a provider has accepted and that
-- awaits its result gives up its receipt only with a recorded attempt that is newer than the acceptance.
-- Relays change no final message, and record such an attempt in the same statement. recalled_at is the
-- column that operators may UPDATE and relays may not. An AFTER trigger takes no lock of its own, and its
-- WHEN is all that other changes pay for.
CREATE FUNCTION belfry.messages_keep() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ok boolean := has_column_privilege('belfry.message_rows', 'recalled_at', 'UPDATE');
BEGIN
    IF NOT ok AND OLD.status = 'PROCESSING' THEN
        ok := (SELECT a.outcome FROM belfry.attempts a WHERE a.job_id = OLD.job_id AND a.channel_id = OLD.channel_id ORDER BY a.id DESC LIMIT 1) <> 'accepted';
        ok := coalesce(ok, false)
            OR belfry.reject('messages', 'receipt', format('message (job %s, channel %s) awaits the result of receipt %L; allowed changes for %s: none without the attempt in belfry.attempts', OLD.job_id, OLD.channel_id, left(OLD.receipt, 60), current_user),
                'A relay reads the result and records it.');
    END IF;
    ok := ok OR belfry.reject('messages', 'status', format('message (job %s, channel %s) is %s, which is final for %s; allowed changes: none', OLD.job_id, OLD.channel_id, OLD.status, current_user),
            'An operator returns dead letters to the queue: belfry dlq redrive.');
    RETURN NULL;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.messages_keep() FROM PUBLIC;

CREATE TRIGGER messages_keep AFTER UPDATE ON belfry.message_rows
    FOR EACH ROW WHEN (OLD.status = ANY ('{SENT,DEAD,CANCELLED}') OR OLD.receipt IS NOT NULL AND NEW.receipt IS DISTINCT FROM OLD.receipt)
    EXECUTE FUNCTION belfry.messages_keep();

-- The content for a channel of a job of belfry's own types. A message that a provider accepted has the
-- content that was sent, an unsent message the job's present content, and a notification the content of the
-- revision under which it was written.
CREATE FUNCTION belfry.job_content(job_id bigint, channel_id bigint) RETURNS TABLE (title text, body text, data jsonb)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(r.title, j.title), coalesce(r.body, j.body), coalesce(r.data, j.data)
      FROM belfry.jobs j
      LEFT JOIN belfry.message_rows m ON m.job_id = j.id AND m.channel_id = $2
      LEFT JOIN LATERAL (SELECT v.title, v.body, v.data FROM belfry.job_revisions v
                          WHERE v.job_id = j.id
                            AND CASE WHEN m.job_id IS NULL THEN coalesce(v.revision > (SELECT n.revision FROM belfry.notifications n WHERE n.channel_id = $2 AND n.arrival = j.arrival), v."cursor"::bigint >= $2)
                                     ELSE (m.status = 'SENT' OR m.receipt IS NOT NULL) AND v.revision > coalesce(m.revision, 0) END
                          ORDER BY v.revision LIMIT 1) r ON true
     WHERE j.id = $1;
END;

-- The messages of a job that wait after a first claim, or were written behind the claims: claims walk them in this
-- order and go on where the last one ended, so that they never step over the same dead entries twice. The messages
-- of activities, whose job_id is negative, are few and each of another: they go by time.
CREATE INDEX messages_due_idx ON belfry.message_rows (job_id, next_attempt_at, channel_id) WHERE status = 'PENDING' AND job_id > 0 AND lease_id IS NOT NULL;
CREATE INDEX messages_activity_idx ON belfry.message_rows (next_attempt_at, job_id, channel_id) WHERE status = 'PENDING' AND job_id < 0;
CREATE INDEX messages_receipt_idx ON belfry.message_rows (next_attempt_at) WHERE status = 'PROCESSING' AND receipt IS NOT NULL;
-- The QUEUED messages of each queue by push, for one push and for lost pushes.
CREATE INDEX messages_queued_idx ON belfry.message_rows ((job_id < 0), push, job_id, channel_id) WHERE status = 'QUEUED';
CREATE INDEX messages_dead_idx ON belfry.message_rows (job_id, channel_id) WHERE status = 'DEAD';
-- Serves the frequency cap: a channel's activities that were sent or are in flight.
CREATE INDEX messages_channel_idx ON belfry.message_rows (channel_id, status, sent_at) WHERE job_id < 0 AND status IN ('PROCESSING', 'SENT');

-- The due time of the first message of a job that waits, among those that were claimed before and the first one
-- that was not, and the reason of its wait. No row: none waits, or the next 2,000 messages after the claims are all
-- cancelled.
CREATE FUNCTION belfry.first_waiting(job bigint) RETURNS TABLE (next_attempt_at timestamptz, reason text)
LANGUAGE sql STABLE SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off SET jit = off
BEGIN ATOMIC
    SELECT w.next_attempt_at, w.reason
      FROM ((SELECT m.next_attempt_at, m.reason FROM belfry.message_rows m
              WHERE m.job_id = $1 AND m.job_id > 0 AND m.status = 'PENDING' AND m.lease_id IS NOT NULL
              ORDER BY m.next_attempt_at, m.channel_id LIMIT 1)
            UNION ALL
            (SELECT n.next_attempt_at, NULL
               FROM (SELECT m.channel_id, m.next_attempt_at, m.status, m.lease_id FROM belfry.message_rows m
                      WHERE m.job_id = $1 AND m.job_id > 0
                        AND m.channel_id >= coalesce((SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = $1), -9223372036854775808)
                        AND m.channel_id IS DISTINCT FROM (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = $1)
                      ORDER BY m.channel_id LIMIT 2000) n
              WHERE n.status = 'PENDING' AND n.lease_id IS NULL LIMIT 1)) w
     ORDER BY w.next_attempt_at LIMIT 1;
END;

-- Writes into the messages of some pushes that were never changed that they are QUEUED by it or, with back, that they
-- wait again, and returns the job of each. It skips pushes that are locked, and keeps the keys of messages that are.
CREATE FUNCTION belfry.own_pushed(numbers bigint[], back boolean) RETURNS SETOF bigint
LANGUAGE sql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
BEGIN ATOMIC
    WITH held AS MATERIALIZED (
        SELECT p.number, p.job_id, p.channel_ids FROM belfry.pushes p
         WHERE p.number = ANY ($1) AND p.queue = 'bulk' AND p.queued > 0 ORDER BY p.number FOR UPDATE SKIP LOCKED
    ), waiting AS MATERIALIZED (
        SELECT h.number, u.channel_id, m.tid
          FROM held h
         CROSS JOIN unnest(h.channel_ids) u(channel_id)
         CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.message_rows m
                              WHERE m.job_id = h.job_id AND m.channel_id = u.channel_id AND m.status = 'PENDING' AND m.lease_id IS NULL LIMIT 1) m
    ), locked AS MATERIALIZED (
        SELECT w.number, m.tid
          FROM waiting w
         CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.message_rows m
                              WHERE m.ctid = w.tid AND m.status = 'PENDING' AND m.lease_id IS NULL FOR UPDATE SKIP LOCKED) m
    ), emptied AS (
        UPDATE belfry.pushes p
           SET channel_ids = ARRAY(SELECT w.channel_id FROM waiting w WHERE w.number = p.number AND w.tid NOT IN (SELECT k.tid FROM locked k)),
               tids = ARRAY(SELECT w.tid FROM waiting w WHERE w.number = p.number AND w.tid NOT IN (SELECT k.tid FROM locked k))
         WHERE p.number = ANY (ARRAY(SELECT h.number FROM held h)) AND p.queue = 'bulk'
    )
    UPDATE belfry.message_rows m
       SET status = CASE WHEN $2 THEN m.status ELSE 'QUEUED' END, push = CASE WHEN $2 THEN m.push ELSE k.number END, lease_id = 0
      FROM locked k
     WHERE m.ctid = k.tid
    RETURNING m.job_id;
END;

-- Shows in their rows which messages of a job that were never changed are in flight, and which of the next ones after a
-- channel (by default: all) are QUEUED, and keeps the job's claims and these pushes locked until the transaction ends. It skips
-- messages that are locked, because their result is about to be recorded: the view belfry.messages shows them.
CREATE FUNCTION belfry.own_claimed(job bigint, after bigint DEFAULT -9223372036854775808, keys integer DEFAULT 2147483647) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    numbers bigint[];
BEGIN
    INSERT INTO belfry.job_claims (job_id) SELECT $1 WHERE $1 > 0 ON CONFLICT ON CONSTRAINT job_claims_pkey DO NOTHING;
    PERFORM FROM belfry.job_claims c WHERE c.job_id = $1 FOR UPDATE;
    numbers := ARRAY(SELECT p.number FROM belfry.pushes p
                      WHERE p.job_id = $1 AND p.last_channel > $2 AND p.queued > 0
                        AND p.last_channel <= coalesce((SELECT n.last_channel FROM belfry.pushes n
                                                         WHERE n.job_id = $1
                                                           AND n.last_channel >= (SELECT m.channel_id FROM belfry.message_rows m
                                                                                   WHERE m.job_id = $1 AND m.channel_id > $2 ORDER BY m.channel_id OFFSET $3 - 1 LIMIT 1)
                                                         ORDER BY n.last_channel LIMIT 1), 9223372036854775807)
                      ORDER BY p.number
                        FOR UPDATE);
    PERFORM belfry.own_pushed(numbers, false);
    UPDATE belfry.message_rows m
       SET status = 'PROCESSING', lease_id = k.lease_id
      FROM (SELECT l.id AS lease_id, x.tid
              FROM belfry.leases l
             CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
             CROSS JOIN LATERAL (SELECT r.ctid AS tid FROM belfry.message_rows r
                                  WHERE r.job_id = $1 AND r.job_id > 0 AND r.channel_id = u.channel_id AND r.status = 'PENDING' AND r.lease_id IS NULL
                                    FOR UPDATE SKIP LOCKED) x
             WHERE u.job_id = $1) k
     WHERE m.ctid = k.tid AND m.job_id = $1;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.own_claimed(bigint, bigint, integer) FROM PUBLIC;

-- The number of QUEUED messages of a carrier's queue by pushes before a number (NULL: all), up to most (NULL: all), and
-- the time of the oldest such push (messages_queued_idx, pushes_pkey).
CREATE FUNCTION belfry.queued_in(queue text, before bigint, most bigint, OUT messages bigint, OUT since timestamptz)
LANGUAGE sql STABLE SET enable_bitmapscan = off SET enable_seqscan = off
BEGIN ATOMIC
    SELECT least($3, (SELECT count(*) FROM (SELECT FROM belfry.message_rows m
                                             WHERE m.status = 'QUEUED' AND (m.job_id < 0) = ($1 = 'activities') AND m.push < coalesce($2, 9223372036854775807)
                                             ORDER BY m.push, m.job_id, m.channel_id LIMIT $3) c)
                     + (SELECT coalesce(sum(p.queued), 0) FROM belfry.pushes p WHERE p.queue = $1 AND p.number < coalesce($2, 9223372036854775807))),
           (SELECT p.made_at FROM belfry.pushes p
             WHERE p.queue = $1
               AND p.number = least((SELECT m.push FROM belfry.message_rows m WHERE m.status = 'QUEUED' AND (m.job_id < 0) = ($1 = 'activities') ORDER BY m.push LIMIT 1),
                                    (SELECT n.number FROM belfry.pushes n WHERE n.queue = $1 AND n.queued > 0 ORDER BY n.number LIMIT 1)));
END;

-- Whether a message of a job is not final, by the index of each status: a job may have millions of
-- messages that are final. Messages in flight are found by the counts. A role that delivers can write the
-- counts, so that the rows of the job are read if nothing else is left, until 5 seconds after the start of
-- the client's statement, which may abort many jobs. It can also lock the counts, but not the messages. Rows
-- that are locked for half a second, or not read in this time, count as unsent, so that an abort holds the
-- job.
CREATE FUNCTION belfry.has_unsent(id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET lock_timeout = '500ms' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slice   constant integer := 20000;
    until   constant timestamptz := statement_timestamp() + interval '5 seconds';
    last    bigint := -9223372036854775808;
    unsent  boolean;
    n       integer;
BEGIN
    IF EXISTS (SELECT FROM belfry.message_rows m WHERE m.job_id = $1 AND m.job_id > 0 AND m.status = 'PENDING' AND m.lease_id IS NOT NULL) THEN
        RETURN true;
    ELSIF EXISTS (SELECT FROM belfry.message_rows m WHERE NOT m.job_id < 0 AND m.job_id = $1 AND m.status = 'QUEUED') THEN
        RETURN true;
    END IF;
    BEGIN
        IF EXISTS (SELECT FROM belfry.job_progress p WHERE p.job_id = $1 AND p.waiting > 0) THEN
            RETURN true;
        END IF;
    EXCEPTION WHEN lock_not_available THEN
        RETURN true;
    END;
    WHILE clock_timestamp() < until LOOP
        SELECT count(*), coalesce(bool_or(m.status IN ('PENDING', 'PROCESSING')), false), max(m.channel_id) INTO n, unsent, last
          FROM (SELECT m.status, m.channel_id FROM belfry.message_rows m WHERE m.job_id = $1 AND m.channel_id >= last ORDER BY m.channel_id LIMIT slice) m;
        IF unsent OR n < slice THEN
            RETURN unsent;
        END IF;
    END LOOP;
    RETURN true;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.has_unsent(bigint) FROM PUBLIC;

-- One message to one channel, enqueued by a plain INSERT; its row in belfry.message_rows
-- comes by a trigger. With inbox it is a notification too, and with the route {} nothing else. Ids are negative, those of jobs positive, by a CHECK on either table:
-- a message's job_id is in at most one of the two tables, so that it has one content or
-- none. As for jobs, only the trigger draws ids: the id is its arrival, negated.
CREATE TABLE belfry.activities (
    id              bigint CONSTRAINT activities_pkey PRIMARY KEY, -- from arrivals_seq, negated, for all clients
    channel_id      bigint      NOT NULL,
    category        text        NOT NULL DEFAULT 'activity',
    title           text        NOT NULL,
    body            text        NOT NULL DEFAULT '',
    data            jsonb       NOT NULL DEFAULT '{}',
    variants        jsonb       NOT NULL DEFAULT '{}',
    route           text[]      NOT NULL, -- by default the category's
    deliver_at      timestamptz, -- of the message
    inbox           boolean     NOT NULL DEFAULT false,
    collapse_key    text, -- of a notification that counts the unread ones of the channel with the same key
    collapsed_title text, -- shown instead of the title when it stands for several
    idempotency_key text        CONSTRAINT activities_idempotency_key UNIQUE,
    requested_by    text        NOT NULL DEFAULT session_user,
    logged_in_as    text        NOT NULL DEFAULT session_user, -- the login, whatever requested_by contains
    created_at      timestamptz NOT NULL DEFAULT now(),
    limited         boolean     NOT NULL DEFAULT false, -- activities_limit counts it
    test_of         bigint, -- the job whose content this tests (`belfry jobs test-send`); NULL: none
    CONSTRAINT activities_id_check CHECK (id < 0)
);

CREATE INDEX activities_channel_idx ON belfry.activities (channel_id, created_at);
-- Serves collapsing, newest first.
CREATE INDEX activities_collapse_idx ON belfry.activities (channel_id, collapse_key, id) WHERE collapse_key IS NOT NULL;

-- Validates an activity and rejects every change, because its message may be in flight.
CREATE FUNCTION belfry.activities_validate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    usual text[];
    drawn bigint;
    ok    boolean;
BEGIN
    -- One statement checks valid rows. PL/pgSQL prepares every expression again in every transaction, so the
    -- checks below, which produce the error message, cost three times as much.
    -- The transaction has its number before the activity does: readers of new activities wait for it.
    SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN -nextval('belfry.arrivals_seq') END, c.route, c.approval_above IS NOT NULL OR NEW.test_of IS NOT NULL, session_user INTO drawn, usual, NEW.limited, NEW.logged_in_as FROM belfry.categories c
     WHERE c.name = NEW.category AND TG_OP = 'INSERT' AND NEW.route IS NULL AND NEW.variants = '{}' AND NEW.collapse_key IS NULL AND NEW.collapsed_title IS NULL
       AND NEW.id IS NULL AND NEW.created_at = now() AND NEW.channel_id IS NOT NULL
       AND NEW.title ~ '[!-~가-힣]' AND length(NEW.title) <= 200 AND position('{{' IN NEW.title) = 0 AND 'alimtalk' <> ALL (c.route)
       AND length(NEW.body) <= 10000 AND position('{{' IN NEW.body) = 0
       AND jsonb_typeof(NEW.data) = 'object' AND octet_length(NEW.data::text) <= 16384
       AND (NEW.deliver_at IS NULL OR NEW.deliver_at BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00')
       AND (NEW.idempotency_key IS NULL OR length(NEW.idempotency_key) BETWEEN 1 AND 200)
       AND NEW.requested_by ~ '[^[:space:]]' AND length(NEW.requested_by) <= 200;
    IF usual IS NOT NULL THEN
        NEW.id := drawn;
        NEW.route := usual; -- it was checked when it was set
        RETURN NEW;
    END IF;
    NEW.limited := true; -- activities_limit finds out
    NEW.logged_in_as := session_user;
    ok := TG_OP = 'INSERT'
        OR belfry.reject('activities', 'id', format('activity %s was sent on its way when it was inserted; allowed changes: none', OLD.id), 'Insert another.');
    ok := NEW.id IS NULL AND NEW.created_at = now()
        OR belfry.reject('activities', CASE WHEN NEW.id IS NULL THEN 'created_at' ELSE 'id' END, 'belongs to belfry; allowed values for a new activity: none, leave it out');
    NEW.id := CASE WHEN pg_current_xact_id() IS NOT NULL THEN -nextval('belfry.arrivals_seq') END;
    ok := NEW.channel_id IS NOT NULL OR belfry.reject('activities', 'channel_id', 'is required; allowed values: the id of a channel');
    ok := belfry.check_word('activities', 'category', 'category', NEW.category)
        AND belfry.check_content('activities', NEW.title, NEW.body, NEW.data, NEW.variants);
    -- Relays keep the texts of all messages in flight. An operator's test of a job has all texts of the job.
    ok := octet_length(NEW.variants::text) <= 16384 OR NEW.test_of IS NOT NULL AND has_column_privilege(session_user, 'belfry.jobs', 'approved_count', 'UPDATE')
        OR belfry.reject('activities', 'variants', format('has %s bytes; allowed values: JSON objects of up to 16384 bytes', octet_length(NEW.variants::text)));
    ok := NEW.deliver_at IS NULL OR NEW.deliver_at BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00'
        OR belfry.reject('activities', 'deliver_at', format('%s is not allowed; allowed values: null (at once), or timestamps of the years 1970 to 9999', NEW.deliver_at));
    ok := NEW.idempotency_key IS NULL OR length(NEW.idempotency_key) BETWEEN 1 AND 200
        OR belfry.reject('activities', 'idempotency_key', format('has %s characters; allowed values: null, or texts of 1 to 200 characters', length(NEW.idempotency_key)));
    ok := NEW.requested_by ~ '[^[:space:]]' AND length(NEW.requested_by) <= 200
        OR belfry.reject('activities', 'requested_by', 'is null, blank or too long; allowed values: texts of 1 to 200 characters');
    ok := NEW.inbox IS NOT NULL OR belfry.reject('activities', 'inbox', 'is null; allowed values: true, false');
    ok := NEW.collapse_key IS NULL OR NEW.inbox AND length(NEW.collapse_key) BETWEEN 1 AND 200
        OR belfry.reject('activities', 'collapse_key', CASE WHEN NEW.inbox THEN format('has %s characters', length(NEW.collapse_key)) ELSE 'is given without inbox' END
            || '; allowed values: null, or with inbox texts of 1 to 200 characters');
    ok := NEW.collapsed_title IS NULL OR NEW.collapse_key IS NOT NULL AND belfry.check_content('activities', NEW.collapsed_title, '', '{}', '{}')
        OR belfry.reject('activities', 'collapsed_title', 'is given without collapse_key; allowed values: null, or with a collapse_key texts of 1 to 200 characters');
    ok := NEW.route IS NULL OR NEW.inbox AND NEW.route = '{}' OR belfry.check_route('activities', NEW.route);
    NEW.route := coalesce(NEW.route, (SELECT c.route FROM belfry.categories c WHERE c.name = NEW.category));
    ok := 'alimtalk' <> ALL (NEW.route) -- a call costs
        OR belfry.check_deliverable('activities', NULL, NEW.route, NEW.title, NEW.body, NEW.variants);
    RETURN NEW;
END $$;

CREATE TRIGGER activities_validate BEFORE INSERT OR UPDATE ON belfry.activities
    FOR EACH ROW EXECUTE FUNCTION belfry.activities_validate();

-- The notification and the message of an activity, in the same transaction; the message is due when that commits.
-- A deliver_at in the past does not put it before the messages that wait. A notification with a collapse key
-- takes the place of the channel's unread ones with this key, and sends no message: the first one did. It waits
-- for no other transaction, and leaves alone what another one collapses; the next collapses both.
CREATE FUNCTION belfry.activities_enqueue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unread bigint[];
    n      bigint;
BEGIN
    IF NEW.collapse_key IS NOT NULL THEN
        unread := ARRAY(SELECT f.arrival
                          FROM (SELECT a.id FROM belfry.activities a
                                 WHERE a.channel_id = NEW.channel_id AND a.collapse_key = NEW.collapse_key AND a.id <> NEW.id ORDER BY a.id LIMIT 20) a
                          JOIN belfry.notifications f ON f.channel_id = NEW.channel_id AND f.arrival = -a.id
                         WHERE f.archived_at IS NULL AND f.withdrawn_at IS NULL AND NOT belfry.inbox_is_read(f.channel_id, f.arrival, f.read_at));
        WITH gone AS (
            DELETE FROM belfry.notifications f
             WHERE f.channel_id = NEW.channel_id
               AND f.arrival = ANY (ARRAY(SELECT k.arrival FROM belfry.notifications k WHERE k.channel_id = NEW.channel_id AND k.arrival = ANY (unread) FOR UPDATE SKIP LOCKED))
            RETURNING f.collapsed)
        SELECT sum(coalesce(g.collapsed, 1)) INTO n FROM gone g;
    END IF;
    IF NEW.inbox THEN
        INSERT INTO belfry.notifications (channel_id, arrival, collapsed) VALUES (NEW.channel_id, -NEW.id, CASE WHEN n > 0 THEN least(n, 999999999) + 1 END);
    END IF;
    IF NEW.route <> '{}' AND coalesce(cardinality(unread), 0) = 0 THEN
        INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at)
        VALUES (NEW.id, NEW.channel_id, greatest(NEW.deliver_at, NEW.created_at));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER activities_enqueue AFTER INSERT ON belfry.activities
    FOR EACH ROW EXECUTE FUNCTION belfry.activities_enqueue();

-- How many activities a requester sent in a clock hour in a category with approval_above, how many
-- recipients its jobs reach without approval (approval_exceeded), or, with the category '', how many tests were sent of a job that waits for approval.
CREATE TABLE belfry.activity_counts (
    category  text        NOT NULL,
    requester text        NOT NULL,
    hour      timestamptz NOT NULL,
    sent      integer     NOT NULL,
    CONSTRAINT activity_counts_pkey PRIMARY KEY (category, requester, hour)
);

-- Counts one more in this hour and reports whether it is among the first most. Transactions of
-- one requester wait for each other here.
CREATE FUNCTION belfry.activities_count(category text, requester text, most integer) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n integer;
BEGIN
    INSERT INTO belfry.activity_counts AS c VALUES (category, requester, date_trunc('hour', clock_timestamp(), 'UTC'), 1)
        ON CONFLICT ON CONSTRAINT activity_counts_pkey DO UPDATE SET sent = c.sent + 1 RETURNING c.sent INTO n;
    IF n = 1 THEN
        DELETE FROM belfry.activity_counts c WHERE c.category = $1 AND c.requester = $2 AND c.hour < clock_timestamp() - interval '2 hours';
    END IF;
    RETURN n <= most;
END $$;

-- Activities are sent without approval by a second person, so a category that requires approval limits them
-- per requester. For a role that may approve, requested_by names the requester; other requesters are counted
-- by their login. The HTTP API sets belfry.may_approve to off for authors. A test of a job that waits for
-- approval, or is of such a category, may reach the channels of the segment testers, five times an hour. It
-- runs after the INSERT: a repeated idempotency key is not counted.
CREATE FUNCTION belfry.activities_limit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    approves constant boolean := has_column_privilege(session_user, 'belfry.jobs', 'approved_count', 'UPDATE');
    waits    constant boolean := coalesce((SELECT j.awaits_approval FROM belfry.jobs j WHERE j.id = NEW.test_of), false);
    demands  boolean;
    most     integer;
    ok       boolean;
BEGIN
    SELECT c.approval_above IS NOT NULL, coalesce(c.activities_per_hour, CASE WHEN approves AND coalesce(current_setting('belfry.may_approve', true), '') <> 'off' THEN 10 ELSE 0 END)
      INTO demands, most FROM belfry.categories c WHERE c.name = NEW.category;
    IF NOT demands AND NOT waits THEN
        RETURN NULL;
    END IF;
    IF NEW.test_of IS NOT NULL AND EXISTS (SELECT FROM belfry.segment_members m WHERE m.segment = 'testers' AND m.channel_id = NEW.channel_id)
        AND EXISTS (SELECT FROM belfry.jobs j WHERE j.id = NEW.test_of AND (j.title, j.body, j.data, j.variants) = (NEW.title, NEW.body, NEW.data, NEW.variants)) THEN
        ok := belfry.activities_count('', 'test of ' || NEW.test_of, 5)
            OR belfry.reject('activities', 'test_of', format('5 tests of job %s were sent in this hour; allowed values now: null', NEW.test_of), 'The next clock hour allows 5 more.');
        most := greatest(5, coalesce((SELECT c.activities_per_hour FROM belfry.categories c WHERE c.name = NEW.category), 10));
        ok := belfry.activities_count(NEW.category, 'tests of ' || session_user || CASE WHEN approves THEN ' for ' || lower(btrim(NEW.requested_by)) ELSE '' END, most)
            OR belfry.reject('activities', 'test_of', format('%s sent %s tests of category %L in this hour; allowed values now: null', CASE WHEN approves THEN left(NEW.requested_by, 110) ELSE session_user END, most, NEW.category),
                format('The next clock hour allows %s more.', most));
        RETURN NULL;
    END IF;
    ok := NOT waits
        OR belfry.reject('activities', 'channel_id', format('job %s waits for approval, and channel %s is not in the segment testers; allowed values: channels of it', NEW.test_of, NEW.channel_id),
            'An operator fills it: belfry channels segment create testers; belfry channels segment add testers FILE.');
    ok := belfry.activities_count(NEW.category, CASE WHEN approves THEN session_user || ' for ' || lower(btrim(NEW.requested_by)) ELSE session_user END, most)
        OR belfry.reject('activities', 'category', format('%L demands the approval of a second person; allowed values: categories without approval_above, and %s activities of %s an hour', NEW.category, most,
                CASE WHEN approves THEN left(NEW.requested_by, 110) ELSE session_user END),
            format('Enqueue a job, which a second person approves. An admin allows more: belfry categories set %s activities_per_hour=…', NEW.category));
    RETURN NULL;
END $$;

CREATE TRIGGER activities_limit AFTER INSERT ON belfry.activities
    FOR EACH ROW WHEN (NEW.limited) EXECUTE FUNCTION belfry.activities_limit();

REVOKE EXECUTE ON FUNCTION belfry.activities_limit(), belfry.activities_count(text, text, integer) FROM PUBLIC;

-- When activities_wake notified last, in milliseconds: a sequence, so that every transaction sees it
-- at once and none waits.
CREATE SEQUENCE belfry.activities_woken_seq MINVALUE 0;

-- Wakes relays when the transaction commits. Of transactions that commit within 20 ms one does: PostgreSQL
-- has commits that notify wait for each other, and each for the disk. A woken relay continues to poll until
-- the other transactions have committed. Which one it is depends on no lock, which another session might
-- keep.
CREATE FUNCTION belfry.activities_wake() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ms constant bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
    IF current_setting('belfry.bell', true) IS DISTINCT FROM 'off' AND EXISTS (SELECT FROM belfry.activities_woken_seq w WHERE ms NOT BETWEEN w.last_value AND w.last_value + 20) THEN
        PERFORM setval('belfry.activities_woken_seq', ms), belfry.ring('belfry_messages');
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER activities_wake AFTER INSERT ON belfry.activities DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION belfry.activities_wake();

-- A person who marks everything before this transaction begins to commit has not seen its notification. A mark during the
-- COMMIT, which runs this for each notification, includes it. It locks the transaction's own row only, so that two
-- transactions may notify the same people in any order. In other isolation levels the marks are not visible here.
CREATE FUNCTION belfry.activities_arrive() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM belfry.inbox i WHERE i.channel_id = NEW.channel_id AND i.seen_to >= -NEW.id) THEN
        UPDATE belfry.notifications n SET late = 2 WHERE n.channel_id = NEW.channel_id AND n.arrival = -NEW.id;
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER activities_arrive AFTER INSERT ON belfry.activities DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.inbox) EXECUTE FUNCTION belfry.activities_arrive();

-- Rejects the deletion of an activity without its message and its attempts: an erasure finds these by the activity. It runs
-- after the statement, which may delete them all in any order.
CREATE FUNCTION belfry.activities_end() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept bigint;
    ok   boolean;
BEGIN
    kept := (SELECT g.id FROM gone g
              CROSS JOIN LATERAL (SELECT FROM belfry.message_rows m WHERE m.job_id = g.id AND m.channel_id = g.channel_id
                                  UNION ALL SELECT FROM belfry.attempts a WHERE a.job_id = g.id AND a.channel_id = g.channel_id OFFSET 0) r LIMIT 1);
    ok := kept IS NULL
        OR belfry.reject('activities', 'id', format('activity %s has a message or attempts and cannot be deleted', kept), 'retention.messages deletes it with them.');
    RETURN NULL;
END $$;

CREATE TRIGGER activities_end AFTER DELETE ON belfry.activities REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION belfry.activities_end();

REVOKE EXECUTE ON FUNCTION belfry.activities_validate(), belfry.activities_enqueue(), belfry.activities_wake(), belfry.activities_arrive(), belfry.activities_end() FROM PUBLIC;

-- Inserts one activity in the caller's transaction and returns its id, which is negative: send, notify and the library.
-- With an idempotency key that was seen, it returns the first one's id.
CREATE FUNCTION belfry.insert_activity(
    channel_id bigint, category text, title text, body text, data jsonb, variants jsonb, route text[], deliver_at timestamptz,
    idempotency_key text, requested_by text, inbox boolean, collapse_key text, collapsed_title text, OUT activity_id bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO belfry.activities (channel_id, category, title, body, data, variants, route, deliver_at, idempotency_key, requested_by, inbox, collapse_key, collapsed_title)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, session_user), $11, $12, $13)
    ON CONFLICT ON CONSTRAINT activities_idempotency_key DO NOTHING
    RETURNING id INTO activity_id;
    IF activity_id IS NULL THEN
        SELECT a.id INTO activity_id FROM belfry.activities a WHERE a.idempotency_key = $9;
        IF activity_id IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
                MESSAGE = format('belfry.activities.idempotency_key: %L was sent by a transaction this one cannot see', $9),
                HINT = 'Repeat the transaction.';
        END IF;
    END IF;
END $$;

-- Sends one message in the caller's transaction and returns the id of its activity, which is negative. With an
-- idempotency key that was seen, it returns the first one's id.
CREATE FUNCTION belfry.send(
    channel_id bigint, category text, title text, body text DEFAULT '', data jsonb DEFAULT '{}',
    variants jsonb DEFAULT '{}', route text[] DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN belfry.insert_activity($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, false, NULL, NULL);

-- The id of the channel of channels.relation (belfry.recipients) with an external id. A role that calls it
-- needs SELECT on the relation. A row that a policy hides from the caller is an error and not an id that is
-- no channel's. It has its caller's search_path, as functions of a view or a policy may need it, and
-- qualifies the functions and operators that it calls.
CREATE FUNCTION belfry.channel_id(external_id text) RETURNS bigint
LANGUAGE plpgsql STABLE SET row_security = off AS $$
DECLARE
    relation text := (SELECT belfry.trusted_relation('recipients', r.relation_schema, r.relation_name, r.relation_owner) FROM belfry.recipients r);
    found_id bigint;
    ok       boolean;
BEGIN
    EXECUTE 'SELECT c.id FROM ' || relation || ' c WHERE c.external_id OPERATOR(pg_catalog.=) $1 LIMIT 1' INTO found_id USING $1;
    ok := found_id IS NOT NULL
        OR belfry.reject('activities', 'external_id', pg_catalog.format('%L is no channel''s; allowed values: the external ids of %s', pg_catalog."left"(coalesce($1, 'null'), 60), relation));
    RETURN found_id;
EXCEPTION WHEN insufficient_privilege THEN
    IF relation IS NULL OR NOT pg_catalog.has_table_privilege(relation, 'SELECT') AND NOT (pg_catalog.has_column_privilege(relation, 'id', 'SELECT') AND pg_catalog.has_column_privilege(relation, 'external_id', 'SELECT')) THEN
        RAISE;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
        MESSAGE = pg_catalog.format('belfry.activities.external_id: %I may not see every row of %s: %s', current_user, relation, SQLERRM),
        HINT = pg_catalog.format('Find the channel''s id in %s and call belfry.send, or ALTER ROLE %I BYPASSRLS, or drop the policy.', relation, current_user);
END $$;

-- As send, to the channel with an external id.
CREATE FUNCTION belfry.send_external(
    external_id text, category text, title text, body text DEFAULT '', data jsonb DEFAULT '{}',
    variants jsonb DEFAULT '{}', route text[] DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN belfry.send(belfry.channel_id($1), $2, $3, $4, $5, $6, $7, $8, $9, $10);
END $$;

-- The id that distinguishes this database from others that use the same provider, part of every idempotency
-- key, and the place where it was created or adopted: messages from a copy elsewhere would reach people a
-- second time. A NULL system identifier is unknown. While halted_at is set no job runs, no message is
-- claimed, and the recheck right before a call rejects all messages.
CREATE TABLE belfry.installation (
    one               boolean CONSTRAINT installation_pkey PRIMARY KEY DEFAULT true,
    id                uuid NOT NULL DEFAULT gen_random_uuid(),
    system_identifier bigint,
    database_oid      oid, -- NULL: nowhere, so that nothing leaves
    place             text, -- delivery.place of the relays that deliver from here; NULL: those without
    halted_at         timestamptz, -- NULL: it is not
    halted_by         text,
    halt_reason       text NOT NULL DEFAULT '',
    CONSTRAINT installation_times_check CHECK (halted_at >= '1970-01-01 00:00:00+00' AND halted_at < '9999-12-31 00:00:00+00'),
    CONSTRAINT installation_one_check CHECK (one),
    CONSTRAINT installation_place_check CHECK (place ~ '^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$'),
    CONSTRAINT installation_lengths_check CHECK (length(halted_by) <= 255 AND length(halt_reason) <= 4000),
    CONSTRAINT installation_halted_check CHECK ((halted_at IS NULL) = (halted_by IS NULL))
);

-- Rows that functions lock with their owner's rights, and no other role may: a claim shares claims,
-- for which a halt waits.
CREATE TABLE belfry.locks (name text CONSTRAINT locks_pkey PRIMARY KEY);

INSERT INTO belfry.locks VALUES ('claims');

-- The only definition of sendable messages: not finished, not recalled, not awaiting a receipt, while belfry
-- is not halted, and of a job that is not ABORTED (I6), not in a paused lane and does not wait for approval.
-- Relays claim only such messages and recheck them right before they call a provider (MessageClaim and
-- MessageRecheck in outbox/ledger.sql repeat the rule; a test compares them). Locking its rows locks only
-- messages.
CREATE VIEW belfry.sendable_messages AS
SELECT m.job_id, m.channel_id, m.status, m.next_attempt_at, m.attempts, m.step, m.crashes, m.lease_id
  FROM belfry.messages m
 WHERE m.status IN ('PENDING', 'QUEUED', 'PROCESSING') AND m.recalled_at IS NULL AND m.receipt IS NULL
   AND (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NULL
   AND (m.job_id < 0 OR coalesce((SELECT j.status <> 'ABORTED' AND NOT j.awaits_approval AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL)
                                      FROM belfry.jobs j WHERE j.id = m.job_id), false));

-- The jobs that may have messages to send, most urgent first, without jobs of paused lanes and jobs that
-- wait for approval. due_at is the time before which none of its messages is due, or NULL: deliver_at, which does
-- not change after the start, unless no message is left.
CREATE VIEW belfry.sendable_jobs AS
SELECT j.id AS job_id, j.lane, j.priority, CASE WHEN j.rows_written > 0 AND j.recalled_at IS NULL THEN j.deliver_at END AS due_at
  FROM belfry.jobs j
 WHERE j.delivered_at IS NULL AND j.started_at IS NOT NULL AND j.status <> 'ABORTED' AND NOT j.awaits_approval
   AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL)
 ORDER BY j.priority DESC, j.id;

-- One row per message that is DEAD (messages_dead_idx, by job).
--
--   medium   the last medium that was tried or skipped
--   dead_at  the time of its death, stored as its due time
--   held     its job is ABORTED or waits for approval: after a redrive it waits with the job
--   kept     NULL, or why a redrive leaves it: 'recalled', its job was recalled after it
--            died; 'retention', its job is ABORTED for so long that it cannot be resumed, or
--            is deleted, and then a discard leaves it as well
CREATE VIEW belfry.dead_letters AS
SELECT m.job_id, m.channel_id, coalesce(j.category, t.category) AS category, m.step,
       (coalesce(j.route, t.route))[least(m.step + 1, cardinality(coalesce(j.route, t.route)))] AS medium,
       m.reason, m.attempts, m.crashes, coalesce(m.last_error, '') AS error, m.next_attempt_at AS dead_at,
       coalesce(j.status = 'ABORTED' OR j.awaits_approval, false) AS held,
       CASE WHEN j.status = 'ABORTED' AND j.retention_at >= j.finished_at OR j.id IS NULL AND t.id IS NULL THEN 'retention'
            WHEN m.recalled_at IS NOT NULL OR j.recalled_at >= m.next_attempt_at THEN 'recalled' END AS kept
  FROM belfry.message_rows m
  LEFT JOIN belfry.jobs j ON j.id = m.job_id
  LEFT JOIN belfry.activities t ON t.id = m.job_id AND m.job_id < 0
 WHERE m.status = 'DEAD';

-- The progress of retention's walk through the notifications, whose key does not begin with the job: the
-- jobs, and the channel up to which their notifications are deleted. All nodes share it, so that another
-- node continues after a crash.
CREATE TABLE belfry.retention_walks (
    name        text        CONSTRAINT retention_walks_pkey PRIMARY KEY,
    job_ids     bigint[]    NOT NULL,
    channel_id  bigint      NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT retention_walks_times_check CHECK (started_at >= '1970-01-01 00:00:00+00' AND started_at < '9999-12-31 00:00:00+00'),
    CONSTRAINT retention_walks_name_check CHECK (name = 'notifications'),
    CONSTRAINT retention_walks_job_ids_check CHECK (cardinality(job_ids) BETWEEN 1 AND 10000)
);

-- The partitions of notifications of which nothing is younger than a time: their jobs have finished before it, their
-- activities are deleted, and so are the messages of jobs of custom types. A later partition has been in use for an hour, so
-- that no job that is being claimed has an arrival of this one.
CREATE FUNCTION belfry.old_notifications(before timestamptz) RETURNS SETOF bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.part
      FROM generate_series(0, (SELECT belfry.notifications_part(max(j.arrival)) - 1 FROM belfry.jobs j)) p (part)
     WHERE belfry.notifications_table(p.part) IS NOT NULL
       AND EXISTS (SELECT FROM belfry.jobs j WHERE j.arrival >= belfry.notifications_from(p.part + 1) AND j.started_at < statement_timestamp() - interval '1 hour')
       AND NOT EXISTS (SELECT FROM belfry.jobs j
                        WHERE j.arrival >= belfry.notifications_from(p.part) AND j.arrival < belfry.notifications_from(p.part + 1) AND j.type <> 'push'
                          AND (coalesce(j.finished_at, 'infinity') >= $1
                               OR j.type <> 'inbox' AND (SELECT true FROM belfry.message_rows m WHERE m.job_id = j.id ORDER BY m.channel_id LIMIT 1)))
       AND NOT EXISTS (SELECT FROM belfry.activities a WHERE a.inbox AND a.id <= -belfry.notifications_from(p.part) AND a.id > -belfry.notifications_from(p.part + 1))
$$;

-- Drops the oldest partition of old_notifications and marks its jobs as pruned. It waits for at most a second for the
-- sessions that use notifications, and later ones wait for it; then it fails with 55P03. Returns the rows that the jobs of
-- type inbox wrote; NULL: there is no such partition.
CREATE FUNCTION belfry.drop_notifications(before timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    part    bigint;
    written bigint;
BEGIN
    part := (SELECT min(o) FROM belfry.old_notifications(before) o);
    IF part IS NULL THEN
        RETURN NULL;
    END IF;
    WITH marked AS (
        UPDATE belfry.jobs j
           SET retention_at = coalesce(j.retention_at, clock_timestamp()), pruned_at = clock_timestamp()
         WHERE j.arrival >= belfry.notifications_from(part) AND j.arrival < belfry.notifications_from(part + 1) AND j.type <> 'push' AND j.pruned_at IS NULL
        RETURNING j.finished_at, j.rows_written, j.type)
    SELECT coalesce(sum(m.rows_written) FILTER (WHERE m.type = 'inbox'), 0) INTO written
      FROM marked m HAVING count(*) FILTER (WHERE m.finished_at IS NULL OR m.finished_at >= before) = 0;
    IF written IS NULL THEN
        RAISE lock_not_available; -- a job was resumed meanwhile
    END IF;
    EXECUTE format('DROP TABLE belfry.notifications_%s', part);
    RETURN written;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.old_notifications(timestamptz), belfry.drop_notifications(timestamptz) FROM PUBLIC;

-- The messages that were about to be handed to a provider under a lease, with the step of their routes.
-- After the lease has expired these have an unknown outcome; the others were never sent. A step with a
-- reason was skipped before the called step. It is recorded here for the recovery after the relay has died.
CREATE TABLE belfry.handovers (
    lease_id    bigint     NOT NULL,
    job_ids     bigint[]   NOT NULL,
    channel_ids bigint[]   NOT NULL,
    steps       smallint[] NOT NULL,
    reasons     text[],
    CONSTRAINT handovers_keys_check CHECK ( -- of a claim, each with the 10 steps that were skipped before at most
        cardinality(job_ids) BETWEEN 1 AND 11000
        AND cardinality(channel_ids) = cardinality(job_ids) AND cardinality(steps) = cardinality(job_ids)
        AND (reasons IS NULL OR cardinality(reasons) = cardinality(job_ids)) AND octet_length(reasons::text) <= least(2000000, 1100 * cardinality(job_ids))),
    CONSTRAINT handovers_steps_check CHECK (0 <= ALL (steps) AND array_position(steps, NULL) IS NULL)
);

ALTER TABLE belfry.handovers
    ALTER COLUMN job_ids SET STORAGE EXTERNAL, ALTER COLUMN channel_ids SET STORAGE EXTERNAL, ALTER COLUMN steps SET STORAGE EXTERNAL;

CREATE INDEX handovers_lease_idx ON belfry.handovers (lease_id);

-- Every attempt that was not accepted at once, and every step that was bypassed:
-- who failed, how, and when. A message that is SENT without a row
-- here went out with its first call.
CREATE TABLE belfry.attempts (
    id         bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT attempts_pkey PRIMARY KEY,
    job_id     bigint      NOT NULL,
    channel_id bigint      NOT NULL,
    step       smallint    NOT NULL,
    attempt    smallint    NOT NULL, -- of the step, from 1; 0: no call was made
    medium     text        NOT NULL,
    sender     text        NOT NULL DEFAULT '',
    outcome    text        NOT NULL,
    reason     text        NOT NULL DEFAULT '',
    code       text        NOT NULL DEFAULT '', -- the provider's
    error      text        NOT NULL DEFAULT '',
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT attempts_times_check CHECK (at >= '1970-01-01 00:00:00+00' AND at < '9999-12-31 00:00:00+00'),
    CONSTRAINT attempts_counts_check CHECK (least(step, attempt) >= 0),
    CONSTRAINT attempts_outcome_check CHECK (outcome IN ('retryable', 'permanent', 'invalid_address', 'unknown', 'crashed', 'refused', 'accepted', 'unconfirmed')),
    CONSTRAINT attempts_error_check CHECK (length(error) <= 1000 AND length(code) <= 100),
    CONSTRAINT attempts_lengths_check CHECK (greatest(octet_length(medium), octet_length(sender), octet_length(reason)) <= 1000)
);

CREATE INDEX attempts_message_idx ON belfry.attempts (job_id, channel_id, id);

-- The relays that live, by their heartbeat: they share each sender's rate.
CREATE TABLE belfry.relays (
    name         text        CONSTRAINT relays_pkey PRIMARY KEY,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    senders      text[]      NOT NULL DEFAULT '{}',
    media        text[]      NOT NULL DEFAULT '{}', -- that it has senders for
    in_flight    integer     NOT NULL DEFAULT 0,
    transactions bigint      NOT NULL DEFAULT 0, -- its own transactions, which a run subtracts from the server's load (HealthProbe)
    transport    text        NOT NULL DEFAULT 'postgres', -- where it gets its messages from
    limits       jsonb       NOT NULL DEFAULT '[]', -- of each sender: name, rate_per_second (0: none) and concurrency in force, and what it did lately
    CONSTRAINT relays_times_check CHECK (
        least(started_at, heartbeat_at) >= '1970-01-01 00:00:00+00'
        AND greatest(started_at, heartbeat_at) < '9999-12-31 00:00:00+00'),
    -- Lists of senders read at most 100 of each relay: relay.MaxSenders.
    CONSTRAINT relays_lists_check CHECK (array_position(senders, NULL) IS NULL AND array_position(media, NULL) IS NULL
        AND greatest(cardinality(senders), cardinality(media)) <= 100),
    CONSTRAINT relays_lengths_check CHECK (octet_length(name) <= 1000
        AND greatest(octet_length(senders::text), octet_length(media::text)) <= 20000 AND octet_length(limits::text) <= 60000),
    CONSTRAINT relays_transport_check CHECK (transport ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'
        OR belfry.reject('relays', 'transport', format('%L is not the name of a transport; allowed values: 1 to 63 of A-Z, a-z, 0-9, _, . and -, starting with a letter', left(transport, 70)))),
    CONSTRAINT relays_counts_check CHECK (in_flight BETWEEN 0 AND 1000000000 AND transactions BETWEEN 0 AND 1000000000000000),
    -- The keys that lists read of each element. In strict mode an element without keys is an error, and thus NULL.
    CONSTRAINT relays_limits_check CHECK (CASE jsonb_typeof(limits) WHEN 'array' THEN jsonb_array_length(limits) <= 100 ELSE false END AND NOT coalesce(limits @? 'strict $[*].keyvalue() ? (
           @.key like_regex "^(name|medium|breaker)$" && @.value.type() != "string"
        || @.key like_regex "^(concurrency|waiting|calling|rate_per_second|sent_per_second|failed_per_second)$" && (@.value.type() != "number" || @.value < 0 || @.value > 1000000000)
        || @.key like_regex "^(concurrency|waiting|calling)$" && @.value.floor() != @.value)', true))
) WITH (fillfactor = 70);

-- Bounds the rows, which each heartbeat, each probe of a runner and each page about relays reads. Relays without a
-- heartbeat for a minute make room.
CREATE FUNCTION belfry.relays_bound() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most constant integer := 2000;
    ok   boolean := EXISTS (SELECT FROM belfry.relays r WHERE r.name = NEW.name);
BEGIN
    ok := ok OR most > (SELECT count(*) FROM (SELECT FROM belfry.relays r LIMIT most) l);
    IF NOT ok THEN
        DELETE FROM belfry.relays r WHERE r.name = ANY (ARRAY(SELECT k.name FROM belfry.relays k
            WHERE k.heartbeat_at NOT BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() + interval '1 minute' FOR UPDATE SKIP LOCKED));
        ok := FOUND OR belfry.reject('relays', 'name', format('%s relays have a heartbeat; allowed values now: their names', most));
    END IF;
    RETURN NEW;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.relays_bound() FROM PUBLIC;

CREATE TRIGGER relays_bound BEFORE INSERT ON belfry.relays
    FOR EACH ROW EXECUTE FUNCTION belfry.relays_bound();

-- The two queues of a carrier of ids, activities and bulk; no row: there has been none. Ids are handed over
-- in pushes, numbered without gaps, each after the COMMIT that made its messages QUEUED. A carrier with
-- another epoch, or with a lower number, has lost data. first_push is its first push in this epoch, which
-- began at epoch_at. dispatcher is the relay that pushes, until another may at leads_until.
CREATE TABLE belfry.queues (
    name        text        CONSTRAINT queues_pkey PRIMARY KEY,
    transport   text        NOT NULL,
    epoch       uuid        NOT NULL DEFAULT gen_random_uuid(),
    epoch_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    first_push  bigint      NOT NULL DEFAULT 1,
    last_push   bigint      NOT NULL DEFAULT 0, -- made; 0: none yet
    dispatcher  text        NOT NULL,
    leads_until timestamptz NOT NULL,
    CONSTRAINT queues_times_check CHECK (
        least(epoch_at, leads_until) >= '1970-01-01 00:00:00+00'
        AND greatest(epoch_at, leads_until) < '9999-12-31 00:00:00+00'),
    CONSTRAINT queues_name_check CHECK (name IN ('activities', 'bulk')),
    CONSTRAINT queues_lengths_check CHECK (greatest(octet_length(transport), octet_length(dispatcher)) <= 1000),
    CONSTRAINT queues_push_check CHECK (first_push BETWEEN 1 AND last_push + 1)
) WITH (fillfactor = 70);

-- Pushes are numbered without gaps. A larger step could reach the end of bigint, where no push can be made.
CREATE FUNCTION belfry.queues_number() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ok constant boolean := belfry.reject('queues', 'last_push', format('%s cannot follow %s; allowed values: the next number', NEW.last_push, OLD.last_push));
BEGIN
    RETURN NULL;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.queues_number() FROM PUBLIC;

CREATE TRIGGER queues_number BEFORE UPDATE OF last_push ON belfry.queues
    FOR EACH ROW WHEN (NEW.last_push <> OLD.last_push AND NEW.last_push - 1 <> OLD.last_push) EXECUTE FUNCTION belfry.queues_number();

-- Figures for charts, per minute: of the walks of a lane, of a job, and of a sender. Each process adds its own
-- once a minute, after the minute, and never in the transaction of a chunk or a settlement (outbox/samples).
--
--   name          the lane, the job's id, or the sender; '*': the sum of the kind's least busy subjects
--   at            the start of the minute, in the database's clock
--   medium        of a sender
--   rows_written  lane, job: rows of committed chunks
--   sent          job, sender: messages that became SENT
--   failed        job: messages that became dead letters; sender: attempts that failed
--   deferred      job, sender: messages that were put back without an attempt
--   queue_depth   sender: the most messages that waited in one relay's queue
--   p95_ms        sender: of the calls of the slowest relay; lane: of the chunks of the slowest runner
CREATE TABLE belfry.samples (
    kind         text        NOT NULL,
    name         text        NOT NULL,
    at           timestamptz NOT NULL,
    medium       text        NOT NULL DEFAULT '',
    rows_written bigint      NOT NULL DEFAULT 0,
    sent         bigint      NOT NULL DEFAULT 0,
    failed       bigint      NOT NULL DEFAULT 0,
    deferred     bigint      NOT NULL DEFAULT 0,
    queue_depth  bigint      NOT NULL DEFAULT 0,
    p95_ms       integer     NOT NULL DEFAULT 0,
    CONSTRAINT samples_pkey PRIMARY KEY (kind, name, at),
    CONSTRAINT samples_kind_check CHECK (kind IN ('lane', 'job', 'sender')),
    CONSTRAINT samples_name_check CHECK (name = '*' OR name ~ CASE kind WHEN 'job' THEN '^[1-9][0-9]{0,18}$' ELSE '^[a-z0-9][a-z0-9_-]{0,62}$' END),
    CONSTRAINT samples_times_check CHECK (at >= '1970-01-01 00:00:00+00' AND at < '9999-12-31 00:00:00+00' AND at = date_bin('1 minute', at, '1970-01-01 00:00:00+00')),
    CONSTRAINT samples_medium_check CHECK (medium ~ '^[a-z0-9_]{0,31}$'),
    CONSTRAINT samples_counts_check CHECK (rows_written BETWEEN 0 AND 1000000000000 AND sent BETWEEN 0 AND 1000000000000 AND failed BETWEEN 0 AND 1000000000000 AND deferred BETWEEN 0 AND 1000000000000),
    CONSTRAINT samples_gauges_check CHECK (queue_depth BETWEEN 0 AND 1000000000 AND p95_ms BETWEEN 0 AND 86400000)
);

CREATE INDEX samples_at_idx ON belfry.samples (at);

-- Operators' overrides for a sender at run time. NULL means the configured value.
CREATE TABLE belfry.senders (
    name            text CONSTRAINT senders_pkey PRIMARY KEY,
    rate_per_second double precision,
    concurrency     integer,
    paused_at       timestamptz, -- NULL: open
    paused_by       text,
    pause_reason    text NOT NULL DEFAULT '',
    CONSTRAINT senders_times_check CHECK (paused_at >= '1970-01-01 00:00:00+00' AND paused_at < '9999-12-31 00:00:00+00'),
    CONSTRAINT senders_name_check CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'
        OR belfry.reject('senders', 'name', format('%L is not a sender''s name; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit', left(name, 70)))),
    CONSTRAINT senders_rate_per_second_check CHECK (rate_per_second IS NULL OR rate_per_second > 0 AND rate_per_second <= 1000000
        OR belfry.reject('senders', 'rate_per_second', rate_per_second || ' is not allowed; allowed values: null (the configuration''s), or above 0 to 1000000')),
    CONSTRAINT senders_concurrency_check CHECK (concurrency IS NULL OR concurrency BETWEEN 1 AND 10000
        OR belfry.reject('senders', 'concurrency', concurrency || ' is not allowed; allowed values: null (the configuration''s), 1 to 10000')),
    CONSTRAINT senders_paused_by_check CHECK (length(paused_by) <= 255),
    CONSTRAINT senders_pause_reason_check CHECK (length(pause_reason) <= 4000
        OR belfry.reject('senders', 'pause_reason', format('has %s characters; allowed values: texts of 0 to 4000 characters', length(pause_reason)))),
    CONSTRAINT senders_paused_check CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);

CREATE TRIGGER senders_record AFTER INSERT OR UPDATE OR DELETE ON belfry.senders
    FOR EACH ROW EXECUTE FUNCTION belfry.record('sender');

-- Where this database is: the server's system identifier, which standbys and their primary share and no
-- other server has, and the database's oid. It runs with its owner's rights, so that all roles get the same
-- result. NULL means that the owner may not read it.
CREATE FUNCTION belfry.here(OUT system_identifier bigint, OUT database_oid oid)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    database_oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    system_identifier := (SELECT c.system_identifier FROM pg_control_system() c);
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
    RETURN;
END $$;

-- Whether messages may be claimed: belfry is not halted, and this database is where it was
-- made or adopted. Where it is a session asks once and keeps in belfry.here: its server process belongs to
-- one database of one server for as long as it lives, behind a pooler too. The row is read
-- each time, and where the two differ so is the place.
CREATE FUNCTION belfry.delivers() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place text;
    made  CONSTANT text := (SELECT concat_ws('/', i.database_oid, i.system_identifier) FROM belfry.installation i WHERE i.database_oid IS NOT NULL AND i.halted_at IS NULL);
BEGIN
    IF made IS NULL OR made = current_setting('belfry.here', true) THEN
        RETURN made IS NOT NULL;
    END IF;
    place := (SELECT concat_ws('/', h.database_oid, h.system_identifier) FROM belfry.here() h);
    PERFORM set_config('belfry.here', place, false);
    RETURN made = place;
END $$;

-- Lets messages leave from where this database is now, and records the name of the place; NULL
-- leaves that as it is.
CREATE FUNCTION belfry.adopt(actor text DEFAULT NULL, reason text DEFAULT NULL, place text DEFAULT NULL) RETURNS SETOF belfry.installation
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM belfry.act(actor, reason);
    INSERT INTO belfry.installation AS i (system_identifier, database_oid, place)
    SELECT h.system_identifier, h.database_oid, adopt.place FROM belfry.here() h
        ON CONFLICT ON CONSTRAINT installation_pkey DO UPDATE
           SET system_identifier = excluded.system_identifier, database_oid = excluded.database_oid, place = coalesce(excluded.place, i.place)
         WHERE (i.system_identifier, i.database_oid, i.place) IS DISTINCT FROM (excluded.system_identifier, excluded.database_oid, coalesce(excluded.place, i.place));
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.installation i;
END $$;

-- Records it for all clients, and wakes the relays. Identifiers are text: they are beyond what JSON's
-- numbers hold elsewhere. A carrier that has ids of the database which this one is a copy of has none of
-- this one's: its queues begin a new epoch.
CREATE FUNCTION belfry.installation_record() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO belfry.events (subject, kind, actor, reason, detail)
    VALUES ('installation', CASE WHEN NEW.database_oid IS NULL THEN 'disowned' ELSE 'adopted' END,
        belfry.actor(), belfry.reason(),
        jsonb_build_object('session_user', session_user,
            'before', CASE WHEN TG_OP = 'UPDATE' THEN jsonb_build_object('system_identifier', OLD.system_identifier::text, 'database_oid', OLD.database_oid::text, 'place', OLD.place) END,
            'after', jsonb_build_object('system_identifier', NEW.system_identifier::text, 'database_oid', NEW.database_oid::text, 'place', NEW.place)));
    UPDATE belfry.queues SET epoch = gen_random_uuid(), epoch_at = clock_timestamp();
    PERFORM belfry.ring('belfry_messages');
    RETURN NULL;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.installation_record() FROM PUBLIC;

INSERT INTO belfry.installation (system_identifier, database_oid)
SELECT h.system_identifier, h.database_oid FROM belfry.here() h;

CREATE TRIGGER installation_record AFTER INSERT OR UPDATE OF system_identifier, database_oid, place ON belfry.installation
    FOR EACH ROW EXECUTE FUNCTION belfry.installation_record();

-- A halt, for all clients. It hands back RUNNING jobs, so that the guards of their runs' statements reject
-- the chunk in progress, rows and cursor together, as after an abort: a halt waits for one COMMIT of each
-- run. jobs_transition prevents new claims in the meantime. The RUNNING jobs are read by a snapshot that is
-- younger than the lock of claims. It waits for 2 seconds in all, since roles that may UPDATE jobs can keep
-- a row locked in an open transaction. A job whose row stays locked stays RUNNING: jobs_transition refuses
-- its chunks, and its run hands it back. So does every run if another session keeps the table
-- locked: 0 stands for all jobs then. halted_at is the end of the wait, right before the COMMIT.
CREATE FUNCTION belfry.installation_halt() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was   constant text := coalesce(current_setting('belfry.kind', true), '');
    waits constant text := current_setting('lock_timeout');
    until constant timestamptz := clock_timestamp() + interval '2 seconds';
    ids   bigint[] := '{}';
    held  bigint[] := '{}';
    job   bigint;
    n     bigint := 0;
    ok    boolean := NEW.halted_at IS NULL OR current_setting('transaction_isolation') = 'read committed'
        OR belfry.reject('installation', 'halted_at', format('cannot be set in a transaction that is %s; allowed values: in one that is READ COMMITTED', upper(current_setting('transaction_isolation'))),
            'An older snapshot would not show the jobs that run.');
BEGIN
    IF NEW.halted_at IS NOT NULL THEN
        BEGIN
            PERFORM set_config('lock_timeout', '2s', true);
            PERFORM FROM belfry.locks l WHERE l.name = 'claims' FOR UPDATE;
        EXCEPTION WHEN lock_not_available THEN -- a claim does not end: its run finds the halt
        END;
        BEGIN
            PERFORM set_config('lock_timeout', greatest(1, ceil(extract(epoch FROM until - clock_timestamp()) * 1000))::bigint::text, true);
            LOCK TABLE belfry.jobs IN ROW EXCLUSIVE MODE;
            FOR job IN SELECT r.id FROM belfry.jobs r WHERE r.status = 'RUNNING' ORDER BY r.id LOOP
                BEGIN
                    PERFORM set_config('lock_timeout', greatest(1, ceil(extract(epoch FROM until - clock_timestamp()) * 1000))::bigint::text, true);
                    PERFORM FROM belfry.jobs r WHERE r.id = job FOR UPDATE;
                    ids := ids || job;
                EXCEPTION WHEN lock_not_available THEN
                    held := held || job;
                END;
            END LOOP;
            PERFORM set_config('lock_timeout', waits, true), set_config('belfry.kind', 'halted', true);
            UPDATE belfry.jobs j SET status = 'PENDING', attempts = greatest(j.attempts - 1, 0) WHERE j.id = ANY (ids) AND j.status = 'RUNNING';
            GET DIAGNOSTICS n = ROW_COUNT;
        EXCEPTION WHEN lock_not_available THEN -- the whole table is locked, and may not even be read
            PERFORM set_config('lock_timeout', waits, true);
            held := '{0}';
        END;
        PERFORM set_config('belfry.kind', was, true), set_config('belfry.halt_locked', held::text, true);
        NEW.halted_at := clock_timestamp();
    END IF;
    INSERT INTO belfry.events (subject, kind, actor, reason, detail)
    VALUES ('installation', CASE WHEN NEW.halted_at IS NULL THEN 'lifted' ELSE 'halted' END, belfry.actor(), belfry.reason(),
        jsonb_build_object('session_user', session_user, 'jobs', n, 'locked', to_jsonb(nullif(held, '{}')), 'before', jsonb_build_object('halted_at', OLD.halted_at, 'halted_by', OLD.halted_by),
            'after', jsonb_build_object('halted_at', NEW.halted_at, 'halted_by', NEW.halted_by)));
    PERFORM belfry.ring('belfry_jobs');
    PERFORM belfry.ring('belfry_messages');
    RETURN NEW;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.installation_halt() FROM PUBLIC;

CREATE TRIGGER installation_halt BEFORE UPDATE OF halted_at ON belfry.installation
    FOR EACH ROW WHEN ((OLD.halted_at IS NULL) <> (NEW.halted_at IS NULL)) EXECUTE FUNCTION belfry.installation_halt();

-- Stops all generation and delivery. When it has returned, no further row of a job is committed, and no
-- message is sent that was not handed to a provider before. If belfry is halted already, nothing changes and
-- note contains that. locked are the jobs whose rows other sessions have locked, 0 if it is the whole table: such a session can still
-- commit the rows it has written for the job, but no further rows are written.
CREATE FUNCTION belfry.halt(actor text DEFAULT NULL, reason text DEFAULT NULL, OUT halted_at timestamptz, OUT halted_by text, OUT halt_reason text, OUT note text, OUT locked bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ok boolean := EXISTS (SELECT FROM belfry.installation);
BEGIN
    ok := ok OR belfry.reject('installation', 'halted_at', 'cannot be set, the table has no row; allowed values: none, nothing runs', 'belfry.adopt() makes it.');
    PERFORM belfry.act(actor, reason), set_config('belfry.halt_locked', '{}', true);
    UPDATE belfry.installation i SET halted_at = clock_timestamp(), halted_by = belfry.actor(), halt_reason = belfry.reason() WHERE i.one AND i.halted_at IS NULL;
    note := CASE WHEN FOUND THEN '' ELSE 'it was halted already' END;
    locked := nullif(current_setting('belfry.halt_locked')::bigint[], '{}');
    IF cardinality(locked) > 0 THEN
        RAISE WARNING USING MESSAGE = format('belfry: %s stay locked by other sessions, which may commit what they have written; nothing more is written',
            CASE WHEN 0 = ANY (locked) THEN 'all rows of belfry.jobs' ELSE 'the rows of jobs ' || array_to_string(locked, ', ') END);
    END IF;
    PERFORM belfry.act(NULL, NULL);
    SELECT i.halted_at, i.halted_by, i.halt_reason INTO halt.halted_at, halt.halted_by, halt.halt_reason FROM belfry.installation i;
END $$;

-- Ends a halt: jobs and deliveries continue where they were. If belfry is not halted, nothing changes.
CREATE FUNCTION belfry.unhalt(actor text DEFAULT NULL, reason text DEFAULT NULL, OUT halted_at timestamptz, OUT halted_by text, OUT halt_reason text, OUT note text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.installation i SET halted_at = NULL, halted_by = NULL, halt_reason = '' WHERE i.one AND i.halted_at IS NOT NULL;
    note := CASE WHEN FOUND THEN '' ELSE 'it was not halted' END;
    PERFORM belfry.act(NULL, NULL);
    SELECT i.halted_at, i.halted_by, i.halt_reason INTO unhalt.halted_at, unhalt.halted_by, unhalt.halt_reason FROM belfry.installation i;
END $$;

-- Names of runners belong to roles that run, and names of relays to roles that deliver: another role could
-- prevent the start of a process by taking its name.
CREATE FUNCTION belfry.names_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kinds constant text[] := array_remove(ARRAY[CASE WHEN TG_OP <> 'INSERT' THEN OLD.kind END, CASE WHEN TG_OP <> 'DELETE' THEN NEW.kind END], NULL);
    runs  constant boolean := has_column_privilege('belfry.jobs', 'cursor', 'UPDATE');
    sends constant boolean := has_any_column_privilege('belfry.attempts', 'INSERT');
    ok    boolean := (runs OR 'runner' <> ALL (kinds)) AND (sends OR 'relay' <> ALL (kinds))
        OR belfry.reject('names', 'kind', format('%L is not allowed for %s; allowed values: %s', kinds[1], current_user, coalesce(nullif(concat_ws(', ', CASE WHEN runs THEN 'runner' END, CASE WHEN sends THEN 'relay' END), ''), 'none')),
            'A runner may UPDATE belfry.jobs ("cursor"), a relay may INSERT belfry.attempts: belfry roles prints the GRANTs.');
BEGIN
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER names_guard BEFORE INSERT OR UPDATE OR DELETE ON belfry.names
    FOR EACH ROW EXECUTE FUNCTION belfry.names_guard();
