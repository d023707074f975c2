-- The ledger: claims, handovers, looks, settlements, receipts.

-- name: LedgerBegin :exec
-- Opens a transaction of the ledger that is sent in one piece: its deadline on the
-- server; durability whatever the role's defaults, or with @durable false none of its
-- own, which is for claims: a handover that is durable makes them so; times that a
-- client without prepared statements can read, whatever the role's DateStyle; no plan
-- that reads or sorts more than it needs for a few keys, however old the statistics are;
-- no planning of what is planned already, which takes longer than some statements; and no
-- compiling: what is switched off costs 1e10, which is above every threshold of jit. Hash
-- joins stay: of keys with the rows that were found by their ctids.
SELECT set_config('statement_timeout', @timeout_ms::text, true),
       set_config('lock_timeout', @timeout_ms::text, true),
       set_config('datestyle', 'ISO', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
       set_config('synchronous_commit', CASE WHEN NOT @durable::boolean THEN 'off' WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, true);

-- name: CandidateList :many
-- The jobs that may have messages to send, most urgent first (jobs_undelivered_idx).
SELECT s.job_id, s.lane, s.priority FROM belfry.sendable_jobs s;

-- name: MessageClaim :many
-- Puts up to @keys due messages of one job in flight at @relay, in the order of
-- messages_due_idx after (@after_at, @after_channel), under the new lease @lease of
-- @seconds: those that are at a step by one of @media, NULL: any, and that were tried before
-- or not, as @retries says, NULL: either. Locked ones are skipped. No row: nothing is due
-- there, or the job is ABORTED, of a paused lane, waits for approval, is gone, or by other media, or nothing may
-- leave the database (belfry.delivers).
-- The lease may name more keys than were taken: they count for nothing.
-- What due has found is locked and goes by ctid: the UPDATE needs no other guard, and
-- one that an index could serve would let a plan walk that index, dead entries and all.
-- The ctids that it returns are where the messages are now.
WITH due AS MATERIALIZED (
    SELECT m.ctid AS tid, m.job_id, m.channel_id
      FROM belfry.messages m
     WHERE belfry.delivers() AND m.job_id = @job_id AND m.job_id > 0 AND m.status = 'PENDING'
       AND (m.next_attempt_at, m.channel_id) > (@after_at::timestamptz, @after_channel::bigint)
       AND m.next_attempt_at <= statement_timestamp()
       AND (@retries::boolean IS NULL OR (m.step + m.attempts + m.crashes > 0) = @retries)
       AND (SELECT j.status <> 'ABORTED' AND NOT j.awaits_approval AND coalesce(j.route && @media::text[], true)
                   AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL)
              FROM belfry.jobs j WHERE j.id = @job_id)
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
    UPDATE belfry.messages m
       SET status = 'PROCESSING', lease_id = (SELECT l.id FROM lease l)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d))
    RETURNING m.ctid AS tid, m.job_id, m.channel_id, m.lease_id, m.step, m.attempts, m.crashes, m.reason, m.next_attempt_at
)
SELECT c.job_id, c.channel_id, c.lease_id, c.step, c.attempts, c.crashes, coalesce(c.reason, ''),
       CASE WHEN c.step + c.attempts + c.crashes > 0 OR c.reason IS NOT NULL -- a redrive leaves the reason only
            THEN EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = c.job_id AND a.channel_id = c.channel_id AND a.outcome IN ('unknown', 'crashed') OFFSET 0)
            ELSE false END,
       c.next_attempt_at, c.tid
  FROM claimed c
 ORDER BY c.next_attempt_at, c.channel_id;

-- name: ActivityClaim :many
-- As MessageClaim, of the messages of all activities that are due at @since or later
-- (messages_activity_idx, activities_pkey).
WITH due AS MATERIALIZED (
    SELECT m.ctid AS tid, m.job_id, m.channel_id
      FROM belfry.messages m
     WHERE belfry.delivers() AND m.job_id < 0 AND m.status = 'PENDING'
       AND m.next_attempt_at >= @since::timestamptz AND m.next_attempt_at <= statement_timestamp()
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
    UPDATE belfry.messages m
       SET status = 'PROCESSING', lease_id = (SELECT l.id FROM lease l)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d))
    RETURNING m.ctid AS tid, m.job_id, m.channel_id, m.lease_id, m.step, m.attempts, m.crashes, m.reason, m.next_attempt_at
)
SELECT c.job_id, c.channel_id, c.lease_id, c.step, c.attempts, c.crashes, coalesce(c.reason, ''),
       CASE WHEN c.step + c.attempts + c.crashes > 0 OR c.reason IS NOT NULL -- a redrive leaves the reason only
            THEN EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = c.job_id AND a.channel_id = c.channel_id AND a.outcome IN ('unknown', 'crashed') OFFSET 0)
            ELSE false END,
       c.next_attempt_at, c.tid
  FROM claimed c
 ORDER BY c.next_attempt_at, c.job_id, c.channel_id;

-- name: HandoverRecord :many
-- Writes what is about to be handed to providers, and by which step of its route, one
-- row per lease that lives, and returns those leases. Steps that were bypassed before come
-- with a reason; @reasons is NULL when there are none. A lease that has expired gets no row,
-- whatever the look that follows says: a renewal may commit between the two.
INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps, reasons)
SELECT k.lease_id, array_agg(k.job_id), array_agg(k.channel_id), array_agg(k.step), CASE WHEN @reasons::text[] IS NOT NULL THEN array_agg(nullif(k.reason, '')) END
  FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[], @steps::smallint[], @reasons::text[]) k(lease_id, job_id, channel_id, step, reason)
 WHERE k.lease_id = ANY (ARRAY(SELECT l.id FROM belfry.leases l WHERE l.id = ANY (@leases::bigint[]) AND l.expires_at > clock_timestamp()))
 GROUP BY k.lease_id
RETURNING lease_id;

-- name: MessageLook :one
-- What a look right before the call needs, in one snapshot: whether everything is halted;
-- those of @jobs whose messages may be sent, with the revisions of their contents
-- (jobs_pkey); and the messages that are in flight under those of @leases that live
-- (leases_pkey), with what the view sendable_messages asks of them. They are looked for where
-- their claims left them, @tids, in which some may be NULL, and by keys, @job_ids and
-- @channel_ids (messages_pkey). The ctids are one scan: a scan for each asks the operating
-- system for the table's size each time, and takes four times as long. No key is joined with
-- them: what is found may be another message, which its key and lease tell.
WITH found AS (
    SELECT m.job_id, m.channel_id, m.lease_id, m.recalled_at
      FROM belfry.messages m
     WHERE m.ctid = ANY (@tids::tid[]) AND m.status = 'PROCESSING' AND m.receipt IS NULL
    UNION ALL
    SELECT m.job_id, m.channel_id, m.lease_id, m.recalled_at
      FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) k(job_id, channel_id)
     CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id, m.lease_id, m.recalled_at FROM belfry.messages m
                          WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id AND m.status = 'PROCESSING' AND m.receipt IS NULL LIMIT 1) m
)
SELECT (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NOT NULL, j.ids, j.revisions, f.job_ids, f.channel_ids, f.lease_ids, f.recalled
  FROM (SELECT array_agg(j.id) AS ids, array_agg(j.revision) AS revisions
          FROM belfry.jobs j
         WHERE j.id = ANY (@jobs::bigint[]) AND j.status <> 'ABORTED' AND NOT j.awaits_approval
           AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL)) j
 CROSS JOIN (SELECT array_agg(f.job_id) AS job_ids, array_agg(f.channel_id) AS channel_ids, array_agg(f.lease_id) AS lease_ids, array_agg(f.recalled_at IS NOT NULL) AS recalled
               FROM found f
              WHERE f.lease_id = ANY (ARRAY(SELECT l.id FROM belfry.leases l WHERE l.id = ANY (@leases::bigint[]) AND l.expires_at > clock_timestamp()))) f;

-- name: MessagesSent :one
-- Settles plain successes: PROCESSING → SENT, by their owner, those that are where their
-- claim left them: by ctid, all in one scan, as in MessageLook. Returns the numbers of the
-- keys that it changed. Of the others MessagesSettle says what became of them. Leaves to
-- DeliveriesSettled whose messages they were.
-- Status and receipt are compared as keys are, with what is always true, and the + 0 hides the key: statistics, which
-- may be old, then cannot say that one row is left, for which a nested loop would do.
WITH changed AS (
    UPDATE belfry.messages m
       SET status = 'SENT', sent_at = statement_timestamp(), attempts = k.attempts, receipt = nullif(k.receipt, ''), sender = nullif(k.sender, ''),
           reason = NULL, last_error = NULL
      FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[], @attempts::smallint[], @receipts::text[], @senders::text[])
           WITH ORDINALITY k(lease_id, job_id, channel_id, attempts, receipt, sender, n)
     WHERE m.ctid = ANY (@tids::tid[]) AND m.job_id + 0 = k.job_id AND m.channel_id = k.channel_id AND m.lease_id = k.lease_id
       AND (m.status = 'PROCESSING' AND m.receipt IS NULL) = (k.n > 0)
    RETURNING k.n, m.job_id
)
SELECT coalesce(array_agg(c.n), '{}'), set_config('belfry.sent_jobs', coalesce(array_agg(c.job_id), '{}')::text, true) FROM changed c;

-- name: MessagesSettle :one
-- Settles any outcomes of messages in PROCESSING: by their owner, or where lease_id is
-- 0 by the receipt that is awaited (messages_pkey). What was recalled meanwhile
-- becomes CANCELLED where it would be PENDING or DEAD. The records are appended to
-- the attempts, and the addresses to the invalid ones, of those keys only that were
-- changed. With @take the owner changes: its lease is taken from it. Returns the numbers
-- of the keys and the status each has now: those changed, those that a call before had
-- changed, and '' for those that somebody has just changed otherwise: try these again.
-- Keys that are not returned have another owner. Leaves those it changed to
-- DeliveriesSettled.
WITH looked AS MATERIALIZED (
    SELECT k.lease_id, k.status, k.reason, k.untouched, k.step, k.attempts, k.crashed, k.wait, k.receipt, k.error, k.sender, k.revision, k.n,
           m.tid, m.status AS was, m.receipt AS had
      FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[], @statuses::text[], @reasons::text[], @untouched::boolean[],
                  @steps::smallint[], @attempts::smallint[], @crashed::smallint[], @waits::double precision[], @receipts::text[], @errors::text[],
                  @senders::text[], @revisions::smallint[])
           WITH ORDINALITY k(lease_id, job_id, channel_id, status, reason, untouched, step, attempts, crashed, wait, receipt, error, sender, revision, n)
     CROSS JOIN LATERAL (SELECT m.ctid AS tid, m.status, m.receipt FROM belfry.messages m
                          WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id
                            AND (m.lease_id = k.lease_id AND (m.status <> 'PROCESSING' OR m.receipt IS NULL)
                                 OR (k.lease_id = 0 OR k.status = 'PROCESSING') AND m.receipt = k.receipt) LIMIT 1) m
), changed AS (
    UPDATE belfry.messages m
       SET status = CASE WHEN m.recalled_at IS NOT NULL AND k.status IN ('PENDING', 'DEAD') THEN 'CANCELLED' ELSE k.status END,
           reason = CASE WHEN m.recalled_at IS NOT NULL AND k.status IN ('PENDING', 'DEAD') THEN 'recalled' WHEN k.untouched THEN m.reason ELSE nullif(k.reason, '') END,
           step = CASE WHEN k.untouched THEN m.step ELSE k.step END,
           attempts = CASE WHEN k.untouched THEN m.attempts ELSE k.attempts END,
           crashes = m.crashes + k.crashed,
           next_attempt_at = CASE WHEN k.untouched OR k.status = 'SENT' THEN m.next_attempt_at ELSE statement_timestamp() + make_interval(secs => CASE WHEN k.status <> 'CANCELLED' THEN k.wait ELSE 0 END) END,
           lease_id = CASE WHEN k.status = 'PROCESSING' OR @take THEN NULL ELSE m.lease_id END,
           receipt = CASE WHEN k.status = 'PENDING' THEN NULL ELSE coalesce(nullif(k.receipt, ''), m.receipt) END,
           sent_at = CASE WHEN k.status = 'SENT' THEN statement_timestamp() END,
           last_error = CASE WHEN k.untouched THEN m.last_error ELSE nullif(k.error, '') END,
           sender = CASE WHEN k.status IN ('SENT', 'PROCESSING') THEN coalesce(nullif(k.sender, ''), m.sender) END,
           revision = CASE WHEN k.status IN ('SENT', 'PROCESSING') THEN coalesce(nullif(k.revision, 0), m.revision) END
      FROM looked k
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM looked l)) AND m.ctid = k.tid AND m.status = 'PROCESSING'
       AND (m.lease_id = k.lease_id AND m.receipt IS NULL OR k.lease_id = 0 AND m.receipt = k.receipt)
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
        SELECT k.n, CASE WHEN k.was = 'PROCESSING' AND (k.had IS NULL OR k.lease_id = 0) THEN '' ELSE k.was END
          FROM looked k WHERE k.n NOT IN (SELECT c.n FROM changed c)) r;

-- name: DeliveriesSettled :exec
-- Adds what MessagesSent and MessagesSettle have changed in this transaction to the counts
-- of their jobs, in this relay's rows (job_deliveries_pkey): the transaction's last
-- statement, so that these rows are locked for no longer than its COMMIT takes, and in
-- the order of the jobs, so that two of one relay's never wait for each other. The
-- statements hand the keys on by settings of the transaction: it is sent in one piece.
INSERT INTO belfry.job_deliveries AS d (job_id, relay, sent, dead, cancelled)
SELECT k.job_id, @relay, count(*) FILTER (WHERE k.status = 'SENT'), count(*) FILTER (WHERE k.status = 'DEAD'), count(*) FILTER (WHERE k.status = 'CANCELLED')
  FROM (SELECT u.job_id, 'SENT' AS status
          FROM unnest(nullif(current_setting('belfry.sent_jobs', true), '')::bigint[]) u(job_id)
        UNION ALL
        SELECT u.job_id, u.status
          FROM unnest(nullif(current_setting('belfry.settled_jobs', true), '')::bigint[],
                      nullif(current_setting('belfry.settled_statuses', true), '')::text[]) u(job_id, status)) k
 WHERE k.job_id > 0 AND k.status IN ('SENT', 'DEAD', 'CANCELLED')
 GROUP BY k.job_id
 ORDER BY k.job_id
    ON CONFLICT ON CONSTRAINT job_deliveries_pkey DO UPDATE
   SET sent = d.sent + excluded.sent, dead = d.dead + excluded.dead, cancelled = d.cancelled + excluded.cancelled;

-- name: LeasesEnd :exec
-- Deletes those of @ids, with their handovers, of which nothing is left in PROCESSING
-- (leases_pkey, handovers_lease_idx). Keys of one job that lie close together, as those of
-- a claim do, are one range of messages_pkey with whatever lies between them; otherwise it
-- is one descent a key. A lease that another session has locked stays, and goes when it
-- expires.
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
            WHERE NOT EXISTS (SELECT FROM belfry.messages m
                               WHERE s.dense AND m.job_id = s.job_id AND m.channel_id BETWEEN s.low AND s.high
                                 AND m.lease_id = s.id AND m.status = 'PROCESSING' OFFSET 0)
              AND NOT EXISTS (SELECT FROM unnest(s.job_ids, s.channel_ids) u(job_id, channel_id)
                               CROSS JOIN LATERAL (SELECT FROM belfry.messages m
                                                    WHERE m.job_id = u.job_id AND m.channel_id = u.channel_id
                                                      AND m.lease_id = s.id AND m.status = 'PROCESSING' LIMIT 1) x
                               WHERE NOT s.dense)))
    RETURNING l.id
)
DELETE FROM belfry.handovers h
 WHERE h.lease_id = ANY (ARRAY(SELECT g.id FROM gone g));

-- name: LeasesOf :many
-- The leases of @relay: few, but for those that its stop has not ended yet.
SELECT l.id FROM belfry.leases l WHERE l.relay = @relay;

-- name: LeaseRenew :many
-- Prolongs leases of @relay that have not expired (leases_pkey). Returns their ids.
UPDATE belfry.leases l
   SET expires_at = clock_timestamp() + make_interval(secs => @seconds)
 WHERE l.id = ANY (@ids::bigint[]) AND l.relay = @relay AND l.expires_at > clock_timestamp()
RETURNING l.id;

-- name: LeasesLost :many
-- Up to @n leases of @relay that live, are not among @known and were claimed longer than
-- @seconds ago, the oldest first, and up to @n that have expired, those first that did
-- first, without @stay (leases_expiry_idx).
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
-- What is PROCESSING under some leases, and whether it was handed to a provider
-- (leases_pkey, handovers_lease_idx, messages_pkey). One that was is at the step that it
-- was called by: those before were bypassed, and their attempts do not count. Of these come
-- the steps and the reasons, in order, and as often as the handover was made.
-- OFFSET 0 keeps the planner of 17 and later from a hash of all attempts.
WITH handed AS MATERIALIZED (
    SELECT h.lease_id, u.job_id, u.channel_id, max(u.step) AS step,
           array_agg(u.step ORDER BY u.step) FILTER (WHERE u.reason IS NOT NULL) AS bypassed,
           array_agg(u.reason ORDER BY u.step) FILTER (WHERE u.reason IS NOT NULL) AS reasons
      FROM belfry.handovers h
     CROSS JOIN LATERAL unnest(h.job_ids, h.channel_ids, h.steps, h.reasons) u(job_id, channel_id, step, reason)
     WHERE h.lease_id = ANY (@ids::bigint[])
     GROUP BY h.lease_id, u.job_id, u.channel_id
)
SELECT m.job_id, m.channel_id, l.id, greatest(m.step, h.step), CASE WHEN h.step > m.step THEN 0 ELSE m.attempts END, m.crashes, coalesce(m.reason, ''),
       EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = m.job_id AND a.channel_id = m.channel_id AND a.outcome IN ('unknown', 'crashed') OFFSET 0),
       coalesce(CASE WHEN m.job_id > 0 THEN (SELECT j.route FROM belfry.jobs j WHERE j.id = m.job_id)
                     ELSE (SELECT t.route FROM belfry.activities t WHERE t.id = m.job_id) END, '{}'),
       h.lease_id IS NOT NULL, h.bypassed, h.reasons
  FROM belfry.leases l
 CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
 CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id, m.step, m.attempts, m.crashes, m.reason FROM belfry.messages m
                      WHERE m.job_id = u.job_id AND m.channel_id = u.channel_id AND m.lease_id = l.id AND m.status = 'PROCESSING' LIMIT 1) m
  LEFT JOIN handed h ON h.lease_id = l.id AND h.job_id = m.job_id AND h.channel_id = m.channel_id
 WHERE l.id = ANY (@ids::bigint[])
 ORDER BY l.id, m.job_id, m.channel_id;

-- name: LeaseExpire :exec
-- Ends a living lease of @relay now, in a transaction of its own (leases_pkey): a look
-- that comes later finds it expired, and what was handed over for an earlier one is
-- seen by the recovery that follows.
UPDATE belfry.leases l
   SET expires_at = clock_timestamp()
 WHERE l.id = @id AND l.relay = @relay AND l.expires_at > clock_timestamp();

-- name: LeaseLock :one
-- Locks a lease that has expired (leases_pkey). No row: it is gone, it lives, or
-- somebody else is at it.
SELECT l.id FROM belfry.leases l
 WHERE l.id = @id AND l.expires_at <= clock_timestamp()
   FOR UPDATE SKIP LOCKED;

-- name: LeaseMessagesLock :many
-- Locks what is PROCESSING under a lease, in key order, and says of each whether it was
-- handed to a provider. Locked ones are skipped.
SELECT m.job_id, m.channel_id,
       (m.job_id, m.channel_id) IN (SELECT v.job_id, v.channel_id FROM belfry.handovers h
                                     CROSS JOIN LATERAL unnest(h.job_ids, h.channel_ids) v(job_id, channel_id)
                                     WHERE h.lease_id = @id)
  FROM (SELECT u.job_id, u.channel_id
          FROM belfry.leases l
         CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
         WHERE l.id = @id
         ORDER BY u.job_id, u.channel_id) k
 CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id FROM belfry.messages m
                      WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id AND m.lease_id = @id AND m.status = 'PROCESSING'
                        FOR UPDATE SKIP LOCKED) m;

-- name: LeaseLeft :one
-- How many messages are still PROCESSING under a lease; 0 when it has ended.
SELECT count(*)
  FROM belfry.leases l
 CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
 CROSS JOIN LATERAL (SELECT FROM belfry.messages m
                      WHERE m.job_id = u.job_id AND m.channel_id = u.channel_id AND m.lease_id = l.id AND m.status = 'PROCESSING' LIMIT 1) x
 WHERE l.id = @id;

-- name: HandoversSweep :exec
-- Deletes handovers of leases that are gone: a relay that was just losing its lease
-- wrote them. A handover is never seen before its lease (leases_pkey).
DELETE FROM belfry.handovers h
 WHERE NOT EXISTS (SELECT FROM belfry.leases l WHERE l.id = h.lease_id);

-- name: ReceiptsDue :many
-- Takes up to @keys messages whose receipt is to be looked for (messages_receipt_idx),
-- so that nobody else does for @seconds, with what is recorded of their acceptance
-- (attempts_message_idx): those that one of @senders has accepted, NULL: any, and those
-- that whoever has the sender has not come to twice. By ctid as MessageClaim.
WITH due AS MATERIALIZED (
    SELECT m.ctid AS tid
      FROM belfry.messages m
     WHERE m.status = 'PROCESSING' AND m.receipt IS NOT NULL AND m.next_attempt_at <= statement_timestamp()
       AND (@senders::text[] IS NULL OR m.next_attempt_at <= statement_timestamp() - make_interval(secs => 2 * @seconds)
            OR (SELECT a.sender FROM belfry.attempts a
                 WHERE a.job_id = m.job_id AND a.channel_id = m.channel_id AND a.outcome = 'accepted'
                 ORDER BY a.id DESC LIMIT 1) = ANY (@senders))
     ORDER BY m.next_attempt_at
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE belfry.messages m
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
-- How many messages of a job are not final (job_deliveries_pkey). No row: no such job.
SELECT p.waiting FROM belfry.job_progress p WHERE p.job_id = @id;

-- name: JobAbort :many
-- An operator's abort, and whether it changed the job. No row: no such job, or an operator has
-- resumed it (job_events_acts_idx).
SELECT a.note = ''
  FROM (SELECT @id::bigint AS id
         WHERE NOT EXISTS (SELECT FROM belfry.job_events e
                            WHERE e.job_id = @id AND belfry.is_job_act(e.kind) AND e.kind = 'resume_requested')
        OFFSET 0) j
 CROSS JOIN LATERAL belfry.abort(j.id, @actor, @reason) a;

-- name: JobSample :many
-- Up to @n messages of a job that are not sent, spread over them: half of them by id, from the
-- first that is PENDING to the last, half by rank among the next 20,000 that are due. No row: none
-- is left (messages_due_idx, messages_pkey). Points with 2,000 others behind them find none.
WITH near AS MATERIALIZED (
    SELECT m.channel_id, row_number() OVER () AS rank
      FROM (SELECT m.channel_id FROM belfry.messages m
             WHERE m.job_id = @job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.next_attempt_at <= statement_timestamp()
             ORDER BY m.next_attempt_at, m.channel_id LIMIT 20000) m
), ends AS MATERIALIZED (
    SELECT (SELECT min(r.channel_id) FROM near r)::numeric AS low,
           (SELECT m.channel_id FROM belfry.messages m WHERE m.job_id = @job_id ORDER BY m.channel_id DESC LIMIT 1)::numeric AS high,
           greatest(1, (SELECT count(*) FROM near r) * 2 / @n::integer) AS step
), points AS MATERIALIZED ( -- a condition with random() itself would be none of an index
    SELECT (e.low + (e.high - e.low) * ((i + random()) / (@n::integer / 2 + 1))::numeric)::bigint AS at
      FROM ends e
     CROSS JOIN generate_series(0, @n::integer / 2) i
), found AS (
    SELECT s.channel_id
      FROM points p
     CROSS JOIN LATERAL (SELECT o.channel_id
                           FROM (SELECT m.channel_id, m.status FROM belfry.messages m
                                  WHERE m.job_id = @job_id AND m.channel_id >= p.at
                                  ORDER BY m.channel_id LIMIT 2000) o
                          WHERE o.status IN ('PENDING', 'QUEUED') LIMIT 1) s
    UNION
    SELECT r.channel_id FROM near r CROSS JOIN ends e WHERE r.rank % e.step = 0
)
SELECT f.channel_id FROM found f ORDER BY random() LIMIT @n;

-- name: JobResumed :many
-- Whether an operator has resumed a job (job_events_acts_idx).
SELECT EXISTS (SELECT FROM belfry.job_events e
                WHERE e.job_id = @job_id AND belfry.is_job_act(e.kind) AND e.kind = 'resume_requested');

-- name: JobLockUndelivered :exec
-- Locks a job at rest that is not known to be delivered, so that a redrive of its
-- messages, which writes its row too, is before or after (jobs_pkey).
SELECT j.id FROM belfry.jobs j
 WHERE j.id = @id AND j.delivered_at IS NULL AND j.finished_at IS NOT NULL
   FOR NO KEY UPDATE;

-- name: JobMarkDelivered :exec
-- Marks a job at rest delivered whose messages are all final (job_deliveries_pkey). Zero
-- rows: there is something left.
UPDATE belfry.jobs j
   SET delivered_at = clock_timestamp()
 WHERE j.id = @id AND j.delivered_at IS NULL AND j.finished_at IS NOT NULL
   AND (SELECT p.waiting = 0 FROM belfry.job_progress p WHERE p.job_id = @id);

-- name: RelayBeat :many
-- Renews a relay's heartbeat, with how many @transactions it has made, and tells for each
-- of its senders how many relays with it beat within @seconds, itself included, and what
-- operators set about it, and in each row whether anything may leave the database by a relay of
-- that @place. Without
-- senders: one row of the latter, for the sender ''. Relays not heard of for an hour are
-- forgotten.
WITH beat AS (
    INSERT INTO belfry.relays (name, senders, media, in_flight, transactions, transport, limits)
    VALUES (@relay, @senders, @media, @in_flight, @transactions, @transport, @limits)
        ON CONFLICT (name) DO UPDATE
           SET heartbeat_at = clock_timestamp(), senders = excluded.senders, media = excluded.media, in_flight = excluded.in_flight,
               transactions = excluded.transactions, transport = excluded.transport, limits = excluded.limits
), gone AS (
    DELETE FROM belfry.relays r
     WHERE r.name = ANY (ARRAY(SELECT k.name FROM belfry.relays k
                                WHERE k.heartbeat_at < clock_timestamp() - interval '1 hour' AND k.name <> @relay FOR UPDATE SKIP LOCKED))
)
SELECT coalesce(s.name, ''), 1 + (SELECT count(*) FROM belfry.relays r
                                   WHERE r.name <> @relay AND s.name = ANY (r.senders)
                                     AND r.heartbeat_at > clock_timestamp() - make_interval(secs => @seconds)), h.delivers,
       o.rate_per_second, o.concurrency, o.paused_at IS NOT NULL, coalesce(o.pause_reason, '')
  FROM (SELECT belfry.delivers() AND @place = coalesce((SELECT i.place FROM belfry.installation i), '') AS delivers) h
  LEFT JOIN unnest(@senders::text[]) s(name) ON true
  LEFT JOIN belfry.senders o ON o.name = s.name;

-- name: RelayLeave :exec
-- Forgets a relay that ends, and wakes the others: what it has handed back is theirs.
WITH gone AS (DELETE FROM belfry.relays r WHERE r.name = @relay)
SELECT belfry.ring('belfry_messages');

-- name: MessagesNext :one
-- In how many seconds the first message is due that is due later than now and is not held
-- (messages_activity_idx, and messages_due_idx once for each job that may have messages to
-- send). NULL: none is.
SELECT extract(epoch FROM least(
           (SELECT m.next_attempt_at FROM belfry.messages m
             WHERE m.job_id < 0 AND m.status = 'PENDING' AND m.next_attempt_at > statement_timestamp()
             ORDER BY m.next_attempt_at LIMIT 1),
           (SELECT min(n.next_attempt_at)
              FROM belfry.sendable_jobs s
             CROSS JOIN LATERAL (SELECT m.next_attempt_at FROM belfry.messages m
                                  WHERE m.job_id = s.job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.next_attempt_at > statement_timestamp()
                                  ORDER BY m.next_attempt_at LIMIT 1) n)) - statement_timestamp())::double precision;

-- name: InstallationID :one
-- The name of this database among others that use the same providers.
SELECT i.id FROM belfry.installation i;
