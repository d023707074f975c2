-- Removes notifications, messages, activities and the state of relays.
DROP FUNCTION belfry.job_content, belfry.has_unsent, belfry.first_waiting, belfry.own_claimed, belfry.own_pushed, belfry.queued_in, belfry.adopt, belfry.halt, belfry.unhalt;
DROP VIEW belfry.job_notifications, belfry.dead_letters, belfry.sendable_jobs, belfry.sendable_messages, belfry.messages;
DROP FUNCTION belfry.push_of;
DROP TABLE belfry.activity_counts, belfry.locks, belfry.installation, belfry.senders, belfry.samples, belfry.pushes, belfry.queues, belfry.relays, belfry.attempts, belfry.handovers,
    belfry.leases, belfry.retention_walks, belfry.activities, belfry.message_rows, belfry.job_claims, belfry.notifications;
DROP FUNCTION belfry.drop_notifications, belfry.old_notifications, belfry.notifications_full, belfry.next_arrival, belfry.notifications_add, belfry.notifications_part_bytes, belfry.notifications_table,
    belfry.notifications_from, belfry.notifications_part, belfry.messages_keep, belfry.queues_number, belfry.relays_bound, belfry.activities_limit, belfry.activities_count, belfry.installation_halt, belfry.installation_record, belfry.delivers, belfry.here, belfry.send_external, belfry.channel_id, belfry.send, belfry.insert_activity,
    belfry.activities_end, belfry.activities_arrive, belfry.activities_wake, belfry.activities_enqueue, belfry.activities_validate;
DROP SEQUENCE belfry.activities_woken_seq;
DROP TRIGGER names_guard ON belfry.names;
DROP FUNCTION belfry.names_guard;
