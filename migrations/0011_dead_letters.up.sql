-- Dead letters, for people: where each message gave up, why, since when, and whether
-- an operator's redrive may return it to the queue.

-- One row per message that is DEAD (messages_dead_idx, by job).
--
--   medium   the last one that was tried or passed over
--   dead_at  since when: a message that dies is due no more, so its due time says it
--   held     its job is ABORTED: redriven, it waits until the job is resumed
--   kept     NULL, or why a redrive leaves it: 'recalled', its job was recalled after it
--            died; 'retention', the rows of its job are being deleted, and then a discard
--            leaves it as well
CREATE VIEW belfry.dead_letters AS
SELECT m.job_id, m.channel_id, coalesce(j.category, t.category) AS category, m.step,
       (coalesce(j.route, t.route))[least(m.step + 1, cardinality(coalesce(j.route, t.route)))] AS medium,
       m.reason, m.attempts, m.crashes, coalesce(m.last_error, '') AS error, m.next_attempt_at AS dead_at,
       coalesce(j.status = 'ABORTED', false) AS held,
       CASE WHEN j.retention_at IS NOT NULL OR j.id IS NULL AND t.id IS NULL THEN 'retention'
            WHEN m.recalled_at IS NOT NULL OR j.recalled_at >= m.next_attempt_at THEN 'recalled' END AS kept
  FROM belfry.messages m
  LEFT JOIN belfry.jobs j ON j.id = m.job_id
  LEFT JOIN belfry.activities t ON t.id = m.job_id AND m.job_id < 0
 WHERE m.status = 'DEAD';
