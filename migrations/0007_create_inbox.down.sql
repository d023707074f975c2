-- Removes the notification centre.
DROP FUNCTION belfry.inbox_since, belfry.inbox_reached, belfry.inbox_walks, belfry.inbox_arrivals;
DROP FUNCTION belfry.inbox_prefer, belfry.inbox_preferences;
DROP FUNCTION belfry.notify_external, belfry.notify, belfry.inbox_values, belfry.inbox_archive, belfry.inbox_read, belfry.inbox_read_all, belfry.inbox_seen, belfry.inbox_unread, belfry.inbox_next, belfry.inbox_page, belfry.localized,
    belfry.locale_fallbacks, belfry.inbox_is_read, belfry.inbox_mark, belfry.inbox_late;
DROP INDEX belfry.jobs_late_idx;
DROP TABLE belfry.inbox;
