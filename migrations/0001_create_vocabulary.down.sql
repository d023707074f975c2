-- Removes the vocabulary and the events of operators.
DROP VIEW belfry.vocabulary;
DROP FUNCTION belfry.version;
DROP TABLE belfry.categories, belfry.media, belfry.job_types, belfry.platforms, belfry.names, belfry.requests, belfry.sessions, belfry.users, belfry.tokens, belfry.events;
DROP FUNCTION belfry.users_end_sessions, belfry.events_keep, belfry.categories_validate, belfry.check_deliverable, belfry.check_content, belfry.check_route, belfry.rendered, belfry.template_problem, belfry.template_part, belfry.template_action,
    belfry.check_new, belfry.check_word, belfry.known, belfry.pause, belfry.is_act, belfry.record, belfry.ring, belfry.rings, belfry.reason, belfry.actor, belfry.act, belfry.reject, belfry.usable_from;
