-- The ledger: claims, handovers, rechecks, settlements, receipts.

-- name: LedgerBegin :exec
-- Begins a transaction of the ledger, which is sent in one message, and sets: its deadlines on the server;
-- PostgreSQL's own functions and operators, as in all transactions (db.Options.Path);
-- durability whatever the role's defaults are, or an asynchronous commit with @durable false, for claims,
-- which become durable with their handover; a DateStyle that a client without prepared statements can parse;
-- plans for few keys that do not scan or sort whole tables, however old the statistics are; generic plans,
-- because planning takes longer than some of the statements; and no JIT, because disabled plan types cost
-- 1e10, above every threshold of JIT. Hash joins remain, for keys with the rows that their ctids return.
SELECT set_config('statement_timeout', @timeout_ms::text, true),
       set_config('lock_timeout', @lock_ms::text, true),
       set_config('datestyle', 'ISO', true), set_config('search_path', 'pg_catalog, pg_temp', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
       set_config('synchronous_commit', CASE WHEN NOT @durable::boolean THEN 'off' WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, true);

-- name: CandidateList :many
-- The jobs that may have messages to send within a minute, most urgent first (jobs_undelivered_idx).
SELECT s.job_id, s.lane, s.priority FROM belfry.sendable_jobs s
 WHERE coalesce(s.due_at, '-infinity') <= statement_timestamp() + interval '1 minute';

-- name: ClaimsBegin :exec
-- Makes the claims of a job begin (job_claims_pkey).
INSERT INTO belfry.job_claims (job_id) SELECT @job_id WHERE NOT EXISTS (SELECT FROM belfry.job_claims c WHERE c.job_id = @job_id)
    ON CONFLICT ON CONSTRAINT job_claims_pkey DO NOTHING;

-- name: ClaimsHold :exec
-- Locks the claims of jobs until the transaction ends, in the order of the jobs (job_claims_pkey).
SELECT c.job_id FROM belfry.job_claims c WHERE c.job_id = ANY (@jobs::bigint[]) ORDER BY c.job_id FOR UPDATE;

-- name: MessageTake :many
-- Claims the next messages of a job that were never claimed: up to @keys in the order of their channels, under the
-- new lease @lease of @seconds (messages_pkey). It leaves their rows as they are and moves the job's claims
-- (job_claims_pkey), which ClaimsHold has locked in the same transaction. In a category with a cap it changes the
-- rows, because the cap counts messages in flight by their channel. It examines at most @bound messages, and stops at
-- the first one that is not due. If others follow the last one examined, it returns that one too, in a row with the
-- lease 0. No other row: none is due, @media does not contain the first medium of the route (NULL means any), the job
-- is ABORTED, in a paused lane, waits for approval or is deleted, or messages may not leave the database
-- (belfry.delivers). A message that was cancelled meanwhile is claimed too; its recheck finds that.
-- With @epoch it makes a push instead of a lease, and returns its number in place of the lease. It then returns none if
-- @relay no longer pushes in @epoch. It locks the queue's row last. The push can replace a row of another
-- role, which may insert any number.
WITH allowed AS MATERIALIZED (
    SELECT j.id, @epoch::text IS NULL AND EXISTS (SELECT FROM belfry.categories c WHERE c.name = j.category AND c.cap_window IS NOT NULL) AS capped
      FROM belfry.jobs j
     WHERE j.id = @job_id AND belfry.delivers() AND j.status <> 'ABORTED' AND NOT j.awaits_approval AND coalesce(j.route[1] = ANY (@media::text[]), true)
       AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL)
), claims AS MATERIALIZED (
    SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = (SELECT a.id FROM allowed a)
), ahead AS MATERIALIZED (
    SELECT m.ctid AS tid, m.channel_id, m.next_attempt_at, m.status = 'PENDING' AND m.lease_id IS NULL AS waits
      FROM belfry.message_rows m
     WHERE m.job_id = @job_id AND m.job_id > 0 AND EXISTS (SELECT FROM claims)
       AND m.channel_id >= coalesce((SELECT c.claimed_to FROM claims c), -9223372036854775808) AND m.channel_id IS DISTINCT FROM (SELECT c.claimed_to FROM claims c)
     ORDER BY m.channel_id
     LIMIT @bound
), due AS MATERIALIZED (
    SELECT a.tid, a.channel_id, a.next_attempt_at, a.waits FROM ahead a
     WHERE (a.channel_id < (SELECT min(n.channel_id) FROM ahead n WHERE n.waits AND n.next_attempt_at > statement_timestamp())) IS NOT FALSE
), taken AS MATERIALIZED (
    SELECT d.tid, d.channel_id, d.next_attempt_at FROM due d WHERE d.waits ORDER BY d.channel_id LIMIT @keys
), reached AS MATERIALIZED (
    SELECT CASE WHEN (SELECT count(*) FROM taken) = @keys THEN (SELECT max(t.channel_id) FROM taken t) ELSE (SELECT max(d.channel_id) FROM due d) END AS channel_id
), push AS (
    UPDATE belfry.queues q
       SET last_push = q.last_push + 1
     WHERE q.name = 'bulk' AND q.dispatcher = @relay AND q.epoch = @epoch::text::uuid AND EXISTS (SELECT FROM taken)
    RETURNING q.name, q.last_push AS number
), pushed AS (
    INSERT INTO belfry.pushes AS p (queue, number, job_id, last_channel, channel_ids, tids)
    SELECT u.name, u.number, @job_id::bigint, max(t.channel_id), array_agg(t.channel_id), array_agg(t.tid) FROM push u CROSS JOIN taken t GROUP BY u.name, u.number
        ON CONFLICT ON CONSTRAINT pushes_pkey DO UPDATE
       SET made_at = excluded.made_at, job_id = excluded.job_id, last_channel = excluded.last_channel, channel_ids = excluded.channel_ids, tids = excluded.tids
), moved AS (
    UPDATE belfry.job_claims c
       SET claimed_to = (SELECT r.channel_id FROM reached r)
     WHERE c.job_id = @job_id AND coalesce(c.claimed_to < (SELECT r.channel_id FROM reached r), c.claimed_to IS NULL AND (SELECT r.channel_id FROM reached r) IS NOT NULL)
       AND (@epoch::text IS NULL OR EXISTS (SELECT FROM push) OR NOT EXISTS (SELECT FROM taken))
), lease AS (
    INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
    SELECT @lease::bigint, @relay, clock_timestamp() + make_interval(secs => @seconds), array_agg(@job_id::bigint), array_agg(t.channel_id)
      FROM taken t WHERE @epoch::text IS NULL HAVING count(*) > 0
    RETURNING id
), changed AS (
    UPDATE belfry.message_rows m
       SET status = 'PROCESSING', lease_id = (SELECT l.id FROM lease l)
     WHERE m.ctid = ANY (ARRAY(SELECT k.ctid FROM belfry.message_rows k
                                WHERE k.ctid = ANY (ARRAY(SELECT t.tid FROM taken t WHERE (SELECT a.capped FROM allowed a))) FOR UPDATE SKIP LOCKED))
       AND m.status = 'PENDING' AND m.lease_id IS NULL
    RETURNING m.channel_id, m.ctid AS tid
)
(SELECT @job_id::bigint, t.channel_id, o.id, 0, 0, 0, '', false, t.next_attempt_at,
       coalesce((SELECT c.tid FROM changed c WHERE c.channel_id = t.channel_id), t.tid)
  FROM (SELECT l.id FROM lease l UNION ALL SELECT p.number FROM push p) o
 CROSS JOIN taken t
 ORDER BY t.channel_id)
UNION ALL
SELECT @job_id::bigint, r.channel_id, 0, 0, 0, 0, '', false, statement_timestamp(), NULL FROM reached r
 WHERE (SELECT count(*) FROM taken) < @keys AND (SELECT count(*) FROM due) = @bound;

-- name: MessageClaim :many
-- Puts up to @keys messages of one job that wait after a first claim in flight at @relay, in the order of
-- messages_due_idx after (@after_at, @after_channel), under the new lease @lease of @seconds: due messages at a step
-- by one of @media (NULL means any), with an attempt or without one as @retries specifies (NULL means both). Locked
-- ones are skipped. It examines at most @bound messages, whether it takes them or not. The last of these, the edge, is
-- returned in a row with the lease 0; the next claim continues there. Without that row, fewer are due. No
-- other row: no message is due there, the job is ABORTED, in a paused lane, waits for approval, is
-- deleted or uses other media, or messages may not leave the database (belfry.delivers). The lease may
-- contain more keys than were taken, which has no effect. The rows of due are locked and updated by ctid.
-- The UPDATE needs no other guard; a guard with an index could make the plan scan that index with all its
-- dead entries. It returns the new ctids of the messages.
WITH allowed AS MATERIALIZED (
    SELECT belfry.delivers() AND j.status <> 'ABORTED' AND NOT j.awaits_approval AND coalesce(j.route && @media::text[], true)
           AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL) AS yes
      FROM belfry.jobs j WHERE j.id = @job_id
), edge AS MATERIALIZED (
    SELECT m.next_attempt_at, m.job_id, m.channel_id
      FROM belfry.message_rows m
     WHERE (SELECT a.yes FROM allowed a) AND m.job_id = @job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.lease_id IS NOT NULL
       AND (m.next_attempt_at, m.channel_id) > (@after_at::timestamptz, @after_channel::bigint)
       AND m.next_attempt_at <= statement_timestamp()
     ORDER BY m.next_attempt_at, m.channel_id
    OFFSET @bound - 1 LIMIT 1
), due AS MATERIALIZED (
    SELECT m.ctid AS tid, m.job_id, m.channel_id
      FROM belfry.message_rows m
     WHERE (SELECT a.yes FROM allowed a) AND m.job_id = @job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.lease_id IS NOT NULL
       AND (m.next_attempt_at, m.channel_id) > (@after_at::timestamptz, @after_channel::bigint)
       AND (m.next_attempt_at, m.channel_id) <= (coalesce((SELECT e.next_attempt_at FROM edge e), statement_timestamp()),
                                                 coalesce((SELECT e.channel_id FROM edge e), 9223372036854775807))
       AND (@retries::boolean IS NULL OR (m.step + m.attempts + m.crashes > 0) = @retries)
       AND m.step <> ALL (ARRAY(SELECT r.step - 1 FROM belfry.jobs j CROSS JOIN unnest(j.route) WITH ORDINALITY r(medium, step)
                                 WHERE j.id = @job_id AND r.medium <> ALL (@media::text[])))
     ORDER BY m.next_attempt_at, m.channel_id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), lease AS (
    INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
    SELECT @lease::bigint, @relay, clock_timestamp() + make_interval(secs => @seconds), array_agg(d.job_id), array_agg(d.channel_id)
      FROM due d HAVING count(*) > 0
    RETURNING id
), claimed AS (
    UPDATE belfry.message_rows m
       SET status = 'PROCESSING', lease_id = (SELECT l.id FROM lease l)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d))
    RETURNING m.ctid AS tid, m.job_id, m.channel_id, m.lease_id, m.step, m.attempts, m.crashes, m.reason, m.next_attempt_at
)
(SELECT c.job_id, c.channel_id, c.lease_id, c.step, c.attempts, c.crashes, coalesce(c.reason, ''),
       CASE WHEN c.step + c.attempts + c.crashes > 0 OR c.reason IS NOT NULL -- a redrive leaves the reason only
            THEN EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = c.job_id AND a.channel_id = c.channel_id AND a.outcome IN ('unknown', 'crashed') OFFSET 0)
            ELSE false END,
       c.next_attempt_at, c.tid
  FROM claimed c
 ORDER BY c.next_attempt_at, c.channel_id)
UNION ALL
SELECT e.job_id, e.channel_id, 0, 0, 0, 0, '', false, e.next_attempt_at, NULL FROM edge e;

-- name: ActivityClaim :many
-- MessageClaim for the messages of all activities after (@after_at, @after_job, @after_channel), which became
-- due within the last @within seconds (NULL means ever) (messages_activity_idx, activities_pkey).
WITH edge AS MATERIALIZED (
    SELECT m.next_attempt_at, m.job_id, m.channel_id
      FROM belfry.message_rows m
     WHERE m.job_id < 0 AND m.status = 'PENDING'
       AND (m.next_attempt_at, m.job_id, m.channel_id)
           > (greatest(@after_at::timestamptz, statement_timestamp() - make_interval(secs => @within)), @after_job::bigint, @after_channel::bigint)
       AND m.next_attempt_at <= statement_timestamp()
     ORDER BY m.next_attempt_at, m.job_id, m.channel_id
    OFFSET @bound - 1 LIMIT 1
), due AS MATERIALIZED (
    SELECT m.ctid AS tid, m.job_id, m.channel_id
      FROM belfry.message_rows m
     WHERE belfry.delivers() AND m.job_id < 0 AND m.status = 'PENDING'
       AND (m.next_attempt_at, m.job_id, m.channel_id)
           > (greatest(@after_at::timestamptz, statement_timestamp() - make_interval(secs => @within)), @after_job::bigint, @after_channel::bigint)
       AND (m.next_attempt_at, m.job_id, m.channel_id) <= (coalesce((SELECT e.next_attempt_at FROM edge e), statement_timestamp()),
                                                           coalesce((SELECT e.job_id FROM edge e), 0), coalesce((SELECT e.channel_id FROM edge e), 0))
       AND (@retries::boolean IS NULL OR (m.step + m.attempts + m.crashes > 0) = @retries)
       AND coalesce((SELECT v.route[m.step + 1] = ANY (@media::text[]) FROM belfry.activities v WHERE v.id = m.job_id), true)
     ORDER BY m.next_attempt_at, m.job_id, m.channel_id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), lease AS (
    INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
    SELECT @lease::bigint, @relay, clock_timestamp() + make_interval(secs => @seconds), array_agg(d.job_id), array_agg(d.channel_id)
      FROM due d HAVING count(*) > 0
    RETURNING id
), claimed AS (
    UPDATE belfry.message_rows m
       SET status = 'PROCESSING', lease_id = (SELECT l.id FROM lease l)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d))
    RETURNING m.ctid AS tid, m.job_id, m.channel_id, m.lease_id, m.step, m.attempts, m.crashes, m.reason, m.next_attempt_at
)
(SELECT c.job_id, c.channel_id, c.lease_id, c.step, c.attempts, c.crashes, coalesce(c.reason, ''),
       CASE WHEN c.step + c.attempts + c.crashes > 0 OR c.reason IS NOT NULL -- a redrive leaves the reason only
            THEN EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = c.job_id AND a.channel_id = c.channel_id AND a.outcome IN ('unknown', 'crashed') OFFSET 0)
            ELSE false END,
       c.next_attempt_at, c.tid
  FROM claimed c
 ORDER BY c.next_attempt_at, c.job_id, c.channel_id)
UNION ALL
SELECT e.job_id, e.channel_id, 0, 0, 0, 0, '', false, e.next_attempt_at, NULL FROM edge e;

-- name: HandoverRecord :many
-- Records the messages that are about to be handed to providers, with the step of their routes, one row per
-- valid lease, and returns these leases. Steps that were skipped before have a reason; @reasons is NULL if
-- there are none. An expired lease gets no row, whatever the recheck that follows returns, because a renewal
-- may commit between the two.
INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps, reasons)
SELECT k.lease_id, array_agg(k.job_id), array_agg(k.channel_id), array_agg(k.step), CASE WHEN @reasons::text[] IS NOT NULL THEN array_agg(nullif(k.reason, '')) END
  FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[], @steps::smallint[], @reasons::text[]) k(lease_id, job_id, channel_id, step, reason)
 WHERE k.lease_id = ANY (ARRAY(SELECT l.id FROM belfry.leases l WHERE l.id = ANY (@leases::bigint[]) AND l.expires_at > clock_timestamp()))
 GROUP BY k.lease_id
RETURNING lease_id;

-- name: MessageRecheck :one
-- The data of a recheck in one snapshot: whether belfry is halted; the jobs of @jobs whose messages may be
-- sent, with the revisions of their contents (jobs_pkey); the valid leases of @leases (leases_pkey); and the messages
-- in flight with their leases, with the columns that the view sendable_messages checks. A message whose row was never
-- changed has no lease there: it belongs to the lease that claimed it, as long as that is valid. Messages are found by
-- position, @tids, in which some may be NULL, and by keys, @job_ids and @channel_ids (messages_pkey). All
-- ctids are read in one scan: one scan per ctid queries the file size each time and takes four times as
-- long. Keys are not joined to positions: a position may hold another message, which the caller detects by
-- its key and lease.
WITH found AS (
    SELECT m.job_id, m.channel_id, m.lease_id, m.recalled_at
      FROM belfry.message_rows m
     WHERE m.ctid = ANY (@tids::tid[]) AND (m.status = 'PROCESSING' OR m.status = 'PENDING' AND m.lease_id IS NULL) AND m.receipt IS NULL
    UNION ALL
    SELECT m.job_id, m.channel_id, m.lease_id, m.recalled_at
      FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) k(job_id, channel_id)
     CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id, m.lease_id, m.recalled_at FROM belfry.message_rows m
                          WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id
                            AND (m.status = 'PROCESSING' OR m.status = 'PENDING' AND m.lease_id IS NULL) AND m.receipt IS NULL LIMIT 1) m
)
SELECT (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NOT NULL, j.ids, j.revisions,
       ARRAY(SELECT l.id FROM belfry.leases l WHERE l.id = ANY (@leases::bigint[]) AND l.expires_at > clock_timestamp()),
       f.job_ids, f.channel_ids, f.lease_ids, f.unchanged, f.recalled
  FROM (SELECT array_agg(j.id) AS ids, array_agg(j.revision) AS revisions
          FROM belfry.jobs j
         WHERE j.id = ANY (@jobs::bigint[]) AND j.status <> 'ABORTED' AND NOT j.awaits_approval
           AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL)) j
 CROSS JOIN (SELECT array_agg(f.job_id) AS job_ids, array_agg(f.channel_id) AS channel_ids, array_agg(coalesce(f.lease_id, 0)) AS lease_ids, array_agg(f.lease_id IS NULL) AS unchanged, array_agg(f.recalled_at IS NOT NULL) AS recalled
               FROM found f) f;

-- name: MessagesSent :one
-- Settles plain successes: in flight → SENT, by their owner, for messages that are still at the position of
-- their claim, by ctid in one scan as in MessageRecheck. A message whose row was never changed is in flight under the
-- lease that claimed it, as long as that exists. Returns the numbers of the changed keys.
-- MessagesSettle handles the others. Passes the jobs of the messages to DeliveriesSettled. Status and
-- receipt are compared through expressions that are always true, and + 0 hides the key. Otherwise old
-- statistics can estimate one row, and the planner chooses a nested loop.
WITH live AS MATERIALIZED (
    SELECT l.id FROM belfry.leases l WHERE l.id = ANY (@leases::bigint[])
), changed AS (
    UPDATE belfry.message_rows m
       SET status = 'SENT', sent_at = statement_timestamp(), attempts = k.attempts, receipt = nullif(k.receipt, ''), sender = nullif(k.sender, ''),
           reason = NULL, last_error = NULL, lease_id = k.lease_id
      FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[], @attempts::smallint[], @receipts::text[], @senders::text[])
           WITH ORDINALITY k(lease_id, job_id, channel_id, attempts, receipt, sender, n)
     WHERE m.ctid = ANY (@tids::tid[]) AND m.job_id + 0 = k.job_id AND m.channel_id = k.channel_id
       AND (m.status = 'PROCESSING' AND m.receipt IS NULL AND m.lease_id = k.lease_id
            OR m.status = 'PENDING' AND m.lease_id IS NULL AND k.lease_id = ANY (ARRAY(SELECT l.id FROM live l))) = (k.n > 0)
    RETURNING k.n, m.job_id
)
SELECT coalesce(array_agg(c.n), '{}'), set_config('belfry.sent_jobs', coalesce(array_agg(c.job_id), '{}')::text, true) FROM changed c;

-- name: MessagesSettle :one
-- Settles any outcomes of messages in flight, by their owner or, if lease_id is 0, by the receipt
-- (messages_pkey, leases_pkey). A message whose row was never changed is in flight under the lease that claimed it, as
-- in MessagesSent. With @skip it skips messages that other sessions have locked. A message that was recalled in the meantime becomes CANCELLED instead of PENDING or DEAD.
-- Appends the attempts and invalid addresses of changed keys only. With @take the lease is taken from its
-- owner. Returns the numbers of the keys with their new status: changed keys, keys that an earlier call
-- changed, and '' for keys that another transaction has just changed, which the caller retries. Keys that
-- are not returned have another owner. Passes the changed keys to DeliveriesSettled.
WITH live AS MATERIALIZED (
    SELECT l.id FROM belfry.leases l WHERE l.id = ANY (@leases::bigint[])
), looked AS MATERIALIZED (
    SELECT k.lease_id, k.status, k.reason, k.untouched, k.step, k.attempts, k.crashed, k.wait, k.receipt, k.error, k.sender, k.revision, k.n,
           m.tid, m.status AS was, m.receipt AS had, m.unchanged
      FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[], @statuses::text[], @reasons::text[], @untouched::boolean[],
                  @steps::smallint[], @attempts::smallint[], @crashed::smallint[], @waits::double precision[], @receipts::text[], @errors::text[],
                  @senders::text[], @revisions::smallint[])
           WITH ORDINALITY k(lease_id, job_id, channel_id, status, reason, untouched, step, attempts, crashed, wait, receipt, error, sender, revision, n)
     CROSS JOIN LATERAL (SELECT m.ctid AS tid, m.status, m.receipt, m.status = 'PENDING' AND m.lease_id IS NULL AS unchanged FROM belfry.message_rows m
                          WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id
                            AND (k.lease_id <> 0 AND m.lease_id = k.lease_id AND (m.status <> 'PROCESSING' OR m.receipt IS NULL)
                                 OR m.status = 'PENDING' AND m.lease_id IS NULL AND m.job_id > 0 AND k.lease_id = ANY (ARRAY(SELECT l.id FROM live l))
                                 OR (k.lease_id = 0 OR k.status = 'PROCESSING') AND m.receipt = k.receipt) LIMIT 1) m
), changed AS (
    UPDATE belfry.message_rows m
       SET status = CASE WHEN m.recalled_at IS NOT NULL AND k.status IN ('PENDING', 'DEAD') THEN 'CANCELLED' ELSE k.status END,
           reason = CASE WHEN m.recalled_at IS NOT NULL AND k.status IN ('PENDING', 'DEAD') THEN 'recalled' WHEN k.untouched THEN m.reason ELSE nullif(k.reason, '') END,
           step = CASE WHEN k.untouched THEN m.step ELSE k.step END,
           attempts = CASE WHEN k.untouched THEN m.attempts ELSE k.attempts END,
           crashes = least(m.crashes + k.crashed, 10000),
           next_attempt_at = CASE WHEN k.untouched OR k.status = 'SENT' THEN m.next_attempt_at ELSE statement_timestamp() + make_interval(secs => CASE WHEN k.status <> 'CANCELLED' THEN k.wait ELSE 0 END) END,
           lease_id = CASE WHEN k.status = 'PROCESSING' THEN NULL WHEN @take THEN 0 ELSE coalesce(m.lease_id, k.lease_id) END,
           receipt = CASE WHEN k.status = 'PENDING' THEN NULL ELSE coalesce(nullif(k.receipt, ''), m.receipt) END,
           sent_at = CASE WHEN k.status = 'SENT' THEN statement_timestamp() END,
           last_error = CASE WHEN k.untouched THEN m.last_error ELSE nullif(k.error, '') END,
           sender = CASE WHEN k.status IN ('SENT', 'PROCESSING') THEN coalesce(nullif(k.sender, ''), m.sender) END,
           revision = CASE WHEN k.status IN ('SENT', 'PROCESSING') THEN coalesce(nullif(k.revision, 0), m.revision) END
      FROM looked k
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM looked l WHERE NOT @skip::boolean
                                UNION ALL
                               SELECT u.tid
                                 FROM (SELECT o.ctid AS tid FROM belfry.message_rows o WHERE o.ctid = ANY (ARRAY(SELECT l.tid FROM looked l WHERE @skip)) FOR UPDATE SKIP LOCKED) u))
       AND m.ctid = k.tid
       AND (m.status = 'PROCESSING' AND (m.lease_id = k.lease_id AND m.receipt IS NULL OR k.lease_id = 0 AND m.receipt = k.receipt)
            OR k.unchanged AND m.status = 'PENDING' AND m.lease_id IS NULL)
    RETURNING k.n, m.job_id, m.channel_id, m.status
), recorded AS (
    INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, reason, code, error)
    SELECT c.job_id, c.channel_id, r.step, r.attempt, r.medium, r.sender, r.outcome, r.reason, r.code, r.error
      FROM unnest(@record_of::bigint[], @record_steps::smallint[], @record_attempts::smallint[], @record_media::text[], @record_senders::text[],
                  @record_outcomes::text[], @record_reasons::text[], @record_codes::text[], @record_errors::text[])
           WITH ORDINALITY r(n, step, attempt, medium, sender, outcome, reason, code, error, i)
      JOIN changed c ON c.n = r.n
     ORDER BY r.i
), invalid AS (
    INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256, sender, error, job_id)
    SELECT c.channel_id, i.medium, i.sha256, i.sender, i.error, c.job_id
      FROM unnest(@invalid_of::bigint[], @invalid_media::text[], @invalid_sha256::bytea[], @invalid_senders::text[], @invalid_errors::text[])
           i(n, medium, sha256, sender, error)
      JOIN changed c ON c.n = i.n
     ORDER BY c.channel_id, i.medium, i.sha256
        ON CONFLICT DO NOTHING
)
SELECT coalesce(array_agg(r.n), '{}'), coalesce(array_agg(r.status), '{}'),
       set_config('belfry.settled_jobs', coalesce((SELECT array_agg(c.job_id ORDER BY c.n) FROM changed c), '{}')::text, true),
       set_config('belfry.settled_statuses', coalesce((SELECT array_agg(c.status ORDER BY c.n) FROM changed c), '{}')::text, true)
  FROM (SELECT c.n, c.status FROM changed c
        UNION ALL
        SELECT k.n, CASE WHEN k.was = 'PROCESSING' AND (k.had IS NULL OR k.lease_id = 0) OR k.unchanged THEN '' ELSE k.was END
          FROM looked k WHERE k.n NOT IN (SELECT c.n FROM changed c)) r;

-- name: DeliveriesSettled :exec
-- Adds the changes of MessagesSent and MessagesSettle in this transaction to the counts of their jobs, in a
-- row of this relay that no other session has locked, such as its other settlement during a COMMIT, or a new
-- row (job_deliveries_pkey). It is the last statement, and proceeds in the order of the jobs, so that no two
-- transactions that insert the same rows deadlock. The statements pass the keys in settings of the transaction,
-- because it is sent in one message.
WITH k AS MATERIALIZED (
    SELECT k.job_id, count(*) FILTER (WHERE k.status = 'SENT') AS sent, count(*) FILTER (WHERE k.status = 'DEAD') AS dead, count(*) FILTER (WHERE k.status = 'CANCELLED') AS cancelled
      FROM (SELECT u.job_id, 'SENT' AS status
              FROM unnest(nullif(current_setting('belfry.sent_jobs', true), '')::bigint[]) u(job_id)
            UNION ALL
            SELECT u.job_id, u.status
              FROM unnest(nullif(current_setting('belfry.settled_jobs', true), '')::bigint[],
                          nullif(current_setting('belfry.settled_statuses', true), '')::text[]) u(job_id, status)) k
     WHERE k.job_id > 0 AND k.status IN ('SENT', 'DEAD', 'CANCELLED')
     GROUP BY k.job_id
)
INSERT INTO belfry.job_deliveries AS d (job_id, relay, sent, dead, cancelled)
SELECT k.job_id,
       coalesce((SELECT r.relay FROM belfry.job_deliveries r
                  WHERE r.job_id = k.job_id AND (r.relay = @relay OR starts_with(r.relay, @relay || '/'))
                  LIMIT 1 FOR UPDATE SKIP LOCKED),
                (SELECT @relay || CASE WHEN count(*) > 0 THEN '/' || 1 + count(*) ELSE '' END FROM belfry.job_deliveries r
                  WHERE r.job_id = k.job_id AND (r.relay = @relay OR starts_with(r.relay, @relay || '/')))),
       k.sent, k.dead, k.cancelled
  FROM (SELECT k.* FROM k ORDER BY k.job_id OFFSET 0) k
    ON CONFLICT ON CONSTRAINT job_deliveries_pkey DO UPDATE
   SET sent = least(d.sent + excluded.sent, 1000000000000), dead = least(d.dead + excluded.dead, 1000000000000), cancelled = least(d.cancelled + excluded.cancelled, 1000000000000);

-- name: LeasesEnd :exec
-- Deletes the leases @ids that have no message in flight, with their handovers (leases_pkey,
-- handovers_lease_idx). Keys of one job that lie close together, such as the keys of a claim, are read as
-- one range of messages_pkey; otherwise there is one index descent per key. A lease that another session has
-- locked remains until it expires. Handovers beyond 5,000 become orphans.
WITH locked AS MATERIALIZED (
    SELECT l.id, l.job_ids, l.channel_ids FROM belfry.leases l WHERE l.id = ANY (@ids::bigint[]) ORDER BY l.id FOR UPDATE SKIP LOCKED
), spans AS MATERIALIZED (
    SELECT l.id, l.job_ids, l.channel_ids, s.job_id, s.low, s.high,
           s.job_id = s.last_job AND s.high::double precision - s.low < 8 * cardinality(l.channel_ids) AS dense
      FROM locked l
     CROSS JOIN LATERAL (SELECT min(u.job_id) AS job_id, max(u.job_id) AS last_job, min(u.channel_id) AS low, max(u.channel_id) AS high
                           FROM unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)) s
), gone AS (
    DELETE FROM belfry.leases l
     WHERE l.id = ANY (ARRAY(
           SELECT s.id FROM spans s
            WHERE NOT EXISTS (SELECT FROM belfry.message_rows m
                               WHERE s.dense AND m.job_id = s.job_id AND m.channel_id BETWEEN s.low AND s.high
                                 AND (m.lease_id = s.id AND m.status = 'PROCESSING'
                                      OR m.lease_id IS NULL AND m.status = 'PENDING' AND m.job_id > 0 AND m.channel_id = ANY (s.channel_ids)) OFFSET 0)
              AND NOT EXISTS (SELECT FROM unnest(s.job_ids, s.channel_ids) u(job_id, channel_id)
                               CROSS JOIN LATERAL (SELECT FROM belfry.message_rows m
                                                    WHERE m.job_id = u.job_id AND m.channel_id = u.channel_id
                                                      AND (m.lease_id = s.id AND m.status = 'PROCESSING' OR m.lease_id IS NULL AND m.status = 'PENDING' AND m.job_id > 0) LIMIT 1) x
                               WHERE NOT s.dense)))
    RETURNING l.id
)
DELETE FROM belfry.handovers h
 WHERE h.ctid = ANY (ARRAY(SELECT o.ctid FROM belfry.handovers o WHERE o.lease_id = ANY (ARRAY(SELECT g.id FROM gone g)) LIMIT 5000));

-- name: LeasesOf :many
-- The leases of @relay: few, except during its stop.
SELECT l.id FROM belfry.leases l WHERE l.relay = @relay;

-- name: LeaseRenew :many
-- Extends the leases of @relay that have not expired (leases_pkey). Returns their ids.
UPDATE belfry.leases l
   SET expires_at = clock_timestamp() + make_interval(secs => @seconds)
 WHERE l.id = ANY (@ids::bigint[]) AND l.relay = @relay AND l.expires_at > clock_timestamp()
RETURNING l.id;

-- name: LeasesLost :many
-- Up to @n valid leases of @relay that are not in @known and were claimed more than @seconds ago, oldest
-- first, and up to @n expired leases in order of expiry, without @stay (leases_expiry_idx).
SELECT o.id, o.relay, true
  FROM (SELECT l.id, l.relay FROM belfry.leases l
         WHERE l.relay = @relay AND NOT l.id = ANY (@known::bigint[]) AND l.claimed_at < clock_timestamp() - make_interval(secs => @seconds)
           AND l.expires_at > clock_timestamp()
         ORDER BY l.claimed_at, l.id LIMIT @n) o
UNION ALL
SELECT e.id, e.relay, false
  FROM (SELECT l.id, l.relay FROM belfry.leases l
         WHERE l.expires_at <= clock_timestamp() AND NOT l.id = ANY (@stay::bigint[])
         ORDER BY l.expires_at LIMIT @n) e;

-- name: LeaseMessages :many
-- The messages in flight under some leases, and whether they were handed to a provider (leases_pkey,
-- handovers_lease_idx, messages_pkey). A handed message is at the step of its call: earlier steps were
-- skipped and their attempts do not count. Their steps and reasons are returned in order, once per handover.
-- A reason that is longer than belfry.attempts allows is cut, so that it does not prevent the recovery. A relay
-- writes up to a row per message, and some again after a lost reply. If a lease has more than 2,000 rows or
-- 33,000 keys, none is read, and all its messages count as handed over.
-- OFFSET 0 prevents a hash of all attempts in PostgreSQL 17 and later.
WITH counted AS MATERIALIZED (
    SELECT l.id, h.rows > 2000 OR coalesce(h.keys, 0) > 33000 AS many
      FROM unnest(@ids::bigint[]) l(id)
     CROSS JOIN LATERAL (SELECT count(*) AS rows, sum(cardinality(r.job_ids)) AS keys
                           FROM (SELECT h.job_ids FROM belfry.handovers h WHERE h.lease_id = l.id LIMIT 2001) r) h
), handed AS MATERIALIZED (
    SELECT h.lease_id, u.job_id, u.channel_id, max(u.step) AS step,
           array_agg(u.step ORDER BY u.step) FILTER (WHERE u.reason IS NOT NULL) AS bypassed,
           array_agg(left(u.reason, 250) ORDER BY u.step) FILTER (WHERE u.reason IS NOT NULL) AS reasons
      FROM belfry.handovers h
     CROSS JOIN LATERAL unnest(h.job_ids, h.channel_ids, h.steps, h.reasons) u(job_id, channel_id, step, reason)
     WHERE h.lease_id = ANY (ARRAY(SELECT c.id FROM counted c WHERE NOT c.many))
     GROUP BY h.lease_id, u.job_id, u.channel_id
)
SELECT m.job_id, m.channel_id, l.id, greatest(m.step, h.step), CASE WHEN h.step > m.step THEN 0 ELSE m.attempts END, m.crashes, coalesce(m.reason, ''),
       EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = m.job_id AND a.channel_id = m.channel_id AND a.outcome IN ('unknown', 'crashed') OFFSET 0),
       coalesce(CASE WHEN m.job_id > 0 THEN (SELECT j.route FROM belfry.jobs j WHERE j.id = m.job_id)
                     ELSE (SELECT t.route FROM belfry.activities t WHERE t.id = m.job_id) END, '{}'),
       h.lease_id IS NOT NULL OR (SELECT c.many FROM counted c WHERE c.id = l.id), h.bypassed, h.reasons
  FROM belfry.leases l
 CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
 CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id, m.step, m.attempts, m.crashes, m.reason FROM belfry.message_rows m
                      WHERE m.job_id = u.job_id AND m.channel_id = u.channel_id
                        AND (m.lease_id = l.id AND m.status = 'PROCESSING' OR m.lease_id IS NULL AND m.status = 'PENDING' AND m.job_id > 0) LIMIT 1) m
  LEFT JOIN handed h ON h.lease_id = l.id AND h.job_id = m.job_id AND h.channel_id = m.channel_id
 WHERE l.id = ANY (@ids::bigint[])
 ORDER BY l.id, m.job_id, m.channel_id;

-- name: LeaseExpire :exec
-- Ends a valid lease of @relay now, in its own transaction (leases_pkey). A later recheck finds it expired,
-- and the recovery that follows finds the handovers of earlier rechecks.
UPDATE belfry.leases l
   SET expires_at = clock_timestamp()
 WHERE l.id = @id AND l.relay = @relay AND l.expires_at > clock_timestamp();

-- name: LeaseLock :one
-- Locks an expired lease (leases_pkey). No row: it is deleted, valid, or locked by another session.
SELECT l.id FROM belfry.leases l
 WHERE l.id = @id AND l.expires_at <= clock_timestamp()
   FOR UPDATE SKIP LOCKED;

-- name: LeaseMessagesLock :many
-- Locks the messages in flight under a lease, in key order, and returns for each whether it was handed
-- to a provider, as LeaseMessages does. Skips locked messages.
WITH counted AS MATERIALIZED (
    SELECT count(*) > 2000 OR coalesce(sum(cardinality(r.job_ids)), 0) > 33000 AS many
      FROM (SELECT h.job_ids FROM belfry.handovers h WHERE h.lease_id = @id LIMIT 2001) r
)
SELECT m.job_id, m.channel_id,
       (SELECT c.many FROM counted c)
       OR (m.job_id, m.channel_id) IN (SELECT v.job_id, v.channel_id FROM belfry.handovers h
                                        CROSS JOIN LATERAL unnest(h.job_ids, h.channel_ids) v(job_id, channel_id)
                                        WHERE h.lease_id = @id AND NOT (SELECT c.many FROM counted c))
  FROM (SELECT u.job_id, u.channel_id
          FROM belfry.leases l
         CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
         WHERE l.id = @id
         ORDER BY u.job_id, u.channel_id) k
 CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id FROM belfry.message_rows m
                      WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id
                        AND (m.lease_id = @id AND m.status = 'PROCESSING' OR m.lease_id IS NULL AND m.status = 'PENDING' AND m.job_id > 0)
                        FOR UPDATE SKIP LOCKED) m;

-- name: LeaseLeft :one
-- The number of messages in flight under a lease; 0 if it has ended.
SELECT count(*)
  FROM belfry.leases l
 CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
 CROSS JOIN LATERAL (SELECT FROM belfry.message_rows m
                      WHERE m.job_id = u.job_id AND m.channel_id = u.channel_id
                        AND (m.lease_id = l.id AND m.status = 'PROCESSING' OR m.lease_id IS NULL AND m.status = 'PENDING' AND m.job_id > 0) LIMIT 1) x
 WHERE l.id = @id;

-- name: HandoversDeleteOrphans :exec
-- Deletes handovers of deleted leases, which a relay wrote while it lost its lease: among 2,000 from the first
-- one and 2,000 from a random one (handovers_lease_idx). A handover is never visible before its lease
-- (leases_pkey).
WITH near AS MATERIALIZED (
   (SELECT h.ctid AS tid, h.lease_id FROM belfry.handovers h ORDER BY h.lease_id LIMIT 2000)
    UNION ALL
   (SELECT h.ctid, h.lease_id FROM belfry.handovers h
     WHERE h.lease_id >= (SELECT (random() * 9223372036854770000)::bigint) ORDER BY h.lease_id LIMIT 2000)
)
DELETE FROM belfry.handovers h
 WHERE h.ctid = ANY (ARRAY(SELECT s.tid FROM near s WHERE NOT EXISTS (SELECT FROM belfry.leases l WHERE l.id = s.lease_id)));

-- name: ReceiptsDue :many
-- Takes up to @keys messages that are due for a receipt query (messages_receipt_idx), hides them from other
-- relays for @seconds, and returns their recorded acceptance (attempts_message_idx). It takes messages that
-- one of @senders accepted (NULL means any), and messages that their own relays have missed twice. By ctid
-- as in MessageClaim.
WITH due AS MATERIALIZED (
    SELECT m.ctid AS tid
      FROM belfry.message_rows m
     WHERE m.status = 'PROCESSING' AND m.receipt IS NOT NULL AND m.next_attempt_at <= statement_timestamp()
       AND (@senders::text[] IS NULL OR m.next_attempt_at <= statement_timestamp() - make_interval(secs => 2 * @seconds)
            OR (SELECT a.sender FROM belfry.attempts a
                 WHERE a.job_id = m.job_id AND a.channel_id = m.channel_id AND a.outcome = 'accepted'
                 ORDER BY a.id DESC LIMIT 1) = ANY (@senders))
     ORDER BY m.next_attempt_at
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE belfry.message_rows m
       SET next_attempt_at = statement_timestamp() + make_interval(secs => @seconds)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d))
    RETURNING m.job_id, m.channel_id, m.step, m.attempts, m.crashes, m.reason, m.receipt
)
SELECT t.job_id, t.channel_id, 0, t.step, t.attempts, t.crashes, coalesce(t.reason, ''),
       EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = t.job_id AND a.channel_id = t.channel_id AND a.outcome IN ('unknown', 'crashed') OFFSET 0),
       coalesce(CASE WHEN t.job_id > 0 THEN (SELECT j.route FROM belfry.jobs j WHERE j.id = t.job_id)
                     ELSE (SELECT v.route FROM belfry.activities v WHERE v.id = t.job_id) END, '{}'),
       t.receipt, coalesce(a.medium, ''), coalesce(a.sender, ''), coalesce(extract(epoch FROM clock_timestamp() - a.at), 0)::double precision
  FROM taken t
  LEFT JOIN LATERAL (SELECT a.medium, a.sender, a.at FROM belfry.attempts a
                      WHERE a.job_id = t.job_id AND a.channel_id = t.channel_id AND a.outcome = 'accepted'
                      ORDER BY a.id DESC LIMIT 1) a ON true
 ORDER BY t.job_id, t.channel_id;

-- name: JobWaiting :one
-- The number of a job's messages that are not final (job_deliveries_pkey). No row: the job does not exist.
SELECT p.waiting FROM belfry.job_progress p WHERE p.job_id = @id;

-- name: JobAbort :many
-- Aborts a job and returns whether that changed it. No row: the job does not exist, or an operator has
-- resumed it (job_events_acts_idx).
SELECT a.note = ''
  FROM (SELECT @id::bigint AS id
         WHERE NOT EXISTS (SELECT FROM belfry.job_events e
                            WHERE e.job_id = @id AND belfry.is_job_act(e.kind) AND e.kind = 'resume_requested')
        OFFSET 0) j
 CROSS JOIN LATERAL belfry.abort(j.id, @actor, @reason) a;

-- name: JobSample :many
-- Up to @n unsent messages of a job, distributed over all of them: half by id between the first waiting message, or
-- the first one if a carrier has all, and the last one; half by rank among the next due messages, up to 10,000 that
-- were claimed before and 10,000 others. No row: none is left (messages_due_idx, messages_pkey, job_claims_pkey,
-- pushes_job_idx). A sample point that is followed by 2,000 other messages returns none.
WITH claims AS MATERIALIZED (
    SELECT (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = @job_id) AS channel_id
), near AS MATERIALIZED (
    SELECT w.channel_id, row_number() OVER () AS rank
      FROM ((SELECT m.channel_id FROM belfry.message_rows m
              WHERE m.job_id = @job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.lease_id IS NOT NULL AND m.next_attempt_at <= statement_timestamp()
              ORDER BY m.next_attempt_at, m.channel_id LIMIT 10000)
            UNION ALL
            (SELECT a.channel_id
               FROM (SELECT m.channel_id, m.status, m.lease_id, m.next_attempt_at FROM belfry.message_rows m
                      WHERE m.job_id = @job_id AND m.job_id > 0
                        AND m.channel_id >= coalesce((SELECT c.channel_id FROM claims c), -9223372036854775808) AND m.channel_id IS DISTINCT FROM (SELECT c.channel_id FROM claims c)
                      ORDER BY m.channel_id LIMIT 10000) a
              WHERE a.status = 'PENDING' AND a.lease_id IS NULL AND a.next_attempt_at <= statement_timestamp())) w
), ends AS MATERIALIZED (
    SELECT coalesce((SELECT min(r.channel_id) FROM near r), (SELECT m.channel_id FROM belfry.message_rows m WHERE m.job_id = @job_id ORDER BY m.channel_id LIMIT 1))::numeric AS low,
           (SELECT m.channel_id FROM belfry.message_rows m WHERE m.job_id = @job_id ORDER BY m.channel_id DESC LIMIT 1)::numeric AS high,
           greatest(1, (SELECT count(*) FROM near r) * 2 / @n::integer) AS step
), points AS MATERIALIZED ( -- a condition with random() itself would be none of an index
    SELECT (e.low + (e.high - e.low) * ((i + random()) / (@n::integer / 2 + 1))::numeric)::bigint AS at
      FROM ends e
     CROSS JOIN generate_series(0, @n::integer / 2) i
), found AS (
    SELECT s.channel_id
      FROM points p
     CROSS JOIN LATERAL (SELECT o.channel_id
                           FROM (SELECT m.channel_id, m.status, m.lease_id FROM belfry.message_rows m
                                  WHERE m.job_id = @job_id AND m.channel_id >= p.at
                                  ORDER BY m.channel_id LIMIT 2000) o
                          WHERE o.status IN ('PENDING', 'QUEUED') AND (o.lease_id IS NOT NULL OR (o.channel_id <= (SELECT c.channel_id FROM claims c)) IS NOT TRUE OR belfry.push_of(@job_id, o.channel_id) IS NOT NULL) LIMIT 1) s
    UNION
    SELECT r.channel_id FROM near r CROSS JOIN ends e WHERE r.rank % e.step = 0
)
SELECT f.channel_id FROM found f ORDER BY random() LIMIT @n;

-- name: JobWalk :many
-- The number of rows that the walk of a job has written, whether it continues or has not begun, and whether an operator has
-- resumed the job. Zero rows: no such job (jobs_pkey, job_events_acts_idx).
SELECT j.rows_written, j.status IN ('PENDING', 'RUNNING'),
       EXISTS (SELECT FROM belfry.job_events e WHERE e.job_id = j.id AND belfry.is_job_act(e.kind) AND e.kind = 'resume_requested')
  FROM belfry.jobs j
 WHERE j.id = @job_id;

-- name: JobLockUndelivered :exec
-- Locks a finished job that is not marked as delivered, unless another session has locked it, and passes its id to
-- JobMarkDelivered in this transaction. This serialises with a redrive of its messages, which also writes the job's
-- row (jobs_pkey).
SELECT set_config('belfry.undelivered', l.id::text, true)
  FROM (SELECT j.id FROM belfry.jobs j
         WHERE j.id = @id AND j.delivered_at IS NULL AND j.finished_at IS NOT NULL
           FOR NO KEY UPDATE SKIP LOCKED) l;

-- name: JobMarkDelivered :exec
-- Marks the job that JobLockUndelivered has locked as delivered if all its messages are final (job_deliveries_pkey).
-- Its snapshot is younger than that lock, so that it sees the messages of each redrive. Zero rows: messages are left,
-- or another session has locked the job.
UPDATE belfry.jobs j
   SET delivered_at = clock_timestamp()
 WHERE j.id = @id AND current_setting('belfry.undelivered', true) = @id::bigint::text AND j.delivered_at IS NULL AND j.finished_at IS NOT NULL
   AND (SELECT p.waiting = 0 FROM belfry.job_progress p WHERE p.job_id = @id);

-- name: RelayHeartbeat :many
-- Renews a relay's heartbeat and its number of @transactions. Returns for each of its senders the number of
-- relays with a heartbeat within @seconds, itself included and 500 at most, and the operators' overrides, and
-- in each row whether messages may leave the database by a relay of that @place. Without senders it returns
-- one row with the last value, for the sender ''. Deletes relays without a heartbeat for an hour, or with one
-- more than a minute in the future, which no relay has written and which counts as none.
WITH beat AS (
    INSERT INTO belfry.relays (name, senders, media, in_flight, transactions, transport, limits)
    VALUES (@relay, @senders, @media, @in_flight, @transactions, @transport, @limits)
        ON CONFLICT (name) DO UPDATE
           SET heartbeat_at = clock_timestamp(), senders = excluded.senders, media = excluded.media, in_flight = excluded.in_flight,
               transactions = excluded.transactions, transport = excluded.transport, limits = excluded.limits
), gone AS (
    DELETE FROM belfry.relays r
     WHERE r.name = ANY (ARRAY(SELECT k.name FROM belfry.relays k
                                WHERE k.heartbeat_at NOT BETWEEN clock_timestamp() - interval '1 hour' AND clock_timestamp() + interval '1 minute' AND k.name <> @relay FOR UPDATE SKIP LOCKED))
)
SELECT coalesce(s.name, ''), 1 + (SELECT count(*)
                                    FROM (SELECT FROM belfry.relays r
                                           WHERE r.name <> @relay AND s.name = ANY (r.senders)
                                             AND r.heartbeat_at BETWEEN clock_timestamp() - make_interval(secs => @seconds) AND clock_timestamp() + interval '1 minute'
                                           LIMIT 499) o), h.delivers,
       o.rate_per_second, o.concurrency, o.paused_at IS NOT NULL, coalesce(o.pause_reason, '')
  FROM (SELECT belfry.delivers() AND @place = coalesce((SELECT i.place FROM belfry.installation i), '') AS delivers) h
  LEFT JOIN unnest(@senders::text[]) s(name) ON true
  LEFT JOIN belfry.senders o ON o.name = s.name;

-- name: RelayLeave :exec
-- Deletes a stopping relay and wakes the others, which take over its returned messages.
WITH gone AS (DELETE FROM belfry.relays r WHERE r.name = @relay)
SELECT belfry.ring('belfry_messages');

-- name: MessagesNext :one
-- The seconds until the first message is due that is not due yet and not held (messages_activity_idx, and
-- messages_due_idx and messages_pkey once for each job that may have messages to send within a minute). NULL: there
-- is none.
SELECT extract(epoch FROM least(
           (SELECT m.next_attempt_at FROM belfry.message_rows m
             WHERE m.job_id < 0 AND m.status = 'PENDING' AND m.next_attempt_at > statement_timestamp()
             ORDER BY m.next_attempt_at LIMIT 1),
           (SELECT min(s.due_at) FROM belfry.sendable_jobs s WHERE s.due_at > statement_timestamp() + interval '1 minute'),
           (SELECT min(n.next_attempt_at)
              FROM (SELECT s.job_id FROM belfry.sendable_jobs s WHERE coalesce(s.due_at, '-infinity') <= statement_timestamp() + interval '1 minute' OFFSET 0) s
             CROSS JOIN LATERAL ((SELECT m.next_attempt_at FROM belfry.message_rows m
                                   WHERE m.job_id = s.job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.lease_id IS NOT NULL AND m.next_attempt_at > statement_timestamp()
                                   ORDER BY m.next_attempt_at LIMIT 1)
                                 UNION ALL
                                 (SELECT a.next_attempt_at
                                    FROM (SELECT m.next_attempt_at, m.status, m.lease_id, m.channel_id FROM belfry.message_rows m
                                           WHERE m.job_id = s.job_id AND m.job_id > 0
                                             AND m.channel_id >= coalesce((SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = s.job_id), -9223372036854775808)
                                             AND m.channel_id IS DISTINCT FROM (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = s.job_id)
                                           ORDER BY m.channel_id LIMIT 2000) a
                                   WHERE a.status = 'PENDING' AND a.lease_id IS NULL AND a.next_attempt_at > statement_timestamp() LIMIT 1)) n)) - statement_timestamp())::double precision;

-- name: JobsDue :many
-- Jobs with a message that became due in the last @seconds: a returned one, or the next one after the
-- claims (messages_due_idx, messages_pkey and job_claims_pkey, once for each job that may have messages to send).
SELECT s.job_id
  FROM (SELECT s.job_id, statement_timestamp() - make_interval(secs => @seconds) AS since FROM belfry.sendable_jobs s
         WHERE coalesce(s.due_at, '-infinity') <= statement_timestamp() OFFSET 0) s
 CROSS JOIN LATERAL (SELECT FROM ((SELECT m.next_attempt_at FROM belfry.message_rows m
                                    WHERE m.job_id = s.job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.lease_id IS NOT NULL
                                      AND m.next_attempt_at > s.since AND m.next_attempt_at <= statement_timestamp()
                                    ORDER BY m.next_attempt_at LIMIT 1)
                                  UNION ALL
                                  (SELECT a.next_attempt_at
                                     FROM (SELECT m.next_attempt_at, m.status, m.lease_id FROM belfry.message_rows m
                                            WHERE m.job_id = s.job_id AND m.job_id > 0
                                              AND m.channel_id >= coalesce((SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = s.job_id), -9223372036854775808)
                                              AND m.channel_id IS DISTINCT FROM (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = s.job_id)
                                            ORDER BY m.channel_id LIMIT 1) a
                                    WHERE a.status = 'PENDING' AND a.lease_id IS NULL AND a.next_attempt_at > s.since AND a.next_attempt_at <= statement_timestamp())) d
                     LIMIT 1) n;

-- name: InstallationID :one
-- The id that distinguishes this database from others that use the same providers.
SELECT i.id FROM belfry.installation i;
